/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sandbox.h - kept sandboxes of the native runtime: made here, and then on their own.
 *
 * A kept sandbox is made like a one-shot's, but gets no command: its init is given a listening socket
 * (FRAME_SERVE), and outlives its maker. Whoever keeps it holds the pidfd and the slot's lock; the
 * cgroup is found by its name, which follows from the slot.
 */
#ifndef NATIVE_SANDBOX_H
#define NATIVE_SANDBOX_H

#include "native/capture.h"
#include "native/cgroup.h"
#include "native/plan.h"
#include "native/slot.h"
#include "sandbox/result.h"

/* The descriptor of the slot's lock in every init (launch.c places it). */
enum { INIT_LOCK_FD = 5 };

struct kept_sandbox {
	pid_t pid;
	int pidfd;
	struct slot slot; /* with its lock */
	struct enforced enforced;
	struct capture
		listeners; /* for before_serve; count 0 without a network policy, and afterwards */
};

struct kept_request {
	const struct places *places;
	const struct spec *spec; /* finished; its command is not looked at */
	const char *uid_range;   /* operator's block or NULL */
	int listener;            /* what init shall listen on */
	/* By the spec's volumes, the virtual environment last of all: an open folder or file to mount in
	 * the place of its path, or -1. */
	int volumes[PLAN_MAX_VOLUMES];
	uint64_t disk_bytes; /* /workspace is what make_disk gives; 0: a tmpfs */
	/* A detached mount of this size, owned by these host ids. */
	int (*make_disk)(const struct kept_request *k, uint32_t uid, uint32_t gid, int *ret_mount,
			 struct err *e);
	/* Called when init is ready, before it is told to serve: from then on it lives on its own. */
	int (*before_serve)(const struct kept_request *k, const struct kept_sandbox *made,
			    struct err *e);
	/* With a network policy: PEM that the sandbox shall trust beside what its image does (struct egress_ready), or
	 * NULL. */
	const char *authority;
	size_t authority_size;
	void *context; /* the caller's */
};

/* Make one; blocks as long as it takes. On success everything in *ret is the caller's, and init a child
 * of the calling process. On failure nothing is left. Leftovers of others are
 * not looked for (cgroup_sweep). */
int sandbox_keep(const struct kept_request *k, struct kept_sandbox *ret, struct err *e) must_check;

/* The name of a slot's cgroup in every tree. */
void cgroup_name(char name[32], uint32_t slot, uint32_t realm);

/* Open what there is of a cgroup by its name, to count or to kill; cgroup_close() closes it again. */
void cgroup_open(const struct cgroup_host *host, const char *name, uint64_t memory_limit,
		 struct cgroup *ret);
void cgroup_close(struct cgroup *c);

/* Remove its directories without waiting: 0, or -EBUSY while the kernel has not let go of them. */
int cgroup_remove(const struct cgroup_host *host, const char *name);

/* How much it has now; UINT64_MAX: not to be had. Init is not counted in pids. */
void cgroup_read_now(const struct cgroup *c, uint64_t *ret_memory_bytes, uint64_t *ret_pids);

#endif
