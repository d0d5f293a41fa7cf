/* SPDX-License-Identifier: Apache-2.0 */
/*
 * worker.h - one creation, in a child of the spawner: a slow disk or a hanging path delays nobody else.
 *
 * The worker dies with the spawner, and init with the worker, until init serves: by then the meta file
 * says all about the sandbox, so that at any moment a crash leaves either nothing or something that can
 * be adopted.
 */
#ifndef SPAWNER_WORKER_H
#define SPAWNER_WORKER_H

#include "spawner/check.h"
#include "spawner/egress.h"
#include "spawner/meta.h"

/* A CREATE that was checked and waits, or is being worked on. */
struct job {
	struct spawner_create request;
	struct spec spec;
	int fds[SPAWNER_MAX_FDS];
	size_t fd_count;
	bool pulled;         /* its image has been got for it already */
	struct spare egress; /* with a network: the process that will connect for it; else empty */
};

struct worker_place {
	const struct places *places;
	const char *disks; /* the folder for their files */
	const struct policy *policy;
	const struct cgroup_host *host;
	uint32_t service_gid;
	int sandboxes; /* the folder RUNTIME/sandboxes */
};

struct worker_report {
	uint32_t made; /* 1: meta, and a pidfd and the slot's lock come along */
	struct err err;
	struct meta meta;
};

/* Start it. *ret_report becomes readable once, then is at its end. The init it makes becomes the child of
 * the nearest subreaper. */
int worker_start(const struct worker_place *w, const struct job *job, pid_t *ret_pid,
		 int *ret_report, struct err *e) must_check;

/* The report, if it has come: 1, and *ret_pidfd and *ret_lock when one was made; 0: not yet; -EPIPE: the
 * worker ended without; -EPROTO. */
int worker_receive(int report, struct worker_report *ret, int *ret_pidfd, int *ret_lock) must_check;

/* Start a child that removes the cgroups of slots that nobody holds. Its pid, or -errno. */
pid_t worker_sweep(const struct worker_place *w);

/* The parts of a worker, for the host of a nest (nest_host.c): be a child that dies with its parent and holds
 * 0 to 2 and these descriptors; make a sandbox's folder and what its init listens on; report. */
void worker_become_child(pid_t parent);
void worker_close_others(int *keep, size_t count);
int worker_make_folder(const struct worker_place *place, const char *id, int *ret_folder,
		       int *ret_listener, struct err *e) must_check;
int worker_send_report(int fd, const struct worker_report *r, int pidfd, int lock);

/* Remove RUNTIME/sandboxes/ID; a missing one is fine. */
void worker_remove_folder(int sandboxes, const char *id);

#endif
