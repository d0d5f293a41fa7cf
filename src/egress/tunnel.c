/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tunnel.c - bytes both ways until both ends have ended: half-closes are passed on, who is slow slows the other.
 */
#include <string.h>

#include "egress/forward.h"

/* 1: moved some, 0: nothing now, -1: over. */
static int move(struct connection *c, struct side *from, struct side *to, uint64_t *count)
{
	struct egress *g = c->egress;
	ssize_t n;

	from->want_read = false;
	if (from->ended || to->out.size)
		return 0;
	n = side_read(from);
	from->want_read = n == -EAGAIN;
	if (n == -EAGAIN)
		return 0;
	if (n < 0)
		return -1;
	if (n == 0) {
		to->end = true;
		return side_flush(to) ? 0 : -1;
	}
	forward_count(c, count, (size_t)n);
	if (!side_write(to, g->buffer, (size_t)n) || !connect_quota(c))
		return -1;
	from->want_read = to->out.size == 0;
	/* A short read of a plain socket has emptied it: the poll will tell of more. */
	return from->stream.ssl || n == sizeof g->buffer ? 1 : 2;
}

/* What the client says first is for this host, or it is no TLS. Returns as move() does. */
static int pass_gate(struct connection *c)
{
	struct hello hello;

	switch (open_peek(c, &hello)) {
	case FIRST_WAIT:
		return 0;
	case FIRST_BAD:
		open_refuse(c, "TLS whose beginning cannot be read");
		return -1;
	case FIRST_TLS:
		if (hello.host[0] && strcmp(hello.host, c->host) != 0) {
			open_refuse(c, "TLS for %s in a connection to %s", hello.host, c->host);
			return -1;
		}
		break;
	case FIRST_OTHER:
		break;
	}
	c->gate = false;
	return 1;
}

static enum step tunnel_step(struct connection *c)
{
	int up, down;

	if (c->upstream->lost)
		return connection_close(c, true);
	up = c->gate ? pass_gate(c) : move(c, c->client, c->upstream, &c->record.sent);
	down = up < 0 ? -1 : move(c, c->upstream, c->client, &c->record.received);
	if (up < 0 || down < 0)
		return connection_close(c, true);
	if (c->client->told && c->upstream->told)
		return connection_close(c, false);
	if (up > 0 || down > 0)
		connection_wait(c, WAIT_ANSWER, NULL);
	return up == 1 || down == 1 ? STEP_AGAIN : STEP_WAIT;
}

static bool pass_on(struct side *to, struct bytes *b)
{
	bool ok = b->size == 0 || side_write(to, b->data + b->start, b->size);

	bytes_done(b);
	return ok;
}

enum step tunnel_begin(struct connection *c, bool gate, struct bytes *from_upstream)
{
	bool ok;

	/* What came from upstream was counted when it was read; of the client's, only what is sent is. */
	forward_count(c, &c->record.sent, c->in.size);
	ok = pass_on(c->upstream, &c->in) && (!from_upstream || pass_on(c->client, from_upstream));
	if (!ok || !connect_quota(c))
		return connection_close(c, true);
	c->gate = gate;
	c->step = tunnel_step;
	connection_wait(c, WAIT_ANSWER, NULL);
	return STEP_AGAIN;
}
