/* SPDX-License-Identifier: Apache-2.0 */
/*
 * answer.c - what an upstream answers: read strictly, written anew, searched for secrets where one was sent.
 *
 * An answer ends where its framing says; only one that declares none ends with its connection. Whatever breaks that
 * is cut so that the client sees it: a short answer never looks whole.
 */
#include <string.h>
#include <strings.h>

#include "egress/forward.h"

/* Connections that the client could not make, or that would carry no request of its own. */
static bool comes_down(const struct head *h, const char *name)
{
	return !request_hop_by_hop(h, name) && strcmp(name, "alt-svc") != 0;
}

static bool redacted_add(const struct forward *f, struct bytes *b, const struct field *field)
{
	if (f->credential) {
		(void)redact(f->redactor, field->name, strlen(field->name));
		(void)redact(f->redactor, field->value, strlen(field->value));
	}
	return field_add(b, field->name, field->value);
}

static bool add_framing(const struct forward *f, const struct head *h, struct bytes *b)
{
	char number[32];

	if (f->raw)
		return text_add(b, "Connection: Upgrade\r\nUpgrade: websocket\r\n");
	if (f->chunked)
		return text_add(b, "Transfer-Encoding: chunked\r\n");
	snprintf(number, sizeof number, "%llu", (unsigned long long)h->body_size);
	return h->status == 204 || h->body_size == UINT64_MAX || !head_field(h, "content-length") ||
	       field_add(b, "Content-Length", number);
}

static bool write_head(const struct forward *f, struct head *h, struct bytes *b)
{
	char line[32];

	snprintf(line, sizeof line, "HTTP/1.1 %d ", h->status);
	if (f->credential)
		(void)redact(f->redactor, h->text, strlen(h->text));
	if (!text_add(b, line) || !text_add(b, h->text) || !text_add(b, "\r\n"))
		return false;
	for (size_t i = 0; i < h->field_count; i++)
		if (comes_down(h, h->fields[i].name) && !redacted_add(f, b, &h->fields[i]))
			return false;
	if (!add_framing(f, h, b) || (!f->keep_client && !text_add(b, "Connection: close\r\n")))
		return false;
	return text_add(b, "\r\n");
}

static bool send_down(struct connection *c, const char *data, size_t size)
{
	struct egress *g = c->egress;
	int n;

	if (size == 0)
		return true;
	if (!c->forward->chunked)
		return side_write(c->client, data, size);
	for (size_t done = 0, part; done < size; done += part) {
		part = size - done < LIMIT_RELAY_BYTES ? size - done : LIMIT_RELAY_BYTES;
		n = snprintf(g->chunk, sizeof g->chunk, "%zx\r\n", part);
		memcpy(g->chunk + n, data + done, part);
		memcpy(g->chunk + n + part, "\r\n", 2);
		if (!side_write(c->client, g->chunk, (size_t)n + part + 2))
			return false;
	}
	return true;
}

static bool emit(struct connection *c, const char *data, size_t size, bool last)
{
	struct forward *f = c->forward;

	if (f->credential && redactor_feed(f->redactor, data, size, last, &data, &size) < 0)
		return false;
	return send_down(c, data, size);
}

static bool finish(struct connection *c)
{
	struct forward *f = c->forward;

	f->answer_at = ANSWER_DONE;
	return emit(c, "", 0, true) && (!f->chunked || side_write(c->client, "0\r\n\r\n", 5));
}

/* Which body it has, and what that means for both connections. */
static void settle(struct forward *f, const struct head *h)
{
	bool none = f->bodiless || h->status == 204 || h->status == 304 || h->status == 101;
	bool open_ended = h->to_end || h->body_size == UINT64_MAX;

	f->raw = h->status == 101;
	f->keep_client |= f->raw;
	f->until_end = !none && h->to_end;
	f->chunked = !none && open_ended && !f->request.http10;
	f->keep_upstream = !h->close && !f->until_end;
	if (!none && open_ended && !f->chunked)
		f->keep_client = false;
	framing_begin(&f->back_body, none ? 0 : h->body_size);
}

/* By any of its fields: a client may go by the last. */
static bool is_compressed(const struct head *h)
{
	for (size_t i = 0; i < h->field_count; i++)
		if (field_is(h->fields[i].name, "content-encoding") &&
		    strcasecmp(h->fields[i].value, "identity") != 0)
			return true;
	return false;
}

