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
#include <sys/un.h>
#include <unistd.h>

#include "base/end_signals.h"
#include "base/fd.h"
#include "base/json.h"
#include "cli/map.h"
#include "cli/oneshot.h"
#include "cli/policy.h"
#include "image/image.h"
#include "native/native.h"
#include "settings/egress.h"

struct order {
	struct places places;
	struct spec spec;
	struct settings settings;
	bool json, quiet, raw, direct, dry;
	struct service service;
	bool has_service;
	bool own_env[ARRAY_SIZE(oneshot_automatic)]; /* the caller has set it */
	const char *code;                            /* -c */
	const char *pull;                            /* when to pull the image; NULL: missing */
	enum language language;
	struct map_options map;
};

#define FIELD(name) offsetof(struct order, name)
const struct cli_option language_options[] = {
	{"", 'c', "CODE", "the code itself", FIELD(code), .last = true},
	{"json", 0, NULL, "print the result as one JSON object instead of the output", FIELD(json)},
	{"quiet", 'q', NULL, "no remarks of cloche's own on stderr", FIELD(quiet)},
	{"raw", 0, NULL, "pass control characters to a terminal as they are", FIELD(raw)},
	{"pull", 0, "always|missing|never",
	 "when to get the image from its registry; default: missing", FIELD(pull)},
	{"direct", 0, NULL,
	 "do it in this process, though a service answers (also: CLOCHE_DIRECT=1)", FIELD(direct)},
	{"dry-run", 0, NULL,
	 "print what would be run and with which settings, rules and credentials' names; run nothing",
	 FIELD(dry)},
	{"map", 0, "FILE",
	 "run each line of FILE (JSON Lines, - for stdin) in a sandbox of its own, and print a line with each result, in order",
	 FIELD(map.file)},
	{"jobs", 0, "N", "with --map: so many at a time (without it: two for each CPU)",
	 FIELD(map.jobs)},
	{"results", 0, "FILE", "with --map: write the results to this file", FIELD(map.results)},
	{"resume", 0, NULL, "with --map and --results: pass over lines that have a result there",
	 FIELD(map.resume)},
	{NULL},
};

static int set_option(void *values, const struct option *o, const char *value, struct err *e)
{
	struct order *q = values;

	if (spec_set(&q->spec, o, value, e) < 0)
		return -1;
	q->settings.origins[o - options] = ORIGIN_FLAG;
	return 0;
}

/* A script is copied in and run under the name it was given; outside paths keep only their last part. */
static int use_script(struct order *q, const char *file, struct err *e)
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

static int add_code(struct order *q, const struct args *a, struct err *e)
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

static bool has_env(const struct spec *s, const char *name)
{
	size_t n = strlen(name);

	for (size_t i = 0; i < s->env.count; i++)
		if (strncmp(s->env.item[i], name, n) == 0 && s->env.item[i][n] == '=')
			return true;
	return false;
}

/* A service whose socket lies where ours would has our store: its images can be seen, and got, from here. */
static bool shares_store(const struct order *q)
{
	const struct sockaddr_un *at = (const struct sockaddr_un *)&q->service.address;
	size_t n = strlen(q->places.runtime);

	return !q->has_service ||
	       (q->service.local && strncmp(at->sun_path, q->places.runtime, n) == 0 &&
		at->sun_path[n] == '/');
}

/* What the image has chosen is told to a service as if the caller had. */
static int apply_image(struct order *q, struct err *e)
{
	struct spec before = q->spec;

	if (settings_apply_image(&q->settings, &q->places,
				 q->language != LANGUAGE_NONE || q->map.file, &q->spec, e) < 0)
		return -1;
	if (strcmp(before.workdir, q->spec.workdir) != 0)
		q->settings.origins[option_find("workdir") - options] = ORIGIN_FLAG;
	if (before.uid != q->spec.uid || before.gid != q->spec.gid)
		q->settings.origins[option_find("user") - options] = ORIGIN_FLAG;
	return 0;
}

/* An image that is not there is pulled, once; that never counts against the timeout. */
static int use_image(struct order *q, struct err *e)
{
	bool always = q->pull && strcmp(q->pull, "always") == 0;
	bool never = q->pull && strcmp(q->pull, "never") == 0;

	q->spec.no_pull = never;
	if (image_is_host(q->spec.image))
		return 0;
	if (!shares_store(q)) {
		if (always)
			return err_set(
				e, 0,
				"--pull always: the images of the service %s are its operator's to pull",
				q->service.name);
		return 0;
	}
	if (always && !q->dry && image_pull(q->spec.image, q->quiet, e) < 0)
		return -1;
	if (apply_image(q, e) == 0)
		return 0;
	if (q->dry && e->code == CODE_SANDBOX_IMAGE_MISSING) /* what it says is not known */
		return 0;
	if (always || never || e->code != CODE_SANDBOX_IMAGE_MISSING)
		return -1;
	if (image_pull(q->spec.image, q->quiet, e) < 0)
		return -1;
	e->code = 0;
	return apply_image(q, e);
}

