/* SPDX-License-Identifier: Apache-2.0 */
#include "client/call.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "base/fd.h"
#include "base/json.h"

enum {
	PIECE = 128 << 10, /* read or sent at a time */
	FRAME = 16, /* of a chunk: its size line in front, and as much room for the CR LF behind */
	HEAD_MAX = 16 << 10,
	ROUNDS = 16, /* pieces per call_pump(), so that other calls get their turn */
};

struct call {
	struct service *service;
	int fd;
	struct request q;
	int fds[CALL_FDS];
	char *out; /* what waits to be sent */
	size_t out_size, out_sent;
	bool fds_sent, source_ended, source_waits, sending_failed;
	uint64_t source_left;
	char *text; /* collected */
	size_t size, room;
	struct response r;
};

void call_free(struct call *c)
{
	if (!c)
		return;
	fd_close(&c->fd);
	free(c->out);
	free(c->text);
	free(c);
}

static int make_head(struct call *c, struct err *e)
{
	const struct request *q = &c->q;
	char length[64] = "";
	int n;

	if (q->source && q->source_size == UINT64_MAX)
		snprintf(length, sizeof length, "Transfer-Encoding: chunked\r\n");
	else if (q->source || q->body || strcmp(q->method, "GET") != 0)
		snprintf(length, sizeof length, "Content-Length: %llu\r\n",
			 (unsigned long long)(q->source ? q->source_size : q->body_size));
	n = snprintf(c->out, HEAD_MAX, "%s %s HTTP/1.1\r\nHost: %s\r\n%s%s%s%s%s%s%s%s\r\n",
		     q->method, q->target, c->service->host,
		     c->service->key ? "Authorization: Bearer " : "",
		     c->service->key ? c->service->key : "", c->service->key ? "\r\n" : "",
		     q->type ? "Content-Type: " : "", q->type ? q->type : "", q->type ? "\r\n" : "",
		     length, q->fields ? q->fields : "");
	if (n < 0 || n >= HEAD_MAX)
		return err_set(e, 0, "the request is too long: %.60s...", q->target);
	c->out_size = (size_t)n;
	if (q->body && !q->source) {
		memcpy(c->out + n, q->body, q->body_size);
		c->out_size += q->body_size;
	}
	return 0;
}

struct call *call_new(struct service *s, const struct request *q, struct err *e)
{
	_cleanup_(call_unref) struct call *c = calloc(1, sizeof *c);
	size_t room = HEAD_MAX + (q->source ? 0 : q->body_size);

	if (!c) {
		err_set(e, ENOMEM, "make a request");
		return NULL;
	}
	c->fd = -1;
	c->service = s;
	c->q = *q;
	c->source_left = q->source_size;
	c->source_ended = !q->source || q->source_size == 0;
	c->fds_sent = q->fd_count == 0;
	response_init(&c->r);
	c->r.takes_trailers = q->trailers;
	if (q->fd_count > CALL_FDS || (q->fd_count && !s->local)) {
		err_set(e, 0, "descriptors cannot be passed");
		return NULL;
	}
	if (q->fd_count)
		memcpy(c->fds, q->fds, q->fd_count * sizeof *q->fds);
	c->out = malloc(room < PIECE + 2 * FRAME ? PIECE + 2 * FRAME : room);
	if (!c->out) {
		err_set(e, ENOMEM, "make a request");
		return NULL;
	}
	if (make_head(c, e) < 0)
		return NULL;
	c->fd = service_connect(s, e);
	return c->fd < 0 ? NULL : TAKE_PTR(c);
}

