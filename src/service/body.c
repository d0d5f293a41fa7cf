/* SPDX-License-Identifier: Apache-2.0 */
#include "service/body.h"

#include <stdio.h>
#include <string.h>

#include "base/base64.h"
#include "base/units.h"
#include "service/path.h"
#include "service/problem.h"
#include "service/reply.h"
#include "zygote/fits.h"

#define LIFE_DEFAULT_US (3600ull * 1000000)
#define EXEC_DEFAULT_US (30ull * 1000000)
#define LABEL_MAX       256
#define IN_A_SANDBOX    (BODY_EXEC | BODY_PROCESS)

/* Options of the command line, and in which bodies they may stand. */
static const struct {
	const char *key;
	unsigned kinds;
} option_keys[] = {
	{"memory", BODY_RUN | BODY_SANDBOX},
	{"memory_swap", BODY_RUN | BODY_SANDBOX},
	{"cpus", BODY_RUN | BODY_SANDBOX},
	{"pids_limit", BODY_RUN | BODY_SANDBOX},
	{"tmpfs", BODY_RUN | BODY_SANDBOX},
	{"hostname", BODY_RUN | BODY_SANDBOX},
	{"profile", BODY_RUN | BODY_SANDBOX},
	{"user", BODY_RUN | BODY_SANDBOX},
	{"image", BODY_RUN | BODY_SANDBOX},
	{"runtime", BODY_RUN | BODY_SANDBOX},
	{"network", BODY_RUN | BODY_SANDBOX},
	{"allow", BODY_RUN | BODY_SANDBOX},
	{"deny", BODY_RUN | BODY_SANDBOX},
	{"preset", BODY_RUN | BODY_SANDBOX},
	{"credential", BODY_RUN | BODY_SANDBOX},
	{"network_bytes", BODY_RUN | BODY_SANDBOX},
	{"network_connections", BODY_RUN | BODY_SANDBOX},
	{"volume", BODY_RUN | BODY_SANDBOX},
	{"env", ~0u},
	{"workdir", ~0u},
	{"timeout", BODY_RUN | IN_A_SANDBOX},
	{"max_output", BODY_RUN | IN_A_SANDBOX},
	{"cpu_time", BODY_RUN},
	{"idle_timeout", BODY_RUN},
	{"on_output_limit", BODY_RUN},
	{"artifact", BODY_RUN},
};

static int wrong(struct err *e, const char *text)
{
	return err_set(e, 0, "%s", text);
}

static int take_text(struct body *b, const char *data, size_t size, struct err *e)
{
	if (b->input)
		return wrong(e, "give one of code, stdin and stdin_base64");
	b->input = malloc(size + 1);
	if (!b->input)
		return err_set(e, ENOMEM, "keep the input");
	memcpy(b->input, data, size);
	b->input[size] = '\0';
	b->input_size = size;
	return 0;
}

static int set_stdin(struct body *b, json_t *v, struct err *e)
{
	if (json_is_boolean(v) && b->kind & (BODY_PROCESS | BODY_RUN)) { /* keep it open, or not */
		b->stdin_open = json_is_true(v);
		return 0;
	}
	return json_is_string(v) ? take_text(b, json_string_value(v), json_string_length(v), e)
				 : wrong(e, "must be a string");
}

static int set_stdin_base64(struct body *b, json_t *v, struct err *e)
{
	_cleanup_free_ char *data = NULL;
	size_t size;

	if (!json_is_string(v) ||
	    base64_decode(json_string_value(v), json_string_length(v), &data, &size) < 0)
		return wrong(e, "must be base64 (RFC 4648, padded)");
	return take_text(b, data, size, e);
}

static int check_content(const json_t *content, const json_t *coded, struct err *e)
{
	_cleanup_free_ char *decoded = NULL;
	size_t size;

	if (content && !json_is_string(content))
		return wrong(e, "content: must be a string");
	if (coded && (!json_is_string(coded) ||
		      base64_decode(json_string_value(coded), json_string_length(coded), &decoded,
				    &size) < 0))
		return wrong(e, "content_base64: must be base64 (RFC 4648, padded)");
	return 0;
}

