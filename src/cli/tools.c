/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tools.c - `cloche tools`: the tools as a provider's API wants them, and `cloche tools call`, which answers one
 * call of a model with the one string that goes back to it.
 *
 * A call is made as `cloche mcp` makes it: this program is its own client, so the two cannot differ.
 * Whatever a model sent (no JSON, wrong arguments, an unknown tool), the answer is a string and the exit
 * status 0; --json has the outcome beside it.
 */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/end_signals.h"
#include "base/fd.h"
#include "base/json.h"
#include "cli/mcp.h"

#define NAME_CHARS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-"

/* ---- the list ---- */

static const struct tool_format *find_format(const char *name)
{
	for (size_t i = 0; i < tool_format_count; i++)
		if (strcmp(tool_formats[i].name, name) == 0)
			return &tool_formats[i];
	return NULL;
}

/* Those that were named, else all that `cloche tools call` can answer; MCP's list has the others, too. */
static int choose_tools(const struct mcp_base *b, bool all, enum tool_id ids[TOOL_COUNT],
			size_t *count, struct err *e)
{
	*count = 0;
	if (b->operand_count > TOOL_COUNT)
		return err_set(e, 0, "there are %d tools", TOOL_COUNT);
	for (size_t i = 0; i < b->operand_count; i++) {
		enum tool_id id = tool_find(b->operands[i]);

		if (id == TOOL_COUNT || (!all && !tool_runs(id)))
			return err_set(e, 0, "no such tool: %.60s", b->operands[i]);
		ids[(*count)++] = id;
	}
	if (*count == 0 && b->name)
		ids[(*count)++] = TOOL_RUN_PYTHON;
	for (enum tool_id id = 0; b->operand_count == 0 && !b->name && id < TOOL_COUNT; id++)
		if (all || tool_runs(id))
			ids[(*count)++] = id;
	if (b->name && *count != 1)
		return err_set(e, 0, "--name: name one tool");
	/* What every provider takes. */
	if (b->name &&
	    (!*b->name || strlen(b->name) > 64 || strspn(b->name, NAME_CHARS) < strlen(b->name)))
		return err_set(e, 0, "--name %.70s: give 1 to 64 of A-Z a-z 0-9 _ -", b->name);
	return 0;
}

static int print_list(const struct server *s, struct err *e)
{
	const struct mcp_base *b = &s->here;
	const struct tool_format *format = find_format(b->format ? b->format : "openai");
	struct tool_view view = server_view(s);
	enum tool_id ids[TOOL_COUNT];
	_cleanup_free_ char *text = NULL;
	json_t *list;
	size_t count;

	if (!format)
		return fail(EXIT_USAGE, (err_set(e, 0,
						 "--format %.40s: give openai, "
						 "openai-responses, anthropic, gemini or mcp",
						 b->format),
					 e));
	view.kept = strcmp(format->name, "mcp") == 0;
	view.rename = b->name;
	if (choose_tools(b, view.kept, ids, &count, e) < 0)
		return fail(EXIT_USAGE, e);
	list = format->list(ids, count, &view);
	text = list ? json_dumps(list, JSON_INDENT(2)) : NULL;
	json_decref(list);
	if (!text || puts(text) == EOF || fflush(stdout) == EOF) {
		err_set(e, text ? errno : ENOMEM, "print the tools");
		return fail(EXIT_CLOCHE, e);
	}
	return 0;
}

/* ---- one call ---- */

/* Talk to ourselves: one request, until it is answered. NULL: interrupted (errnum EINTR), or e. */
static json_t *ask(struct server *s, int signals, json_t *request, struct err *e)
{
	_cleanup_free_ char *text = json_dumps(request, JSON_COMPACT);
	int r = 0;

	json_decref(request);
	if (!text) {
		err_set(e, ENOMEM, "make a request");
		return NULL;
	}
	mcp_line(s->w.mcp, text, strlen(text));
	while (r == 0 && !s->answer)
		r = server_turn(s, -1, signals, NULL, e);
	if (r > 0)
		err_set(e, EINTR, "wait for the answer");
	return r ? NULL : TAKE_PTR(s->answer);
}

static json_t *hello(void)
{
	return json_pack("{ss si ss s{ss s{} s{ssss}}}", "jsonrpc", "2.0", "id", 1, "method",
			 "initialize", "params", "protocolVersion", mcp_revisions[MCP_2025_11_25],
			 "capabilities", "clientInfo", "name", "cloche", "version", CLOCHE_VERSION);
}

