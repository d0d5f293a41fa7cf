/* SPDX-License-Identifier: Apache-2.0 */
/*
 * netns_look.h - whether a network namespace that was used is like a new one.
 *
 * All that somebody inside can see of who was there before: every counter of the protocols and of lo (a packet
 * counts in several), sockets that are open, waiting in the kernel for their end (TIME_WAIT, orphans) or not
 * freed, fragments and IPv6 flow labels, which outlive their sockets. Nobody inside has rights over the
 * namespace, so addresses, routes, rules and sysctls are what they were.
 */
#ifndef NATIVE_NETNS_LOOK_H
#define NATIVE_NETNS_LOOK_H

#include <stdbool.h>
#include <stddef.h>

#include "base/cleanup.h"

struct netns_look {
	size_t size; /* 0: not looked yet */
	char text[32768];
};

/* What netns shows now. Enters it and comes back to `home`: real root, one thread, a /proc of its own pid
 * namespace at /proc. 0 or -errno; the process ends when it cannot come back. */
int netns_look(int netns, int home, struct netns_look *ret) must_check;

/* Both were looked at, and show the same. */
bool netns_looks_like(const struct netns_look *a, const struct netns_look *b);

#endif
