/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/mcp.h"

#include <stdint.h>
#include <string.h>

#define META "io.modelcontextprotocol/"

const char *const mcp_revisions[MCP_REVISIONS] = {"2024-11-05", "2025-03-26", "2025-06-18",
						  "2025-11-25", "2026-07-28"};

/* Only 2025-03-26 has batches: the answers go together when the last one is there. */
struct mcp_batch {
	json_t *answers;
	size_t pending;
};

struct mcp {
	struct mcp_options options;
	const struct mcp_host *host;
	void *context;
	bool initialized;
	enum mcp_revision revision; /* of the handshake */
	struct mcp_call *calls;
	size_t count;
};

/* One request while it is being answered. */
struct asked {
	struct mcp *m;
	json_t *id, *params; /* params may be NULL */
	enum mcp_revision revision;
	struct mcp_batch *batch;
};

struct mcp *mcp_new(const struct mcp_options *o, const struct mcp_host *host, void *context)
{
	struct mcp *m = calloc(1, sizeof *m);

	if (m) {
		m->options = *o;
		m->host = host;
		m->context = context;
	}
	return m;
}

size_t mcp_calls(const struct mcp *m)
{
	return m->count;
}

/* ---- answers ---- */

static void batch_end_one(struct mcp *m, struct mcp_batch *b)
{
	if (--b->pending > 0)
		return;
	if (json_array_size(b->answers) > 0)
		m->host->send(m->context, TAKE_PTR(b->answers));
	json_decref(b->answers);
	free(b);
}

/* Takes over the answer; NULL: none, as of a cancelled request. */
static void give(struct mcp *m, struct mcp_batch *batch, json_t *answer)
{
	if (!batch) {
		if (answer)
			m->host->send(m->context, answer);
		return;
	}
	if (answer)
		json_array_append_new(batch->answers, answer);
	batch_end_one(m, batch);
}

static json_t *server_info(enum mcp_revision revision)
{
	json_t *info = json_pack("{ssss}", "name", "cloche", "version", CLOCHE_VERSION);

	if (revision >= MCP_2025_06_18)
		json_object_set_new(info, "title", json_string("cloche: sandboxed code"));
	return info;
}

/* What every result has from 2026-07-28 on. */
static json_t *completed(json_t *result, enum mcp_revision revision)
{
	if (revision < MCP_2026_07_28)
		return result;
	json_object_set_new(result, "resultType", json_string("complete"));
	json_object_set_new(result, "_meta",
			    json_pack("{so}", META "serverInfo", server_info(revision)));
	return result;
}

/* How long a client may keep it. What depends on flags alone never changes while we run. */
static json_t *cacheable(json_t *result, enum mcp_revision revision, int ttl_ms)
{
	if (revision < MCP_2026_07_28)
		return result;
	json_object_set_new(result, "ttlMs", json_integer(ttl_ms));
	json_object_set_new(result, "cacheScope", json_string("private"));
	return result;
}

static void answer(struct asked *q, json_t *result)
{
	give(q->m, q->batch, rpc_result(q->id, completed(result, q->revision)));
}

static void refuse(struct asked *q, int code, const char *message, json_t *data)
{
	give(q->m, q->batch, rpc_error(q->id, code, message, data));
}

/* ---- what is under way ---- */

static struct mcp_call *find_call(struct mcp *m, const json_t *id)
{
	struct mcp_call *c = m->calls;

	while (c && !json_equal(c->id, id))
		c = c->next;
	return c;
}

static void call_end(struct mcp_call *c, json_t *message)
{
	struct mcp *m = c->mcp;

	for (struct mcp_call **p = &m->calls; *p; p = &(*p)->next)
		if (*p == c) {
			*p = c->next;
			m->count--;
			break;
		}
	give(m, c->batch, message);
	json_decref(c->id);
	json_decref(c->params);
	free(c);
}

