/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ask.c - `cloche ask`: reads the command line and becomes cloche-ask, which talks to the model (src/ask).
 *
 * What was said goes there as JSON in an unnamed file, so a question is in no process list. Options of sandboxes are
 * checked here and handed on as they are, for the `cloche mcp` that cloche-ask starts.
 */
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "agent/tool.h"
#include "base/fd.h"
#include "base/json.h"
#include "base/program.h"
#include "base/units.h"
#include "cli/cli.h"

enum { PROMPT_BYTES = 1 << 20, SETTINGS_FD = 3, DAY_S = 86400 };

struct ask {
	struct spec spec;
	struct settings settings;
	struct strings mcp; /* what `cloche mcp` is started with */
	const char *model, *instructions, *temperature, *max_steps, *max_tokens, *timeout,
		*stall_timeout, *run_timeout, *tools, *approve, *env_file, *base_url, *text,
		*max_text;
	bool json, quiet, session, direct;
	char **operands;
};

#define FIELD(name) offsetof(struct ask, name)
const struct cli_option ask_options[] = {
	{"model", 0, "MODEL",
	 "anthropic/NAME, openai/NAME, gemini/NAME or a known name (also: MODEL) [claude-opus-4-8]",
	 FIELD(model)},
	{"base-url", 0, "URL", "a server that speaks as the model's provider does (also: BASE_URL)",
	 FIELD(base_url)},
	{"env-file", 0, "FILE", "MODEL, BASE_URL and keys, where the environment has none [.env]",
	 FIELD(env_file)},
	{"system", 0, "TEXT", "what the model is told first", FIELD(instructions)},
	{"temperature", 0, "NUMBER", "0 to 2 [0, where the model has one]", FIELD(temperature)},
	{"max-steps", 0, "COUNT", "most answers of the model [20]", FIELD(max_steps)},
	{"max-tokens", 0, "COUNT", "most tokens of one answer [4096]", FIELD(max_tokens)},
	{"timeout", 0, "TIME", "for all of it [10m]", FIELD(timeout)},
	{"stall-timeout", 0, "TIME", "most time in which nothing of an answer comes [2m]",
	 FIELD(stall_timeout)},
	{"run-timeout", 0, "TIME", "of one run; also the most that the model may ask for [30s]",
	 FIELD(run_timeout)},
	{"tools", 0, "TOOL,...", "what the model may call [run_python,run_node,run_shell]",
	 FIELD(tools)},
	{"approve", 0, "WHAT,...",
	 "ask a person before calls: all, or only those whose sandbox has network or volumes [all]",
	 FIELD(approve), .words = "all network volumes"},
	{"session", 0, NULL, "runs work in one kept sandbox, not each in a new one",
	 FIELD(session)},
	{"text", 0, "exit|plain", "how a run is told to the model [exit]", FIELD(text)},
	{"max-text", 0, "CHARS",
	 "most characters of output for the model [exit: 16000 each; plain: 4000]",
	 FIELD(max_text)},
	{"json", 0, NULL, "print the transcript as JSON instead of the answer", FIELD(json)},
	{"quiet", 'q', NULL, "print nothing but the answer and errors", FIELD(quiet)},
	{"direct", 0, NULL, "use no service, though one answers (also: CLOCHE_DIRECT=1)",
	 FIELD(direct)},
	{NULL},
};
#undef FIELD

static const char default_instructions[] =
	"Answer the user's question. Where computing, checking or trying something out helps, write "
	"code and run it with the tools: each run is in a strict sandbox, and prints "
	"what you will see. A failed run is told with its exit code and stderr: mend the code and run "
	"it again. End with the answer itself.";

static const char *const key_names[] = {
#define KEY(name) name,
#include "ask/keys.def"
#undef KEY
};

static int check_env(const char *value, struct err *e)
{
	size_t n = strcspn(value, "=");

	for (size_t i = 0; i < ARRAY_SIZE(key_names); i++)
		if (strlen(key_names[i]) == n && strncmp(key_names[i], value, n) == 0)
			return err_set(e, 0, "--env %s: a model's key never goes into a sandbox",
				       key_names[i]);
	return 0;
}

static int hand_on(struct ask *a, const char *name, const char *value, struct err *e)
{
	_cleanup_free_ char *text = NULL;

	if (asprintf(&text, "--%s%s%s", name, value ? "=" : "", value ? value : "") < 0) {
		text = NULL;
		return err_set(e, ENOMEM, "keep --%s", name);
	}
	return strings_add(&a->mcp, text, 4096, e);
}

static int set_option(void *values, const struct option *o, const char *value, struct err *e)
{
	struct ask *a = values;

	if (strcmp(o->name, "env") == 0 && check_env(value, e) < 0)
		return -1;
	if (spec_set(&a->spec, o, value, e) < 0)
		return -1;
	a->settings.origins[o - options] = ORIGIN_FLAG;
	return hand_on(a, o->name, value, e);
}