static int check_file_path(const json_t *path, struct err *e)
{
	char full[SPEC_PATH_SIZE + 16];

	if (!json_is_string(path) || json_string_length(path) >= SPEC_PATH_SIZE ||
	    strlen(json_string_value(path)) != json_string_length(path))
		return wrong(e, "path: must be a path of at most 255 bytes");
	snprintf(full, sizeof full, "%s%s", *json_string_value(path) == '/' ? "" : "/w/",
		 json_string_value(path));
	if (is_kernel_path(full))
		return wrong(e, "path: /proc, /sys and /dev are the kernel's");
	if (!full[1] || strlen(full) >= SPEC_PATH_SIZE || box_path_check("path", full, e) < 0)
		return wrong(e, "path: must be absolute or below /workspace, without . and ..");
	return 0;
}

/* It is kept as a number from here on. */
static int take_mode(json_t *row, const json_t *mode, struct err *e)
{
	const char *text = json_is_string(mode) ? json_string_value(mode) : "";
	size_t size = strlen(text);

	if (size < 3 || size > 4 || strspn(text, "01234567") != json_string_length(mode) ||
	    strtoul(text, NULL, 8) > 0777)
		return wrong(e, "mode: must be octal permission bits such as \"0644\"");
	return json_object_set_new(row, "mode", json_integer((json_int_t)strtoul(text, NULL, 8))) <
			       0
		       ? err_set(e, ENOMEM, "mode")
		       : 0;
}

/* A link goes in as it is, wherever it leads: that is a matter of the inside. */
static int check_link(const json_t *link, struct err *e)
{
	const char *text = json_string_value(link);

	if (!text || !*text || strlen(text) != json_string_length(link) || strlen(text) >= 4096)
		return wrong(e, "link: must be the target of a symbolic link");
	return 0;
}

static int check_file(json_t *row, struct err *e)
{
	json_t *path = json_object_get(row, "path"), *mode = json_object_get(row, "mode");
	json_t *content = json_object_get(row, "content");
	json_t *coded = json_object_get(row, "content_base64");
	json_t *link = json_object_get(row, "link"), *folder = json_object_get(row, "folder");
	size_t what = !!content + !!coded + !!link + !!folder;

	if (!json_is_object(row) || json_object_size(row) != what + !!path + !!mode || !path ||
	    what != 1)
		return wrong(e, "each needs path, one of content, content_base64, link and folder, "
				"and may have mode");
	if ((folder && !json_is_true(folder)) || (link && mode))
		return wrong(e, "folder: can only be true; a link has no mode");
	if (link && check_link(link, e) < 0)
		return -1;
	if (check_file_path(path, e) < 0 || check_content(content, coded, e) < 0)
		return -1;
	return mode ? take_mode(row, mode, e) : 0;
}

static int set_files(struct body *b, json_t *v, struct err *e)
{
	json_t *row;
	size_t i;

	if (!json_is_array(v) || json_array_size(v) > MAX_FILES)
		return wrong(e, "must be an array of at most 1024 files");
	json_array_foreach(v, i, row)
		if (check_file(row, e) < 0)
			return err_prefix(e, "[%zu]", i);
	b->files = v;
	return 0;
}

static int set_bool(bool *field, const json_t *v, struct err *e)
{
	if (!json_is_boolean(v))
		return wrong(e, "must be true or false");
	*field = json_is_true(v);
	return 0;
}

static int set_output(struct body *b, json_t *v, struct err *e)
{
	return set_bool(&b->output_folder, v, e);
}

static int set_fresh(struct body *b, json_t *v, struct err *e)
{
	return set_bool(&b->fresh, v, e);
}

static int set_pull(struct body *b, json_t *v, struct err *e)
{
	const char *text = json_is_string(v) ? json_string_value(v) : "";

	b->spec.no_pull = strcmp(text, "never") == 0;
	return b->spec.no_pull || strcmp(text, "missing") == 0
		       ? 0
		       : wrong(e, "must be missing or never: to get an image that is there anew is "
				  "the operator's");
}

static int set_tty(struct body *b, json_t *v, struct err *e)
{
	return set_bool(&b->tty, v, e);
}

static int set_resume(struct body *b, json_t *v, struct err *e)
{
	return set_bool(&b->resume_on_touch, v, e);
}

static int set_extent(unsigned *field, const json_t *v, struct err *e)
{
	if (!json_is_integer(v) || json_integer_value(v) < 1 || json_integer_value(v) > 4096)
		return wrong(e, "must be a number from 1 to 4096");
	*field = (unsigned)json_integer_value(v);
	return 0;
}

static int set_rows(struct body *b, json_t *v, struct err *e)
{
	return set_extent(&b->rows, v, e);
}