/* NULL: it was refused. */
static struct mcp_call *call_begin(struct asked *q)
{
	json_t *token = json_object_get(json_object_get(q->params, "_meta"), "progressToken");
	struct mcp_call *c = q->m->count < MCP_MAX_CALLS ? calloc(1, sizeof *c) : NULL;

	if (!c) {
		refuse(q, RPC_INTERNAL_ERROR, "too many calls at the same time; try again later",
		       NULL);
		return NULL;
	}
	*c = (struct mcp_call){.mcp = q->m,
			       .revision = q->revision,
			       .id = json_incref(q->id),
			       .params = json_incref(q->params),
			       .token = token,
			       .wants_progress = json_is_string(token) || json_is_integer(token),
			       .told = -1,
			       .batch = q->batch,
			       .next = q->m->calls};
	q->m->calls = c;
	q->m->count++;
	return c;
}

struct tool_view mcp_view(const struct mcp_call *c)
{
	struct tool_view view = c->mcp->options.view;

	view.by_id = c->revision >= MCP_2026_07_28;
	view.session = view.session && !view.by_id;
	return view;
}

/* Older clients do not know every kind of content. */
static void drop_unknown(json_t *content, enum mcp_revision revision)
{
	size_t i = json_array_size(content);

	while (revision < MCP_2025_06_18 && i-- > 0) {
		json_t *item = json_array_get(content, i);
		const char *type = json_string_value(json_object_get(item, "type"));

		if (type && strcmp(type, "resource_link") == 0)
			json_array_remove(content, i);
	}
}

void mcp_answer(struct mcp_call *c, json_t *content, json_t *structured, bool is_error)
{
	json_t *result = json_pack("{so sb}", "content", content, "isError", is_error);

	drop_unknown(content, c->revision);
	if (structured && c->revision >= MCP_2025_06_18)
		json_object_set(result, "structuredContent", structured);
	json_decref(structured);
	call_end(c, rpc_result(c->id, completed(result, c->revision)));
}

void mcp_answer_text(struct mcp_call *c, const char *text, bool is_error)
{
	mcp_answer(c, json_pack("[{ssss}]", "type", "text", "text", text), NULL, is_error);
}

void mcp_answer_resource(struct mcp_call *c, json_t *contents)
{
	json_t *result = cacheable(json_pack("{so}", "contents", contents), c->revision, 0);

	call_end(c, rpc_result(c->id, completed(result, c->revision)));
}

void mcp_refuse_resource(struct mcp_call *c)
{
	json_t *data = json_pack("{sO}", "uri", json_object_get(c->params, "uri"));
	int code = c->revision >= MCP_2026_07_28 ? RPC_INVALID_PARAMS : RPC_RESOURCE_NOT_FOUND;

	call_end(c, rpc_error(c->id, code, "no such resource", data));
}

void mcp_progress(struct mcp_call *c, double progress, double total, const char *message)
{
	json_t *params;

	if (!c->wants_progress || progress <= c->told)
		return;
	c->told = progress;
	params = json_pack("{sO sf}", "progressToken", c->token, "progress", progress);
	if (total > 0)
		json_object_set_new(params, "total", json_real(total));
	if (message && c->revision >= MCP_2025_03_26)
		json_object_set_new(params, "message", json_string(message));
	c->mcp->host->send(c->mcp->context, rpc_notification("notifications/progress", params));
}

void mcp_resources_changed(struct mcp *m)
{
	if (m->initialized && !m->options.asked_only)
		m->host->send(m->context, rpc_notification("notifications/resources/list_changed",
							   json_object()));
}

/* ---- methods ---- */

static json_t *capabilities(const struct mcp *m, enum mcp_revision revision)
{
	json_t *resources = json_object();

	/* From 2026-07-28 on it would have to be asked for, with subscriptions/listen. */
	if (revision < MCP_2026_07_28 && !m->options.asked_only)
		json_object_set_new(resources, "listChanged", json_true());
	return json_pack("{s{} so}", "tools", "resources", resources);
}

