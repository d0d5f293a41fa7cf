/* SPDX-License-Identifier: Apache-2.0 */
/*
 * connection.c - one connection: what is read and when, and what it means.
 *
 * Reading stops while the handler has paused, or too much waits. What comes is used straight from the
 * server's buffer; only what cannot be used yet is kept in c->in. A kept-alive request costs epoll_wait,
 * recvmsg and sendmsg, so the poll's mask and the deadlines are touched only when they change.
 *
 * Who has gone? On a unix socket a half-close and a close differ: after the first the answer is still
 * given. On TCP they look the same, and a client that has gone must not leave its run behind, so the
 * end of input before the answer counts as gone.
 */
#include "http/connection.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

static void soon_add(struct connection *c)
{
	struct http_server *s = c->server;

	c->soon_prev = s->soon_last;
	c->soon_next = NULL;
	if (s->soon_last)
		s->soon_last->soon_next = c;
	else
		s->soon = c;
	s->soon_last = c;
	s->soon_count++;
	c->in_soon = true;
}

void soon_forget(struct connection *c)
{
	struct http_server *s = c->server;

	if (!c->in_soon)
		return;
	*(c->soon_prev ? &c->soon_prev->soon_next : &s->soon) = c->soon_next;
	*(c->soon_next ? &c->soon_next->soon_prev : &s->soon_last) = c->soon_prev;
	s->soon_count--;
	c->in_soon = false;
}

/* An idle handle runs once in each turn of the loop, so nobody's notes keep the sockets waiting. */
static void on_soon(uv_idle_t *idle)
{
	struct http_server *s = idle->data;

	for (size_t n = s->soon_count; n > 0 && s->soon; n--) {
		struct connection *c = s->soon;

		soon_forget(c);
		connection_attend(c, 0);
	}
	if (!s->soon)
		uv_idle_stop(idle);
}

void connection_soon(struct connection *c)
{
	struct http_server *s = c->server;

	if (c->in_soon || c->state == CONN_CLOSED)
		return;
	soon_add(c);
	if (!uv_is_active((uv_handle_t *)&s->soon_idle))
		uv_idle_start(&s->soon_idle, on_soon);
}

static size_t in_max(const struct connection *c)
{
	size_t header = c->server->limits.header_bytes + 1;

	return header > READ_SIZE ? header : READ_SIZE;
}

static bool wants_read(const struct connection *c)
{
	if (c->state == CONN_LINGER)
		return true;
	if (c->state != CONN_OPEN || c->eof)
		return false;
	if (c->x && c->x->paused && (c->x->taken || c->body_open))
		return false;
	return c->in.size < in_max(c);
}

static void on_event(uv_poll_t *poll, int status, int events)
{
	struct connection *c = poll->data;

	if (status < 0)
		c->broken = true;
	connection_attend(c, events);
}

/* Without readability the kernel still reports a hang-up, which libuv passes on as UV_PRIORITIZED. (It is
 * also urgent data, which no client of ours has a reason to send: that is hung up on too.) */
static void set_mask(struct connection *c)
{
	int mask = wants_read(c) || c->tls_want_read ? UV_READABLE : c->hung ? 0 : UV_PRIORITIZED;

	if (c->blocked || c->tls_want_write)
		mask |= UV_WRITABLE;
	if (mask == c->mask)
		return;
	c->mask = mask;
	if (mask == 0)
		uv_poll_stop(&c->poll);
	else if (uv_poll_start(&c->poll, mask, on_event) < 0)
		c->broken = true;
}

static void set_reading_deadline(struct connection *c)
{
	struct deadlines *ds = &c->server->deadlines;
	struct exchange *x = c->x;
	struct deadline *d = &c->reading;

	if (c->state == CONN_LINGER)
		return;
	if (c->state == CONN_OPEN && c->body_open && !(x && (x->paused || x->taken))) {
		/* what is collected has to come at more than a drip */
		size_t enough = x && x->collected ? 1024 : 1;

		if (!deadline_armed(d, DEADLINE_BODY) || c->progress >= enough) {
			deadline_arm(ds, d, DEADLINE_BODY);
			c->progress = 0;
		}
	} else if (c->state != CONN_OPEN || x || c->out.size) {
		deadline_disarm(d);
	} else if (c->in.size || (c->ssl && !SSL_is_init_finished(c->ssl))) {
		if (!deadline_armed(d, DEADLINE_HEADER))
			deadline_arm(ds, d, DEADLINE_HEADER);
	} else if (!deadline_armed(d, DEADLINE_IDLE)) {
		deadline_arm(ds, d, DEADLINE_IDLE);
	}
}

