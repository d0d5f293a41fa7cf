/* SPDX-License-Identifier: Apache-2.0 */
/*
 * connect.c - from a host and a port to a connected socket, or to a refusal. Nothing else connects.
 *
 * The policy is asked about the name, then every address of it is asked about, and if one may not be connected to,
 * none is: an answer that mixes public and private addresses is an attack or a mistake (PX-07). What was checked is what
 * is connected to, in turn, never again the name. While the policy changes, what is under way is judged again.
 */
#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdarg.h>
#include <string.h>
#include <sys/socket.h>

#include "egress/credential.h"
#include "egress/egress.h"
#include "egress/forward.h"

#ifndef SO_NETNS_COOKIE
#define SO_NETNS_COOKIE 71 /* Linux 5.14 */
#endif

struct attempt {
	struct connection *c;
	struct waiter waiter;
	struct deadline deadline; /* of one address */
	struct addresses to;
	bool known;   /* to is */
	size_t tried; /* the address that is being connected to, from 1 */
	int error;    /* of the last one */
};

static enum step connect_step(struct connection *c);

static const struct network_policy *ceiling(const struct connection *c)
{
	return c->egress->settings.ceiling;
}

static struct network_ask ask_of(const struct connection *c)
{
	return (struct network_ask){.host = c->host, .port = c->port, .tls = c->tls};
}

/* ---- the ways it does not come about ---- */

static enum step give_up(struct connection *c, const struct failure *f)
{
	connect_abandon(c);
	side_close(c->upstream, false);
	c->upstream = NULL;
	c->refuse(c, f);
	return c->over ? STEP_OVER : STEP_AGAIN;
}

enum step connect_deny(struct connection *c, const struct network_answer *a)
{
	struct failure f = {403, "network_denied", 2, "", a->rule, a->missing};

	record_rule(&c->record, a);
	record_end(c, EGRESS_DENIED, NULL);
	snprintf(f.detail, sizeof f.detail, "%s", a->why);
	return give_up(c, &f);
}

enum step connect_fail(struct connection *c, int status, const char *format, ...)
{
	struct failure f = {status, status == 504 ? "upstream_timeout" : "upstream_failed", 1, ""};
	va_list args;

	va_start(args, format);
	vsnprintf(f.detail, sizeof f.detail, format, args);
	va_end(args);
	f.socks = status == 504 ? 4 : 5;
	record_end(c, EGRESS_FAILED, f.detail);
	return give_up(c, &f);
}

static enum step on_late(struct connection *c)
{
	return connect_fail(c, 504, "%s port %u: no connection within %d s", c->host, c->port,
			    LIMIT_CONNECT_MS / 1000);
}

/* ---- decisions ---- */

static bool used_up(const struct egress *g, char *why, size_t size)
{
	bool bytes = g->totals.bytes >= g->quota.bytes;

	if (!bytes && g->begun < g->quota.connections)
		return false;
	snprintf(why, size, "the %llu %s are used up",
		 (unsigned long long)(bytes ? g->quota.bytes : g->quota.connections),
		 bytes ? "bytes of max-bytes" : "connections of max-connections");
	return true;
}

bool connect_quota(struct connection *c)
{
	const struct egress *g = c->egress;
	char why[128];

	if (g->totals.bytes < g->quota.bytes)
		return true;
	if (used_up(g, why, sizeof why))
		record_end(c, EGRESS_DENIED, why);
	return false;
}

/* A host with a credential is looked into, also where no rule asks for that. */
static void decide(struct connection *c, const struct network_ask *ask, struct network_answer *a)
{
	network_decide(c->egress->settings.request, ceiling(c), ask, a);
	if (a->verdict == VERDICT_ALLOW && !a->passthrough && !ask->method &&
	    credential_for(&c->egress->settings, c->host, c->port))
		a->verdict = VERDICT_LOOK;
}

static bool address_allowed(struct connection *c, const union address *to, struct network_answer *a)
{
	const struct network_ask ask = ask_of(c);

	return network_address_allowed(c->egress->settings.request, ceiling(c), &ask, &to->any, a);
}

static void set_port(union address *a, uint16_t port)
{
	if (a->any.sa_family == AF_INET6)
		a->v6.sin6_port = htons(port);
	else
		a->v4.sin_port = htons(port);
}

/* All of them, or the answer that refuses one, whose address is in the record then. */
static bool all_allowed(struct connection *c, struct network_answer *a)
{
	struct addresses *to = &c->attempt->to;

	for (size_t i = 0; i < to->count; i++) {
		set_port(&to->list[i], c->port);
		if (!address_allowed(c, &to->list[i], a)) {
			record_address(&c->record, &to->list[i]);
			return false;
		}
	}
	return true;
}

