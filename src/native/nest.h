/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nest.h - sandboxes prepared to the last step, and zygotes whose children join them (docs/fastpath.md).
 *
 * As root only. A nest serves one tenant: its zygotes have power over all of its sandboxes. All its
 * processes end with it, and it ends with the process that started it. Not for several threads at once.
 */
#ifndef NATIVE_NEST_H
#define NATIVE_NEST_H

#include <sys/types.h>

#include "image/image.h"
#include "native/cgroup.h"
#include "native/nest_wire.h"
#include "native/slot.h"
#include "sandbox/spec.h"

struct nest {
	const struct places *places;
	struct id_range range;
	struct cgroup_host host;
	struct slot slot; /* its own: the zygotes' user and the nest's root */
	struct cgroup cgroup;
	struct image image; /* the host's */
	int control;        /* to the keeper */
	int report;         /* from all of them */
	int pidfd;          /* the keeper's: with it everything ends */
	uint32_t last_number;
	struct nest_end { /* reports of ends that nobody has asked for yet */
		int32_t pid;
		uint32_t status;
		uint64_t cpu_us;
	} * ends;
	size_t end_count, end_room;
};

/* A sandbox that waits to be joined or to run a command. */
struct cell {
	uint32_t number;
	struct slot slot;
	struct cgroup cgroup;
	int control; /* init's: frames as in any sandbox; READY has been said */
	int seat;    /* for who joins (native/seat.h) */
	int pidfd;   /* init's */
	pid_t pid;   /* as the nest counts */
	int tasks[CONTROLLER_COUNT];
	size_t task_count;
	int places[PLAN_MAX_TMPFS]; /* the writable places, in the spec's order */
	size_t place_count;
};

/* A cell that was never made. */
#define CELL_NONE                                                                         \
	{                                                                                 \
		.slot.lock = -1, .control = -1, .seat = -1, .pidfd = -1, .cgroup.dir = -1 \
	}

/* Start one. The spec's limits are those of the keeper, the nest and all zygotes together. uid_range: the
 * operator's block, or NULL. On failure nothing is left. */
int nest_start(struct nest *n, const struct places *places, const char *uid_range,
	       const struct spec *s, struct err *e) must_check;

/* Idempotent; a nest that is all zero but for descriptors of -1 is one that was stopped. */
void nest_stop(struct nest *n);

/* Start a zygote under the spec's hostname, places and rlimits, which executes path, or the last of
 * fds if path is "". fds: what becomes 0 to 4, and the executable or a copy of the first. */
int nest_zygote(struct nest *n, const struct spec *s, const char *path, char *const *argv,
		char *const *envp, const int fds[ZYGOTE_FDS_IN], int *ret_pidfd,
		struct err *e) must_check;

/* Prepare a sandbox: blocks until it waits. Volumes are refused. On failure nothing is left. used: the slot of a dead
 * sandbox of this nest, whose cgroup is there: its lock is taken, also on failure; -1: a free one. */
int nest_cell(struct nest *n, const struct spec *s, struct slot *used, struct cell *ret,
	      struct err *e) must_check;

/* How a process ended that the nest reaps (a joined child, an init): blocks until it has, at most
 * timeout_ms. Each can be asked for once. 0, -ETIMEDOUT, or -EPIPE: the nest is gone. */
int nest_wait(struct nest *n, pid_t pid, int timeout_ms, struct nest_end *ret) must_check;

/* The kill: the cell and everything in it, seen dead; then its cgroup is removed and the slot free.
 * joined: the child that has joined, 0: none, or its end is known. Idempotent. */
int nest_end_cell(struct nest *n, struct cell *c, pid_t joined, struct err *e) must_check;

#endif
