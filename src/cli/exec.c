/* SPDX-License-Identifier: Apache-2.0 */
/*
 * exec.c - `cloche exec`: one command in a kept sandbox, its output and exit status here.
 *
 * Without -i and -t it is one request whose answer is the stream of events; hanging up ends the command.
 * With them it is a background process that is attached to (attach.c).
 */
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/end_signals.h"
#include "base/fd.h"
#include "base/json.h"
#include "cli/attach.h"

enum { MAX_CODE_BYTES = 8 << 20 };

struct exec {
	struct body body; /* first: body_set() */
	bool interactive, terminal, json, quiet, raw;
	const char *language, *code;
};

#define FIELD(name) offsetof(struct exec, name)
const struct cli_option exec_options[] = {
	{"interactive", 'i', NULL, "pass stdin to it", FIELD(interactive)},
	{"tty", 't', NULL, "with a terminal of its own (profile dev)", FIELD(terminal)},
	{"language", 0, "NAME", "run code instead of a command: python, bash or node",
	 FIELD(language)},
	{"", 'c', "CODE", "with --language: the code itself", FIELD(code), .last = true},
	{"json", 0, NULL, "print the result as one JSON object instead of the output", FIELD(json)},
	{"quiet", 'q', NULL, "no remarks of cloche's own on stderr", FIELD(quiet)},
	{"raw", 0, NULL, "pass control characters to a terminal as they are", FIELD(raw)},
	{NULL},
};
#undef FIELD

/* The code as the caller gave it: -c, a file, or stdin. *ret_used: operands that were it. */
static char *read_code(const struct exec *x, char **operands, size_t count, size_t *ret_used,
		       struct err *e)
{
	bool from_stdin = count == 0 || strcmp(operands[0], "-") == 0;
	_cleanup_close_ int fd = -1;
	char *text = NULL;
	size_t size;
	int r;

	*ret_used = 0;
	if (x->code) {
		text = strdup(x->code);
		if (!text)
			err_set(e, ENOMEM, "keep the code");
		return text;
	}
	if (count == 0 && isatty(0)) {
		err_set(e, 0, "no code: give -c CODE, a FILE, or pipe it in");
		return NULL;
	}
	*ret_used = count > 0;
	if (!from_stdin)
		fd = open(operands[0], O_RDONLY | O_CLOEXEC);
	if (!from_stdin && fd < 0) {
		err_set(e, errno, "open %.200s", operands[0]);
		return NULL;
	}
	r = fd_slurp(from_stdin ? 0 : fd, MAX_CODE_BYTES, &text, &size);
	if (r < 0)
		err_set(e, -r, "read %.200s", from_stdin ? "the code from stdin" : operands[0]);
	else if (strlen(text) != size)
		err_set(e, 0, "the code has a NUL character");
	else
		return text;
	free(text);
	return NULL;
}

static int set_list(json_t *body, const char *key, char **items, size_t count, struct err *e)
{
	json_t *list = json_array();

	if (json_object_set_new(body, key, list) < 0)
		return err_set(e, ENOMEM, "keep the command");
	for (size_t i = 0; i < count; i++)
		if (json_array_append_new(list, json_string(items[i])) < 0)
			return err_set(e, 0, "argument %zu is no UTF-8", i + 1);
	return 0;
}

/* What to run, behind the sandbox's id. */
static int set_command(struct exec *x, const struct args *a, struct err *e)
{
	char **operands = a->operands + 1;
	size_t count = a->count - 1, used;
	_cleanup_free_ char *code = NULL;
	json_t *body = x->body.json;

	if (!x->language) {
		if (x->code)
			return err_set(e, 0, "-c needs --language");
		return count ? set_list(body, "command", operands, count, e)
			     : err_set(e, 0, "no command: cloche %s %s", a->verb->name,
				       a->verb->synopsis);
	}
	code = read_code(x, operands, count, &used, e);
	if (!code)
		return -1;
	json_object_set_new(body, "language", json_string(x->language));
	if (json_object_set_new(body, "code", json_string(code)) < 0)
		return err_set(e, 0, "the code is no UTF-8");
	return count > used ? set_list(body, "args", operands + used, count - used, e) : 0;
}

/* What was written and has not come here was cut by --max-output. */
static void remark_truncated(const struct output *o, int stream)
{
	const char *name = stream ? "stderr" : "stdout";
	json_t *counts = json_object_get(json_object_get(o->result, "output"), name);
	json_int_t bytes = json_integer_value(json_object_get(counts, "bytes"));

	if (bytes > 0 && (uint64_t)bytes > o->bytes[stream])
		fprintf(stderr, "cloche: %s truncated: kept %llu of %lld bytes\n", name,
			(unsigned long long)o->bytes[stream], (long long)bytes);
}

