/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mcp.c - /mcp: the Model Context Protocol as Streamable HTTP.
 *
 * POST carries one message (or a batch, in 2025-03-26) and is answered with JSON; with a stream of events when the
 * request wants progress told. A POST whose client goes away cancels what it asked for: nobody would ever see
 * the answer. There is no stream of our own (GET is 405), and nothing is told that was not asked for.
 *
 * In the handshake revisions "initialize" makes a session, whose id every later request names; it belongs to
 * its owner, and others are told that it is not there. In 2026-07-28 there is none, and what the header fields say
 * must be what the body says: whoever routes by them must not be led past anything.
 */
#include <string.h>

#include "base/fd.h"
#include "base/json.h"
#include "service/handlers.h"
#include "service/mcp_gate.h"

#define META_VERSION "io.modelcontextprotocol/protocolVersion"

/* A request of HTTP that waits for answers. It is the call's data. */
struct mcp_post {
	struct mcp_post *next;
	struct mcp_channel *channel;
	struct call *call;
	json_t *ids;   /* of the requests it carries */
	json_t *token; /* whose progress it wants told; NULL: none */
	bool batch, stream, initializes;
};

/* ---- answers ---- */

static void forget(struct call *c)
{
	struct mcp_post *p = c->data, **at = &p->channel->posts;

	while (*at != p)
		at = &(*at)->next;
	*at = p->next;
	if (p->channel->current == p)
		p->channel->current = NULL;
	if (!*p->channel->id)
		p->channel->over = true;
	p->channel->used_us = now_us();
	json_decref(p->ids);
	json_decref(p->token);
}

static void event(struct exchange *x, const json_t *message)
{
	_cleanup_free_ char *text = json_dumps(message, JSON_OUT);

	if (!text)
		return;
	exchange_write(x, "event: message\ndata: ", 21);
	exchange_write(x, text, strlen(text));
	exchange_write(x, "\n\n", 2);
}

/* Errors of the protocol that HTTP has a word for, too. */
static int status_of(const struct mcp_channel *ch, const json_t *message)
{
	const json_t *error = json_object_get(message, "error");
	json_int_t code = json_integer_value(json_object_get(error, "code"));

	if (!error)
		return 200;
	if (!*ch->id && code == RPC_METHOD_NOT_FOUND)
		return 404;
	return code == RPC_UNSUPPORTED_VERSION || json_is_null(json_object_get(message, "id"))
		       ? 400
		       : 200;
}

/* Takes the message over; the post is gone afterwards. */
static void answer(struct mcp_post *p, json_t *message)
{
	int status = status_of(p->channel, message);
	bool stream = p->stream;
	struct call *c = p->call;
	struct exchange *x = c->x;
	char fields[80] = "";

	if (p->initializes && json_object_get(message, "result"))
		snprintf(fields, sizeof fields, "Mcp-Session-Id: %s\r\n", p->channel->id);
	else if (p->initializes)
		p->channel->over = true;
	c->service->metrics.requests[status / 100]++;
	call_free(c);
	if (!stream) {
		reply_json_as(x, status, "application/json", *fields ? fields : NULL, message);
		return;
	}
	event(x, message);
	json_decref(message);
	exchange_end(x, true);
}

static bool has_id(const struct mcp_post *p, const json_t *id)
{
	json_t *one;
	size_t i;

	json_array_foreach(p->ids, i, one)
		if (json_equal(one, id))
			return true;
	return false;
}

/* Whose answer this is: by its id; what has none is about the message that is being taken. */
static struct mcp_post *post_of(const struct mcp_channel *ch, const json_t *message)
{
	const json_t *first = json_is_array(message) ? json_array_get(message, 0) : message;
	const json_t *id = json_object_get(first, "id");
	struct mcp_post *p = ch->posts;

	if (json_is_null(id))
		return ch->current;
	while (p && !(p->batch == json_is_array(message) && has_id(p, id)))
		p = p->next;
	return p ? p : ch->current;
}

