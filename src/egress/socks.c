/* SPDX-License-Identifier: Apache-2.0 */
/*
 * socks.c - SOCKS5 (RFC 1928): CONNECT without authentication, to a name or an address. Nothing else of it.
 *
 * A client that goes on speaking before it was answered is cut: what it says could not be told from what it means for
 * the server.
 */
#include <string.h>

#include "egress/egress.h"

enum {
	VERSION = 5,
	NO_AUTHENTICATION = 0,
	NONE_ACCEPTABLE = 255,
	COMMAND_CONNECT = 1,
	TYPE_V4 = 1,
	TYPE_NAME = 3,
	TYPE_V6 = 4,
	REPLY_OK = 0,
	REPLY_NO_COMMAND = 7,
	REPLY_NO_TYPE = 8,
	REQUEST_MAX = 4 + 1 + 255 + 2,
};

static enum step request_step(struct connection *c);

/* The address it was bound at is nobody's business inside. */
static void reply(struct connection *c, unsigned char code)
{
	const unsigned char text[10] = {VERSION, code, 0, TYPE_V4};

	(void)side_write(c->client, text, sizeof text);
}

static void refuse(struct connection *c, const struct failure *f)
{
	reply(c, f->socks);
	connection_end(c);
}

static enum step refuse_with(struct connection *c, unsigned char code)
{
	reply(c, code);
	return connection_end(c);
}

static enum step on_connected(struct connection *c)
{
	reply(c, REPLY_OK);
	return open_begin(c);
}

/* Size of the whole request, 0 until that is known, -1 when it is none of ours. */
static long request_size(const unsigned char *p, size_t size)
{
	if (size < 5)
		return 0;
	switch (p[3]) {
	case TYPE_V4:
		return 4 + 4 + 2;
	case TYPE_V6:
		return 4 + 16 + 2;
	case TYPE_NAME:
		return 4 + 1 + p[4] + 2;
	default:
		return -1;
	}
}

static bool aim(struct connection *c, const unsigned char *p, long size, struct failure *f)
{
	uint16_t port = (uint16_t)(p[size - 2] << 8 | p[size - 1]);
	union address to = {0};

	if (p[3] == TYPE_NAME)
		return aim_at(c, (const char *)p + 5, p[4], port, f);
	if (p[3] == TYPE_V4) {
		to.v4 = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(port)};
		memcpy(&to.v4.sin_addr, p + 4, 4);
	} else {
		to.v6 = (struct sockaddr_in6){.sin6_family = AF_INET6, .sin6_port = htons(port)};
		memcpy(&to.v6.sin6_addr, p + 4, 16);
	}
	return aim_at_address(c, &to, f);
}

/* Everything the client has said is in c->in. */
static enum step judge_request(struct connection *c)
{
	const unsigned char *p = (const unsigned char *)c->in.data + c->in.start;
	long size = request_size(p, c->in.size);
	struct failure f;
	bool ok;

	if (c->in.size >= 1 && p[0] != VERSION)
		return connection_close(c, true);
	if (c->in.size >= 2 && p[1] != COMMAND_CONNECT)
		return refuse_with(c, REPLY_NO_COMMAND);
	if (size < 0 || (c->in.size >= 3 && p[2] != 0))
		return refuse_with(c, REPLY_NO_TYPE);
	if (size == 0 || c->in.size < (size_t)size)
		return STEP_WAIT;
	if (c->in.size > (size_t)size)
		return connection_close(c, true);
	ok = aim(c, p, size, &f);
	bytes_done(&c->in);
	if (!ok) {
		refuse(c, &f);
		return STEP_AGAIN;
	}
	c->refuse = refuse;
	c->connected = on_connected;
	return connect_begin(c);
}

static enum step judge_greeting(struct connection *c)
{
	const unsigned char *p = (const unsigned char *)c->in.data + c->in.start;
	const unsigned char none[2] = {VERSION, NONE_ACCEPTABLE},
			    ok[2] = {VERSION, NO_AUTHENTICATION};

	if (c->in.size < 2 || c->in.size < 2u + p[1])
		return STEP_WAIT;
	if (c->in.size > 2u + p[1])
		return connection_close(c, true);
	if (!memchr(p + 2, NO_AUTHENTICATION, p[1])) {
		(void)side_write(c->client, none, sizeof none);
		return connection_end(c);
	}
	bytes_done(&c->in);
	(void)side_write(c->client, ok, sizeof ok);
	c->step = request_step;
	return STEP_AGAIN;
}

static enum step read_more(struct connection *c)
{
	ssize_t n = side_read_into(c->client, &c->in, REQUEST_MAX + 1);

	c->client->want_read = true;
	if (n == -EAGAIN)
		return STEP_WAIT;
	return n > 0 ? STEP_AGAIN : connection_close(c, true);
}

static enum step request_step(struct connection *c)
{
	enum step s = c->in.size ? judge_request(c) : STEP_WAIT;

	return s == STEP_WAIT && c->step == request_step ? read_more(c) : s;
}

enum step socks_step(struct connection *c)
{
	enum step s = judge_greeting(c);

	return s == STEP_WAIT ? read_more(c) : s;
}
