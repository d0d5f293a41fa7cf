/* SPDX-License-Identifier: Apache-2.0 */
/*
 * starter.h - start cloche-egress, one for one sandbox, and hear from it: the other side of wire.h.
 *
 * Used by whoever makes sandboxes: native/run.c, where the process is a child of the run's and ends with it, and the
 * spawner. Whatever the process says is checked: it may have been taken over by the sandbox it serves. Blocks no longer
 * than it is told to.
 */
#ifndef EGRESS_STARTER_H
#define EGRESS_STARTER_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "base/err.h"
#include "egress/wire.h"

/* Descriptors in the program: the socket of wire.h's FD, and, if there is one, a lock that it keeps open to its end (the
 * ids that it becomes are held by it). */
enum egress_fd { EGRESS_FD = 3, EGRESS_KEEP_FD = 4 };

/* Longest it may take to be ready, and to answer. Both take milliseconds. */
enum { EGRESS_READY_MS = 10000, EGRESS_ANSWER_MS = 5000 };

struct egress_process {
	pid_t pid; /* a child of the caller; 0: none */
	int pidfd;
	int setup;   /* FD's other end; -1: none */
	int control; /* our end of its control socket; -1: none, or somebody else's */
	bool serves; /* it has been handed the listeners */
};

/* Start the program; it waits for its configuration. keep: a descriptor that goes along as EGRESS_KEEP_FD, or -1.
 * 0, or -1 and p is empty. */
int egress_start(struct egress_process *p, int keep, struct err *e) must_check;

/* Give it its configuration: JSON as in config.h. uid, gid: to become; UINT32_MAX: stay. control: a listening socket
 * for clients, or -1: a connected pair is made, whose other end is p->control, and it ends when that is closed. */
int egress_configure(struct egress_process *p, const char *json, size_t size, uint32_t uid,
		     uint32_t gid, int control, struct err *e) must_check;

/* Wait until it is ready; ca[0..ca_size) is its authority's certificate, if it has one. -1 also when it refuses, with
 * its reason. */
int egress_wait_ready(struct egress_process *p, struct egress_ready *ret, struct err *e) must_check;

/* Hand it the listeners of the sandbox, which it serves from now on until `init` (a pidfd) has ended. The caller's
 * descriptors stay the caller's. */
int egress_serve(struct egress_process *p, const uint32_t *kinds, const int *fds, size_t count,
		 int init, struct err *e) must_check;

/* End it, and wait until it is gone. Everything is empty afterwards; idempotent. */
void egress_stop(struct egress_process *p);

/* ---- a client of the control socket: any process that may ---- */

/* What the records say. Return value of the callback: 0, or -1 to stop reading. */
typedef void egress_record_fn(void *context, const struct egress_record *record);

/* The largest of what it says. */
union egress_answer {
	struct egress_header header;
	struct egress_plain plain;
	struct egress_ready ready;
	struct egress_refused refused;
	struct egress_record record;
	struct egress_totals totals;
};

/* For who has a loop of its own, without waiting. Receive: 0, and a message whose size is its type's and whose record, if it is
 * one, may be believed; -EAGAIN: nothing is there; -EPIPE: hung up; -EPROTO: nonsense. Ask (FLUSH, WATCH, ACK): 0, or -errno;
 * -EAGAIN: it does not read. */
int egress_receive(int control, union egress_answer *ret) must_check;
int egress_ask(int control, enum egress_type type, uint32_t sequence) must_check;
/* The check alone. */
bool egress_answer_is_valid(const union egress_answer *a, size_t size);

/* Ask for all records from now on. */
int egress_watch(int control, struct err *e) must_check;

/* What is there already, without waiting: 1 a message was taken, 0 nothing is there, -1 it has hung up or talks
 * nonsense. Records are acknowledged. */
int egress_take(int control, egress_record_fn *fn, void *context);

/* Everything that was refused or has ended by now is told to fn, then come the totals. -1: it is gone, or did not
 * answer within EGRESS_ANSWER_MS. */
int egress_flush(int control, egress_record_fn *fn, void *context, struct egress_totals *ret,
		 struct err *e) must_check;

/* Other rules from now on: JSON with "mode" and "rules" as in config.h. -1 also when they are refused: the old ones hold
 * then. Only for who started it, and root. */
int egress_set_policy(int control, const char *json, size_t size, struct err *e) must_check;

#endif
