/* SPDX-License-Identifier: Apache-2.0 */
/*
 * forward.c - requests of one client, one after the other: read, judged, routed, sent; and its answer back.
 *
 * Every request is decided anew, whatever came before it on this connection. One request goes upstream for each
 * that is allowed, once: when the upstream fails, the client is told and may try again. An upstream's connection is
 * used again for the same host and port while nothing is on it that nobody asked for.
 */
#include "egress/forward.h"

#include <errno.h>
#include <string.h>

const struct http_limits forward_limits = {
	.header_bytes = LIMIT_HEADER_BYTES,
	.fields = LIMIT_HEADER_FIELDS,
	.path_bytes = LIMIT_TARGET_BYTES,
};

/* More than a header may have, so that one that is too large is seen to be. */
enum { KEPT_MAX = LIMIT_HEADER_BYTES + 4096 };

static enum step forward_step(struct connection *c);

void forward_count(struct connection *c, uint64_t *counter, size_t bytes)
{
	*counter += bytes;
	c->egress->totals.bytes += bytes;
}

/* ---- refusals ---- */

static enum step answer_failure(struct connection *c, const struct failure *f)
{
	bool began = c->forward->began;

	return began ? connection_close(c, true) : problem_answer(c, f, !c->forward->bodiless);
}

static void refuse(struct connection *c, const struct failure *f)
{
	(void)answer_failure(c, f);
}

static enum step bad_request(struct connection *c, int status, const char *detail)
{
	struct failure f = {status, "bad_request", 0, ""};

	snprintf(f.detail, sizeof f.detail, "%s", detail);
	return answer_failure(c, &f);
}

/* The request is denied, not the connection it came by: a record of its own. */
static enum step deny_request(struct connection *c, const struct network_answer *a)
{
	struct egress_record r = {
		.verdict = EGRESS_DENIED, .port = c->port, .started_ms = record_wall_ms()};
	struct failure f = {403, "network_denied", 2, ""};

	snprintf(r.host, sizeof r.host, "%s", c->host);
	snprintf(r.method, sizeof r.method, "%s", c->forward->request.method);
	snprintf(r.path, sizeof r.path, "%.*s", (int)sizeof r.path - 1, c->forward->path);
	record_rule(&r, a);
	record_put(c->egress, &r);
	snprintf(f.detail, sizeof f.detail, "%s", a->why);
	f.rule = a->rule;
	f.missing = a->missing;
	return answer_failure(c, &f);
}

enum step forward_upstream_failed(struct connection *c, const char *why)
{
	struct forward *f = c->forward;
	struct failure failure = {502, "upstream_failed", 5, ""};

	record_end(c, EGRESS_FAILED, why);
	/* It had closed its kept-alive connection: the client sees what it would see without us, and tries again. */
	if (f->used && !f->heard)
		return connection_close(c, true);
	snprintf(failure.detail, sizeof failure.detail, "%s", why);
	return answer_failure(c, &failure);
}

static enum step on_late(struct connection *c)
{
	struct forward *f = c->forward;
	struct failure failure = {504, "upstream_timeout", 4, "no answer in time"};

	if (f->request_at == REQUEST_HEAD && !f->header_due)
		return connection_close(c, false);
	if (f->request_at == REQUEST_HEAD || (f->request_at == REQUEST_BODY && !f->heard))
		return bad_request(c, 408, "the request did not come in time");
	record_end(c, EGRESS_FAILED, failure.detail);
	return answer_failure(c, &failure);
}

/* ---- the request is judged ---- */

void forward_ask(const struct connection *c, struct network_ask *ask)
{
	const struct forward *f = c->forward;

	if (!f || f->request_at < REQUEST_ROUTE)
		return;
	ask->method = f->upgrade ? "WEBSOCKET" : f->request.method;
	ask->path = f->path;
}

static const char *forbidden(const struct head *h)
{
	if (strcmp(h->method, "TRACE") == 0)
		return "TRACE, which would show what was added to the request";
	if (strcmp(h->method, "CONNECT") == 0)
		return "CONNECT inside of a connection";
	if (head_field(h, "max-forwards"))
		return "Max-Forwards, which would have another proxy answer";
	return NULL;
}

