/* SPDX-License-Identifier: Apache-2.0 */
/*
 * network.c - into a network namespace of its own.
 *
 * As root the supervisor makes it (begun before anything else) and its descriptor comes along. Rootless
 * it must belong to the sandbox's user namespace, in which this process was born: it is made from here,
 * by a helper that shares this process's memory until it is done. What catches connections in it goes out to the
 * supervisor at once.
 */
#include <errno.h>
#include <sched.h>
#include <string.h>
#include <unistd.h>

#include "protocol/protocol.h"
#include "native/isolate/isolate.h"
#include "native/netns.h"

static struct netns_maker maker;

static bool makes_its_own(const struct isolation *s)
{
	return s->plan->rootless && !layer_is_off(s, "net");
}

int isolate_network_begin(struct isolation *s)
{
	int r;

	maker.capture.wanted = s->plan->captured;
	r = makes_its_own(s) ? netns_begin(&maker, -1) : 0;
	return r < 0 ? step_failed(s, -r, "start the maker of the network namespace") : 0;
}

static int hand_out(struct isolation *s, struct capture *c)
{
	struct listeners_record l = {.redirect = c->redirect, .count = c->count};
	int r;

	memcpy(l.kinds, c->kinds, c->count * sizeof *l.kinds);
	r = frame_send(s->control, FRAME_LISTENERS, 0, &l, sizeof l, c->fds, c->count);
	capture_done(c);
	return r < 0 ? step_failed(s, -r, "hand out what catches connections") : 0;
}

int isolate_network_made(struct isolation *s)
{
	int r = makes_its_own(s) ? netns_finish(&maker, &s->netns) : 0;

	if (r < 0)
		return step_failed(s, -r, "make a network namespace");
	return maker.capture.wanted && makes_its_own(s) ? hand_out(s, &maker.capture) : 0;
}

int isolate_network_receive(struct isolation *s)
{
	size_t count = 1;
	struct frame f;
	int r;

	if (s->plan->rootless)
		return 0;
	r = frame_receive(s->control, FROM_HOST, &f, NULL, 0, &s->netns, &count);
	if (r < 0 || f.type != FRAME_NETNS || count != 1)
		return step_failed(s, r < 0 ? -r : EPROTO, "receive the network namespace");
	return 0;
}

int isolate_network_enter(struct isolation *s)
{
	int r = 0;

	if (!layer_is_off(s, "net") && setns(s->netns, CLONE_NEWNET) < 0)
		r = step_failed(s, errno, "enter the network namespace");
	if (s->netns >= 0)
		close(s->netns);
	s->netns = -1;
	return r;
}
