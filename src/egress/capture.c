/* SPDX-License-Identifier: Apache-2.0 */
/*
 * capture.c - connections of programs that know no proxy: caught by the default route at 80 and 443, or by a redirect.
 *
 * What they were connecting to says where they want to go, nothing that they send does. A refusal is a reset.
 */
#include <string.h>
#include <sys/socket.h>

#include "egress/egress.h"

enum {
	ORIGINAL_DST = 80
}; /* IP6T_SO_ORIGINAL_DST: its header needs one that clashes with netinet/in.h */

static void unmap(union address *a)
{
	struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = a->v6.sin6_port};

	if (a->any.sa_family != AF_INET6 || !IN6_IS_ADDR_V4MAPPED(&a->v6.sin6_addr))
		return;
	memcpy(&v4.sin_addr, &a->v6.sin6_addr.s6_addr[12], 4);
	*a = (union address){.v4 = v4};
}

static bool destination(struct connection *c, union address *ret)
{
	int fd = c->client->stream.fd;
	socklen_t size = sizeof *ret;
	union address original = {0};

	*ret = (union address){0};
	if (getsockname(fd, &ret->any, &size) < 0)
		return false;
	unmap(ret);
	size = sizeof original;
	if (c->kind == LISTEN_ANY &&
	    (ret->any.sa_family == AF_INET6
		     ? getsockopt(fd, IPPROTO_IPV6, ORIGINAL_DST, &original, &size)
		     : getsockopt(fd, IPPROTO_IP, ORIGINAL_DST, &original, &size)) == 0)
		*ret = original;
	return ret->any.sa_family == AF_INET || ret->any.sa_family == AF_INET6;
}

/* Somebody inside looks for a server of its own that is not there: nothing of ours. */
static bool is_loopback(const union address *a)
{
	return a->any.sa_family == AF_INET6 ? IN6_IS_ADDR_LOOPBACK(&a->v6.sin6_addr)
					    : ntohl(a->v4.sin_addr.s_addr) >> 24 == 127;
}

static void cut(struct connection *c, const struct failure *f)
{
	(void)f;
	connection_close(c, true);
}

/* Plain HTTP: nothing is connected to before a request was read, but who is refused anyway is refused now. */
static enum step requests(struct connection *c)
{
	const struct network_ask ask = {.host = c->host, .port = c->port};
	struct network_answer a;

	network_decide(c->egress->settings.request, c->egress->settings.ceiling, &ask, &a);
	if (a.verdict != VERDICT_DENY)
		return forward_begin(c, false);
	record_begin(c);
	return connect_deny(c, &a);
}

enum step capture_begin(struct connection *c)
{
	union address to;
	struct failure f;

	c->refuse = cut;
	c->connected = open_begin;
	if (!destination(c, &to) || is_loopback(&to) || !aim_at_address(c, &to, &f))
		return connection_close(c, true);
	return c->kind == LISTEN_HTTP ? requests(c) : connect_begin(c);
}