static void remark(const struct output *o)
{
	struct err e;

	remark_truncated(o, 0);
	remark_truncated(o, 1);
	/* The command's own exit code needs no words of ours. */
	if (strcmp(text_of(o->result, "reason"), "exited") == 0)
		return;
	err_set(&e, 0, "%s", text_of(o->result, "message"));
	fail(0, &e);
}

struct streamed {
	struct lines lines;
	struct output output;
};

static int take_lines(void *context, const char *data, size_t size, struct err *e)
{
	struct streamed *s = context;

	return lines_feed(&s->lines, data, size, output_event, &s->output, e);
}

/* POST with the events as answer. Returns the exit status, or -1 with e. */
static int run_streamed(struct exec *x, struct remote *r, const char *target, struct err *e)
{
	_cleanup_close_ int signals = end_signals_watch(0, NULL, e);
	_cleanup_free_ char *text = json_dumps(x->body.json, JSON_COMPACT);
	struct streamed s = {0};
	struct request q = {.method = "POST",
			    .target = target,
			    .type = "application/json",
			    .body = text,
			    .body_size = text ? strlen(text) : 0,
			    .sink = take_lines,
			    .sink_context = &s};
	_cleanup_call_ struct call *c = NULL;
	int status = -1;

	if (signals < 0 || !text)
		return text ? -1 : err_set(e, ENOMEM, "make a request");
	output_init(&s.output, x->raw, false);
	c = call_new(&r->service, &q, e);
	if (c && call_run(c, signals, e) < 0) {
		/* What came after the result, or did not, changes nothing about it. */
		if (s.output.result)
			status = result_status(s.output.result);
		else if (e->errnum == ECANCELED)
			status = 130;
	} else if (c && s.output.result) {
		status = result_status(s.output.result);
	} else if (c) {
		err_set(e, 0, "the service's answer ends without a result");
	}
	printer_end(&s.output.out);
	printer_end(&s.output.err);
	if (s.output.result && !x->quiet)
		remark(&s.output);
	output_done(&s.output);
	lines_done(&s.lines);
	return status;
}

static int run_collected(struct exec *x, struct remote *r, const char *target, struct err *e)
{
	_cleanup_answer_ struct answer answer = {0};
	int status;

	if (remote_ask(r, "POST", target, x->body.json, &answer, e) < 0)
		return -1;
	status = print_answer(&answer);
	return status ? status : result_status(answer.json);
}

/* What a terminal is called is ours to say, unless --env does. */
static void set_terminal_name(json_t *body)
{
	const char *name = getenv("TERM");
	json_t *env = json_object_get(body, "env");

	if (!env) {
		env = json_object();
		json_object_set_new(body, "env", env);
	}
	if (name && *name && !json_object_get(env, "TERM"))
		json_object_set_new(env, "TERM", json_string(name));
}

static int execute(struct exec *x, const struct args *a, struct remote *r, struct err *e)
{
	const struct attach_options how = {
		.input = x->interactive, .terminal = x->terminal, .raw = x->raw, .quiet = x->quiet};
	bool attached = x->interactive || x->terminal;
	char target[TARGET_SIZE];

	if (sandbox_target(target, a->operands[0], e, "/exec%s", x->json ? "" : "?stream") < 0)
		return -1;
	if (body_finish(&x->body, a->verb, !attached, false, e) < 0 || set_command(x, a, e) < 0)
		return -1;
	if (x->terminal)
		set_terminal_name(x->body.json);
	if (remote_open(r, e) < 0)
		return -1;
	if (attached)
		return attach(r, a->operands[0], x->body.json, &how);
	return x->json ? run_collected(x, r, target, e) : run_streamed(x, r, target, e);
}

int verb_exec(const struct verb *verb, int argc, char **argv)
{
	struct exec x = {0};
	struct args a = {.verb = verb, .values = &x, .set = body_set};
	struct remote r = {.service.idle_fd = -1};
	struct err e = {0};
	int status = args_ready(&a, argc, argv, 1, SIZE_MAX);

	if (status < 0 && x.json && (x.interactive || x.terminal)) {
		err_set(&e, 0, "--json is for a command without -i and -t");
		status = fail(EXIT_USAGE, &e);
	}
	if (status < 0 && x.language && x.interactive && !x.code && a.count < 2) {
		err_set(&e, 0,
			"stdin cannot be both the code and its input: give -c CODE or a FILE");
		status = fail(EXIT_USAGE, &e);
	}
	if (status < 0) {
		status = execute(&x, &a, &r, &e);
		if (status < 0)
			status = fail(EXIT_CLOCHE, &e);
	}
	remote_close(&r);
	body_done(&x.body);
	return status;
}