static void tell_progress(const struct mcp_channel *ch, const json_t *message)
{
	const json_t *token = json_object_get(json_object_get(message, "params"), "progressToken");

	for (struct mcp_post *p = ch->posts; p && token; p = p->next)
		if (p->stream && json_equal(p->token, token))
			event(p->call->x, message);
}

void mcp_said(struct mcp_channel *ch, json_t *message)
{
	struct mcp_post *p;

	if (json_object_get(message, "method")) {
		tell_progress(ch, message);
		json_decref(message);
		return;
	}
	p = post_of(ch, message);
	if (p)
		answer(p, message);
	else
		json_decref(message);
}

/* ---- requests ---- */

/* The client has gone: what it asked for is ended, and answered to nobody. */
static void gone(struct call *c)
{
	struct mcp_post *p = c->data;
	struct mcp_channel *ch = p->channel;
	json_t *ids = json_incref(p->ids), *id;
	size_t i;

	forget(c);
	c->release = NULL;
	json_array_foreach(ids, i, id)
		mcp_cancel(ch->mcp, id);
	json_decref(ids);
	gate_sweep(ch->service);
}

static void keep_id(struct mcp_post *p, const json_t *message)
{
	json_t *id = json_object_get(message, "id");

	if (id && json_object_get(message, "method"))
		json_array_append(p->ids, id);
}

/* Whether the client takes a stream and wants one. */
static bool wants_stream(const struct call *c, const struct mcp_post *p)
{
	const char *accept = exchange_field(c->x, "accept");

	return p->token && !p->initializes && accept && strstr(accept, "text/event-stream");
}

static struct mcp_post *post_new(struct call *c, struct mcp_channel *ch)
{
	struct mcp_post *p = calloc(1, sizeof *p);
	const char *method = json_string_value(json_object_get(c->body, "method"));
	const json_t *meta = json_object_get(json_object_get(c->body, "params"), "_meta");
	json_t *one;
	size_t i;

	if (!p)
		return NULL;
	*p = (struct mcp_post){.next = ch->posts,
			       .channel = ch,
			       .call = c,
			       .ids = json_array(),
			       .token = json_incref(json_object_get(meta, "progressToken")),
			       .batch = json_is_array(c->body),
			       .initializes = method && strcmp(method, "initialize") == 0 &&
					      !json_object_get(meta, META_VERSION)};
	keep_id(p, c->body);
	json_array_foreach(c->body, i, one)
		keep_id(p, one);
	p->stream = wants_stream(c, p);
	ch->posts = p;
	c->data = p;
	c->release = forget;
	c->gone = gone;
	return p;
}

/* Nothing to answer; the post goes with the call. */
static void accept_message(struct call *c)
{
	struct exchange *x = c->x;

	c->service->metrics.requests[2]++;
	call_free(c);
	exchange_reply(x, 202, NULL, NULL, NULL, 0);
}

/* Let the channel hear it. Whoever waits is answered now or later; a notification at once. */
static void say(struct call *c, struct mcp_channel *ch)
{
	struct service *v = c->service;
	struct mcp_post *p = post_new(c, ch);
	json_t *body = json_incref(c->body);
	struct err e = {0};

	if (!p) {
		json_decref(body);
		e.code = PROBLEM_UNAVAILABLE;
		call_problem(c, &e);
		return;
	}
	if (p->stream)
		exchange_begin(c->x, 200, "text/event-stream", "Cache-Control: no-store\r\n",
			       UINT64_MAX);
	ch->current = p;
	mcp_message(ch->mcp, body);
	json_decref(body);
	if (ch->current == p && json_array_size(p->ids) == 0)
		accept_message(c);
	ch->current = NULL;
	gate_sweep(v);
}

/* ---- which conversation ---- */

static int refuse_rpc(struct call *c, int code, const char *text)
{
	struct exchange *x = c->x;
	json_t *message = rpc_error(json_object_get(c->body, "id"), code, text, NULL);

	c->service->metrics.requests[4]++;
	call_free(c);
	reply_json_as(x, 400, "application/json", NULL, message);
	return -1;
}