/* ---- one address after the other ---- */

static bool same_place(const union address *a, const union address *b)
{
	if (a->any.sa_family != b->any.sa_family)
		return false;
	if (a->any.sa_family != AF_INET6)
		return a->any.sa_family == AF_INET && a->v4.sin_port == b->v4.sin_port &&
		       (b->v4.sin_addr.s_addr == INADDR_ANY ||
			a->v4.sin_addr.s_addr == b->v4.sin_addr.s_addr);
	return a->v6.sin6_port == b->v6.sin6_port &&
	       (IN6_IS_ADDR_UNSPECIFIED(&b->v6.sin6_addr) ||
		IN6_ARE_ADDR_EQUAL(&a->v6.sin6_addr, &b->v6.sin6_addr));
}

/* One of our listeners? They live in the sandbox's network, where no socket of ours goes, unless there is no sandbox. */
static bool is_self(const struct egress *g, int fd, const union address *to)
{
	socklen_t size = sizeof(uint64_t);
	uint64_t netns = 0;

	if (g->netns && getsockopt(fd, SOL_SOCKET, SO_NETNS_COOKIE, &netns, &size) == 0 &&
	    netns != g->netns)
		return false;
	for (size_t i = 0; i < g->listener_count; i++) {
		union address own = {0};

		size = sizeof own;
		if (getsockname(g->listeners[i].fd, &own.any, &size) == 0 && same_place(to, &own))
			return true;
	}
	return false;
}

static void stop_trying(struct connection *c, int error)
{
	c->attempt->error = error;
	deadline_disarm(&c->attempt->deadline);
	side_close(c->upstream, false);
	c->upstream = NULL;
}

void connect_address_late(struct connection *c)
{
	stop_trying(c, ETIMEDOUT);
}

static void try_address(struct connection *c, const union address *to)
{
	socklen_t size = to->any.sa_family == AF_INET ? sizeof to->v4 : sizeof to->v6;
	int fd = socket(to->any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), on = 1;

	record_address(&c->record, to);
	if (fd < 0) {
		c->attempt->error = errno;
		return;
	}
	if (is_self(c->egress, fd, to)) {
		close(fd);
		c->attempt->error = ELOOP;
		return;
	}
	(void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
	if (connect(fd, &to->any, size) < 0 && errno != EINPROGRESS) {
		c->attempt->error = errno;
		close(fd);
		return;
	}
	c->upstream = side_new(c, fd);
	if (!c->upstream) {
		c->attempt->error = ENOMEM;
		return;
	}
	c->upstream->want_write = true;
	if (c->attempt->tried < c->attempt->to.count)
		deadline_arm(&c->egress->deadlines, &c->attempt->deadline, WAIT_ADDRESS);
}

/* The socket of a port of this machine may connect to itself when nobody listens there. */
static bool is_itself(int fd)
{
	union address here = {0}, there = {0};
	socklen_t a = sizeof here, b = sizeof there;

	return getsockname(fd, &here.any, &a) == 0 && getpeername(fd, &there.any, &b) == 0 &&
	       same_place(&here, &there);
}

/* 0: not yet; 1: connected; else -errno. */
static int connected(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLOUT};
	socklen_t size = sizeof(int);
	int error = 0;

	if (poll(&p, 1, 0) == 0)
		return 0;
	if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) < 0)
		return -errno;
	return error ? -error : is_itself(fd) ? -ELOOP : 1;
}

static enum step made(struct connection *c)
{
	connect_abandon(c);
	c->egress->totals.allowed++;
	c->upstream->want_write = false;
	deadline_disarm(&c->deadline);
	c->step = c->connected;
	return STEP_AGAIN;
}

static enum step unreachable(struct connection *c)
{
	int error = c->attempt->error;

	if (error == ELOOP) {
		struct network_answer a = {.verdict = VERDICT_DENY};

		snprintf(a.why, sizeof a.why, "%.150s port %u is this proxy itself", c->host,
			 c->port);
		return connect_deny(c, &a);
	}
	return connect_fail(c, error == ETIMEDOUT ? 504 : 502, "connect to %s port %u: %s", c->host,
			    c->port, strerror(error));
}

static enum step connect_step(struct connection *c)
{
	struct attempt *t = c->attempt;
	int r;

	if (!t->known)
		return STEP_WAIT;
	while (!c->upstream && t->tried < t->to.count)
		try_address(c, &t->to.list[t->tried++]);
	if (!c->upstream)
		return unreachable(c);
	r = connected(c->upstream->stream.fd);
	if (r < 0) {
		stop_trying(c, -r);
		return STEP_AGAIN;
	}
	return r == 0 ? STEP_WAIT : made(c);
}