/* ---- what it comes to, as JSON ---- */

static int put(json_t *j, const char *key, json_t *value, struct err *e)
{
	return json_object_set_new(j, key, value) < 0
		       ? err_set(e, 0, "--%s: give text in UTF-8", key)
		       : 0;
}

static int put_text(json_t *j, const char *key, const char *text, struct err *e)
{
	return text ? put(j, key, json_string(text), e) : 0;
}

static int put_count(json_t *j, const char *key, const char *text, uint64_t otherwise, uint64_t max,
		     struct err *e)
{
	uint64_t n = otherwise;

	if (text && parse_count(text, 1, max, &n) < 0)
		return err_set(e, 0, "--%s %.40s: give a number from 1 to %llu", key, text,
			       (unsigned long long)max);
	return put(j, key, json_integer((json_int_t)n), e);
}

static int put_time(json_t *j, const char *key, const char *text, double otherwise, struct err *e)
{
	uint64_t us = (uint64_t)(otherwise * 1e6);

	if (text && (parse_duration(text, &us) < 0 || us > (uint64_t)DAY_S * 1000000))
		return err_set(e, 0, "--%s %.40s: give a time such as 90s or 10m, at most 24h", key,
			       text);
	return put(j, key, json_real((double)us / 1e6), e);
}

static int put_temperature(json_t *j, const char *text, struct err *e)
{
	char *end = NULL;
	double value = text && strspn(text, "0123456789.") == strlen(text) && *text
			       ? strtod(text, &end)
			       : -1;

	if (!text)
		return 0;
	if (value < 0 || value > 2 || !end || *end)
		return err_set(e, 0, "--temperature %.40s: give a number from 0 to 2", text);
	return put(j, "temperature", json_real(value), e);
}

/* A list with commas, each of which check() has to like. */
static int put_list(json_t *j, const char *key, const char *text, bool (*check)(const char *word),
		    const char *known, struct err *e)
{
	json_t *list = json_array();

	for (const char *p = text; p; p = strchr(p, ',') ? strchr(p, ',') + 1 : NULL) {
		char word[64];

		snprintf(word, sizeof word, "%.*s", (int)strcspn(p, ","), p);
		if (!check(word)) {
			json_decref(list);
			return err_set(e, 0, "--%s %.60s: there are %s", key, word, known);
		}
		json_array_append_new(list, json_string(word));
	}
	return put(j, key, list, e);
}

static bool is_tool(const char *word)
{
	return tool_find(word) != TOOL_COUNT;
}

static bool is_approvable(const char *word)
{
	return strcmp(word, "all") == 0 || strcmp(word, "network") == 0 ||
	       strcmp(word, "volumes") == 0;
}

static int put_lists(const struct ask *a, json_t *j, struct err *e)
{
	json_t *mcp = json_array(), *volumes = json_array();
	/* Without a value it is all the option's words, of which the first holds. */
	const char *approve = a->approve && strchr(a->approve, ' ') ? "all" : a->approve;

	for (size_t i = 0; i < a->mcp.count; i++)
		json_array_append_new(mcp, json_string(a->mcp.item[i]));
	for (size_t i = 0; i < a->spec.volume_count; i++)
		json_array_append_new(volumes, json_string(a->spec.volumes[i].host));
	if (json_array_size(mcp) < a->mcp.count ||
	    json_array_size(volumes) < a->spec.volume_count) {
		json_decref(mcp);
		json_decref(volumes);
		return err_set(e, 0, "an option of sandboxes: give text in UTF-8");
	}
	json_object_set_new(j, "mcp", mcp);
	json_object_set_new(j, "volumes", volumes);
	if (put_list(j, "tools", a->tools ? a->tools : "run_python,run_node,run_shell", is_tool,
		     "run_python, run_node, run_shell, write_file, read_file, list_files, "
		     "install_packages, list_sandboxes and reset",
		     e) < 0)
		return -1;
	return put_list(j, "approve", approve, is_approvable, "all, network and volumes", e);
}

static int put_all(const struct ask *a, json_t *j, struct err *e)
{
	put(j, "json", json_boolean(a->json), e);
	put(j, "quiet", json_boolean(a->quiet), e);
	put(j, "session", json_boolean(a->session), e);
	put(j, "network", json_boolean(a->spec.network.mode != NETWORK_NONE), e);
	put(j, "memory_mib", json_integer((json_int_t)(a->spec.memory_bytes >> 20)), e);
	if (put_text(j, "model", a->model, e) < 0 || put_text(j, "base_url", a->base_url, e) < 0 ||
	    put_text(j, "env_file", a->env_file, e) < 0 ||
	    put_text(j, "system", a->instructions ? a->instructions : default_instructions, e) <
		    0 ||
	    put_temperature(j, a->temperature, e) < 0 ||
	    put_count(j, "max-steps", a->max_steps, 20, 1000, e) < 0 ||
	    put_count(j, "max-tokens", a->max_tokens, 4096, 1000000, e) < 0 ||
	    put_time(j, "timeout", a->timeout, 600, e) < 0 ||
	    put_time(j, "stall-timeout", a->stall_timeout, 120, e) < 0 ||
	    put_time(j, "run-timeout", a->run_timeout, (double)a->spec.timeout_us / 1e6, e) < 0)
		return -1;
	return 0;
}