/* The first bytes carry the descriptors. */
static ssize_t send_with_fds(struct call *c, const char *data, size_t size)
{
	union {
		char space[CMSG_SPACE(sizeof c->fds)];
		struct cmsghdr align;
	} control = {0};
	struct iovec v = {(void *)(uintptr_t)data, size};
	const size_t bytes = c->q.fd_count * sizeof(int);
	struct msghdr m = {.msg_iov = &v,
			   .msg_iovlen = 1,
			   .msg_control = control.space,
			   .msg_controllen = CMSG_SPACE(bytes)};
	struct cmsghdr *h = CMSG_FIRSTHDR(&m);
	ssize_t n;

	h->cmsg_level = SOL_SOCKET;
	h->cmsg_type = SCM_RIGHTS;
	h->cmsg_len = CMSG_LEN(bytes);
	memcpy(CMSG_DATA(h), c->fds, bytes);
	n = sendmsg(c->fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
	c->fds_sent = n > 0;
	return n;
}

/* The next piece of the body into the empty buffer. 1, 0: none now, -1. */
static int refill(struct call *c, struct err *e)
{
	bool chunked = c->q.source_size == UINT64_MAX;
	size_t room = chunked || c->source_left > PIECE ? PIECE : (size_t)c->source_left;
	char line[FRAME + 1];
	ssize_t n = c->q.source(c->q.source_context, c->out + FRAME, room);
	int head = 0;

	c->source_waits = n == -EAGAIN;
	if (c->source_waits)
		return 0;
	if (n < 0 || (n == 0 && !chunked))
		return err_set(e, n < 0 ? (int)-n : 0, "%s",
			       n < 0 ? "read what is to be sent"
				     : "what is to be sent became shorter meanwhile");
	c->source_ended = n == 0;
	if (chunked) {
		head = snprintf(line, sizeof line, "%zx\r\n", (size_t)n);
		memcpy(c->out + FRAME + n, "\r\n", 2);
	} else {
		c->source_left -= (uint64_t)n;
		c->source_ended = c->source_left == 0;
	}
	c->out_sent = (size_t)(FRAME - head);
	if (chunked)
		memcpy(c->out + c->out_sent, line, (size_t)head);
	c->out_size = (size_t)(FRAME + n) + (chunked ? 2 : 0);
	return 1;
}

static bool nothing_to_send(const struct call *c)
{
	return c->sending_failed || (c->out_sent == c->out_size && c->source_ended);
}

/* Send one piece. 1: did something, 0: cannot now, -1. */
static int send_some(struct call *c, struct err *e)
{
	ssize_t n;

	if (nothing_to_send(c))
		return 0;
	if (c->out_sent == c->out_size) {
		int r = refill(c, e);

		if (r <= 0)
			return r;
	}
	n = c->fds_sent ? send(c->fd, c->out + c->out_sent, c->out_size - c->out_sent,
			       MSG_NOSIGNAL | MSG_DONTWAIT)
			: send_with_fds(c, c->out + c->out_sent, c->out_size - c->out_sent);
	if (n >= 0) {
		c->out_sent += (size_t)n;
		return 1;
	}
	if (errno == EAGAIN || errno == EINTR)
		return 0;
	/* Hung up on: perhaps with an answer that says why. */
	if (errno == EPIPE || errno == ECONNRESET) {
		c->sending_failed = true;
		return 1;
	}
	return err_set(e, errno, "send to the service");
}

static int collect(struct call *c, const char *data, size_t size, struct err *e)
{
	if (size > CALL_ANSWER_BYTES - c->size)
		return err_set(e, 0, "the service's answer is longer than %d bytes",
			       CALL_ANSWER_BYTES);
	if (c->size + size + 1 > c->room) {
		size_t room = c->room ? c->room : 4096;
		char *more;

		while (room < c->size + size + 1)
			room *= 2;
		more = realloc(c->text, room);
		if (!more)
			return err_set(e, ENOMEM, "keep the service's answer");
		c->text = more;
		c->room = room;
	}
	memcpy(c->text + c->size, data, size);
	c->size += size;
	c->text[c->size] = '\0';
	return 0;
}

static int take_body(void *context, const char *data, size_t size, struct err *e)
{
	struct call *c = context;

	if (c->q.sink && c->r.status / 100 == 2)
		return c->q.sink(c->q.sink_context, data, size, e);
	return collect(c, data, size, e);
}

/* Receive one piece. 1: did something, 0: nothing there, -1. */
static int receive_some(struct call *c, struct err *e)
{
	char data[PIECE];
	ssize_t n = recv(c->fd, data, sizeof data, MSG_DONTWAIT);

	if (n > 0)
		return response_feed(&c->r, data, (size_t)n, take_body, c, e) < 0 ? -1 : 1;
	if (n == 0)
		return response_eof(&c->r, e);
	if (errno == EAGAIN || errno == EINTR)
		return 0;
	return err_set(e, errno, "read the service's answer");
}

/* What a problem document says, or at least the status. */
static int problem(struct call *c, struct err *e)
{
	_cleanup_json_ json_t *j = NULL;
	const char *detail, *title;
	struct err ignored;

	if (c->size && (strcmp(c->r.content_type, "application/problem+json") == 0 ||
			strcmp(c->r.content_type, "application/json") == 0))
		j = json_read(c->text, c->size, &ignored);
	detail = json_string_value(json_object_get(j, "detail"));
	title = json_string_value(json_object_get(j, "title"));
	if (detail || title)
		return err_set(e, 0, "%s", detail ? detail : title);
	return err_set(e, 0, "the service answered with status %d", c->r.status);
}

/* The answer is complete: the connection is kept if both sides are at a boundary. */
static int finish(struct call *c, struct err *e)
{
	bool whole = !c->sending_failed && c->out_sent == c->out_size && c->source_ended;

	if (whole && !c->r.closes)
		service_keep(c->service, TAKE_FD(c->fd));
	else
		fd_close(&c->fd);
	return c->r.status / 100 == 2 ? 1 : problem(c, e);
}

int call_pump(struct call *c, struct err *e)
{
	for (int i = 0; i < ROUNDS; i++) {
		int sent = send_some(c, e), got;

		if (sent < 0)
			return -1;
		got = receive_some(c, e);
		if (got < 0)
			return -1;
		if (c->r.state == RESPONSE_DONE)
			return finish(c, e);
		if (!sent && !got)
			break;
	}
	return 0;
}

int call_fd(const struct call *c)
{
	return c->fd;
}

short call_events(const struct call *c)
{
	return (short)(POLLIN | (nothing_to_send(c) || c->source_waits ? 0 : POLLOUT));
}

int call_run(struct call *c, int cancel_fd, struct err *e)
{
	for (;;) {
		struct pollfd p[2] = {{c->fd, call_events(c), 0}, {cancel_fd, POLLIN, 0}};
		int r = call_pump(c, e);

		if (r != 0)
			return r < 0 ? -1 : 0;
		p[0].events = call_events(c);
		if (poll(p, 2, -1) < 0 && errno != EINTR)
			return err_set(e, errno, "wait for the service");
		if (p[1].revents)
			return err_set(e, ECANCELED, "interrupted");
	}
}

int call_status(const struct call *c)
{
	return c->r.state == RESPONSE_HEADER ? 0 : c->r.status;
}

const char *call_text(const struct call *c, size_t *ret_size)
{
	*ret_size = c->size;
	return c->text ? c->text : "";
}

const char *call_trailer(const struct call *c, const char *name, size_t *ret_size)
{
	return response_trailer(&c->r, name, ret_size);
}

int url_encode(const char *text, char *out, size_t size)
{
	static const char hex[] = "0123456789ABCDEF";
	size_t n = 0;

	for (; *text; text++) {
		unsigned char c = (unsigned char)*text;
		bool plain = (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') ||
			     (c >= 'a' && c <= 'z') || strchr("-._~/", c);

		if (n + 4 > size)
			return -ENAMETOOLONG;
		if (plain) {
			out[n++] = (char)c;
		} else {
			out[n++] = '%';
			out[n++] = hex[c >> 4];
			out[n++] = hex[c & 15];
		}
	}
	out[n] = '\0';
	return 0;
}