/* ---- names ---- */

static enum step addresses_known(struct connection *c, const struct addresses *found)
{
	struct network_answer a;

	c->attempt->to = *found;
	c->attempt->known = true;
	if (found->count == 0)
		return connect_fail(c, 502, "%s: %s", c->host, found->error);
	return all_allowed(c, &a) ? STEP_AGAIN : connect_deny(c, &a);
}

static void on_found(struct waiter *w, const struct addresses *found)
{
	struct connection *c =
		((struct attempt *)((char *)w - offsetof(struct attempt, waiter)))->c;

	if (addresses_known(c, found) != STEP_OVER)
		connection_run(c);
}

static enum step look_up(struct connection *c)
{
	struct sockaddr_storage literal;
	const struct addresses *found;
	struct addresses one = {0};

	if (network_host_address(c->host, &literal)) {
		one.count = 1;
		memcpy(&one.list[0], &literal, sizeof one.list[0]);
		return addresses_known(c, &one);
	}
	found = lookup_start(c->egress, c->host, &c->attempt->waiter);
	return found ? addresses_known(c, found) : STEP_WAIT;
}

enum step connect_begin(struct connection *c)
{
	const struct network_ask ask = ask_of(c);
	struct network_answer a;

	/* One that an earlier request of this client went to: this is another. */
	record_end(c, EGRESS_ALLOWED, NULL);
	side_close(c->upstream, false);
	c->upstream = NULL;
	record_begin(c);
	decide(c, &ask, &a);
	if (a.verdict == VERDICT_DENY)
		return connect_deny(c, &a);
	if (used_up(c->egress, a.why, sizeof a.why)) {
		a.rule = NULL; /* it would allow it */
		return connect_deny(c, &a);
	}
	c->egress->begun++;
	record_rule(&c->record, &a);
	c->verdict = a.verdict;
	c->passthrough = a.passthrough;
	c->attempt = calloc(1, sizeof *c->attempt);
	if (!c->attempt)
		return connect_fail(c, 503, "out of memory");
	c->attempt->c = c;
	c->attempt->waiter.done = on_found;
	c->attempt->deadline.owner = c;
	c->step = connect_step;
	c->client->want_read = false;
	connection_wait(c, WAIT_CONNECT, on_late);
	return look_up(c);
}

void connect_abandon(struct connection *c)
{
	struct attempt *t = TAKE_PTR(c->attempt);

	if (!t)
		return;
	lookup_cancel(&t->waiter);
	deadline_disarm(&t->deadline);
	free(t);
}

/* ---- the policy has changed ---- */

static bool judge_address(struct connection *c, struct network_answer *a)
{
	union address to = {0};
	socklen_t size = sizeof to;

	if (c->attempt)
		return !c->attempt->known || all_allowed(c, a);
	return !c->upstream || getpeername(c->upstream->stream.fd, &to.any, &size) < 0 ||
	       address_allowed(c, &to, a);
}

/* As forward.c has it for a new one: what is looked at or added to needs a rule that says WEBSOCKET. */
static bool may_stay_upgraded(struct connection *c, const struct network_answer *a)
{
	const struct network_ask ask = ask_of(c);
	struct network_answer all;

	if (!c->forward || !c->forward->upgrade || a->websocket)
		return true;
	decide(c, &ask, &all);
	return all.verdict == VERDICT_ALLOW;
}

static bool still_allowed(struct connection *c, struct network_answer *a)
{
	struct network_ask ask = ask_of(c);

	forward_ask(c, &ask);
	decide(c, &ask, a);
	if (a->verdict == VERDICT_DENY)
		return false;
	/* What is relayed unseen cannot be looked into any more; what waits to be opened is, and what is asked for by requests,
	 * by the next one. */
	if (a->verdict == VERDICT_LOOK && c->verdict != VERDICT_LOOK && !c->forward &&
	    !c->attempt) {
		snprintf(a->why, sizeof a->why, "the new policy has to look into it");
		return false;
	}
	if (!may_stay_upgraded(c, a)) {
		snprintf(a->why, sizeof a->why,
			 "an upgrade to WebSocket, which no rule allows here any more");
		return false;
	}
	c->verdict = a->verdict;
	c->passthrough = a->passthrough;
	return judge_address(c, a);
}

void connect_judge_again(struct connection *c)
{
	struct network_answer a = {0};

	if (!c->recording || still_allowed(c, &a))
		return;
	if (c->attempt) {
		(void)connect_deny(c, &a);
		connection_run(c);
		return;
	}
	record_rule(&c->record, &a);
	record_end(c, EGRESS_DENIED, NULL);
	(void)connection_close(c, true);
}