static int set_columns(struct body *b, json_t *v, struct err *e)
{
	return set_extent(&b->columns, v, e);
}

/* A number or the command line's text, as text. */
static int value_text(const json_t *v, char *text, size_t size, struct err *e)
{
	int n = -1;

	if (json_is_string(v) && strlen(json_string_value(v)) == json_string_length(v))
		n = snprintf(text, size, "%s", json_string_value(v));
	else if (json_is_integer(v))
		n = snprintf(text, size, "%" JSON_INTEGER_FORMAT, json_integer_value(v));
	else if (json_is_real(v) && json_real_value(v) >= 0 && json_real_value(v) < 1e15)
		n = snprintf(text, size, "%.6f", json_real_value(v));
	return n < 0 || (size_t)n >= size ? wrong(e, "must be a number or a short string") : 0;
}

static int set_disk(struct body *b, json_t *v, struct err *e)
{
	char text[64];

	if (value_text(v, text, sizeof text, e) < 0)
		return -1;
	if (parse_size(text, &b->disk_bytes) < 0 || b->disk_bytes < 1 << 20)
		return wrong(e, "must be a size of at least 1m");
	return 0;
}

int body_duration(const json_t *v, uint64_t unlimited, uint64_t *ret_us, struct err *e)
{
	char text[64];

	if (value_text(v, text, sizeof text, e) < 0)
		return -1;
	if (strcmp(text, "never") == 0 || strcmp(text, "off") == 0) {
		*ret_us = unlimited;
		return 0;
	}
	if (parse_duration(text, ret_us) < 0 || *ret_us == 0)
		return wrong(e, "must be a duration such as 30s, 10m or 2h, or \"never\"");
	return 0;
}

static int set_life(struct body *b, json_t *v, struct err *e)
{
	return body_duration(v, 0, &b->life_us, e);
}

static int set_idle(struct body *b, json_t *v, struct err *e)
{
	return body_duration(v, 0, &b->idle_us, e);
}

static int set_on_timeout(struct body *b, json_t *v, struct err *e)
{
	const char *text = json_is_string(v) ? json_string_value(v) : "";

	b->pause_on_timeout = strcmp(text, "pause") == 0;
	return b->pause_on_timeout || strcmp(text, "kill") == 0 ? 0
								: wrong(e, "must be kill or pause");
}

static int check_texts(const json_t *v, struct err *e)
{
	const char *key;
	json_t *value;

	if (!json_is_object(v) || json_object_size(v) > MAX_LABELS)
		return wrong(e, "must be an object of at most 32 strings");
	json_object_foreach((json_t *)(uintptr_t)v, key, value)
		if (!*key || strlen(key) > LABEL_MAX || strchr(key, '=') ||
		    !json_is_string(value) || json_string_length(value) > LABEL_MAX ||
		    strlen(json_string_value(value)) != json_string_length(value))
			return wrong(e, "names and values are strings of at most 256 bytes, names "
					"without =");
	return 0;
}

static int set_labels(struct body *b, json_t *v, struct err *e)
{
	b->labels = v;
	return check_texts(v, e);
}

static int set_metadata(struct body *b, json_t *v, struct err *e)
{
	b->metadata = v;
	return check_texts(v, e);
}

static int set_volume_fds(struct body *b, json_t *v, struct err *e)
{
	json_t *item;
	size_t i;

	if (!json_is_array(v) || json_array_size(v) > SPEC_MAX_VOLUMES)
		return wrong(e, "must be an array of at most 32 paths");
	json_array_foreach(v, i, item)
		if (!json_is_string(item) ||
		    strlen(json_string_value(item)) != json_string_length(item))
			return wrong(e, "must be an array of strings");
	b->volume_fds = v;
	return 0;
}

static const struct {
	const char *key;
	unsigned kinds;
	int (*set)(struct body *b, json_t *value, struct err *e);
} own_keys[] = {
	{"stdin", BODY_RUN | IN_A_SANDBOX, set_stdin},
	{"stdin_base64", BODY_RUN | BODY_EXEC, set_stdin_base64},
	{"files", BODY_RUN, set_files},
	{"output", BODY_RUN, set_output},
	{"fresh_interpreter", BODY_RUN, set_fresh},
	{"pull", BODY_RUN | BODY_SANDBOX, set_pull},
	{"volume_fds", BODY_RUN | BODY_SANDBOX, set_volume_fds},
	{"disk", BODY_SANDBOX, set_disk},
	{"timeout", BODY_SANDBOX, set_life},
	{"idle_timeout", BODY_SANDBOX, set_idle},
	{"on_timeout", BODY_SANDBOX, set_on_timeout},
	{"resume_on_touch", BODY_SANDBOX, set_resume},
	{"labels", BODY_SANDBOX, set_labels},
	{"metadata", BODY_SANDBOX, set_metadata},
	{"tty", BODY_PROCESS, set_tty},
	{"rows", BODY_PROCESS, set_rows},
	{"columns", BODY_PROCESS, set_columns},
};