static void watch(struct connection *c)
{
	set_mask(c);
	set_reading_deadline(c);
	if (!c->out.size || (c->x && c->x->patient))
		deadline_disarm(&c->writing);
	else if (!deadline_armed(&c->writing, DEADLINE_WRITE))
		deadline_arm(&c->server->deadlines, &c->writing, DEADLINE_WRITE);
}

static void shut(struct connection *c)
{
	if (c->ssl)
		SSL_shutdown(c->ssl);
	if (c->eof || shutdown(c->fd, SHUT_WR) < 0) {
		connection_close(c);
		return;
	}
	c->state = CONN_LINGER;
	c->tls_want_read = c->tls_want_write = c->blocked = false;
	deadline_arm(&c->server->deadlines, &c->reading, DEADLINE_LINGER);
}

/* The end of a round: everything that can be said by now has been. */
static void settle(struct connection *c)
{
	if (c->state == CONN_CLOSED)
		return;
	if (!c->broken && c->out.size == 0) {
		if (c->state == CONN_OPEN && !c->x &&
		    (c->eof || (c->server->stopped && !c->in.size && !c->body_open)))
			c->state = CONN_LAST;
		if (c->state == CONN_LAST)
			shut(c);
		else if (c->x && c->x->wrote_end && c->x->taken) {
			c->x->wrote_end = false;
			if (c->ssl)
				SSL_shutdown(c->ssl);
			else
				shutdown(c->fd, SHUT_WR);
		}
	}
	if (c->state == CONN_CLOSED)
		return;
	watch(c);
	if (c->broken)
		connection_close(c);
}

void connection_touched(struct connection *c)
{
	if (c->running)
		return;
	if (!c->broken && c->state == CONN_OPEN)
		watch(c);
	if (c->broken || c->state != CONN_OPEN)
		connection_soon(c);
}

void connection_next(struct connection *c, bool keep)
{
	c->x = NULL;
	if (!keep && c->state == CONN_OPEN) {
		c->state = CONN_LAST;
		c->body_open = false;
	}
	if (c->running)
		return;
	if (c->in.size || c->body_open || c->eof || c->broken || c->state != CONN_OPEN ||
	    c->server->stopped)
		connection_soon(c);
	else
		watch(c);
}

void connection_refuse(struct connection *c, int status, const char *detail)
{
	char text[2048];
	struct iovec iov = {text, 0};
	bool silent = c->x && c->x->began, head = c->x && strcmp(c->x->head.method, "HEAD") == 0;

	if (c->state != CONN_OPEN)
		return;
	exchange_lost(c);
	c->state = CONN_LAST;
	c->body_open = false;
	if (silent)
		return;
	iov.iov_len = answer_refusal(c->server, text, sizeof text, status, detail, !head);
	wire_write(c, &iov, 1);
}

static void send_continue(struct connection *c)
{
	static const char text[] = "HTTP/1.1 100 Continue\r\n\r\n";
	struct iovec iov = {(void *)(uintptr_t)text, sizeof text - 1};
	struct exchange *x = c->x;

	if (!x || !c->body_open || !x->head.expects || x->continued || x->began || x->paused ||
	    !exchange_wants_body(x))
		return;
	x->continued = true;
	wire_write(c, &iov, 1);
}

static bool begin_exchange(struct connection *c, struct head *head)
{
	struct exchange *x = exchange_new(c, head);

	if (!x) {
		head_done(head);
		connection_refuse(c, 503, "out of memory");
		return false;
	}
	framing_begin(&c->framing, x->head.body_size);
	c->body_open = x->head.body_size > 0;
	c->progress = 0;
	deadline_disarm(&c->reading);
	c->x = x;
	c->server->handler(x, c->server->context);
	if (c->x == x && x->too_large) {
		connection_refuse(c, 413, "the body is too large");
		return false;
	}
	if (c->x == x && !c->body_open && !x->taken)
		exchange_tell_end(x);
	return true;
}

