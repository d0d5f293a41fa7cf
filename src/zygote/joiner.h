/* SPDX-License-Identifier: Apache-2.0 */
/*
 * joiner.h - how a forked child gets into its sandbox. One joiner is linked into each build of the
 * module: the real one, or one of the tests', which joins nothing; there is no switch at run time.
 *
 * All three run in single-threaded processes. `data` and `fds` are what came with the FORK for the
 * joiner; the zygote closes the descriptors, in the child they are closed with everything else.
 */
#ifndef ZYGOTE_JOINER_H
#define ZYGOTE_JOINER_H

#include <stddef.h>

#include "base/err.h"

struct joiner_seat {
	const void *data;
	size_t size;
	const int *fds;
	size_t fd_count;
};

struct joiner {
	const char *name;
	/* In the zygote, before fork(): e.g. choose the child's pid namespace. May be NULL. */
	int (*before)(const struct joiner_seat *seat, struct err *e);
	/* In the child, first of all: namespaces, cgroup, user, filter. On failure the child says REFUSED
	 * and leaves. Afterwards the child uses calls of the sandbox's filter only. */
	int (*join)(const struct joiner_seat *seat, struct err *e);
	/* In the zygote, after fork(), whether that worked or not. A failure ends the zygote: it could no
	 * longer say where its next child would be. May be NULL. */
	int (*after)(const struct joiner_seat *seat, struct err *e);
};

extern const struct joiner zygote_joiner;

#endif
