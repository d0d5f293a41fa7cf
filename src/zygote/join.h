/* SPDX-License-Identifier: Apache-2.0 */
/*
 * join.h - how a zygote's child comes to be inside a prepared sandbox (docs/fastpath.md).
 *
 * Two calls, where fork() would be one. zygote_fork() does what only the zygote may do: it has no
 * capability in its own user namespace, but owns the one that the sandboxes' namespaces belong to. The
 * child is born in the sandbox's pid namespace and cgroup and has all other namespaces but time.
 * zygote_join(), first of all in the child, does the rest: from then on the child is the sandbox user
 * under every lock that a command of the sandbox has, and can make only calls of its filter.
 *
 * Both need a process with one thread. A sandbox can be joined once: its init sees to that.
 */
#ifndef ZYGOTE_JOIN_H
#define ZYGOTE_JOIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

enum { JOIN_TASKS_MAX = 8, JOIN_FDS_MAX = 3 + JOIN_TASKS_MAX };

/* What goes along with the descriptors, as plain data. */
struct join_data {
	uint32_t has_cgroup; /* 0 or 1 */
	uint32_t task_count;
	uint32_t of_init; /* 0 or 1: the child becomes one of the sandbox's init, which reaps it */
	uint32_t zero;
};

struct join {
	int seat;                  /* socket to the sandbox's init */
	int init;                  /* its pidfd */
	int cgroup;                /* v2 folder to be born in, -1: none */
	int tasks[JOIN_TASKS_MAX]; /* v1: files to write 0 to */
	size_t task_count;
	bool of_init;
};

/* Descriptors in the order seat, init, cgroup (if any), tasks. They stay the caller's. */
int join_split(const struct join_data *data, size_t size, const int *fds, size_t count,
	       struct join *ret, struct err *e) must_check;

/*
 * Instead of fork(): runs the handlers of pthread_atfork(3). The child's pid as the caller sees it (of_init: as
 * the sandbox does); 0 in the child; -1 and *e: there is no child (EPERM: the sandbox is joined already, or
 * not ours, or its init is just putting files).
 *
 * The child's parent is a helper that is gone when this returns. The caller reaps it if it has called
 * join_adopt(); else PID 1 of its pid namespace does.
 */
pid_t zygote_fork(const struct join *j, struct err *e) must_check;

/* In the child, before anything else. On failure it must leave: it has rights in the sandbox's user
 * namespace, and nothing else is in force yet. */
int zygote_join(const struct join *j, struct err *e) must_check;

/* Children that zygote_fork() makes from now on are reaped by this process. 0 or -errno. */
int join_adopt(void) must_check;

#endif