static int set_key(struct body *b, enum body_kind kind, const char *key, json_t *value,
		   bool *was_set, struct err *e)
{
	for (size_t i = 0; i < ARRAY_SIZE(own_keys); i++)
		if (own_keys[i].kinds & kind && strcmp(own_keys[i].key, key) == 0)
			return own_keys[i].set(b, value, e);
	for (size_t i = 0; i < ARRAY_SIZE(option_keys); i++)
		if (option_keys[i].kinds & kind && strcmp(option_keys[i].key, key) == 0)
			/* A volume's path is for the spawner to judge: only below the operator's roots. */
			return spec_set_json(&b->spec, key, value, strcmp(key, "volume") == 0,
					     was_set, e);
	if (strcmp(key, "best_effort") == 0)
		return wrong(e, "a service gives up no limit");
	return wrong(e, "unknown field");
}

static int start_from(struct body *b, enum body_kind kind, struct service *v,
		      const struct spec *base, struct settings *settings, struct err *e)
{
	if (spec_init(&b->spec, e) < 0)
		return -1;
	settings->network.serves_others = true;
	if (v->file && settings_from_json(settings, &b->spec, v->file, v->file_name, true, e) < 0)
		return -1;
	b->life_us = LIFE_DEFAULT_US;
	b->resume_on_touch = true;
	b->rows = 24;
	b->columns = 80;
	if (!base)
		return 0;
	strings_done(&b->spec.env);
	for (size_t i = 0; i < base->env.count; i++)
		if (spec_add_env(&b->spec, base->env.item[i], e) < 0)
			return -1;
	memcpy(b->spec.workdir, base->workdir, sizeof b->spec.workdir);
	b->spec.uid = base->uid;
	b->spec.gid = base->gid;
	b->spec.memory_bytes = base->memory_bytes;
	b->spec.memory_swap_bytes = 0;
	b->spec.timeout_us = kind == BODY_PROCESS ? SPEC_UNLIMITED : EXEC_DEFAULT_US;
	return 0;
}

/* An interpreter looks at the environment when it starts, and Python for packages of the user's below the
 * home folder. */
static bool files_in_workspace(const struct body *b)
{
	json_t *row;
	size_t i;

	json_array_foreach(b->files, i, row) {
		const char *path = json_string_value(json_object_get(row, "path")) ?: "/";

		if (*path == '/' && strncmp(path, "/workspace/", 11) != 0)
			return false;
	}
	return true;
}

static bool may_wait(const struct body *b, const json_t *json)
{
	return files_in_workspace(b) && json_object_get(json, "code") &&
	       !json_object_get(json, "args") && !json_object_get(json, "env");
}

static bool is_python(const json_t *json)
{
	const char *language = json_string_value(json_object_get(json, "language"));

	return language && strcmp(language, "python") == 0;
}

/* `python3 -` or `python3 -c CODE` under what a zygote was started with, as far as that is read but once. */
static bool may_become(const struct body *b)
{
	const struct strings *command = &b->spec.command, *env = &b->spec.env;
	char *wanted[SPEC_MAX_ENV + 1] = {NULL}, *given[SPEC_MAX_ENV + 1] = {NULL};
	struct err e = {0};
	struct spec plain;
	bool fits;

	if (command->count < 2 || strcmp(command->item[0], "python3") != 0 ||
	    (strcmp(command->item[1], "-") != 0 &&
	     (strcmp(command->item[1], "-c") != 0 || command->count < 3)) ||
	    !files_in_workspace(b) || spec_init(&plain, &e) < 0)
		return false;
	memcpy(wanted, env->item, env->count * sizeof *wanted);
	memcpy(given, plain.env.item, plain.env.count * sizeof *given);
	fits = environment_fits(given, wanted, &e) == 0;
	spec_done(&plain);
	return fits;
}