static int check_pull(const struct order *q, struct err *e)
{
	static const char *const known[] = {"always", "missing", "never"};

	for (size_t i = 0; q->pull && i < ARRAY_SIZE(known); i++)
		if (strcmp(q->pull, known[i]) == 0)
			return 0;
	return q->pull ? err_set(e, 0,
				 "--pull: value \"%.60s\" is not understood: always, missing or never",
				 q->pull)
		       : 0;
}

static int complete(struct order *q, const struct args *a, struct err *e)
{
	if (check_pull(q, e) < 0)
		return -1;
	if (q->map.jobs || q->map.results || q->map.resume)
		return err_set(e, 0, "--jobs, --results and --resume belong to --map");
	if (q->language != LANGUAGE_NONE) {
		if (add_code(q, a, e) < 0)
			return -1;
	} else {
		if (a->count == 0 && image_is_host(q->spec.image))
			return err_set(e, 0, "no command: cloche %s %s", a->verb->name,
				       a->verb->synopsis);
		for (size_t i = 0; i < a->count; i++)
			if (spec_add_argument(&q->spec, a->operands[i], e) < 0)
				return -1;
	}
	/* A service has a policy of its own. */
	if (q->dry && q->map.file)
		return err_set(e, 0, "--dry-run is for one run, not for --map");
	if ((!q->has_service && settings_apply_policy(&q->settings, &q->spec, e) < 0) ||
	    use_image(q, e) < 0)
		return -1;
	for (size_t i = 0; i < ARRAY_SIZE(oneshot_automatic); i++)
		q->own_env[i] = has_env(&q->spec, oneshot_automatic[i]);
	return spec_finish(&q->spec, e);
}

/* What is said for every line; each has its command. */
static int complete_map(struct order *q, const struct args *a, struct err *e)
{
	if (a->count > 0 || q->code)
		return err_set(e, 0,
			       "--map: code, commands and arguments are in the lines of %.200s",
			       q->map.file);
	if (q->spec.out_dir || q->spec.artifacts.count)
		return err_set(e, 0, "--map: --out and --artifact are for one run");
	if (q->map.resume && !q->map.results)
		return err_set(e, 0, "--resume: say with --results what is to be gone on with");
	if ((!q->has_service && settings_apply_policy(&q->settings, &q->spec, e) < 0) ||
	    check_pull(q, e) < 0 || use_image(q, e) < 0)
		return -1;
	for (size_t i = 0; i < ARRAY_SIZE(oneshot_automatic); i++)
		q->own_env[i] = has_env(&q->spec, oneshot_automatic[i]);
	return 0;
}

/* SIGINT, SIGTERM and SIGHUP become readable: the run ends, everything is taken down, then we end. */
static int make_cancel(struct err *e)
{
	signal(SIGTTIN, SIG_IGN); /* in the background, stdin is simply at its end */
	return end_signals_watch(0, NULL, e);
}

static void remark_truncated(const char *name, const struct captured *c)
{
	if (c->bytes > c->kept)
		fprintf(stderr, "cloche: %s truncated: kept %llu of %llu bytes\n", name,
			(unsigned long long)c->kept, (unsigned long long)c->bytes);
}

/* A script written on Windows fails on every line's end in a way that is hard to see. */
static bool looks_like_crlf(const struct order *q, const struct result *r)
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

static void remark(const struct order *q, const struct result *r)
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

