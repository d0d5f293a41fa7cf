/* SPDX-License-Identifier: Apache-2.0 */
/*
 * joiner.h - how a forked child gets into its sandbox. One joiner is linked into each build of the
 * module: the real one, or one of the tests', which joins nothing; there is no switch at run time.
 *
 * All run in single-threaded processes. `data` and `fds` are what came with the FORK for the
 * joiner; the zygote closes the descriptors, in the child they are closed with everything else.
 */
#ifndef ZYGOTE_JOINER_H
#define ZYGOTE_JOINER_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "base/err.h"

struct joiner_seat {
	const void *data;
	size_t size;
	const int *fds;
	size_t fd_count;
};

struct joiner {
	const char *name;
	/* In the zygote, once, before READY. May be NULL. */
	int (*begin)(struct err *e);
	/* In place of fork(), with all that libc's does: 0 in the child, the child's pid in the zygote, who
	 * must be able to wait for it. -1: there is no child. NULL: libc's fork(). */
	pid_t (*fork)(const struct joiner_seat *seat, struct err *e);
	/* Whether the child is somebody else's to reap: no ENDED is said of it. NULL: never. */
	bool (*leaves)(const struct joiner_seat *seat);
	/* In the child, first of all: what of namespaces, cgroup, user and filter is not there yet. On
	 * failure the child says REFUSED and leaves. Afterwards it uses calls of the sandbox's filter only. */
	int (*join)(const struct joiner_seat *seat, struct err *e);
};

extern const struct joiner zygote_joiner;

#endif
