/* SPDX-License-Identifier: Apache-2.0 */
/*
 * run.c - `cloche run`, `python`, `bash` and `node`.
 *
 * Arguments are parsed into a spec and a few choices of the command line's own; then one call runs it.
 * Nothing is done while parsing.
 */
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/json.h"
#include "cli/cli.h"
#include "native/native.h"

struct request {
	struct places places;
	struct spec spec;
	struct settings settings;
	bool json, quiet, raw, direct;
	const char *code; /* -c */
	enum language language;
};

#define FIELD(name) offsetof(struct request, name)
const struct cli_option language_options[] = {
	{"", 'c', "CODE", "the code itself", FIELD(code), .last = true},
	{"json", 0, NULL, "print the result as one JSON object instead of the output", FIELD(json)},
	{"quiet", 'q', NULL, "no remarks of cloche's own on stderr", FIELD(quiet)},
	{"raw", 0, NULL, "pass control characters to a terminal as they are", FIELD(raw)},
	{"direct", 0, NULL, "do it in this process, whether or not a service runs", FIELD(direct)},
	{NULL},
};

static int set_option(void *values, const struct option *o, const char *value, struct err *e)
{
	struct request *q = values;

	if (spec_set(&q->spec, o, value, e) < 0)
		return -1;
	q->settings.origins[o - options] = ORIGIN_FLAG;
	return 0;
}

/* A script is copied in and run under the name it was given; outside paths keep only their last part. */
static int use_script(struct request *q, const char *file, struct err *e)
{
	const char *name = file;
	char path[SPEC_PATH_SIZE + 16];

	if (*file == '/' || strncmp(file, "../", 3) == 0 || strstr(file, "/../"))
		name = strrchr(file, '/') + 1;
	while (strncmp(name, "./", 2) == 0)
		name += 2;
	if (access(file, R_OK) < 0)
		return err_set(e, errno, "open %.200s", file);
	snprintf(path, sizeof path, "/workspace/%s", name);
	if (spec_add_input(&q->spec, file, path, e) < 0)
		return err_prefix(e, "script %.200s", file);
	/* With the usual working directory the interpreter sees the name as the caller gave it. */
	if (strcmp(q->spec.workdir, "/workspace") == 0)
		snprintf(path, sizeof path, "%s", name);
	return spec_language(&q->spec, q->language, CODE_FILE, path, e);
}

static int add_code(struct request *q, const struct args *a, struct err *e)
{
	size_t first = 0;
	int r;

	if (q->code) {
		r = spec_language(&q->spec, q->language, CODE_STRING, q->code, e);
	} else if (a->count > 0 && strcmp(a->operands[0], "-") != 0) {
		r = use_script(q, a->operands[0], e);
		first++;
	} else if (a->count > 0 || !isatty(0)) {
		r = spec_language(&q->spec, q->language, CODE_STDIN, NULL, e);
		first++;
	} else {
		return err_set(e, 0, "no code: give -c CODE, a FILE, or pipe it in");
	}
	for (; r == 0 && first < a->count; first++)
		r = spec_add_argument(&q->spec, a->operands[first], e);
	return r;
}

static int complete(struct request *q, const struct args *a, struct err *e)
{
	if (q->language != LANGUAGE_NONE) {
		if (add_code(q, a, e) < 0)
			return -1;
	} else {
		if (a->count == 0)
			return err_set(e, 0, "no command: cloche %s %s", a->verb->name,
				       a->verb->synopsis);
		for (size_t i = 0; i < a->count; i++)
			if (spec_add_argument(&q->spec, a->operands[i], e) < 0)
				return -1;
	}
	if (settings_apply_policy(&q->settings, &q->spec, e) < 0)
		return -1;
	return spec_finish(&q->spec, e);
}

/* SIGINT, SIGTERM and SIGHUP become readable: the run ends, everything is taken down, then we end. */
static int make_cancel(struct err *e)
{
	sigset_t set;
	int fd;

	sigemptyset(&set);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGHUP);
	sigprocmask(SIG_BLOCK, &set, NULL);
	signal(SIGTTIN, SIG_IGN); /* in the background, stdin is simply at its end */
	fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	return fd < 0 ? err_set(e, errno, "watch signals") : fd;
}

static void remark_truncated(const char *name, const struct captured *c)
{
	if (c->bytes > c->kept)
		fprintf(stderr, "cloche: %s truncated: kept %llu of %llu bytes\n", name,
			(unsigned long long)c->kept, (unsigned long long)c->bytes);
}

