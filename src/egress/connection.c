/* SPDX-License-Identifier: Apache-2.0 */
/*
 * connection.c - a client, perhaps an upstream, and the step they are at; queues, polls, deadlines, the end.
 *
 * There is no buffer per connection: what is read goes through the process's one buffer to where it belongs, and
 * only what is not taken there is copied. A step that reads stops while its reader has something queued, so a
 * queue is never longer than one read, and reads become short when many queues are long.
 */
#include <errno.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>

#include "egress/egress.h"

enum { ROUNDS = 16, LINGER_BYTES = 1 << 20 };

/* ---- sides ---- */

static void on_poll(uv_poll_t *poll, int status, int events)
{
	struct side *s = poll->data;

	(void)events;
	/* Reading and writing say what is wrong. But libuv does not poll any more by now: whoever goes on starts it anew. */
	if (status < 0)
		s->mask = 0;
	if (s->c)
		connection_run(s->c);
}

struct side *side_new(struct connection *c, int fd)
{
	struct side *s = calloc(1, sizeof *s);

	if (!s || uv_poll_init(&c->egress->loop, &s->poll, fd) < 0) {
		free(s);
		close(fd);
		return NULL;
	}
	s->poll.data = s;
	s->stream.fd = fd;
	s->c = c;
	return s;
}

static void drop_queue(struct egress *g, struct side *s)
{
	g->waiting -= s->out.size;
	bytes_done(&s->out);
}

/* In the loop's turn after the last use: a connection may still be on the stack when its client's side is closed. */
static void side_closed(uv_handle_t *handle)
{
	struct side *s = handle->data;

	free(s->owned);
	free(s);
}

