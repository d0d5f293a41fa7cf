/* SPDX-License-Identifier: Apache-2.0 */
/* cloche.c - libcloche: the public header's functions over the model and the native runtime. */
#include "cloche/cloche.h"

#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "native/native.h"
#include "settings/egress.h"
#include "settings/settings.h"

struct cloche_spec {
	struct places places;
	struct settings settings;
	struct spec spec;
	bool was_set[SETTINGS_MAX_OPTIONS];
	bool has_command, is_language;
};

struct cloche_result {
	struct result result;
};

static int give_error(struct cloche_error *ret, const struct err *e)
{
	if (!ret)
		return -1;
	ret->errnum = e->errnum;
	snprintf(ret->code, sizeof ret->code, "%s", e->code ? codes[e->code].name : "");
	memcpy(ret->text, e->text, sizeof ret->text);
	return -1;
}

static int wrong_usage(struct cloche_error *ret, const char *text)
{
	struct err e = {0};

	err_set(&e, 0, "%s", text);
	return give_error(ret, &e);
}

const char *cloche_version(void)
{
	return CLOCHE_VERSION;
}

/* The operator's files bind the library as they bind the command line. A value that the program chose is
 * one that somebody chose: above the policy's maximum it is an error. */
static int prepare(struct cloche_spec *spec, struct err *e)
{
	if (places_find(&spec->places, e) < 0 || spec_init(&spec->spec, e) < 0)
		return -1;
	return settings_load(&spec->settings, &spec->places, false, &spec->spec, e);
}

struct cloche_spec *cloche_spec_new(struct cloche_error *ret)
{
	struct cloche_spec *spec = calloc(1, sizeof *spec);
	struct err e = {0};

	if (!spec)
		err_set(&e, ENOMEM, "make a spec");
	if (spec && prepare(spec, &e) == 0)
		return spec;
	cloche_spec_free(spec);
	give_error(ret, &e);
	return NULL;
}

void cloche_spec_free(struct cloche_spec *spec)
{
	if (!spec)
		return;
	spec_done(&spec->spec);
	settings_done(&spec->settings);
	free(spec);
}

int cloche_spec_set(struct cloche_spec *spec, const char *name, const char *value,
		    struct cloche_error *ret)
{
	const struct option *o = option_find(name);
	struct err e = {0};

	if (!o) {
		err_set(&e, 0, "no such option: %.60s", name);
		return give_error(ret, &e);
	}
	if (spec_set(&spec->spec, o, value, &e) < 0)
		return give_error(ret, &e);
	spec->was_set[o - options] = true;
	return 0;
}

int cloche_spec_command(struct cloche_spec *spec, const char *const argv[],
			struct cloche_error *ret)
{
	struct err e = {0};

	if (spec->has_command)
		return wrong_usage(ret, "the spec has a command already");
	spec->has_command = true;
	for (; *argv; argv++)
		if (spec_add_argument(&spec->spec, *argv, &e) < 0)
			return give_error(ret, &e);
	return 0;
}

int cloche_spec_language(struct cloche_spec *spec, const char *language, struct cloche_error *ret)
{
	enum language l = language_find(language);
	struct err e = {0};

	if (spec->has_command)
		return wrong_usage(ret, "the spec has a command already");
	if (l == LANGUAGE_NONE)
		return wrong_usage(ret, "no such language: python, bash and node are there");
	spec->has_command = spec->is_language = true;
	return spec_language(&spec->spec, l, CODE_STDIN, NULL, &e) < 0 ? give_error(ret, &e) : 0;
}

static int run(struct cloche_spec *spec, const void *stdin_data, size_t stdin_size,
	       struct result *r, struct err *e)
{
	struct native_io io = {.stdin_fd = -1,
			       .stdin_data = stdin_data,
			       .stdin_size = stdin_size,
			       .out_fd = -1,
			       .err_fd = -1,
			       .cancel_fd = -1,
			       .uid_range = spec->settings.uid_range};
	int done;