/* A script written on Windows fails on every line's end in a way that is hard to see. */
static bool looks_like_crlf(const struct request *q, const struct result *r)
{
	_cleanup_close_ int fd = -1;
	char text[4096];
	const char *code = q->code;
	ssize_t n;

	if (q->language != LANGUAGE_BASH || result_ok(r))
		return false;
	if (!code && q->spec.input_count > 0) {
		fd = open(q->spec.inputs[q->spec.input_count - 1].host, O_RDONLY | O_CLOEXEC);
		n = fd < 0 ? -1 : fd_read_all(fd, text, sizeof text - 1);
		if (n < 0)
			return false;
		text[n] = '\0';
		code = text;
	}
	return code && strstr(code, "\r\n");
}

static void remark(const struct request *q, const struct result *r)
{
	if (q->quiet)
		return;
	remark_truncated("stdout", &r->out);
	remark_truncated("stderr", &r->err);
	for (size_t i = 0; i < r->artifact_count; i++)
		if (r->artifacts[i].skipped) {
			struct err e;

			err_set(&e, 0, "artifact %.200s was left behind: %s", r->artifacts[i].path,
				r->artifacts[i].skipped);
			fail(0, &e);
		}
	if (looks_like_crlf(q, r))
		fprintf(stderr,
			"cloche: the script has Windows line ends (\\r\\n), which bash does not "
			"understand: convert it with dos2unix\n");
	/* The command's own exit code needs no words of ours. */
	if (r->reason != REASON_EXITED || r->artifacts_failed) {
		struct err e;

		if (r->stage[0])
			err_set(&e, 0, "%s: %s", r->stage, r->message);
		else
			err_set(&e, 0, "%s", r->message);
		fail(0, &e);
	}
}

static int print_json(const struct result *r)
{
	_cleanup_json_ json_t *j = result_to_json(r);
	_cleanup_free_ char *text = j ? json_dumps(j, JSON_COMPACT | JSON_REAL_PRECISION(9)) : NULL;
	struct err e;

	if (!text) {
		err_set(&e, ENOMEM, "print the result");
		return fail(EXIT_CLOCHE, &e);
	}
	if (fd_write_all(1, text, strlen(text)) < 0 || fd_write_all(1, "\n", 1) < 0) {
		err_set(&e, errno, "write the result to stdout");
		return fail(EXIT_CLOCHE, &e);
	}
	return 0;
}

static int execute(struct request *q, struct err *e)
{
	_cleanup_close_ int cancel = make_cancel(e);
	struct native_io io = {
		.stdin_fd = 0,
		.out_fd = q->json ? -1 : 1,
		.err_fd = q->json ? -1 : 2,
		.escape_out = !q->raw && !q->json && isatty(1),
		.escape_err = !q->raw && !q->json && isatty(2),
		.cancel_fd = cancel,
		.uid_range = q->settings.uid_range,
	};
	struct result r;
	int status;

	if (cancel < 0 || native_run(&q->places, &q->spec, &io, &r, e) < 0)
		return fail(EXIT_CLOCHE, e);
	status = result_exit_status(&r);
	if (q->json) {
		int failed = print_json(&r);

		if (failed)
			status = failed;
	} else {
		remark(q, &r);
	}
	result_done(&r);
	return status;
}

static int run_request(struct request *q, const struct verb *verb, int argc, char **argv)
{
	struct args a = {.verb = verb, .values = q, .set = set_option};
	struct err e = {0};
	int status;

	if (places_find(&q->places, &e) < 0)
		return fail(EXIT_CLOCHE, &e);
	scope_enter(&q->places, argc + 1, argv - 1);
	if (spec_init(&q->spec, &e) < 0 ||
	    settings_load(&q->settings, &q->places, true, &q->spec, &e) < 0)
		return fail(EXIT_CLOCHE, &e);
	status = args_ready(&a, argc, argv, 0, SIZE_MAX);
	if (status >= 0)
		return status;
	if (complete(q, &a, &e) < 0)
		return fail(e.code || e.errnum ? EXIT_CLOCHE : EXIT_USAGE, &e);
	return execute(q, &e);
}

int verb_run(const struct verb *verb, int argc, char **argv)
{
	struct request q = {.language = language_find(verb->name)};
	int status = run_request(&q, verb, argc, argv);

	spec_done(&q.spec);
	settings_done(&q.settings);
	return status;
}

int verb_language(const struct verb *verb, int argc, char **argv)
{
	return verb_run(verb, argc, argv);
}