void side_close(struct side *s, bool by_reset)
{
	struct linger now = {.l_onoff = 1};

	if (!s || !s->c)
		return;
	if (by_reset)
		(void)setsockopt(s->stream.fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
	drop_queue(s->c->egress, s);
	s->c = NULL;
	uv_poll_stop(&s->poll);
	uv_close((uv_handle_t *)&s->poll, side_closed);
	stream_close(&s->stream);
}

/* Bytes taken, or -1 when it is lost. */
static ssize_t write_now(struct side *s, const char *data, size_t size)
{
	size_t done = 0;

	while (done < size) {
		ssize_t n = stream_write(&s->stream, data + done, size - done);

		if (n == -EAGAIN)
			break;
		if (n < 0) {
			s->lost = true;
			return -1;
		}
		done += (size_t)n;
	}
	return (ssize_t)done;
}

bool side_write(struct side *s, const void *data, size_t size)
{
	ssize_t n = s->out.size ? 0 : write_now(s, data, size);

	if (n < 0 || s->lost)
		return false;
	if ((size_t)n == size)
		return true;
	if (!bytes_add(&s->out, (const char *)data + n, size - (size_t)n)) {
		s->lost = true;
		return false;
	}
	s->c->egress->waiting += size - (size_t)n;
	return true;
}

bool side_flush(struct side *s)
{
	ssize_t n = s->out.size ? write_now(s, s->out.data + s->out.start, s->out.size) : 0;
	int r;

	if (n < 0 || s->lost)
		return false;
	if (n > 0) {
		s->c->egress->waiting -= (size_t)n;
		bytes_drop(&s->out, (size_t)n);
	}
	if (!s->end || s->told || s->out.size)
		return true;
	r = stream_end(&s->stream);
	s->told = r == 0;
	s->lost = r < 0 && r != -EAGAIN;
	return !s->lost;
}

ssize_t side_read(struct side *s)
{
	struct egress *g = s->c->egress;
	size_t size = g->waiting > LIMIT_WAITING_BYTES ? SMALL_READ : sizeof g->buffer;
	ssize_t n = stream_read(&s->stream, g->buffer, size);

	if (n == 0)
		s->ended = true;
	if (n < 0 && n != -EAGAIN)
		s->lost = true;
	return n;
}

ssize_t side_read_into(struct side *s, struct bytes *b, size_t most)
{
	struct egress *g = s->c->egress;
	size_t room = most > b->size ? most - b->size : 0;
	ssize_t n;

	if (room == 0)
		return -ENOBUFS;
	n = stream_read(&s->stream, g->buffer, room < sizeof g->buffer ? room : sizeof g->buffer);
	if (n == 0)
		s->ended = true;
	if (n < 0 && n != -EAGAIN)
		s->lost = true;
	if (n > 0 && !bytes_add(b, g->buffer, (size_t)n))
		return -ENOMEM;
	return n;
}

/* ---- connections ---- */

struct connection *connection_new(struct egress *g, int fd, enum egress_listener kind)
{
	struct connection *c = calloc(1, sizeof *c);
	int on = 1;

	/* A header and what follows it are two writes: the second must not wait for the first's acknowledgement. */
	(void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
	if (!c) {
		close(fd);
		return NULL;
	}
	c->egress = g;
	c->kind = kind;
	c->deadline.owner = c;
	c->client = side_new(c, fd);
	if (!c->client) {
		free(c);
		return NULL;
	}
	c->next = g->connections;
	if (c->next)
		c->next->prev = c;
	g->connections = c;
	g->open++;
	return c;
}

static void apply_poll(struct side *s)
{
	bool write = s->want_write || s->out.size || (s->end && !s->told);
	int mask = stream_wants(&s->stream, s->want_read, write);

	if (mask == s->mask)
		return;
	s->mask = mask;
	if (mask)
		uv_poll_start(&s->poll, mask, on_poll);
	else
		uv_poll_stop(&s->poll);
}

static bool wants_pending(const struct side *s)
{
	return s && s->want_read && stream_pending(&s->stream);
}

static void flush_all(struct connection *c)
{
	(void)side_flush(c->client);
	if (c->upstream)
		(void)side_flush(c->upstream);
}

void connection_run(struct connection *c)
{
	enum step step = STEP_AGAIN;

	if (c->over || c->running)
		return;
	c->running = true;
	flush_all(c);
	for (int i = 0; i < ROUNDS && step == STEP_AGAIN && !c->over; i++)
		step = c->client->lost ? connection_close(c, true) : c->step(c);
	c->running = false;
	if (c->over)
		return;
	apply_poll(c->client);
	if (c->upstream)
		apply_poll(c->upstream);
	if (step == STEP_AGAIN || wants_pending(c->client) || wants_pending(c->upstream))
		connection_soon(c);
}

static void on_soon(uv_idle_t *idle)
{
	struct egress *g = idle->data;
	struct connection *c = g->soon;

	g->soon = NULL;
	while (c) {
		struct connection *next = c->soon_next;

		c->in_soon = false;
		connection_run(c);
		c = next;
	}
	if (!g->soon)
		uv_idle_stop(idle);
}

void connection_soon(struct connection *c)
{
	struct egress *g = c->egress;

	if (c->in_soon || c->over)
		return;
	c->in_soon = true;
	c->soon_next = g->soon;
	g->soon = c;
	g->soon_idle.data = g;
	uv_idle_start(&g->soon_idle, on_soon);
}

void connection_wait(struct connection *c, enum wait kind, step_function late)
{
	c->late = late;
	deadline_arm(&c->egress->deadlines, &c->deadline, kind);
}

static void unlink_all(struct connection *c)
{
	struct egress *g = c->egress;

	if (c->prev)
		c->prev->next = c->next;
	else
		g->connections = c->next;
	if (c->next)
		c->next->prev = c->prev;
	if (c->in_soon)
		for (struct connection **p = &g->soon; *p; p = &(*p)->soon_next)
			if (*p == c) {
				*p = c->soon_next;
				break;
			}
	g->open--;
}

enum step connection_close(struct connection *c, bool by_reset)
{
	struct egress *g = c->egress;
	struct side *client = c->client;

	if (c->over)
		return STEP_OVER;
	c->over = true;
	record_end(c, c->attempt ? EGRESS_FAILED : EGRESS_ALLOWED,
		   c->attempt ? "the client went away" : NULL);
	connect_abandon(c);
	resolver_abandon(c);
	if (c->name.s_addr)
		names_hold(g->names, c->name, -1);
	deadline_disarm(&c->deadline);
	unlink_all(c);
	forward_free(c);
	bytes_done(&c->in);
	free(TAKE_PTR(c->fault));
	side_close(c->upstream, by_reset);
	client->owned = c;
	side_close(client, by_reset);
	listen_room(g);
	return STEP_OVER;
}

static enum step ending_step(struct connection *c)
{
	ssize_t n;

	if (!side_flush(c->client))
		return connection_close(c, true);
	c->client->want_read = c->client->told;
	if (!c->client->told)
		return STEP_WAIT;
	n = side_read(c->client);
	if (n == -EAGAIN)
		return STEP_WAIT;
	if (n <= 0)
		return connection_close(c, false);
	c->lingered += (size_t)n;
	return c->lingered > LINGER_BYTES ? connection_close(c, true) : STEP_AGAIN;
}

enum step connection_end(struct connection *c)
{
	if (c->over)
		return STEP_OVER;
	connect_abandon(c);
	record_end(c, EGRESS_ALLOWED, NULL);
	side_close(c->upstream, false);
	c->upstream = NULL;
	c->client->end = true;
	c->step = ending_step;
	connection_wait(c, WAIT_LINGER, NULL);
	return STEP_AGAIN;
}

static void on_deadline(struct deadline *d)
{
	struct connection *c = d->owner;

	if (d->kind == WAIT_ADDRESS)
		connect_address_late(c);
	else if (c->late)
		(void)c->late(c);
	else
		(void)connection_close(c, true);
	connection_run(c);
}

void connection_deadlines(struct egress *g)
{
	struct deadlines *ds = &g->deadlines;

	deadlines_init(ds, &g->loop, on_deadline);
	ds->length_ms[WAIT_HEADER] = LIMIT_HEADER_MS;
	ds->length_ms[WAIT_CONNECT] = LIMIT_CONNECT_MS;
	ds->length_ms[WAIT_ADDRESS] = LIMIT_ADDRESS_MS;
	ds->length_ms[WAIT_HANDSHAKE] = LIMIT_HANDSHAKE_MS;
	ds->length_ms[WAIT_ANSWER] = LIMIT_ANSWER_MS;
	ds->length_ms[WAIT_IDLE] = LIMIT_IDLE_MS;
	ds->length_ms[WAIT_LINGER] = LIMIT_LINGER_MS;
}
