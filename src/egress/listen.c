/* SPDX-License-Identifier: Apache-2.0 */
/*
 * listen.c - the sandbox's listeners: accept while there is room.
 *
 * When as many connections are open as may be, what comes waits in the kernel's queue: a burst passes so. What
 * has waited for LIMIT_FULL_MS is refused and recorded, so that nobody has to guess why it hangs.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "egress/egress.h"

#ifndef SO_NETNS_COOKIE
#define SO_NETNS_COOKIE 71 /* Linux 5.14 */
#endif

enum { ACCEPT_AT_ONCE = 64 };

static enum step (*const begin[LISTEN_KINDS])(struct connection *c) = {
	[LISTEN_PROXY] = proxy_begin,      [LISTEN_HTTP] = capture_begin,
	[LISTEN_TLS] = capture_begin,      [LISTEN_ANY] = capture_begin,
	[LISTEN_DNS_TCP] = resolver_begin,
};

static void on_full_long(uv_timer_t *timer);
static void on_connection(uv_poll_t *poll, int status, int events);
static void on_question(uv_poll_t *poll, int status, int events);

static size_t room(const struct egress *g)
{
	size_t most = g->quota.open == UINT64_MAX      ? LIMIT_OPEN_DEFAULT
		      : g->quota.open > LIMIT_OPEN_MAX ? LIMIT_OPEN_MAX
						       : (size_t)g->quota.open;

	return g->open < most ? most - g->open : 0;
}

static void stop_accepting(struct egress *g)
{
	if (g->full)
		return;
	g->full = true;
	for (size_t i = 0; i < g->listener_count; i++)
		if (g->listeners[i].kind != LISTEN_DNS)
			uv_poll_stop(&g->listeners[i].poll);
	uv_timer_start(&g->full_timer, on_full_long, LIMIT_FULL_MS, LIMIT_FULL_MS);
}

static void start_accepting(struct egress *g)
{
	g->full = false;
	uv_timer_stop(&g->full_timer);
	for (size_t i = 0; i < g->listener_count; i++)
		uv_poll_start(&g->listeners[i].poll, UV_READABLE,
			      g->listeners[i].kind == LISTEN_DNS ? on_question : on_connection);
}

void listen_room(struct egress *g)
{
	if (g->full && !g->ending && room(g) > 0)
		start_accepting(g);
}

static int accept_one(struct listener *l)
{
	return accept4(l->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
}

/* Where it was going can be told of what was caught only. */
static void refuse_one(struct listener *l, int fd)
{
	struct linger now = {.l_onoff = 1};
	struct egress_record r = {.verdict = EGRESS_DENIED, .started_ms = record_wall_ms()};

	snprintf(r.why, sizeof r.why, "%zu connections are open already: max-open allows no more",
		 l->egress->open);
	record_put(l->egress, &r);
	(void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
	close(fd);
}

static void on_full_long(uv_timer_t *timer)
{
	struct egress *g = timer->data;
	int budget = ACCEPT_AT_ONCE, fd;

	if (room(g) > 0) {
		start_accepting(g);
		return;
	}
	for (size_t i = 0; i < g->listener_count; i++)
		while (g->listeners[i].kind != LISTEN_DNS && budget-- > 0 &&
		       (fd = accept_one(&g->listeners[i])) >= 0)
			refuse_one(&g->listeners[i], fd);
}

static void on_connection(uv_poll_t *poll, int status, int events)
{
	struct listener *l = poll->data;
	struct egress *g = l->egress;

	(void)status;
	(void)events;
	for (int i = 0; i < ACCEPT_AT_ONCE && !g->full; i++) {
		struct connection *c;
		int fd;

		if (room(g) == 0) {
			stop_accepting(g);
			return;
		}
		fd = accept_one(l);
		if (fd < 0) {
			if (errno != EAGAIN && errno != ECONNABORTED && errno != EINTR)
				stop_accepting(g); /* no descriptors: as full */
			return;
		}
		c = connection_new(g, fd, l->kind);
		if (c && begin[l->kind](c) != STEP_OVER)
			connection_run(c);
	}
}

static void on_question(uv_poll_t *poll, int status, int events)
{
	(void)status;
	(void)events;
	resolver_readable(poll->data);
}

static void learn_netns(struct egress *g, int fd)
{
	socklen_t size = sizeof g->netns;

	if (getsockopt(fd, SOL_SOCKET, SO_NETNS_COOKIE, &g->netns, &size) < 0)
		g->netns = 0;
}

int listen_begin(struct egress *g, const uint32_t *kinds, const int *fds, size_t count,
		 struct err *e)
{
	connection_deadlines(g);
	uv_timer_init(&g->loop, &g->full_timer);
	g->full_timer.data = g;
	for (size_t i = 0; i < count; i++) {
		struct listener *l = &g->listeners[i];
		int r = uv_poll_init(&g->loop, &l->poll, fds[i]);

		if (r < 0)
			return err_set(e, -r, "listener %zu", i);
		l->poll.data = l;
		l->egress = g;
		l->kind = (enum egress_listener)kinds[i];
		l->fd = fds[i];
		g->listener_count = i + 1;
	}
	if (count)
		learn_netns(g, fds[0]);
	start_accepting(g);
	return 0;
}

void listen_stop(struct egress *g)
{
	for (size_t i = 0; i < g->listener_count; i++) {
		uv_poll_stop(&g->listeners[i].poll);
		fd_close(&g->listeners[i].fd);
	}
	uv_timer_stop(&g->full_timer);
}