/* From 2026-07-28 on the header says what the body says. -1 when it was refused. */
static int check_fields(struct call *c)
{
	const json_t *params = json_object_get(c->body, "params");
	const json_t *meta = json_object_get(params, "_meta");
	const char *version = json_string_value(json_object_get(meta, META_VERSION));
	const char *wrong = mcp_meta_wrong(params);
	const char *method = json_string_value(json_object_get(c->body, "method"));
	const char *uri = json_string_value(json_object_get(params, "uri"));
	const char *name = json_string_value(json_object_get(params, "name"));
	const struct {
		const char *field, *want;
	} rows[] = {{"mcp-protocol-version", version},
		    {"mcp-method", method},
		    {"mcp-name", name ? name : uri}};

	if (wrong)
		return refuse_rpc(c, RPC_INVALID_PARAMS, wrong);
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		const char *got = exchange_field(c->x, rows[i].field);

		if (rows[i].want ? !got || strcmp(got, rows[i].want) != 0 : got != NULL)
			return refuse_rpc(c, RPC_HEADER_MISMATCH,
					  "the header fields are not what the message says");
	}
	return 0;
}

static bool is_revision(const char *text)
{
	for (int i = 0; i < MCP_REVISIONS; i++)
		if (strcmp(mcp_revisions[i], text) == 0)
			return true;
	return false;
}

static struct mcp_channel *session_of(struct call *c, struct err *e)
{
	const char *id = exchange_field(c->x, "mcp-session-id");
	const char *version = exchange_field(c->x, "mcp-protocol-version");
	const char *method = json_string_value(json_object_get(c->body, "method"));
	struct mcp_channel *ch;

	if (version && !is_revision(version)) {
		err_set(e, 0, "MCP-Protocol-Version: unknown revision");
		return NULL;
	}
	if (!id && method && strcmp(method, "initialize") == 0)
		return gate_open(c->service, c->owner, c->admin, true, e);
	if (!id) {
		err_set(e, 0, "send Mcp-Session-Id, as the answer to initialize had it");
		return NULL;
	}
	ch = gate_find(c->service, c->owner, id);
	if (!ch)
		problem_set(e, PROBLEM_NOT_FOUND, "no such MCP session: initialize anew");
	return ch;
}

/* By what the message says; or by the header, where there is no session that it could belong to and none is begun. */
static bool is_stateless(const struct call *c)
{
	const json_t *meta = json_object_get(json_object_get(c->body, "params"), "_meta");
	const char *method = json_string_value(json_object_get(c->body, "method"));
	const char *version = exchange_field(c->x, "mcp-protocol-version");

	if (json_is_string(json_object_get(meta, META_VERSION)))
		return true;
	return version && strcmp(version, mcp_revisions[MCP_2026_07_28]) == 0 && method &&
	       strcmp(method, "initialize") != 0 && !exchange_field(c->x, "mcp-session-id");
}

void mcp_post(struct call *c)
{
	struct mcp_channel *ch;
	struct err e = {0};

	if (is_stateless(c)) {
		if (check_fields(c) < 0)
			return;
		ch = gate_open(c->service, c->owner, c->admin, false, &e);
	} else {
		ch = session_of(c, &e);
	}
	if (ch)
		say(c, ch);
	else
		call_problem(c, &e);
}

void mcp_delete(struct call *c)
{
	const char *id = exchange_field(c->x, "mcp-session-id");
	struct mcp_channel *ch = id ? gate_find(c->service, c->owner, id) : NULL;
	struct service *v = c->service;
	struct err e = {0};

	if (!ch) {
		problem_set(&e, PROBLEM_NOT_FOUND, "no such MCP session");
		call_problem(c, &e);
		return;
	}
	ch->over = true;
	call_reply(c, 204, NULL);
	gate_sweep(v);
}