static int put_prompt(const struct ask *a, json_t *j, struct err *e)
{
	_cleanup_free_ char *data = NULL;
	const char *text = a->operands[0];
	size_t size = strlen(text);
	int r = strcmp(text, "-") == 0 ? fd_slurp(0, PROMPT_BYTES, &data, &size) : 0;

	if (r < 0)
		return err_set(e, -r, "read the question from stdin (at most %d bytes)",
			       PROMPT_BYTES);
	text = data ? data : text;
	if (size == 0 || strspn(text, " \t\r\n") == size || memchr(text, '\0', size))
		return err_set(e, 0, "the question is empty, or no text");
	return json_object_set_new(j, "prompt", json_stringn(text, size)) < 0
		       ? err_set(e, 0, "the question: give text in UTF-8")
		       : 0;
}

/* ---- becoming cloche-ask ---- */

static int hand_over(json_t *j, struct err *e)
{
	_cleanup_free_ char *text = json_dumps(j, JSON_OUT);
	_cleanup_close_ int fd = memfd_create("cloche-ask", MFD_CLOEXEC);

	if (!text || fd < 0 || fd_write_all(fd, text, strlen(text)) < 0 ||
	    lseek(fd, 0, SEEK_SET) < 0)
		return err_set(e, text ? errno : ENOMEM, "hand over the question");
	if (fd == SETTINGS_FD ? fcntl(TAKE_FD(fd), F_SETFD, 0) < 0 : dup2(fd, SETTINGS_FD) < 0)
		return err_set(e, errno, "hand over the question");
	return 0;
}

static int become(const struct ask *a, json_t *j, struct err *e)
{
	char path[PROGRAM_PATH_SIZE];
	char *argv[] = {path, NULL};

	if (program_self(path, e) < 0 || put_text(j, "cloche", path, e) < 0 ||
	    put_prompt(a, j, e) < 0 || program_find("cloche-ask", path, e) < 0 ||
	    hand_over(j, e) < 0)
		return -1;
	execv(path, argv);
	return err_set(e, errno, "start %.300s (reinstall cloche)", path);
}

static int read_defaults(struct ask *a, struct err *e)
{
	const struct option *timeout = option_find("timeout");
	struct places places;

	if (spec_init(&a->spec, e) < 0 || places_find(&places, e) < 0 ||
	    settings_load(&a->settings, &places, true, &a->spec, e) < 0)
		return -1;
	/* The contract's 30 s for agents' tools, where nobody said anything. */
	if (a->settings.origins[timeout - options] != ORIGIN_DEFAULT)
		return 0;
	return spec_set(&a->spec, timeout, "30s", e);
}

static int hand_on_own(struct ask *a, struct err *e)
{
	if ((a->run_timeout && hand_on(a, "timeout", a->run_timeout, e) < 0) ||
	    (a->text && hand_on(a, "text", a->text, e) < 0) ||
	    (a->max_text && hand_on(a, "max-text", a->max_text, e) < 0) ||
	    (a->session && hand_on(a, "session", NULL, e) < 0) ||
	    (a->direct && hand_on(a, "direct", NULL, e) < 0))
		return -1;
	return 0;
}

/* Comes back only with an exit status. */
static int ask(struct ask *a, const struct verb *verb, int argc, char **argv)
{
	struct args args = {.verb = verb, .values = a, .set = set_option};
	_cleanup_json_ json_t *j = json_object();
	struct err e = {0};
	int status;

	if (read_defaults(a, &e) < 0)
		return fail(EXIT_CLOCHE, &e);
	status = args_ready(&args, argc, argv, 1, 1);
	if (status >= 0)
		return status;
	a->operands = args.operands;
	if (put_all(a, j, &e) < 0 || hand_on_own(a, &e) < 0 || put_lists(a, j, &e) < 0)
		return fail(EXIT_USAGE, &e);
	if (become(a, j, &e) < 0)
		return fail(e.errnum ? EXIT_CLOCHE : EXIT_USAGE, &e);
	return 0;
}

int verb_ask(const struct verb *verb, int argc, char **argv)
{
	struct ask a = {0};
	int status = ask(&a, verb, argc, argv);

	strings_done(&a.mcp);
	spec_done(&a.spec);
	settings_done(&a.settings);
	return status;
}