static void do_initialize(struct asked *q)
{
	const char *wanted = json_string_value(json_object_get(q->params, "protocolVersion"));
	enum mcp_revision r = 0;
	json_t *result;

	if (!wanted) {
		refuse(q, RPC_INVALID_PARAMS, "initialize needs protocolVersion", NULL);
		return;
	}
	if (q->m->initialized || q->batch) {
		refuse(q, RPC_INVALID_REQUEST,
		       q->batch ? "initialize cannot be in a batch" : "initialized already", NULL);
		return;
	}
	/* 2026-07-28 has no handshake: who asks for it here gets the last that has one. */
	while (r < MCP_2025_11_25 && strcmp(mcp_revisions[r], wanted) != 0)
		r++;
	q->m->revision = q->revision = r;
	q->m->initialized = true;
	result = json_pack("{ss so so}", "protocolVersion", mcp_revisions[r], "capabilities",
			   capabilities(q->m, r), "serverInfo", server_info(r));
	if (q->m->options.session)
		json_object_set_new(result, "_meta",
				    json_pack("{ss}", "cloche/session", q->m->options.session));
	if (q->m->options.instructions)
		json_object_set_new(result, "instructions",
				    json_string(q->m->options.instructions));
	answer(q, result);
}

static json_t *revision_list(void)
{
	json_t *list = json_array();

	for (int i = MCP_REVISIONS; i-- > 0;)
		json_array_append_new(list, json_string(mcp_revisions[i]));
	return list;
}

static void do_discover(struct asked *q)
{
	json_t *result = json_pack("{so so}", "supportedVersions", revision_list(), "capabilities",
				   capabilities(q->m, q->revision));

	if (q->m->options.instructions)
		json_object_set_new(result, "instructions",
				    json_string(q->m->options.instructions));
	answer(q, cacheable(result, q->revision, 60000));
}

static void do_ping(struct asked *q)
{
	answer(q, json_object());
}

/* All is on one page, so no cursor was ever given out. */
static bool refuse_cursor(struct asked *q)
{
	if (!json_object_get(q->params, "cursor"))
		return false;
	refuse(q, RPC_INVALID_PARAMS, "no such cursor", NULL);
	return true;
}

static bool is_offered(const struct mcp *m, enum tool_id id)
{
	return m->options.view.kept || tool_runs(id);
}

static void do_tools_list(struct asked *q)
{
	struct tool_view view = q->m->options.view;
	unsigned features = 0;
	json_t *list = json_array();

	if (refuse_cursor(q)) {
		json_decref(list);
		return;
	}
	view.by_id = q->revision >= MCP_2026_07_28;
	view.session = view.session && !view.by_id;
	if (q->revision >= MCP_2025_03_26)
		features |= TOOL_ANNOTATIONS;
	if (q->revision >= MCP_2025_06_18)
		features |= TOOL_OUTPUT_SCHEMA;
	for (enum tool_id id = 0; id < TOOL_COUNT; id++)
		if (is_offered(q->m, id))
			json_array_append_new(list, tool_mcp(id, &view, features));
	answer(q, cacheable(json_pack("{so}", "tools", list), q->revision, 60000));
}

static void do_tools_call(struct asked *q)
{
	const char *name = json_string_value(json_object_get(q->params, "name"));
	json_t *arguments = json_object_get(q->params, "arguments");
	enum tool_id id = name ? tool_find(name) : TOOL_COUNT;
	struct tool_view view;
	struct mcp_call *c;
	struct err e = {0};

	if (!name || (arguments && !json_is_object(arguments))) {
		refuse(q, RPC_INVALID_PARAMS,
		       name ? "arguments must be an object" : "tools/call needs a name", NULL);
		return;
	}
	if (id == TOOL_COUNT || !is_offered(q->m, id)) {
		err_set(&e, 0, "no such tool: %.60s", name);
		refuse(q, RPC_INVALID_PARAMS, e.text, NULL);
		return;
	}
	c = call_begin(q);
	if (!c)
		return;
	view = mcp_view(c);
	/* A model can mend what it did wrong when it is told, so that is a result. */
	if (tool_read(&c->tool, id, arguments, &view, &e) < 0)
		mcp_answer_text(c, e.text, true);
	else
		q->m->host->begin(q->m->context, c);
}