static void drop_upstream(struct connection *c)
{
	record_end(c, EGRESS_ALLOWED, NULL);
	side_close(c->upstream, false);
	c->upstream = NULL;
	bytes_done(&c->forward->back);
}

static enum step deny_because(struct connection *c, const char *why)
{
	struct network_answer a = {.verdict = VERDICT_DENY};

	snprintf(a.why, sizeof a.why, "%s", why);
	return deny_request(c, &a);
}

/* Do method and path, or what is added, make a difference here? */
static bool is_looked_at(const struct connection *c)
{
	const struct network_ask ask = {.host = c->host, .port = c->port, .tls = c->tls};
	struct network_answer all;

	network_decide(c->egress->settings.request, c->egress->settings.ceiling, &ask, &all);
	return all.verdict != VERDICT_ALLOW || c->forward->credential;
}

/* A rule that lets any bytes through lets these through; where something is looked at, it has to be said. And what comes
 * back by it could not be searched for a secret. */
static const char *upgrade_fault(const struct connection *c, const struct network_answer *a)
{
	if (c->forward->credential)
		return "an upgrade to WebSocket on a route with a credential, which could come back by it unseen";
	if (!a->websocket && c->forward->looked_at)
		return "an upgrade to WebSocket, which no rule allows here";
	return NULL;
}

/* The secret goes into TLS only, or where the operator's rule for plain HTTP names it. */
static bool in_clear(const struct connection *c, const struct network_answer *a)
{
	return c->forward->credential && !c->tls && !a->credential;
}

static enum step decide(struct connection *c)
{
	struct forward *f = c->forward;
	struct network_ask ask = {.host = c->host, .port = c->port, .tls = c->tls};
	struct network_answer a;
	const char *fault;

	f->upgrade = request_is_upgrade(&f->request);
	f->credential = credential_for(&c->egress->settings, c->host, c->port);
	f->looked_at = is_looked_at(c);
	f->request_at = REQUEST_ROUTE;
	forward_ask(c, &ask);
	network_decide(c->egress->settings.request, c->egress->settings.ceiling, &ask, &a);
	if (a.verdict != VERDICT_ALLOW)
		return deny_request(c, &a);
	if (in_clear(c, &a))
		return deny_because(
			c,
			"a credential is for this host, and is not sent in the clear: use https");
	fault = f->upgrade ? upgrade_fault(c, &a) : NULL;
	return fault ? deny_because(c, fault) : STEP_AGAIN;
}

static bool keep_texts(struct forward *f, const char *target)
{
	f->target = f->request.text + (target - f->request.text);
	f->path = strndup(target, strcspn(target, "?"));
	return f->path;
}

static enum step judge(struct connection *c)
{
	struct forward *f = c->forward;
	const char *fault = forbidden(&f->request);
	struct request_aim aim = {0};
	struct failure failure;

	f->bodiless = strcmp(f->request.method, "HEAD") == 0;
	f->keep_client = !f->request.close;
	if (f->proxy && strcmp(f->request.method, "CONNECT") == 0)
		return proxy_connect(c, &f->request);
	if (fault)
		return bad_request(c, 405, fault);
	fault = request_aim(&f->request, f->proxy, &aim);
	if (fault)
		return bad_request(c, 400, fault);
	if (aim.host && !aim_at(c, aim.host, aim.host_size, aim.port, &failure))
		return answer_failure(c, &failure);
	if (!c->name.s_addr || !f->proxy) {
		if (!request_host_agrees(&f->request, c->host, c->port, c->tls))
			return bad_request(c, 400,
					   "the Host field is not the host that is asked for");
	}
	if (!keep_texts(f, *aim.target ? aim.target : "/"))
		return bad_request(c, 503, "out of memory");
	return decide(c);
}

/* ---- it is routed and sent ---- */

