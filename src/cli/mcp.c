/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mcp.c - `cloche mcp`: an MCP server on stdin and stdout; and what `cloche tools call` shares with it.
 *
 * The command line is read twice, once into a spec that a child of ours runs, once into one that becomes the body
 * of requests to the service: which of them does the work is decided anew for every call, as it is for
 * every `cloche run`.
 */
#include "cli/mcp.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "base/end_signals.h"
#include "base/fd.h"
#include "base/json.h"
#include "base/units.h"

#define FIELD(name) offsetof(struct mcp_base, name)
#define TEXT_OPTIONS                                                                             \
	{"text", 0, "exit|plain", "how a run is told to the model [exit]", FIELD(text)},         \
		{"max-text", 0, "CHARS",                                                         \
		 "most characters of output for the model [exit: 16000 each; plain: 4000]",      \
		 FIELD(max_text)},                                                               \
	{                                                                                        \
		"direct", 0, NULL, "use no service, though one answers (also: CLOCHE_DIRECT=1)", \
			FIELD(direct)                                                            \
	}

const struct cli_option mcp_options[] = {
	{"session", 0, NULL, "run_* work in the session's kept sandbox, not each in a new one",
	 FIELD(session)},
	TEXT_OPTIONS,
	{NULL},
};

const struct cli_option tools_options[] = {
	{"format", 0, "FORMAT", "openai, openai-responses, anthropic, gemini or mcp [openai]",
	 FIELD(format)},
	{"name", 0, "NAME", "the name of the one tool (run_python, if no TOOL is named)",
	 FIELD(name)},
	{"json", 0, NULL, "call: print {\"text\", \"is_error\", \"result\"} instead of the text",
	 FIELD(json)},
	TEXT_OPTIONS,
	{NULL},
};
#undef FIELD

static const char instructions[] =
	"Runs code in strict sandboxes that have no access to this machine's files. Print what you want "
	"to see; write plots and other files to /output. A failed program is told with its exit code and "
	"stderr: mend the program and run it again.";

static const struct worker_ops ops = {.choose = server_choose,
				      .log = server_log,
				      .keep = guard_start,
				      .start_here = direct_start,
				      .pump_here = direct_pump,
				      .outcome_here = direct_outcome,
				      .end_here = direct_end};

static int set_option(void *values, const struct option *o, const char *value, struct err *e)
{
	struct mcp_base *b = values;

	if (spec_set(&b->spec, o, value, e) < 0)
		return -1;
	b->settings.origins[o - options] = ORIGIN_FLAG;
	return 0;
}

static bool has_env(const struct spec *s, const char *name)
{
	size_t n = strlen(name);

	for (size_t i = 0; i < s->env.count; i++)
		if (strncmp(s->env.item[i], name, n) == 0 && s->env.item[i][n] == '=')
			return true;
	return false;
}

/* The contract's 30 s for agents' tools, where nobody said anything. */
static int set_timeout(struct mcp_base *b, struct err *e)
{
	const struct option *o = option_find("timeout");

	if (b->settings.origins[o - options] != ORIGIN_DEFAULT)
		return 0;
	return spec_set(&b->spec, o, "30s", e);
}

/* -1 to go on, or the exit status. */
static int base_read(struct mcp_base *b, const struct places *places, const struct verb *verb,
		     int argc, char **argv, size_t operands)
{
	struct args a = {.verb = verb, .values = b, .set = set_option};
	struct err e = {0};
	int status;

	if (spec_init(&b->spec, &e) < 0 ||
	    settings_load(&b->settings, places, true, &b->spec, &e) < 0)
		return fail(EXIT_CLOCHE, &e);
	status = args_ready(&a, argc, argv, 0, operands);
	if (status >= 0)
		return status;
	b->operands = a.operands;
	b->operand_count = a.count;
	if (set_timeout(b, &e) < 0)
		return fail(EXIT_CLOCHE, &e);
	for (size_t i = 0; i < ARRAY_SIZE(oneshot_automatic); i++)
		b->own_env[i] = has_env(&b->spec, oneshot_automatic[i]);
	return -1;
}

static int read_text_options(struct server *s, struct err *e)
{
	const struct mcp_base *b = &s->here;
	uint64_t chars;

	s->w.form = b->text ? text_form_find(b->text) : TEXT_EXIT;
	if (s->w.form == TEXT_COUNT)
		return err_set(e, 0, "--text %.40s: give exit or plain", b->text);
	s->w.max_chars = text_default_chars[s->w.form];
	if (b->max_text) {
		if (parse_count(b->max_text, 1, OUTPUT_MAX, &chars) < 0)
			return err_set(e, 0, "--max-text %.40s: give a number from 1 to %d",
				       b->max_text, OUTPUT_MAX);
		s->w.max_chars = (size_t)chars;
	}
	s->w.unwanted = b->direct || service_is_unwanted();
	if (b->spec.max_output_bytes > OUTPUT_MAX)
		return err_set(e, 0, "--max-output: for a model at most 1m");
	return 0;
}