	for (size_t i = 0; i < option_count; i++)
		if (spec->settings.origins[i] == ORIGIN_DEFAULT)
			spec->settings.origins[i] = spec->was_set[i] ? ORIGIN_FLAG : ORIGIN_DEFAULT;
	if (settings_apply_policy(&spec->settings, &spec->spec, e) < 0 ||
	    settings_apply_image(&spec->settings, &spec->places, spec->is_language, &spec->spec,
				 e) < 0 ||
	    spec_finish(&spec->spec, e) < 0 ||
	    settings_egress_config(&spec->settings, &spec->places, &spec->spec, NULL, &io.network,
				   &io.network_opens_tls, e) < 0)
		return -1;
	done = native_run(&spec->places, &spec->spec, &io, r, e);
	settings_egress_free(io.network);
	return done;
}

int cloche_run(struct cloche_spec *spec, const void *stdin_data, size_t stdin_size,
	       struct cloche_result **ret_result, struct cloche_error *ret)
{
	struct cloche_result *result = calloc(1, sizeof *result);
	struct err e = {0};

	if (!result)
		return wrong_usage(ret, "out of memory");
	if (run(spec, stdin_data, stdin_size, &result->result, &e) < 0) {
		free(result);
		return give_error(ret, &e);
	}
	*ret_result = result;
	return 0;
}

static char *to_text(const struct result *r)
{
	_cleanup_json_ json_t *j = result_to_json(r);

	return j ? json_dumps(j, JSON_OUT) : NULL;
}

int cloche_run_json(const char *json, size_t size, unsigned flags, char **ret_json,
		    struct cloche_error *ret)
{
	struct cloche_spec *spec = cloche_spec_new(ret);
	_cleanup_free_ char *code = NULL;
	size_t code_size = 0;
	struct result r;
	struct err e = {0};
	int failed;

	if (!spec)
		return -1;
	failed = spec_from_json(&spec->spec, json, size, flags & CLOCHE_TRUST_HOST_PATHS,
				spec->was_set, &code, &code_size, &e);
	if (failed == 0)
		failed = run(spec, code, code_size, &r, &e);
	if (failed == 0) {
		*ret_json = to_text(&r);
		result_done(&r);
		if (!*ret_json)
			failed = err_set(&e, ENOMEM, "print the result");
	}
	cloche_spec_free(spec);
	return failed ? give_error(ret, &e) : 0;
}

void cloche_result_free(struct cloche_result *result)
{
	if (!result)
		return;
	result_done(&result->result);
	free(result);
}

const char *cloche_result_reason(const struct cloche_result *result)
{
	return reasons[result->result.reason].name;
}

const char *cloche_result_error_code(const struct cloche_result *result)
{
	enum code code = result_code(&result->result);

	return code == CODE_NONE ? NULL : codes[code].name;
}

int cloche_result_ok(const struct cloche_result *result)
{
	return result_ok(&result->result);
}

int cloche_result_exit_code(const struct cloche_result *result)
{
	return result->result.has_exit_code ? result->result.exit_code : -1;
}

int cloche_result_signal(const struct cloche_result *result)
{
	return result->result.signal;
}

const char *cloche_result_message(const struct cloche_result *result)
{
	return result->result.message;
}

const char *cloche_result_stdout(const struct cloche_result *result)
{
	return result->result.out.data ? result->result.out.data : "";
}

size_t cloche_result_stdout_size(const struct cloche_result *result)
{
	return result->result.out.size;
}

unsigned long long cloche_result_stdout_bytes(const struct cloche_result *result)
{
	return result->result.out.bytes;
}

const char *cloche_result_stderr(const struct cloche_result *result)
{
	return result->result.err.data ? result->result.err.data : "";
}

size_t cloche_result_stderr_size(const struct cloche_result *result)
{
	return result->result.err.size;
}

unsigned long long cloche_result_stderr_bytes(const struct cloche_result *result)
{
	return result->result.err.bytes;
}

char *cloche_result_json(const struct cloche_result *result)
{
	return to_text(&result->result);
}