static void do_resources_list(struct asked *q)
{
	if (!refuse_cursor(q))
		answer(q, cacheable(json_pack("{so}", "resources",
					      q->m->host->resources(q->m->context)),
				    q->revision, 0));
}

static void do_templates_list(struct asked *q)
{
	if (!refuse_cursor(q))
		answer(q, cacheable(json_pack("{s[]}", "resourceTemplates"), q->revision, 60000));
}

static void do_resources_read(struct asked *q)
{
	const char *uri = json_string_value(json_object_get(q->params, "uri"));
	struct mcp_call *c;

	if (!uri) {
		refuse(q, RPC_INVALID_PARAMS, "resources/read needs a uri", NULL);
		return;
	}
	c = call_begin(q);
	if (!c)
		return;
	c->uri = uri;
	c->tool.id = TOOL_COUNT;
	q->m->host->begin(q->m->context, c);
}

static const struct method {
	const char *name;
	void (*answer)(struct asked *q);
	enum mcp_revision first, last;
	bool before_initialize;
} methods[] = {
	{"initialize", do_initialize, MCP_2024_11_05, MCP_2025_11_25, true},
	{"ping", do_ping, MCP_2024_11_05, MCP_2025_11_25, true},
	{"server/discover", do_discover, MCP_2026_07_28, MCP_2026_07_28, true},
	{"tools/list", do_tools_list, MCP_2024_11_05, MCP_2026_07_28, false},
	{"tools/call", do_tools_call, MCP_2024_11_05, MCP_2026_07_28, false},
	{"resources/list", do_resources_list, MCP_2024_11_05, MCP_2026_07_28, false},
	{"resources/templates/list", do_templates_list, MCP_2024_11_05, MCP_2026_07_28, false},
	{"resources/read", do_resources_read, MCP_2024_11_05, MCP_2026_07_28, false},
};

/* ---- messages ---- */

const char *mcp_meta_wrong(const json_t *params)
{
	const json_t *meta = json_object_get(params, "_meta");
	const char *revision = json_string_value(json_object_get(meta, META "protocolVersion"));

	if (!revision)
		return META "protocolVersion must be a text";
	if (strcmp(revision, mcp_revisions[MCP_2026_07_28]) == 0 &&
	    !json_is_object(json_object_get(meta, META "clientCapabilities")))
		return META "clientCapabilities must be an object";
	return NULL;
}

/* Which era a request is of. 0, or -1 when it was refused. */
static int choose_revision(struct asked *q)
{
	const json_t *meta = json_object_get(q->params, "_meta");
	json_t *wanted = json_object_get(meta, META "protocolVersion");
	const char *wrong = wanted ? mcp_meta_wrong(q->params) : NULL;

	q->revision = q->m->revision;
	if (!wanted)
		return 0;
	if (wrong) {
		refuse(q, RPC_INVALID_PARAMS, wrong, NULL);
		return -1;
	}
	q->revision = MCP_2026_07_28;
	if (strcmp(json_string_value(wanted), mcp_revisions[MCP_2026_07_28]) == 0)
		return 0;
	refuse(q, RPC_UNSUPPORTED_VERSION, "unsupported protocol version",
	       json_pack("{so sO}", "supported", revision_list(), "requested", wanted));
	return -1;
}

