/* SPDX-License-Identifier: Apache-2.0 */
/* exchange.c - what a handler sees of a request and does for its answer (http.h). */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "http/connection.h"

struct exchange *exchange_new(struct connection *c, struct head *head)
{
	struct exchange *x = calloc(1, sizeof *x);

	if (!x)
		return NULL;
	x->c = c;
	x->head = *head;
	*head = (struct head){0};
	x->fd_count = c->fd_count;
	if (c->fd_count)
		memcpy(x->fds, c->fds, c->fd_count * sizeof *c->fds);
	c->fd_count = 0;
	free(TAKE_PTR(c->fds));
	return x;
}

void exchange_free(struct exchange *x)
{
	fds_close(x->c->server, x->fds, x->fd_count);
	while (x->joined) {
		struct joined *next = x->joined->next;

		free(x->joined);
		x->joined = next;
	}
	free(x->body);
	head_done(&x->head);
	free(x);
}

void exchange_lost(struct connection *c)
{
	struct exchange *x = TAKE_PTR(c->x);

	if (!x)
		return;
	if (x->ops && x->ops->on_gone)
		x->ops->on_gone(x);
	exchange_free(x);
}

/* ---- the request ---- */

const char *exchange_method(const struct exchange *x)
{
	return x->head.method;
}

const char *exchange_path(const struct exchange *x)
{
	return x->head.target.path;
}

const char *exchange_raw_path(const struct exchange *x)
{
	return x->head.target.raw_path;
}

const char *exchange_query(const struct exchange *x, const char *name)
{
	return target_param(&x->head.target, name);
}

int exchange_query_check(const struct exchange *x, const char *const allowed[],
			 const char **ret_bad)
{
	return target_check(&x->head.target, allowed, ret_bad);
}

const char *exchange_raw_query(const struct exchange *x)
{
	return x->head.target.raw_query;
}

static const char *join(struct exchange *x, const char *name, size_t size)
{
	struct joined *j = malloc(sizeof *j + size);
	char *at;

	if (!j)
		return NULL;
	at = j->text;
	for (size_t i = 0; i < x->head.field_count; i++) {
		const struct field *f = &x->head.fields[i];
		size_t n = strlen(f->value);

		if (strcmp(f->name, name) != 0)
			continue;
		if (at != j->text) {
			memcpy(at, ", ", 2);
			at += 2;
		} else {
			j->name = f->name;
		}
		memcpy(at, f->value, n);
		at += n;
	}
	*at = '\0';
	j->next = x->joined;
	x->joined = j;
	return j->text;
}

const char *exchange_field(const struct exchange *x, const char *name)
{
	const char *first = NULL;
	size_t count = 0, size = 1;

	for (size_t i = 0; i < x->head.field_count; i++) {
		const struct field *f = &x->head.fields[i];

		if (strcmp(f->name, name) != 0)
			continue;
		first = first ? first : f->value;
		size += strlen(f->value) + 2;
		count++;
	}
	if (count < 2)
		return first;
	for (const struct joined *j = x->joined; j; j = j->next)
		if (strcmp(j->name, name) == 0)
			return j->text;
	return join((struct exchange *)(uintptr_t)x, name, size);
}

bool exchange_field_at(const struct exchange *x, size_t i, const char **ret_name,
		       const char **ret_value)
{
	if (i >= x->head.field_count)
		return false;
	*ret_name = x->head.fields[i].name;
	*ret_value = x->head.fields[i].value;
	return true;
}

const struct peer *exchange_peer(const struct exchange *x)
{
	return &x->c->peer->peer;
}

uint64_t exchange_body_size(const struct exchange *x)
{
	return x->head.body_size;
}

size_t exchange_take_fds(struct exchange *x, int *fds, size_t room)
{
	size_t n = x->fd_count < room ? x->fd_count : room;

	memcpy(fds, x->fds, n * sizeof *fds);
	fds_close(x->c->server, x->fds + n, x->fd_count - (unsigned)n);
	x->c->server->fds_held -= n;
	x->fd_count = 0;
	return n;
}

/* ---- the body ---- */

static void look_again(struct exchange *x)
{
	if (!x->c->running)
		connection_soon(x->c);
}

void exchange_set_ops(struct exchange *x, const struct exchange_ops *ops, void *data)
{
	x->ops = ops;
	x->data = data;
	look_again(x);
}

void *exchange_data(const struct exchange *x)
{
	return x->data;
}

