/* SPDX-License-Identifier: Apache-2.0 */
/* aim.c - where a connection wants to go, in one spelling: what a client wrote, or the address that it was caught at. */
#include <arpa/inet.h>
#include <string.h>

#include "egress/egress.h"

static bool is_made_up(const union address *a)
{
	return a->any.sa_family == AF_INET &&
	       (ntohl(a->v4.sin_addr.s_addr) & 0xfffe0000) == 0xc6120000; /* 198.18.0.0/15 */
}

static void let_go(struct connection *c)
{
	if (c->name.s_addr)
		names_hold(c->egress->names, c->name, -1);
	c->name.s_addr = 0;
}

/* What was asked for may hold anything: only what can be shown goes on, and into the record's host only what is one. */
static bool refuse(struct connection *c, const char *text, size_t size, uint16_t port,
		   const char *why, struct failure *f)
{
	struct egress_record *r = &c->record;
	char shown[HOST_SIZE], canonical[HOST_SIZE];
	size_t n = 0;

	for (; n < size && n < sizeof shown - 1; n++)
		shown[n] = text[n] > 0x20 && text[n] < 0x7f ? text[n] : '?';
	shown[n] = '\0';
	*f = (struct failure){403, "network_denied", 2, ""};
	*r = (struct egress_record){
		.verdict = EGRESS_DENIED, .port = port, .started_ms = record_wall_ms()};
	if (network_host(shown, n, canonical) == 0 && strcmp(canonical, shown) == 0)
		snprintf(r->host, sizeof r->host, "%s", shown);
	snprintf(r->why, sizeof r->why, "%s%s%.100s", why, *r->host ? "" : ": ",
		 *r->host ? "" : shown);
	snprintf(f->detail, sizeof f->detail, "%s", why);
	snprintf(c->host, sizeof c->host, "%s", shown);
	c->port = port;
	record_put(c->egress, r);
	return false;
}

bool aim_at_address(struct connection *c, const union address *to, struct failure *f)
{
	uint16_t port = ntohs(to->any.sa_family == AF_INET6 ? to->v6.sin6_port : to->v4.sin_port);
	const char *name = NULL;
	char text[INET6_ADDRSTRLEN] = "";

	let_go(c);
	if (is_made_up(to))
		name = names_host(c->egress->names, to->v4.sin_addr, uv_now(&c->egress->loop));
	if (name) {
		c->name = to->v4.sin_addr;
		names_hold(c->egress->names, c->name, 1);
		snprintf(c->host, sizeof c->host, "%s", name);
		c->port = port;
		return true;
	}
	inet_ntop(to->any.sa_family,
		  to->any.sa_family == AF_INET6 ? (const void *)&to->v6.sin6_addr
						: (const void *)&to->v4.sin_addr,
		  text, sizeof text);
	if (is_made_up(to))
		return refuse(
			c, text, strlen(text), port,
			"an address that stands for no name (any more): resolve the name again", f);
	snprintf(c->host, sizeof c->host, "%s", text);
	c->port = port;
	return true;
}

bool aim_at(struct connection *c, const char *host, size_t size, uint16_t port, struct failure *f)
{
	char canonical[HOST_SIZE];
	struct sockaddr_storage literal;
	union address to = {0};

	let_go(c);
	if (network_host(host, size, canonical) < 0)
		return refuse(c, host, size, port,
			      "neither a host name nor an address in its usual form", f);
	if (!network_host_address(canonical, &literal)) {
		snprintf(c->host, sizeof c->host, "%s", canonical);
		c->port = port;
		return true;
	}
	memcpy(&to, &literal, sizeof to);
	if (to.any.sa_family == AF_INET6)
		to.v6.sin6_port = htons(port);
	else
		to.v4.sin_port = htons(port);
	return aim_at_address(c, &to, f);
}

static bool port_read(const char *text, size_t size, uint16_t *ret)
{
	unsigned long value = 0;

	if (size == 0 || size > 5 || text[0] == '0')
		return false;
	for (size_t i = 0; i < size; i++) {
		if (text[i] < '0' || text[i] > '9')
			return false;
		value = value * 10 + (unsigned long)(text[i] - '0');
	}
	*ret = (uint16_t)value;
	return value <= UINT16_MAX;
}

bool aim_split(const char *text, size_t size, uint16_t otherwise, size_t *ret_host,
	       uint16_t *ret_port)
{
	const char *bracket = size && text[0] == '[' ? memchr(text, ']', size) : NULL;
	const char *from = bracket ? bracket + 1 : text;
	const char *colon = memchr(from, ':', size - (size_t)(from - text));
	size_t host = colon ? (size_t)(colon - text) : size;

	if (host == 0 || memchr(text, '@', size) || (bracket && from != text + host))
		return false;
	*ret_host = host;
	*ret_port = otherwise;
	if (!colon)
		return otherwise != 0;
	return port_read(colon + 1, size - host - 1, ret_port);
}