/* What the model reads: the answer's texts, or why there is none. */
static char *answer_text(const json_t *answer)
{
	const json_t *content = json_object_get(json_object_get(answer, "result"), "content");
	const char *text = json_string_value(json_object_get(json_array_get(content, 0), "text"));
	const char *why =
		json_string_value(json_object_get(json_object_get(answer, "error"), "message"));

	return strdup(text ? text : why ? why : "");
}

static int print_answer_text(const struct server *s, const char *text, bool failed)
{
	json_t *all;
	int status;

	if (!s->here.json)
		return puts(text) == EOF || fflush(stdout) == EOF ? EXIT_CLOCHE : 0;
	all = json_pack("{ss sb sO?}", "text", text, "is_error", failed, "result", s->w.result);
	status = all ? print_object(all) : EXIT_CLOCHE;
	json_decref(all);
	return status;
}

static json_t *read_arguments(const struct server *s, struct err *e)
{
	const struct mcp_base *b = &s->here;
	const char *text = b->operand_count > 2 ? b->operands[2] : "-";
	_cleanup_free_ char *data = NULL;
	size_t size = strlen(text);
	json_t *j;
	int r = 0;

	if (strcmp(text, "-") == 0) {
		r = fd_slurp(0, JSON_MAX_BYTES, &data, &size);
		text = data;
	}
	if (r < 0) {
		err_set(e, -r, "The arguments could not be read");
		return NULL;
	}
	j = json_read_output(text, size, e);
	if (j && !json_is_object(j)) {
		json_decref(TAKE_PTR(j));
		err_set(e, 0, "they must be an object");
	}
	if (!j)
		err_prefix(e, "The arguments are not what they must be");
	return j;
}

static int call(struct server *s, int signals, struct err *e)
{
	const struct mcp_base *b = &s->here;
	const char *name = b->operands[1];
	json_t *arguments = read_arguments(s, e), *answer;
	_cleanup_free_ char *text = NULL;
	bool failed;

	if (!arguments)
		return print_answer_text(s, e->text, true);
	if (b->name && strcmp(name, b->name) == 0)
		name = tools[TOOL_RUN_PYTHON].name;
	answer = ask(s, signals, hello(), e);
	json_decref(answer);
	answer = !answer ? NULL
			 : ask(s, signals,
			       json_pack("{ss si ss s{ss so}}", "jsonrpc", "2.0", "id", 2, "method",
					 "tools/call", "params", "name", name, "arguments",
					 json_incref(arguments)),
			       e);
	json_decref(arguments);
	if (!answer)
		return e->errnum == EINTR ? 130 : fail(EXIT_CLOCHE, e);
	text = answer_text(answer);
	failed = !json_is_false(json_object_get(json_object_get(answer, "result"), "isError"));
	json_decref(answer);
	return text ? print_answer_text(s, text, failed) : EXIT_CLOCHE;
}

static int begin_call(struct server *s, int argc, char **argv, struct err *e)
{
	int signals, status;

	if (s->here.operand_count < 2 || s->here.operand_count > 3) {
		err_set(e, 0, "usage: cloche tools call TOOL [ARGUMENTS | -]");
		return fail(EXIT_USAGE, e);
	}
	s->w.wants_result = true;
	/* Said here; the call looks again, and the model is told in general words. */
	if (server_choose(&s->w, e) < 0)
		server_log(e);
	if (!s->w.has_service)
		scope_enter(&s->places, argc + 1, argv - 1);
	signals = end_signals_watch(0, NULL, e);
	if (signals < 0 || server_start(s, e) < 0)
		return fail(EXIT_CLOCHE, e);
	status = call(s, signals, e);
	close(signals);
	return status;
}

int verb_tools(const struct verb *verb, int argc, char **argv)
{
	struct server s;
	struct err e = {0};
	int status = server_read(&s, verb, argc, argv, SIZE_MAX);

	if (status < 0 && s.here.operand_count > 0 && strcmp(s.here.operands[0], "call") == 0)
		status = begin_call(&s, argc, argv, &e);
	else if (status < 0)
		status = print_list(&s, &e);
	server_done(&s);
	return status;
}