static bool head_step(struct connection *c, const char *data, size_t size, size_t *ret_used)
{
	struct refusal why;
	struct head head;

	if (c->out.size || size == 0)
		return false;
	/* RFC 9112, 2.2: an empty line before a request is forgiven, once */
	if (!c->blank && c->scan.seen == 0 && data[0] == '\r') {
		if (size < 2)
			return false;
		c->blank = true;
		*ret_used = data[1] == '\n' ? 2 : 0;
		return true;
	}
	switch (head_scan(&c->scan, data, size, &c->server->limits, &why)) {
	case HEAD_MORE:
		return false;
	case HEAD_BAD:
		break;
	case HEAD_COMPLETE:
		*ret_used = c->scan.seen;
		c->scan = (struct head_scan){0};
		c->blank = false;
		if (head_parse(data, *ret_used, HEAD_SERVER, &c->server->limits, &c->parser, &head,
			       &why) == 0)
			return begin_exchange(c, &head);
		break;
	}
	connection_refuse(c, why.status, why.detail);
	return false;
}

static bool body_step(struct connection *c, const char *data, size_t size, size_t *ret_used)
{
	const char *piece;
	size_t n;

	if (c->x && c->x->paused)
		return false;
	switch (framing_step(&c->framing, &c->parser, data, size, ret_used, &piece, &n)) {
	case FRAMING_MORE:
		return false;
	case FRAMING_ON:
		return true;
	case FRAMING_PIECE:
		if (c->x)
			exchange_body(c->x, piece, n);
		return true;
	case FRAMING_END:
		c->body_open = false;
		if (c->x)
			exchange_tell_end(c->x);
		return true;
	case FRAMING_BAD:
		break;
	}
	connection_refuse(c, 400, "a chunk of the body that breaks the rules");
	return false;
}

static bool raw_step(struct exchange *x, const char *data, size_t size, size_t *ret_used)
{
	if (x->paused || size == 0)
		return false;
	*ret_used = size;
	exchange_body(x, data, size);
	return true;
}

/* Use what can be used; returns how much. */
static size_t run(struct connection *c, const char *data, size_t size)
{
	size_t used = 0;
	bool on = true;

	while (on && c->state == CONN_OPEN && !c->broken) {
		size_t n = 0;

		if (c->x && c->x->taken)
			on = raw_step(c->x, data + used, size - used, &n);
		else if (c->body_open)
			on = body_step(c, data + used, size - used, &n);
		else
			on = !c->x && head_step(c, data + used, size - used, &n);
		used += n;
	}
	return used;
}

static void run_kept(struct connection *c)
{
	static const char nothing[1];

	if (c->in.size)
		bytes_drop(&c->in, run(c, c->in.data + c->in.start, c->in.size));
	else
		run(c, nothing, 0);
}

static void discard(struct connection *c)
{
	ssize_t n = recv(c->fd, c->server->read_buffer, READ_SIZE, MSG_DONTWAIT);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	c->lingered += n > 0 ? (size_t)n : 0;
	if (n <= 0 || c->lingered > LINGER_MAX)
		connection_close(c);
}

static void at_eof(struct connection *c)
{
	bool exact = c->peer->peer.kind == PEER_UNIX && !c->ssl;

	c->eof = true;
	if (c->body_open || (c->x && !c->x->taken && !exact))
		c->broken = true;
}

static void receive(struct connection *c)
{
	char *buffer = c->server->read_buffer;
	ssize_t n;
	size_t used;

	if (c->state == CONN_LINGER) {
		discard(c);
		return;
	}
	if (!wants_read(c) || c->broken)
		return;
	n = wire_read(c, buffer, READ_SIZE);
	if (n == -EAGAIN)
		return;
	if (n < 0) {
		c->broken = true;
		return;
	}
	if (n == 0) {
		at_eof(c);
		return;
	}
	c->progress += (size_t)n;
	used = c->in.size ? 0 : run(c, buffer, (size_t)n);
	if (used < (size_t)n && c->state == CONN_OPEN &&
	    !bytes_add(&c->in, buffer + used, (size_t)n - used))
		c->broken = true;
}

