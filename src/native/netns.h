/* SPDX-License-Identifier: Apache-2.0 */
/* netns.h - a network namespace, made beside the process that wants it. Used by the supervisor and by init. */
#ifndef NATIVE_NETNS_H
#define NATIVE_NETNS_H

#include <sys/types.h>

#include "native/capture.h"

/* The maker shares our memory and descriptors: this must stay where it is until netns_finish(). */
struct netns_maker {
	pid_t pid; /* 0: none */
	int fd;
	int proc;
	int userns; /* it shall belong to this one; -1: the caller's */
	struct capture
		capture; /* what is caught in it; the caller sets "wanted" before it begins */
	char stack[16384] __attribute__((aligned(16)));
};

/* Start to make one that has lo, up, and nothing else (but what m->capture.wanted adds); it belongs to the caller's
 * user namespace. proc: an open /proc for its settings, -1: the one that is mounted. 0 or -errno. */
int netns_begin(struct netns_maker *m, int proc);

/* The same, belonging to another user namespace, over which the caller has all rights. */
int netns_begin_in(struct netns_maker *m, int proc, int userns);

/* Wait until it is made. 0 and its descriptor, the caller's, as are the listeners in m->capture; or -errno, and
 * nothing is left. -ECHILD: none was begun. */
int netns_finish(struct netns_maker *m, int *ret_fd);

/* Both. */
int netns_make(int *ret_fd);

#endif