static const char *fault_of(const struct forward *f, const struct head *h)
{
	if (h->status == 101 && !f->upgrade)
		return "an answer that changes the protocol, which was not asked for";
	if (h->status < 200 && h->status != 101 && f->interim > LIMIT_INTERIM_MAX)
		return "too many answers before the answer";
	if (f->credential && is_compressed(h))
		return "a compressed answer to a request with a credential, which cannot be searched for it";
	return NULL;
}

static bool begin(struct connection *c, struct head *h)
{
	struct forward *f = c->forward;
	struct bytes b = {0};
	bool ok;

	settle(f, h);
	f->began = true;
	f->answer_at = ANSWER_BODY;
	ok = write_head(f, h, &b) && side_write(c->client, b.data + b.start, b.size);
	bytes_done(&b);
	if (f->raw)
		f->answer_at = ANSWER_DONE;
	else if (ok && !f->until_end && !f->back_body.chunked && f->back_body.left == 0)
		ok = finish(c);
	return ok;
}

static size_t refuse(struct connection *c, const char *what, size_t size)
{
	char why[256];

	snprintf(why, sizeof why, "%.140s port %u: %.80s", c->host, c->port, what);
	(void)forward_upstream_failed(c, why);
	return size;
}

static size_t use_head(struct connection *c, const char *data, size_t size)
{
	struct forward *f = c->forward;
	struct refusal why = {0};
	struct head h = {0};
	const char *fault;
	size_t used;

	switch (head_scan(&f->back_scan, data, size, &forward_limits, &why)) {
	case HEAD_MORE:
		return 0;
	case HEAD_BAD:
		return refuse(c, why.detail, size);
	case HEAD_COMPLETE:
		break;
	}
	used = f->back_scan.seen;
	f->back_scan = (struct head_scan){0};
	if (head_parse_answer(data, used, &forward_limits, &f->back_parser, &h, &why) < 0)
		return refuse(c, why.detail, size);
	f->interim += h.status < 200;
	fault = fault_of(f, &h);
	if (fault)
		refuse(c, fault, size);
	else if ((h.status >= 200 || h.status == 101) && !begin(c, &h))
		connection_close(c, true);
	head_done(&h);
	return used;
}

static size_t cut(struct connection *c, const char *why, size_t size)
{
	record_end(c, EGRESS_FAILED, why);
	connection_close(c, true);
	return size;
}

static size_t use_sized(struct connection *c, const char *data, size_t size)
{
	struct forward *f = c->forward;
	size_t done = 0;

	/* The end of a body of a given size needs no byte more: it must not wait for one. */
	while (c->client->out.size == 0 || (!f->back_body.chunked && f->back_body.left == 0)) {
		const char *piece = NULL;
		size_t used = 0, n = 0;

		switch (framing_step(&f->back_body, &f->back_parser, data + done, size - done,
				     &used, &piece, &n)) {
		case FRAMING_MORE:
			return done;
		case FRAMING_BAD:
			return cut(c, "an answer whose chunks break the rules", size);
		case FRAMING_END:
			if (!finish(c))
				return cut(c, "the client has gone", size);
			return done + used;
		case FRAMING_PIECE:
			if (!emit(c, piece, n, false))
				return cut(c, "the client has gone", size);
			break;
		case FRAMING_ON:
			break;
		}
		done += used;
	}
	return done;
}

size_t answer_use(struct connection *c, const char *data, size_t size)
{
	struct forward *f = c->forward;

	f->heard = true;
	if (f->answer_at == ANSWER_HEAD)
		return use_head(c, data, size);
	if (f->answer_at != ANSWER_BODY)
		return 0;
	if (!f->until_end)
		return use_sized(c, data, size);
	if (!emit(c, data, size, false))
		return cut(c, "the client has gone", size);
	return size;
}

enum step answer_ended(struct connection *c)
{
	struct forward *f = c->forward;

	if (f->answer_at == ANSWER_HEAD)
		return forward_upstream_failed(
			c, f->back.size ? "the upstream ended in the middle of a header"
					: "the upstream ended without an answer");
	if (f->until_end && c->upstream->ended && !c->upstream->lost && finish(c))
		return STEP_AGAIN;
	(void)cut(c, "the answer was cut off", 0);
	return STEP_OVER;
}