static void tell_room(struct connection *c)
{
	struct exchange *x = c->x;

	if (!x || !x->room_owed || c->out.size > OUT_ROOM)
		return;
	x->room_owed = false;
	if (x->ops && x->ops->on_room)
		x->ops->on_room(x);
}

/* What the socket reports. */
static void take_events(struct connection *c, int events)
{
	bool readable = events & UV_READABLE, writable = events & UV_WRITABLE;

	if (writable || (readable && c->tls_want_read))
		wire_flush(c);
	if (c->ssl && c->state == CONN_OPEN)
		readable |= (writable && c->tls_want_write) || SSL_pending(c->ssl) > 0;
	if (readable) {
		receive(c);
	} else if (events & UV_PRIORITIZED) {
		c->hung = c->x && c->x->taken && c->x->paused;
		c->broken |= !c->hung;
	}
}

static bool goes_on(const struct connection *c)
{
	return c->state == CONN_OPEN && !c->broken;
}

/* What there is to tell the handler, in the order in which it came about. Any call may free c->x. */
static void tell(struct connection *c)
{
	if (goes_on(c))
		tell_room(c);
	if (c->x && c->x->too_large)
		connection_refuse(c, 413, "the body is too large");
	if (goes_on(c) && c->x && !c->body_open && !c->x->taken)
		exchange_tell_end(c->x);
	if (goes_on(c))
		run_kept(c);
	if (goes_on(c))
		send_continue(c);
	if (goes_on(c) && c->x && c->x->taken && c->eof && !c->in.size)
		exchange_tell_end(c->x);
}

/* Is there more to be done without waiting for the socket? */
static bool unfinished(const struct connection *c, int events)
{
	if (c->state != CONN_OPEN)
		return false;
	if (c->ssl && wants_read(c) && SSL_pending(c->ssl) > 0)
		return true;
	/* the answer that kept the next request waiting has just gone out */
	return !c->x && c->in.size && !c->out.size && events & UV_WRITABLE;
}

void connection_attend(struct connection *c, int events)
{
	if (c->state == CONN_CLOSED)
		return;
	c->running = true;
	take_events(c, events);
	tell(c);
	if (c->out.size && !c->blocked && c->state != CONN_CLOSED)
		wire_flush(c);
	c->running = false;
	if (unfinished(c, events))
		connection_soon(c);
	settle(c);
}

void connection_expired(struct deadline *d)
{
	struct connection *c = d->owner;

	c->running = true;
	if (d == &c->writing || d->kind == DEADLINE_IDLE || d->kind == DEADLINE_LINGER)
		c->broken = true;
	else if (d->kind == DEADLINE_HEADER && c->in.size)
		connection_refuse(c, 408, "the header did not come in time");
	else if (d->kind == DEADLINE_BODY && c->x)
		connection_refuse(c, 408, "the body did not come in time");
	else
		c->broken = true;
	c->running = false;
	settle(c);
}

static void on_closed(uv_handle_t *handle)
{
	struct connection *c = handle->data;
	struct http_server *s = c->server;

	if (c->ssl)
		SSL_free(c->ssl);
	bytes_done(&c->in);
	bytes_done(&c->out);
	free(c->fds);
	free(c);
	server_handle_closed(s);
}

void connection_close(struct connection *c)
{
	if (c->state == CONN_CLOSED)
		return;
	exchange_lost(c);
	c->state = CONN_CLOSED;
	deadline_disarm(&c->reading);
	deadline_disarm(&c->writing);
	soon_forget(c);
	fds_close(c->server, c->fds, c->fd_count);
	c->fd_count = 0;
	uv_close((uv_handle_t *)&c->poll, on_closed);
	fd_close(&c->fd);
	server_forget(c);
}

struct connection *connection_new(struct http_server *s, int fd, SSL *ssl, struct peer_count *peer)
{
	struct connection *c = calloc(1, sizeof *c);

	if (!c || uv_poll_init(s->loop, &c->poll, fd) < 0) {
		free(c);
		return NULL;
	}
	s->handles++;
	c->server = s;
	c->poll.data = c;
	c->fd = fd;
	c->ssl = ssl;
	c->peer = peer;
	c->reading.owner = c->writing.owner = c;
	c->next = s->connections;
	if (c->next)
		c->next->prev = c;
	s->connections = c;
	watch(c);
	return c;
}
