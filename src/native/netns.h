/* SPDX-License-Identifier: Apache-2.0 */
/* netns.h - a network namespace, made beside the process that wants it. Used by the supervisor and by init. */
#ifndef NATIVE_NETNS_H
#define NATIVE_NETNS_H

#include <sys/types.h>

/* The maker shares our memory and descriptors: this must stay where it is until netns_finish(). */
struct netns_maker {
	pid_t pid; /* 0: none */
	int fd;
	int userns; /* it shall belong to this one; -1: the caller's */
	char stack[4096] __attribute__((aligned(16)));
};

/* Start to make one that has lo, up, and nothing else; it belongs to the caller's user namespace.
 * 0 or -errno. */
int netns_begin(struct netns_maker *m);

/* The same, belonging to another user namespace, over which the caller has all rights. */
int netns_begin_in(struct netns_maker *m, int userns);

/* Wait until it is made. 0 and its descriptor, the caller's; or -errno. -ECHILD: none was begun. */
int netns_finish(struct netns_maker *m, int *ret_fd);

/* Both. */
int netns_make(int *ret_fd);

#endif