static bool send_head(struct connection *c)
{
	struct bytes b = {.secret = c->forward->credential};
	bool ok;

	/* What is not taken at once, and an answer that shows it, lie in memory, too. */
	c->upstream->out.secret |= b.secret;
	c->forward->back.secret |= b.secret;
	ok = request_write(c, &b) && side_write(c->upstream, b.data + b.start, b.size);
	forward_count(c, &c->record.sent, b.size);
	bytes_done(&b);
	return ok;
}

static enum step send_request(struct connection *c)
{
	static const char go_on[] = "HTTP/1.1 100 Continue\r\n\r\n";
	struct forward *f = c->forward;

	c->step = forward_step;
	c->refuse = refuse;
	snprintf(c->record.credential, sizeof c->record.credential, "%s",
		 f->credential ? f->credential->name : "");
	redactor_free(TAKE_PTR(f->redactor));
	if (f->credential)
		f->redactor = redactor_dup(c->egress->redactor);
	if (f->credential && !f->redactor)
		return bad_request(c, 503, "out of memory");
	f->answer_at = ANSWER_HEAD;
	f->request_at = f->request.body_size ? REQUEST_BODY : REQUEST_SENT;
	framing_begin(&f->body, f->request.body_size);
	if (!send_head(c))
		return forward_upstream_failed(
			c, "the connection was lost while the request was sent");
	if (f->request.expects && !side_write(c->client, go_on, sizeof go_on - 1))
		return connection_close(c, true);
	connection_wait(c, WAIT_ANSWER, on_late);
	return STEP_AGAIN;
}

static enum step upstream_shake(struct connection *c)
{
	struct side *s = c->upstream;
	struct err e = {0};
	int r = stream_shake(&s->stream, &e);

	s->want_read = r == 0 && s->stream.want_read;
	s->want_write = r == 0 && s->stream.want_write;
	if (r == 0)
		return STEP_WAIT;
	if (r < 0)
		return connect_fail(c, 502, "%s", e.text);
	return send_request(c);
}

static enum step upstream_late(struct connection *c)
{
	return connect_fail(c, 504, "%s port %u: TLS did not come about within %d s", c->host,
			    c->port, LIMIT_CONNECT_MS / 1000);
}

static enum step shake_first(struct connection *c)
{
	c->step = upstream_shake;
	c->refuse = refuse;
	connection_wait(c, WAIT_CONNECT, upstream_late);
	return STEP_AGAIN;
}

static enum step on_connected(struct connection *c)
{
	struct forward *f = c->forward;
	struct err e = {0};

	snprintf(f->host, sizeof f->host, "%s", c->host);
	f->port = c->port;
	f->used = false;
	c->refuse = refuse;
	if (!c->tls)
		return send_request(c);
	if (stream_connect_tls(&c->upstream->stream, c->egress->trust, c->host, &e) < 0)
		return connect_fail(c, 502, "%s", e.text);
	return shake_first(c);
}

/* Kept alive, for the same place, and silent. */
static bool fits(struct connection *c)
{
	struct forward *f = c->forward;

	if (!c->upstream || f->port != c->port || strcmp(f->host, c->host) != 0)
		return false;
	return c->upstream->stream.shaking || side_read(c->upstream) == -EAGAIN;
}

static enum step route(struct connection *c)
{
	struct forward *f = c->forward;

	if (c->fault)
		return connect_fail(c, 502, "%s", c->fault);
	if (fits(c)) {
		bool fresh = c->upstream->stream.shaking || !c->record.sent;

		f->used = !fresh;
		return c->upstream->stream.shaking ? shake_first(c) : send_request(c);
	}
	bytes_done(&f->back);
	c->refuse = refuse;
	c->connected = on_connected;
	return connect_begin(c);
}

/* Pass on a piece of the body, framed as it was declared. */
static bool send_piece(struct connection *c, const char *piece, size_t size)
{
	struct egress *g = c->egress;
	int n = 0;

	forward_count(c, &c->record.sent, size);
	if (c->forward->request.body_size != UINT64_MAX)
		return side_write(c->upstream, piece, size);
	n = snprintf(g->chunk, sizeof g->chunk, "%zx\r\n", size);
	memcpy(g->chunk + n, piece, size);
	memcpy(g->chunk + n + size, "\r\n", 2);
	return side_write(c->upstream, g->chunk, (size_t)n + size + 2);
}