static int take_command(struct body *b, json_t *json, struct err *e)
{
	_cleanup_free_ char *code = NULL;
	size_t size;

	if (spec_command_from_json(&b->spec, json, &code, &size, e) < 0)
		return -1;
	if (code && take_text(b, code, size, e) < 0)
		return -1;
	if (code) {
		sha256_hex(code, size, b->input_sha256);
		b->input_bytes = size;
	} else {
		_cleanup_free_ char *text = json_dumps(json_object_get(json, "command"),
						       JSON_COMPACT | JSON_ENCODE_ANY);

		if (!text)
			return err_set(e, ENOMEM, "keep the command");
		sha256_hex(text, strlen(text), b->input_sha256);
		b->input_bytes = strlen(text);
	}
	return 0;
}

static int apply_policy(struct body *b, struct settings *settings, const bool *was_set,
			bool life_chosen, const struct service *v, enum body_kind kind,
			struct err *e)
{
	for (size_t i = 0; i < option_count; i++)
		if (was_set[i])
			settings->origins[i] = ORIGIN_FLAG;
	if (kind == BODY_PROCESS && b->spec.timeout_us == SPEC_UNLIMITED)
		b->spec.timeout_us = SPEC_UNLIMITED - 1; /* its sandbox's life bounds it */
	/* Roots of volumes are the spawner's: it opens them. */
	json_decref(settings->volume_roots);
	settings->volume_roots = NULL;
	if (kind != BODY_PROCESS && settings_apply_policy(settings, &b->spec, e) < 0) {
		e->code = PROBLEM_FORBIDDEN;
		return -1;
	}
	/* As with the policy: what nobody chose is lowered, what somebody chose is refused. */
	if (!life_chosen && v->config.max_timeout_us && b->life_us > v->config.max_timeout_us)
		b->life_us = v->config.max_timeout_us;
	if (kind == BODY_SANDBOX && v->config.max_timeout_us &&
	    (b->life_us == 0 || b->life_us > v->config.max_timeout_us)) {
		err_set(e, 0, "timeout: at most %.6g s here (service: max_timeout)",
			(double)v->config.max_timeout_us / 1e6);
		e->code = PROBLEM_FORBIDDEN;
		return -1;
	}
	return 0;
}

static int finish(struct body *b, enum body_kind kind, struct err *e)
{
	if (kind == BODY_RUN && b->stdin_open && b->input)
		return wrong(e, "stdin: true is for a command without code or other input");
	if (kind == BODY_RUN && (b->output_folder || b->spec.artifacts.count)) {
		b->spec.out_dir =
			strdup("/output"); /* asks for the place; nothing is exported to it */
		if (!b->spec.out_dir)
			return err_set(e, ENOMEM, "read the body");
	}
	/* Descriptors' volumes are mounts too, but no paths of ours: the spawner checks them. */
	return kind == BODY_SANDBOX ? spec_finish_sandbox(&b->spec, e) : spec_finish(&b->spec, e);
}

int body_read(struct body *b, enum body_kind kind, struct service *v, const struct spec *base,
	      json_t *json, struct err *e)
{
	bool was_set[SETTINGS_MAX_OPTIONS] = {false};
	struct settings settings = {0};
	const char *key;
	json_t *value;
	int r = 0;

	*b = (struct body){.kind = kind};
	if (!json_is_object(json))
		return wrong(e, "the body must be a JSON object");
	r = start_from(b, kind, v, base, &settings, e);
	json_object_foreach(json, key, value) {
		if (r < 0 || (kind != BODY_SANDBOX && is_command_key(key)))
			continue;
		r = set_key(b, kind, key, value, was_set, e);
		if (r < 0)
			err_prefix(e, "%.60s", key);
	}
	if (r == 0 && kind != BODY_SANDBOX)
		r = take_command(b, json, e);
	b->may_wait = r == 0 && kind == BODY_RUN && may_wait(b, json);
	b->may_join = b->may_wait && !b->fresh && is_python(json);
	b->may_become =
		r == 0 && kind == BODY_RUN && !b->fresh && !b->tty && !b->may_join && may_become(b);
	if (r == 0)
		r = apply_policy(b, &settings, was_set, json_object_get(json, "timeout") != NULL, v,
				 kind, e);
	b->has_max_output = json_object_get(json, "max_output") != NULL;
	if (r == 0)
		r = finish(b, kind, e);
	settings_done(&settings);
	return r;
}

void body_done(struct body *b)
{
	spec_done(&b->spec);
	free(b->input);
	*b = (struct body){0};
}