static void take_request(struct mcp *m, const struct rpc_message *r, struct mcp_batch *batch)
{
	struct asked q = {m, r->id, r->params, 0, batch};
	struct err e = {0};

	if (choose_revision(&q) < 0)
		return;
	if (find_call(m, r->id)) {
		/* With its id the first would be taken as answered. */
		q.id = NULL;
		refuse(&q, RPC_INVALID_REQUEST, "a request with this id is under way", NULL);
		return;
	}
	for (size_t i = 0; i < ARRAY_SIZE(methods); i++) {
		const struct method *t = &methods[i];

		if (strcmp(t->name, r->method) != 0 || q.revision < t->first ||
		    q.revision > t->last)
			continue;
		if (t->before_initialize || m->initialized || q.revision >= MCP_2026_07_28)
			t->answer(&q);
		else
			refuse(&q, RPC_INVALID_REQUEST, "initialize comes first", NULL);
		return;
	}
	err_set(&e, 0, "no such method: %.100s", r->method);
	refuse(&q, RPC_METHOD_NOT_FOUND, e.text, NULL);
}

void mcp_cancel(struct mcp *m, const json_t *id)
{
	struct mcp_call *c = id ? find_call(m, id) : NULL;

	if (!c)
		return;
	m->host->cancel(m->context, c);
	call_end(c, NULL);
}

/* What is not known, or is over already, changes nothing. */
static void take_notification(struct mcp *m, const struct rpc_message *r)
{
	if (strcmp(r->method, "notifications/cancelled") == 0)
		mcp_cancel(m, json_object_get(r->params, "requestId"));
}

static void take_message(struct mcp *m, json_t *object, struct mcp_batch *batch)
{
	struct rpc_message r;
	struct err e = {0};
	int code;

	if (rpc_read(&r, object, &code, &e) < 0) {
		bool silent = r.kind == RPC_RESPONSE ||
			      (r.kind == RPC_NOTIFICATION && code == RPC_INVALID_PARAMS);

		give(m, batch, silent ? NULL : rpc_error(r.id, code, e.text, NULL));
	} else if (r.kind == RPC_REQUEST) {
		take_request(m, &r, batch);
	} else {
		/* We ask nothing, so answers are nobody's. */
		if (r.kind == RPC_NOTIFICATION)
			take_notification(m, &r);
		give(m, batch, NULL);
	}
}

static void take_batch(struct mcp *m, json_t *list)
{
	struct mcp_batch *b = NULL;
	const char *why = NULL;
	json_t *one;
	size_t i;

	if (!m->initialized || m->revision != MCP_2025_03_26)
		why = "batches are not supported";
	else if (json_array_size(list) == 0 || json_array_size(list) > MCP_MAX_BATCH)
		why = "a batch has 1 to 64 messages";
	else if (!(b = calloc(1, sizeof *b)) || !(b->answers = json_array()))
		why = "out of memory";
	if (why) {
		free(b);
		give(m, NULL, rpc_error(NULL, RPC_INVALID_REQUEST, why, NULL));
		return;
	}
	/* One more than there are, so that it is not over before all have begun. */
	b->pending = json_array_size(list) + 1;
	json_array_foreach(list, i, one)
		take_message(m, one, b);
	batch_end_one(m, b);
}

void mcp_message(struct mcp *m, json_t *j)
{
	if (json_is_array(j))
		take_batch(m, j);
	else
		take_message(m, j, NULL);
}

void mcp_line(void *mcp, const char *line, size_t size)
{
	struct mcp *m = mcp;
	struct err e = {0};
	json_t *j;
	int code = RPC_INVALID_REQUEST;

	if (!line) {
		err_set(&e, 0, "a message has at most %d bytes", RPC_LINE_BYTES);
		give(m, NULL, rpc_error(NULL, code, e.text, NULL));
		return;
	}
	j = rpc_parse(line, size, &code, &e);
	if (j)
		mcp_message(m, j);
	else
		give(m, NULL, rpc_error(NULL, code, e.text, NULL));
	json_decref(j);
}

void mcp_free(struct mcp *m)
{
	if (!m)
		return;
	while (m->calls) {
		struct mcp_call *c = m->calls;

		m->host->cancel(m->context, c);
		call_end(c, NULL);
	}
	free(m);
}