static int print_json(const json_t *j)
{
	_cleanup_free_ char *text = j ? json_dumps(j, JSON_OUT) : NULL;
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

static int finish(const struct order *q, const struct result *r, const json_t *json)
{
	int failed = 0;

	if (q->json)
		failed = print_json(json);
	else
		remark(q, r);
	return failed ? failed : result_exit_status(r);
}

static int execute_there(struct order *q, struct err *e)
{
	const struct oneshot o = {
		.service = &q->service,
		.spec = &q->spec,
		.origins = q->settings.origins,
		.own_env = {q->own_env[0], q->own_env[1]},
		.keep = q->json,
		.raw = q->raw,
		.cancel_fd = make_cancel(e),
	};
	_cleanup_json_ json_t *json = NULL;
	struct result r = {0};
	int done = o.cancel_fd < 0 ? -1 : oneshot_run(&o, &r, &json, e), status;

	if (done < 0)
		status = fail(EXIT_CLOCHE, e);
	else
		status = done == ONESHOT_CANCELLED ? 130 : finish(q, &r, json);
	free(r.artifacts);
	return status;
}

static int execute(struct order *q, struct err *e)
{
	_cleanup_json_ json_t *json = NULL;
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
	int status, done;

	if (cancel < 0 || settings_egress_config(&q->settings, &q->places, &q->spec, NULL,
						 &io.network, &io.network_opens_tls, e) < 0)
		return fail(EXIT_CLOCHE, e);
	done = native_run(&q->places, &q->spec, &io, &r, e);
	settings_egress_free(io.network);
	if (done < 0)
		return fail(EXIT_CLOCHE, e);
	json = q->json ? result_to_json(&r) : NULL;
	status = finish(q, &r, json);
	result_done(&r);
	return status;
}

static int execute_map(struct order *q, struct err *e)
{
	_cleanup_close_ int cancel = make_cancel(e);
	const struct map_order o = {
		.options = q->map,
		.places = &q->places,
		.spec = &q->spec,
		.settings = &q->settings,
		.service = q->has_service ? &q->service : NULL,
		.own_env = q->own_env,
		.language = q->language,
		.quiet = q->quiet,
		.cancel_fd = cancel,
	};

	return cancel < 0 ? fail(EXIT_CLOCHE, e) : map_run(&o);
}

static json_t *plan_json(const struct order *q, struct err *e)
{
	json_t *settings = json_object(), *command = json_array(), *env = json_array();
	json_t *network = policy_json(&q->settings, &q->places, &q->spec, e), *plan;

	for (size_t i = 0; i < q->spec.command.count; i++)
		json_array_append_new(command, json_string(q->spec.command.item[i]));
	for (size_t i = 0; i < q->spec.env.count; i++)
		json_array_append_new(env, json_string(q->spec.env.item[i]));
	config_print(&q->spec, &q->settings, settings);
	plan = json_pack("{so so so so? ss}", "command", command, "env", env, "settings", settings,
			 "network", network, "by",
			 q->has_service ? q->service.name : "this process");
	if (plan && network)
		return plan;
	json_decref(plan);
	if (network)
		err_set(e, 0, "--dry-run: an argument or an environment entry is no UTF-8");
	return NULL;
}

static void print_list(const char *name, const json_t *list)
{
	const json_t *item;
	size_t i;

	json_array_foreach(list, i, item) {
		_cleanup_free_ char *text = json_dumps(item, JSON_COMPACT | JSON_ENCODE_ANY);

		printf("%-16s %s\n", name, text ? text : "?");
	}
}

/* What would be done, to people or as JSON. Nothing of it is done, and no secret read. */
static int execute_dry(const struct order *q, struct err *e)
{
	static const char *const lists[] = {"rules", "operator", "credentials", "warnings"};
	_cleanup_json_ json_t *plan = plan_json(q, e);
	const json_t *network = json_object_get(plan, "network");

	if (!plan)
		return fail(EXIT_CLOCHE, e);
	if (q->json)
		return print_json(plan);
	print_list("command", json_object_get(plan, "command"));
	printf("%-16s %s\n", "by", json_string_value(json_object_get(plan, "by")));
	config_print(&q->spec, &q->settings, NULL);
	for (size_t i = 0; i < ARRAY_SIZE(lists); i++)
		print_list(lists[i], json_object_get(network, lists[i]));
	return 0;
}

/* A word that says so is enough for now: it may be the command's own, and is looked at again. */
static bool may_be_direct(int argc, char **argv)
{
	for (int i = 1; i < argc; i++)
		if (strncmp(argv[i], "--direct", 8) == 0)
			return true;
	return service_is_unwanted();
}

/* CLOCHE_SOCKET must answer; any other service need not be there. */
static int choose(struct order *q, struct err *e)
{
	const char *named = getenv("CLOCHE_SOCKET");

	q->has_service = service_find(&q->service, &q->places, e) == 0;
	return q->has_service || !named || !*named ? 0 : -1;
}

static int run_request(struct order *q, const struct verb *verb, int argc, char **argv)
{
	struct args a = {.verb = verb, .values = q, .set = set_option};
	bool unsure = may_be_direct(argc, argv);
	struct err e = {0};
	int status;

	if (places_find(&q->places, &e) < 0 || (!unsure && choose(q, &e) < 0))
		return fail(EXIT_CLOCHE, &e);
	/* Before anything is read: it starts this program again. */
	if (!q->has_service)
		scope_enter(&q->places, argc + 1, argv - 1);
	if (spec_init(&q->spec, &e) < 0 ||
	    settings_load(&q->settings, &q->places, true, &q->spec, &e) < 0)
		return fail(EXIT_CLOCHE, &e);
	status = args_ready(&a, argc, argv, 0, SIZE_MAX);
	if (status >= 0)
		return status;
	if (unsure && !q->direct && !service_is_unwanted() && choose(q, &e) < 0)
		return fail(EXIT_CLOCHE, &e);
	if ((q->map.file ? complete_map(q, &a, &e) : complete(q, &a, &e)) < 0)
		return fail(e.code || e.errnum ? EXIT_CLOCHE : EXIT_USAGE, &e);
	if (q->dry)
		return execute_dry(q, &e);
	if (!q->quiet)
		policy_warn(&q->spec);
	if (q->map.file)
		return execute_map(q, &e);
	return q->has_service ? execute_there(q, &e) : execute(q, &e);
}

int verb_run(const struct verb *verb, int argc, char **argv)
{
	struct order q = {.language = language_find(verb->name), .service.idle_fd = -1};
	int status = run_request(&q, verb, argc, argv);

	service_done(&q.service);
	spec_done(&q.spec);
	settings_done(&q.settings);
	return status;
}

int verb_language(const struct verb *verb, int argc, char **argv)
{
	return verb_run(verb, argc, argv);
}