static size_t use_head(struct connection *c, const char *data, size_t size)
{
	struct forward *f = c->forward;
	struct refusal why;
	size_t used;

	switch (head_scan(&f->scan, data, size, &forward_limits, &why)) {
	case HEAD_MORE:
		return 0;
	case HEAD_BAD:
		bad_request(c, why.status, why.detail);
		return size;
	case HEAD_COMPLETE:
		break;
	}
	used = f->scan.seen;
	f->scan = (struct head_scan){0};
	if (head_parse(data, used, HEAD_PROXY, &forward_limits, &f->parser, &f->request, &why) <
	    0) {
		bad_request(c, why.status, why.detail);
		return size;
	}
	f->request_at = REQUEST_ROUTE; /* judged when what came is accounted for */
	return used;
}

static size_t use_body(struct connection *c, const char *data, size_t size)
{
	struct forward *f = c->forward;
	size_t done = 0;

	while (c->upstream->out.size == 0 || (!f->body.chunked && f->body.left == 0)) {
		const char *piece = NULL;
		size_t used = 0, n = 0;

		switch (framing_step(&f->body, &f->parser, data + done, size - done, &used, &piece,
				     &n)) {
		case FRAMING_MORE:
			return done;
		case FRAMING_BAD:
			bad_request(c, 400, "a body whose chunks break the rules");
			return size;
		case FRAMING_END:
			f->request_at = REQUEST_SENT;
			if (f->request.body_size == UINT64_MAX &&
			    !side_write(c->upstream, "0\r\n\r\n", 5))
				c->upstream->lost = true;
			return done + used;
		case FRAMING_PIECE:
			if (!send_piece(c, piece, n))
				return size;
			break;
		case FRAMING_ON:
			break;
		}
		done += used;
	}
	return done;
}

size_t forward_use_request(struct connection *c, const char *data, size_t size)
{
	switch (c->forward->request_at) {
	case REQUEST_HEAD:
		return use_head(c, data, size);
	case REQUEST_BODY:
		return use_body(c, data, size);
	default:
		return 0;
	}
}

/* ---- the order of things ---- */

typedef size_t (*use_function)(struct connection *c, const char *data, size_t size);

/* Something in there refused, ended, or handed the connection on. */
static bool moved_on(const struct connection *c)
{
	return c->over || c->step != forward_step;
}

static ssize_t read_on(struct connection *c, struct side *s, struct bytes *kept, use_function use)
{
	struct egress *g = c->egress;
	ssize_t n = side_read(s);
	size_t used = n > 0 ? use(c, g->buffer, (size_t)n) : 0;

	if (n <= 0 || moved_on(c) || used == (size_t)n)
		return n;
	return bytes_add(kept, g->buffer + used, (size_t)n - used) ? n : -ENOMEM;
}

/* Use what is kept, else read more and use that. 1: went on, 0: nothing now, -1: it has ended or is lost. */
static int pump(struct connection *c, struct side *s, struct bytes *kept, uint64_t *count,
		use_function use)
{
	size_t used = kept->size ? use(c, kept->data + kept->start, kept->size) : 0;
	ssize_t n;

	if (moved_on(c))
		return 1;
	if (used) {
		bytes_drop(kept, used);
		return 1;
	}
	n = kept->size ? side_read_into(s, kept, KEPT_MAX) : read_on(c, s, kept, use);
	if (n > 0 && count && c->recording)
		forward_count(c, count, (size_t)n);
	if (moved_on(c))
		return 1;
	s->want_read = n == -EAGAIN;
	return n > 0 ? 1 : n == -EAGAIN || n == -ENOBUFS ? 0 : -1;
}

/* A body waits while the upstream has something queued; what comes behind a request waits for its answer. */
static int pump_client(struct connection *c)
{
	c->client->want_read = false;
	if (c->upstream && c->upstream->out.size)
		return 0;
	return pump(c, c->client, &c->in, NULL, forward_use_request);
}