void exchange_collect(struct exchange *x, size_t limit,
		      void (*done)(struct exchange *x, char *data, size_t size))
{
	x->collected = done;
	x->body_limit = limit;
	/* said later, by the loop: x is the caller's until it returns */
	x->too_large = x->head.body_size != UINT64_MAX && x->head.body_size > limit;
	look_again(x);
}

void exchange_drop_body(struct exchange *x)
{
	free(TAKE_PTR(x->body));
	x->body_size = x->body_room = 0;
}

void exchange_pause(struct exchange *x)
{
	x->paused = true;
	connection_touched(x->c);
}

void exchange_resume(struct exchange *x)
{
	if (!x->paused)
		return;
	x->paused = false;
	connection_soon(x->c);
}

bool exchange_wants_body(const struct exchange *x)
{
	return x->collected || (x->ops && x->ops->on_body);
}

/* Room grows with what has come, not with what was announced. 0, or the status to refuse it with. */
static int keep_body(struct exchange *x, const char *data, size_t size)
{
	if (x->body_size + size + 1 > x->body_room) {
		size_t room = x->body_room ? 2 * x->body_room : 1024;
		char *bigger;

		while (room < x->body_size + size + 1)
			room *= 2;
		if (room > x->body_limit + 1)
			room = x->body_limit + 1;
		if (x->ops && x->ops->on_body_room && !x->ops->on_body_room(x, room))
			return 429;
		bigger = realloc(x->body, room);
		if (!bigger)
			return 503;
		x->body = bigger;
		x->body_room = room;
	}
	memcpy(x->body + x->body_size, data, size);
	x->body_size += size;
	x->body[x->body_size] = '\0';
	return 0;
}

void exchange_body(struct exchange *x, const char *data, size_t size)
{
	x->continued = true;
	if (x->collected) {
		int status = size > x->body_limit - x->body_size ? 413 : keep_body(x, data, size);

		if (status)
			connection_refuse(x->c, status,
					  status == 413   ? "the body is too large"
					  : status == 429 ? "too many large bodies at a time"
							  : "out of memory");
	} else if (x->ops && x->ops->on_body) {
		x->ops->on_body(x, data, size);
	}
}

void exchange_tell_end(struct exchange *x)
{
	void (*collected)(struct exchange *, char *, size_t) = x->collected;

	if (x->end_told || x->paused)
		return;
	if (collected && !x->taken) {
		if (!x->body && !(x->body = calloc(1, 1))) {
			connection_refuse(x->c, 503, "out of memory");
			return;
		}
		x->end_told = true;
		collected(x, x->body, x->body_size);
	} else if (x->ops && x->ops->on_body_end) {
		x->end_told = true;
		x->ops->on_body_end(x);
	}
}

/* ---- the answer ---- */

static bool may_keep(const struct exchange *x)
{
	const struct connection *c = x->c;

	if (x->head.close || c->server->stopped || (c->eof && !c->in.size))
		return false;
	if (!c->body_open)
		return true;
	return !c->framing.chunked && c->framing.left <= DRAIN_MAX &&
	       (!x->head.expects || x->continued);
}

static bool without_body(const struct exchange *x, int status)
{
	return status < 200 || status == 204 || status == 304 ||
	       strcmp(x->head.method, "HEAD") == 0;
}

/* The header into text; the rest of what a handler says is not taken once the answer is bodiless. */
static size_t begin(struct exchange *x, char *text, int *status, const char *type,
		    const char **fields, uint64_t size)
{
	enum answer_body kind = ANSWER_SIZED;
	bool head = strcmp(x->head.method, "HEAD") == 0;

	if (*fields && !answer_fields_ok(*fields)) {
		*status = 500;
		*fields = NULL;
	}
	x->began = true;
	x->keep = may_keep(x);
	x->bodiless = without_body(x, *status);
	if (size == UINT64_MAX) {
		kind = x->head.http10 ? ANSWER_TO_END : ANSWER_CHUNKED;
		x->keep &= kind == ANSWER_CHUNKED || x->bodiless;
	}
	if (x->bodiless && !head)
		kind = ANSWER_BODILESS;
	x->chunked = kind == ANSWER_CHUNKED && !x->bodiless;
	x->sized = kind == ANSWER_SIZED && !x->bodiless;
	x->left = x->sized ? size : 0;
	return answer_head(x->c->server, text, *status, type, kind, size, !x->keep);
}

static void finish(struct exchange *x, bool keep)
{
	struct connection *c = x->c;

	c->x = NULL;
	exchange_free(x);
	connection_next(c, keep);
}

