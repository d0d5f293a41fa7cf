/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an MCP client may send: lines of any bytes, in pieces of any size, in every era.
 *
 * The first byte chooses the handshake before it (none, with batches, the newest), whether calls are answered at
 * once, and the pieces. Whatever comes: every message that goes out is one of JSON-RPC's, what a tool is called
 * with is what its schema says, and no more is under way than may be. Then the same bytes are a program's
 * output, and what a model reads of it is text.
 */
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "agent/mcp.h"
#include "agent/text.h"
#include "base/base64.h"

struct host {
	bool at_once;
	struct mcp_call *pending[MCP_MAX_CALLS];
	size_t count;
};

static void check_message(const json_t *m)
{
	const json_t *id = json_object_get(m, "id");
	bool answers = json_object_get(m, "result") || json_object_get(m, "error");

	CHECK(json_is_object(m));
	CHECK(strcmp(json_string_value(json_object_get(m, "jsonrpc")), "2.0") == 0);
	CHECK(!(json_object_get(m, "result") && json_object_get(m, "error")));
	if (answers)
		CHECK(json_is_string(id) || json_is_integer(id) || json_is_null(id));
	else
		CHECK(!id && json_is_string(json_object_get(m, "method")));
	if (json_object_get(m, "result"))
		CHECK(!json_is_null(id) && json_is_object(json_object_get(m, "result")));
}

static void on_send(void *context, json_t *message)
{
	char *text = json_dumps(message, JSON_COMPACT);
	json_t *one;
	size_t i;

	(void)context;
	CHECK(text && !strchr(text, '\n'));
	free(text);
	if (json_is_array(message)) {
		CHECK(json_array_size(message) > 0);
		json_array_foreach(message, i, one)
			check_message(one);
	} else {
		check_message(message);
	}
	json_decref(message);
}

/* Whatever a manager's grammar takes is one word of it, and neither an option, a path, nor a URL. */
static void check_packages(const json_t *list)
{
	CHECK(!list || (json_array_size(list) > 0 && json_array_size(list) <= PACKAGES_MAX));
	for (size_t i = 0; i < json_array_size(list); i++) {
		const char *text = json_string_value(json_array_get(list, i)), *slash;

		CHECK(text && *text && strlen(text) <= PACKAGE_BYTES && !strchr("-./ ~", *text));
		CHECK(!strpbrk(text, "\n\t\\:;#$`\"'(){}%?"));
		slash = strchr(text, '/');
		CHECK(!slash || (*text == '@' && !strchr(slash + 1, '/')));
	}
}

static void check_call(const struct mcp_call *c)
{
	const struct tool_call *t = &c->tool;

	if (c->uri)
		return;
	CHECK(t->id < TOOL_COUNT);
	CHECK(!tool_runs(t->id) || (t->code && strlen(t->code) == t->code_size));
	CHECK(t->timeout_s >= 0 && t->timeout_s <= 30);
	CHECK(t->offset >= 0 && t->limit > 0 && t->limit <= TOOL_READ_BYTES);
	CHECK(t->id != TOOL_WRITE_FILE || (t->path && *t->path && t->content));
	CHECK(t->id != TOOL_INSTALL_PACKAGES || (t->packages && t->manager));
	check_packages(t->packages);
}

static void answer(struct mcp_call *c)
{
	mcp_progress(c, 1, 2, "half");
	mcp_progress(c, 1, 2, "not told");
	if (c->uri && strlen(c->uri) % 2)
		mcp_answer_resource(c, json_array());
	else if (c->uri)
		mcp_refuse_resource(c);
	else
		mcp_answer(c, json_pack("[{ss},{ss}]", "type", "text", "type", "resource_link"),
			   json_object(), false);
}

static void on_begin(void *context, struct mcp_call *c)
{
	struct host *h = context;

	check_call(c);
	CHECK(mcp_calls(c->mcp) <= MCP_MAX_CALLS && h->count < MCP_MAX_CALLS);
	if (h->at_once)
		answer(c);
	else
		h->pending[h->count++] = c;
}

static void on_cancel(void *context, struct mcp_call *c)
{
	struct host *h = context;
	size_t i = 0;

	while (i < h->count && h->pending[i] != c)
		i++;
	CHECK(i < h->count);
	h->pending[i] = h->pending[--h->count];
}

static json_t *on_resources(void *context)
{
	(void)context;
	return json_array();
}

static void say(struct mcp *m, const char *line)
{
	mcp_line(m, line, strlen(line));
}

static void read_output(const uint8_t *data, size_t size)
{
	size_t coded_size;
	char *coded = base64_encode(data, size, &coded_size);
	json_t *r = json_pack("{ss ss ss# ss so}", "reason", "exited", "encoding", "base64",
			      "stdout", coded, (int)coded_size, "stderr", coded, "ok", json_true());

	CHECK(coded && r);
	for (int form = 0; form < TEXT_COUNT; form++)
		for (size_t max = 1; max < 1000; max += 300) {
			char *text = text_of_result(r, form, max);

			CHECK(text && *text && text_is_text(text, strlen(text)));
			CHECK(strlen(text) < 8 * max + 400);
			free(text);
		}
	json_decref(r);
	free(coded);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const struct mcp_host host = {on_send, on_begin, on_cancel, on_resources};
	static const struct mcp_options how = {.view = {.kept = true, .timeout_s = 30},
					       .instructions = "hello"};
	struct host h = {.at_once = size > 0 && data[0] & 4};
	struct mcp *m = mcp_new(&how, &host, &h);
	struct rpc_lines lines = {0};
	size_t piece = size > 0 ? (size_t)(data[0] >> 3) + 1 : 1;

	CHECK(m);
	if (size > 0 && (data[0] & 3) == 1)
		say(m, "{\"jsonrpc\":\"2.0\",\"id\":0,\"method\":\"initialize\","
		       "\"params\":{\"protocolVersion\":\"2025-03-26\"}}");
	if (size > 0 && (data[0] & 3) == 2)
		say(m, "{\"jsonrpc\":\"2.0\",\"id\":0,\"method\":\"initialize\","
		       "\"params\":{\"protocolVersion\":\"2025-11-25\"}}");
	for (size_t i = 1; i < size; i += piece)
		rpc_feed(&lines, (const char *)data + i, size - i < piece ? size - i : piece,
			 mcp_line, m);
	CHECK(lines.size <= RPC_LINE_BYTES);
	while (h.count > 1)
		answer(h.pending[--h.count]);
	rpc_done(&lines);
	mcp_free(m);
	CHECK(h.count == 0);
	if (size > 0)
		read_output(data + 1, size - 1);
	return 0;
}