static int pump_upstream(struct connection *c)
{
	struct forward *f = c->forward;

	if (!c->upstream || f->answer_at == ANSWER_DONE)
		return 0;
	c->upstream->want_read = false;
	if (f->answer_at == ANSWER_NONE || c->client->out.size)
		return 0;
	return pump(c, c->upstream, &f->back, &c->record.received, answer_use);
}

/* An upstream that says or ends something while nobody asked is not used again. */
static void watch_idle(struct connection *c)
{
	open_shake_upstream(c);
	if (!c->upstream || c->upstream->stream.shaking)
		return;
	if (side_read(c->upstream) == -EAGAIN)
		c->upstream->want_read = true;
	else
		drop_upstream(c);
}

/* An answer may have shown the secret, before it was taken out. */
static void wipe_answer(struct connection *c)
{
	if (c->forward->credential)
		explicit_bzero(c->egress->buffer, sizeof c->egress->buffer);
}

static void forget_request(struct forward *f)
{
	head_done(&f->request);
	free(TAKE_PTR(f->path));
	f->target = NULL;
	f->upgrade = f->looked_at = f->bodiless = f->began = f->heard = f->header_due = false;
	f->credential = NULL;
	f->interim = 0;
	f->request_at = REQUEST_HEAD;
	f->answer_at = ANSWER_NONE;
}

static enum step answered(struct connection *c)
{
	struct forward *f = c->forward;
	bool whole = f->request_at == REQUEST_SENT;

	if (f->upgrade && f->raw)
		return tunnel_begin(c, false, &f->back);
	if (c->upstream && (!f->keep_upstream || !whole || f->back.size))
		drop_upstream(c);
	if (!f->keep_client || !whole)
		return connection_end(c);
	wipe_answer(c);
	forget_request(f);
	connection_wait(c, WAIT_IDLE, on_late);
	return STEP_AGAIN;
}

static void set_deadline(struct connection *c)
{
	struct forward *f = c->forward;

	if (f->request_at != REQUEST_HEAD) {
		connection_wait(c, WAIT_ANSWER, on_late);
	} else if (!f->header_due && c->in.size) {
		f->header_due = true;
		connection_wait(c, WAIT_HEADER, on_late);
	}
}

static enum step forward_step(struct connection *c)
{
	struct forward *f = c->forward;
	int up, down;

	if (f->request_at == REQUEST_ROUTE)
		return f->path ? route(c) : judge(c);
	if (f->request_at == REQUEST_HEAD)
		watch_idle(c);
	up = pump_client(c);
	if (moved_on(c))
		return c->over ? STEP_OVER : STEP_AGAIN;
	if (up < 0)
		return connection_close(c, c->client->lost || f->request_at != REQUEST_HEAD);
	down = pump_upstream(c);
	if (moved_on(c))
		return c->over ? STEP_OVER : STEP_AGAIN;
	if (c->recording && !connect_quota(c))
		return connection_close(c, true);
	if (down < 0)
		return answer_ended(c);
	if (f->answer_at == ANSWER_DONE)
		return answered(c);
	if (up > 0 || down > 0)
		set_deadline(c);
	return up > 0 || down > 0 ? STEP_AGAIN : STEP_WAIT;
}

enum step forward_begin(struct connection *c, bool proxy)
{
	struct forward *f = calloc(1, sizeof *f);

	if (!f)
		return connection_close(c, true);
	c->forward = f;
	f->proxy = proxy;
	if (c->upstream) {
		snprintf(f->host, sizeof f->host, "%s", c->host);
		f->port = c->port;
	}
	c->refuse = refuse;
	c->step = forward_step;
	f->header_due = true;
	connection_wait(c, WAIT_HEADER, on_late);
	return STEP_AGAIN;
}

void forward_free(struct connection *c)
{
	struct forward *f = c->forward;

	if (!f)
		return;
	wipe_answer(c);
	c->forward = NULL;
	forget_request(f);
	bytes_done(&f->back);
	redactor_free(f->redactor);
	free(f);
}
