/* SPDX-License-Identifier: Apache-2.0 */
/*
 * network.c - into a network namespace of its own.
 *
 * As root the supervisor makes it (begun before anything else) and its descriptor comes along. Rootless
 * it must belong to the sandbox's user namespace, in which this process was born: it is made from here.
 */
#include <errno.h>
#include <sched.h>
#include <unistd.h>

#include "protocol/protocol.h"
#include "native/isolate/isolate.h"
#include "native/netns.h"

static struct netns_maker maker;

int isolate_network_begin(struct isolation *s)
{
	int r = s->plan->rootless && !layer_is_off(s, "net") ? netns_begin(&maker) : 0;

	return r < 0 ? step_failed(s, -r, "start the maker of the network namespace") : 0;
}

static int receive(struct isolation *s, int *ret_netns)
{
	size_t count = 1;
	struct frame f;
	int r = frame_receive(s->control, FROM_HOST, &f, NULL, 0, ret_netns, &count);

	if (r < 0 || f.type != FRAME_NETNS || count != 1)
		return step_failed(s, r < 0 ? -r : EPROTO, "receive the network namespace");
	return 0;
}

int isolate_network_join(struct isolation *s)
{
	int netns = -1, r;

	if (!s->plan->rootless) {
		r = receive(s, &netns);
		if (r < 0)
			return r;
	} else if (!layer_is_off(s, "net")) {
		r = netns_finish(&maker, &netns);
		if (r < 0)
			return step_failed(s, -r, "make a network namespace");
	}
	if (layer_is_off(s, "net"))
		r = 0;
	else if (setns(netns, CLONE_NEWNET) < 0)
		r = step_failed(s, errno, "enter the network namespace");
	else
		r = 0;
	if (netns >= 0)
		close(netns);
	return r;
}