int server_read(struct server *s, const struct verb *verb, int argc, char **argv, size_t operands)
{
	struct err e = {0};
	int status;

	*s = (struct server){.w = {.ops = &ops, .service = &s->service, .fds = s->fds},
			     .service.idle_fd = -1,
			     .guard_pipe = -1,
			     .guard_pidfd = -1,
			     .out = 1};
	if (places_find(&s->places, &e) < 0)
		return fail(EXIT_CLOCHE, &e);
	status = base_read(&s->here, &s->places, verb, argc, argv, operands);
	if (status < 0)
		status = base_read(&s->there, &s->places, verb, argc, argv, operands);
	if (status < 0 && read_text_options(s, &e) < 0)
		status = fail(EXIT_USAGE, &e);
	return status;
}

/* What a run's request says besides what runs. */
static int make_body(struct server *s, struct err *e)
{
	struct mcp_base *b = &s->there;
	const struct oneshot o = {.service = &s->service,
				  .spec = &b->spec,
				  .origins = b->settings.origins,
				  .own_env = {b->own_env[0], b->own_env[1]}};

	/* Said, because the service's own default is another. */
	b->settings.origins[option_find("timeout") - options] = ORIGIN_FLAG;
	if (spec_finish_sandbox(&b->spec, e) < 0)
		return -1;
	/* Without a service yet, descriptors are opened all the same. */
	s->service.local |= !s->w.has_service;
	s->w.run_body = oneshot_body(&o, s->fds, &s->w.fd_count, e);
	if (!s->w.run_body)
		return -1;
	json_object_del(s->w.run_body, "command");
	json_object_set_new(s->w.run_body, "output", json_true());
	return 0;
}

struct tool_view server_view(const struct server *s)
{
	const struct spec *spec = &s->here.spec;
	const enum origin *origins = s->here.settings.origins;
	bool own = !s->w.has_service || origins[option_find("memory") - options] != ORIGIN_DEFAULT;

	return (struct tool_view){.kept = !s->w.wants_result,
				  .session = s->here.session,
				  .open_world = spec->network.mode != NETWORK_NONE,
				  .timeout_s = (double)spec->timeout_us / 1e6,
				  .memory_mib = own ? (size_t)(spec->memory_bytes >> 20) : 0};
}

static void on_send(void *context, json_t *message)
{
	server_send(context, message);
}

static void on_begin(void *context, struct mcp_call *c)
{
	struct server *s = context;

	worker_begin(&s->w, c);
}

static void on_cancel(void *context, struct mcp_call *c)
{
	(void)context;
	worker_cancel(c);
}

static json_t *on_resources(void *context)
{
	struct server *s = context;

	return worker_resources(&s->w);
}

static const struct mcp_host host = {on_send, on_begin, on_cancel, on_resources};

int server_start(struct server *s, struct err *e)
{
	const struct mcp_options o = {
		.view = server_view(s), .instructions = instructions, .session = s->w.session};

	if (worker_name(&s->w, e) < 0 || make_body(s, e) < 0)
		return -1;
	s->w.mcp = mcp_new(&o, &host, s);
	return s->w.mcp ? 0 : err_set(e, ENOMEM, "start");
}

void server_done(struct server *s)
{
	s->w.ending = true;
	mcp_free(s->w.mcp);
	guard_done(s);
	service_done(&s->service);
	while (s->w.fd_count > 0)
		fd_close(&s->fds[--s->w.fd_count]);
	worker_done(&s->w);
	free(s->queue);
	json_decref(s->answer);
	for (int i = 0; i < 2; i++) {
		struct mcp_base *b = i ? &s->there : &s->here;

		spec_done(&b->spec);
		settings_done(&b->settings);
	}
}

static int serve(struct server *s, int signals, struct err *e)
{
	struct rpc_lines lines = {0};
	int r = 0;

	while (r == 0)
		r = server_turn(s, 0, signals, &lines, e);
	rpc_done(&lines);
	return r < 0 ? -1 : 0;
}

int verb_mcp(const struct verb *verb, int argc, char **argv)
{
	struct server s;
	struct err e = {0};
	int status = server_read(&s, verb, argc, argv, 0), signals = -1;

	if (status < 0) {
		status = EXIT_CLOCHE;
		/* One that is not there now may come: each call looks again. */
		if (server_choose(&s.w, &e) < 0)
			server_log(&e);
		/* Before anything is read: it starts this program again. */
		if (!s.w.has_service)
			scope_enter(&s.places, argc + 1, argv - 1);
		signals = end_signals_watch(0, NULL, &e);
		if (signals < 0 || server_start(&s, &e) < 0 || serve(&s, signals, &e) < 0)
			fail(status, &e);
		else
			status = 0;
	}
	fd_close(&signals);
	server_done(&s);
	return status;
}
