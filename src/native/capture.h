/* SPDX-License-Identifier: Apache-2.0 */
/*
 * capture.h - what makes programs inside a network namespace end up at our sockets, whatever they connect to.
 *
 * Three things, made in the namespace by its maker, before anything else is in it:
 *	routes     `local default dev lo`, IPv4 and IPv6: every address is local, so that nothing can leave, and a
 *	           socket that listens on every address is reached by every one
 *	listeners  the proxy on the loopback addresses; HTTP, TLS and DNS on every address; and one for
 *	redirect   all other TCP ports, except to loopback addresses (nf_tables' tproxy)
 * UDP to any port but 53 is answered by the kernel: port unreachable.
 *
 * Used by the supervisor (root) and by init (rootless), in netns.c's maker.
 */
#ifndef NATIVE_CAPTURE_H
#define NATIVE_CAPTURE_H

#include <stdbool.h>
#include <stdint.h>

#include "egress/wire.h"

struct capture {
	bool wanted;   /* by netns_begin()'s caller; else nothing of this is made */
	bool redirect; /* all TCP ports are caught; else 80 and 443 */
	uint32_t count;
	uint32_t kinds
		[EGRESS_LISTENERS_MAX]; /* enum egress_listener; IPv4 and IPv6 are sockets of their own */
	int fds[EGRESS_LISTENERS_MAX];
};

/* In the new namespace, with rights over it. Makes system calls that leave errno alone, and no others: runs in a
 * process that shares its memory. 0 or -errno; a kernel without IPv6 or without tproxy is no failure. What was opened
 * before a failure is in c. */
int capture_make(struct capture *c);

/* Close the listeners. */
void capture_done(struct capture *c);

#endif