void exchange_reply(struct exchange *x, int status, const char *type, const char *fields,
		    const void *data, size_t size)
{
	char text[ANSWER_HEAD_MAX];
	size_t n;

	if (x->began) {
		exchange_end(x, false);
		return;
	}
	n = begin(x, text, &status, type, &fields, size);

	struct iovec iov[] = {
		{text, n},
		{(void *)(uintptr_t)fields, fields ? strlen(fields) : 0},
		{(void *)(uintptr_t) "\r\n", 2},
		{(void *)(uintptr_t)data, x->bodiless ? 0 : size},
	};

	wire_write(x->c, iov, ARRAY_SIZE(iov));
	finish(x, x->keep);
}

void exchange_begin(struct exchange *x, int status, const char *type, const char *fields,
		    uint64_t size)
{
	struct connection *c = x->c;
	char text[ANSWER_HEAD_MAX];
	size_t n;

	if (x->began)
		return;
	n = begin(x, text, &status, type, &fields, size);
	/* goes out with the first piece of the body, or in the next turn of the loop */
	if (!bytes_add(&c->out, text, n) ||
	    (fields && !bytes_add(&c->out, fields, strlen(fields))) ||
	    !bytes_add(&c->out, "\r\n", 2))
		c->broken = true;
	connection_soon(c);
}

bool exchange_write(struct exchange *x, const void *data, size_t size)
{
	struct connection *c = x->c;
	char line[24];
	struct iovec iov[3] = {{line, 0}, {(void *)(uintptr_t)data, size}, {NULL, 0}};

	if (c->broken || !x->began)
		return false;
	if (x->sized && size > x->left)
		iov[1].iov_len = size = (size_t)x->left;
	if (size > 0 && !x->bodiless) {
		if (x->chunked) {
			iov[0].iov_len = (size_t)snprintf(line, sizeof line, "%zx\r\n", size);
			iov[2] = (struct iovec){(void *)(uintptr_t) "\r\n", 2};
		}
		if (x->sized)
			x->left -= size;
		wire_write(c, iov, ARRAY_SIZE(iov));
		connection_touched(c);
	}
	x->room_owed |= c->out.size >= OUT_ENOUGH;
	return !c->broken && c->out.size < OUT_ENOUGH;
}

/* The end of an answer that only the connection's end delimits: a reset tells it from a complete one. */
static void cut(struct connection *c)
{
	struct linger hard = {.l_onoff = 1, .l_linger = 0};

	setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
	c->broken = true;
}

static void end(struct exchange *x, bool complete, const char *fields)
{
	struct iovec iov[] = {{(void *)(uintptr_t) "0\r\n", 3},
			      {(void *)(uintptr_t)fields, strlen(fields)},
			      {(void *)(uintptr_t) "\r\n", 2}};
	struct connection *c = x->c;

	if (!x->began && complete) {
		exchange_reply(x, 500, NULL, NULL, NULL, 0);
		return;
	}
	complete &= !x->left;
	if (!complete && !x->sized && !x->chunked && !x->taken)
		cut(c);
	else if (complete && x->chunked)
		wire_write(c, iov, ARRAY_SIZE(iov));
	else if (c->out.size && !c->blocked)
		wire_flush(c);
	finish(x, x->keep && complete && !x->taken);
}

void exchange_end(struct exchange *x, bool complete)
{
	end(x, complete, "");
}

/* A list of codings, each perhaps with a weight: only the bare word is looked for. */
bool exchange_takes_trailers(const struct exchange *x)
{
	const char *te = exchange_field(x, "te");

	while (te && *te) {
		size_t n = strcspn(te, ", \t;");

		if (n == 8 && strncasecmp(te, "trailers", 8) == 0)
			return true;
		te += n + (te[n] != '\0');
	}
	return false;
}

void exchange_end_with(struct exchange *x, const char *fields)
{
	end(x, true, exchange_takes_trailers(x) ? fields : "");
}

bool exchange_began(const struct exchange *x)
{
	return x->began;
}

void exchange_take_over(struct exchange *x, const char *head, size_t size)
{
	struct connection *c = x->c;
	struct iovec iov = {(void *)(uintptr_t)head, size};

	if (x->began)
		return;
	x->began = x->taken = true;
	x->end_told = x->paused = false;
	/* the rest of a body would be taken for the new protocol */
	c->broken |= c->body_open;
	wire_write(c, &iov, 1);
	connection_soon(c);
}

void exchange_wait_patiently(struct exchange *x)
{
	x->patient = true;
	connection_soon(x->c);
}

void exchange_end_writing(struct exchange *x)
{
	x->wrote_end = true;
	connection_soon(x->c);
}
