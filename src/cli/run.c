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
	bool json, quiet, raw;
	bool help;
	const char *code; /* -c */
	enum language language;
};

enum { CLI_JSON, CLI_QUIET, CLI_RAW, CLI_DIRECT, CLI_CODE, CLI_HELP, CLI_COUNT };
const struct cli_option cli_options[] = {
	[CLI_JSON] = {"json", 0, NULL, "print the result as one JSON object instead of the output"},
	[CLI_QUIET] = {"quiet", 'q', NULL, "no remarks of cloche's own on stderr"},
	[CLI_RAW] = {"raw", 0, NULL, "pass control characters to a terminal as they are"},
	[CLI_DIRECT] = {"direct", 0, NULL, "do it in this process, whether or not a service runs"},
	[CLI_CODE] = {"", 'c', "CODE", "the code itself (python, bash, node)"},
	[CLI_HELP] = {"help", 0, NULL, "print this"},
};
const size_t cli_option_count = CLI_COUNT;

static int apply_cli_option(struct request *q, size_t which, const char *value)
{
	switch (which) {
	case CLI_JSON:
		q->json = true;
		break;
	case CLI_QUIET:
		q->quiet = true;
		break;
	case CLI_RAW:
		q->raw = true;
		break;
	case CLI_CODE:
		q->code = value;
		break;
	case CLI_HELP:
		q->help = true;
		break;
	default: /* CLI_DIRECT: there is no service yet to be passed by */
		break;
	}
	return 0;
}

/* What an argument names: a row of one of the two tables. */
struct match {
	const struct option *option;
	size_t cli; /* CLI_COUNT: none */
	bool takes_value;
};

static bool match_cli(const struct request *q, const char *name, size_t n, char letter,
		      struct match *m)
{
	for (size_t i = 0; i < CLI_COUNT; i++) {
		const struct cli_option *c = &cli_options[i];

		if (i == CLI_CODE && q->language == LANGUAGE_NONE)
			continue;
		if (name ? *c->name && strlen(c->name) == n && memcmp(c->name, name, n) == 0
			 : c->letter && c->letter == letter) {
			*m = (struct match){NULL, i, c->placeholder != NULL};
			return true;
		}
	}
	return false;
}

static int match_long(const struct request *q, const char *name, size_t n, struct match *m,
		      struct err *e)
{
	char text[64];

	if (match_cli(q, name, n, 0, m))
		return 0;
	if (n < sizeof text) {
		memcpy(text, name, n);
		text[n] = '\0';
		m->option = strchr(text, '_') ? NULL : option_find(text);
		if (m->option) {
			m->cli = CLI_COUNT;
			m->takes_value = m->option->kind != OPTION_FLAG;
			return 0;
		}
	}
	return err_set(e, 0, "unknown option --%.*s (try `cloche run --help`)",
		       n > 60 ? 60 : (int)n, name);
}

static int match_short(const struct request *q, char letter, struct match *m, struct err *e)
{
	if (match_cli(q, NULL, 0, letter, m))
		return 0;
	m->option = option_find_letter(letter);
	if (!m->option)
		return err_set(e, 0, "unknown option -%c (try `cloche run --help`)",
			       letter >= ' ' && letter < 0x7f ? letter : '?');
	m->cli = CLI_COUNT;
	m->takes_value = m->option->kind != OPTION_FLAG;
	return 0;
}

static int apply(struct request *q, const struct match *m, const char *value, struct err *e)
{
	if (!m->option)
		return apply_cli_option(q, m->cli, value);
	if (spec_set(&q->spec, m->option, value ? value : "true", e) < 0)
		return -1;
	q->settings.origins[m->option - options] = ORIGIN_FLAG;
	return 0;
}

/* One option at argv[*i]; moves *i to its last argument. */
static int parse_option(struct request *q, int argc, char **argv, int *i, struct err *e)
{
	const char *arg = argv[*i], *value = NULL;
	bool is_long = arg[1] == '-', attached;
	const char *name = arg + (is_long ? 2 : 1);
	struct match m = {0};
	size_t n = is_long ? strcspn(name, "=") : 1;

	if ((is_long ? match_long(q, name, n, &m, e) : match_short(q, *name, &m, e)) < 0)
		return -1;
	attached = name[n] != '\0';
	if (attached)
		value = name + n + (name[n] == '=' ? 1 : 0);
	/* --read-only=true: a flag of the option table knows what it may be set to. */
	if (!m.takes_value && attached && !(is_long && m.option)) {
		if (!is_long && name[n] != '=') { /* -it: flags in a row */
			if (apply(q, &m, NULL, e) < 0)
				return -1;
			argv[*i] = argv[*i] + 1;
			argv[*i][0] = '-';
			return parse_option(q, argc, argv, i, e);
		}
		return err_set(e, 0, "option %.*s takes no value", (int)n + (is_long ? 2 : 1), arg);
	}
	if (m.takes_value && !attached) {
		if (*i + 1 >= argc)
			return err_set(e, 0, "option %.60s needs a value", arg);
		value = argv[++*i];
	}
	return apply(q, &m, value, e);
}

/* Options end at "--", at the first operand, and after -c CODE, whose arguments follow. */
static int parse_options(struct request *q, int argc, char **argv, int *ret_first, struct err *e)
{
	int i = 1;

	for (; i < argc; i++) {
		if (strcmp(argv[i], "--") == 0) {
			i++;
			break;
		}
		if (argv[i][0] != '-' || argv[i][1] == '\0')
			break;
		if (parse_option(q, argc, argv, &i, e) < 0)
			return -1;
		if (q->code) {
			i++;
			break;
		}
	}
	*ret_first = i;
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

static int add_code(struct request *q, int argc, char **argv, int first, struct err *e)
{
	int r;

	if (q->code) {
		r = spec_language(&q->spec, q->language, CODE_STRING, q->code, e);
	} else if (first < argc && strcmp(argv[first], "-") != 0) {
		r = use_script(q, argv[first], e);
		first++;
	} else if (first < argc || !isatty(0)) {
		r = spec_language(&q->spec, q->language, CODE_STDIN, NULL, e);
		first++;
	} else {
		return err_set(e, 0, "no code: give -c CODE, a FILE, or pipe it in");
	}
	for (; r == 0 && first < argc; first++)
		r = spec_add_argument(&q->spec, argv[first], e);
	return r;
}

static int parse(struct request *q, const struct verb *verb, int argc, char **argv, struct err *e)
{
	int first;

	if (parse_options(q, argc, argv, &first, e) < 0 || q->help)
		return q->help ? 0 : -1;
	if (q->language != LANGUAGE_NONE) {
		if (add_code(q, argc, argv, first, e) < 0)
			return -1;
	} else {
		if (first >= argc)
			return err_set(e, 0, "no command: cloche %s %s", verb->name,
				       verb->synopsis);
		for (int i = first; i < argc; i++)
			if (spec_add_argument(&q->spec, argv[i], e) < 0)
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
	struct err e = {0};

	if (places_find(&q->places, &e) < 0)
		return fail(EXIT_CLOCHE, &e);
	scope_enter(&q->places, argc + 1, argv - 1);
	if (spec_init(&q->spec, &e) < 0 ||
	    settings_load(&q->settings, &q->places, true, &q->spec, &e) < 0)
		return fail(EXIT_CLOCHE, &e);
	if (parse(q, verb, argc, argv, &e) < 0)
		return fail(e.code || e.errnum ? EXIT_CLOCHE : EXIT_USAGE, &e);
	if (q->help) {
		print_verb_help(stdout, verb);
		return 0;
	}
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
