/* SPDX-License-Identifier: Apache-2.0 */
/*
 * spec_json.c - a spec from JSON: the body of POST /v1/runs and of cloche_run_json().
 *
 * Every key but the four that say what runs is a row of the option table and goes through the same
 * function as the flag; numbers become the text a person would write (bytes, seconds, CPUs).
 */
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "sandbox/spec.h"

/* A scalar as option text; NULL and e if it cannot be one. Caller frees. */
static char *scalar_text(const json_t *j, struct err *e)
{
	char *text = NULL;
	int n = -1;

	if (json_is_string(j)) {
		if (strlen(json_string_value(j)) != json_string_length(j)) {
			err_set(e, 0, "has a NUL character");
			return NULL;
		}
		n = asprintf(&text, "%s", json_string_value(j));
	} else if (json_is_integer(j)) {
		n = asprintf(&text, "%" JSON_INTEGER_FORMAT, json_integer_value(j));
	} else if (json_is_real(j) && json_real_value(j) >= 0 && json_real_value(j) < 1e15) {
		n = asprintf(&text, "%.6f", json_real_value(j));
	} else if (json_is_boolean(j)) {
		n = asprintf(&text, "%s", json_is_true(j) ? "true" : "false");
	} else {
		err_set(e, 0, "must be a string, a number that fits, true or false");
		return NULL;
	}
	if (n < 0) {
		err_set(e, ENOMEM, "keep value");
		return NULL;
	}
	return text;
}

static int set_scalar(struct spec *s, const struct option *o, const json_t *j, struct err *e)
{
	_cleanup_free_ char *text = NULL;

	if (json_is_boolean(j) && o->kind != OPTION_FLAG)
		return err_set(e, 0, "must be a string or a number");
	text = scalar_text(j, e);
	return text ? spec_set(s, o, text, e) : -1;
}

static int set_environment(struct spec *s, json_t *object, struct err *e)
{
	const char *name;
	json_t *value;

	json_object_foreach(object, name, value) {
		_cleanup_free_ char *text = scalar_text(value, e);
		_cleanup_free_ char *entry = NULL;

		if (!text)
			return err_prefix(e, "%.60s", name);
		if (strchr(name, '='))
			return err_set(e, 0, "%.60s: bad name", name);
		if (asprintf(&entry, "%s=%s", name, text) < 0) {
			entry = NULL;
			return err_set(e, ENOMEM, "keep environment entry");
		}
		if (spec_add_env(s, entry, e) < 0)
			return -1;
	}
	return 0;
}

/* What names this machine's paths, or gives up a limit. */
static const char *const trusted_only[] = {"volume", "in", "out", "venv", "best-effort"};

int spec_set_json(struct spec *s, const char *key, json_t *value, bool host_paths, bool *was_set,
		  struct err *e)
{
	const struct option *o = strchr(key, '-') ? NULL : option_find(key);
	json_t *item;
	size_t i;

	/* A file name or an environment variable of the service is not a caller's business. */
	if (!o || o->docker || strcmp(o->name, "env-file") == 0)
		return err_set(e, 0, "unknown field");
	for (size_t k = 0; !host_paths && k < ARRAY_SIZE(trusted_only); k++)
		if (strcmp(o->name, trusted_only[k]) == 0)
			return err_set(e, 0, "not allowed here: it is for callers on this machine");
	if (was_set)
		was_set[o - options] = true;
	if (o->kind != OPTION_LIST)
		return set_scalar(s, o, value, e);
	if (strcmp(o->name, "env") == 0)
		return json_is_object(value) ? set_environment(s, value, e)
					     : err_set(e, 0, "must be an object of strings");
	if (!json_is_array(value))
		return err_set(e, 0, "must be an array of strings");
	json_array_foreach(value, i, item)
		if (set_scalar(s, o, item, e) < 0)
			return -1;
	return 0;
}

static int add_arguments(struct spec *s, const char *key, json_t *array, struct err *e)
{
	json_t *item;
	size_t i;

	if (!json_is_array(array))
		return err_set(e, 0, "%s: must be an array of strings", key);
	json_array_foreach(array, i, item) {
		if (!json_is_string(item) ||
		    strlen(json_string_value(item)) != json_string_length(item))
			return err_set(e, 0, "%s[%zu]: must be a string without NUL", key, i);
		if (spec_add_argument(s, json_string_value(item), e) < 0)
			return -1;
	}
	return 0;
}

static int set_command(struct spec *s, json_t *command, struct err *e)
{
	if (!json_is_string(command))
		return add_arguments(s, "command", command, e);
	if (strlen(json_string_value(command)) != json_string_length(command))
		return err_set(e, 0, "command: has a NUL character");
	if (spec_add_argument(s, "sh", e) < 0 || spec_add_argument(s, "-c", e) < 0)
		return -1;
	return spec_add_argument(s, json_string_value(command), e);
}

static int set_code(struct spec *s, json_t *language, json_t *code, char **ret_stdin,
		    size_t *ret_size, struct err *e)
{
	enum language l = json_is_string(language) ? language_find(json_string_value(language))
						   : LANGUAGE_NONE;

	if (l == LANGUAGE_NONE)
		return err_set(e, 0, "language: must be python, bash or node");
	if (!json_is_string(code))
		return err_set(e, 0, "code: must be a string");
	if (spec_language(s, l, CODE_STDIN, NULL, e) < 0)
		return -1;
	*ret_size = json_string_length(code);
	*ret_stdin = malloc(*ret_size + 1);
	if (!*ret_stdin)
		return err_set(e, ENOMEM, "keep code");
	memcpy(*ret_stdin, json_string_value(code), *ret_size + 1);
	return 0;
}

bool is_command_key(const char *key)
{
	static const char *const keys[] = {"command", "language", "code", "args"};

	for (size_t i = 0; i < ARRAY_SIZE(keys); i++)
		if (strcmp(key, keys[i]) == 0)
			return true;
	return false;
}

int spec_command_from_json(struct spec *s, const json_t *root, char **ret_stdin,
			   size_t *ret_stdin_size, struct err *e)
{
	json_t *command = json_object_get(root, "command");
	json_t *language = json_object_get(root, "language");
	json_t *code = json_object_get(root, "code"), *args = json_object_get(root, "args");

	*ret_stdin = NULL;
	*ret_stdin_size = 0;
	if (!command == !language || !language != !code || (args && !language))
		return err_set(e, 0, "give either command, or language and code (and args)");
	if (command)
		return set_command(s, command, e);
	if (set_code(s, language, code, ret_stdin, ret_stdin_size, e) == 0 &&
	    (!args || add_arguments(s, "args", args, e) == 0))
		return 0;
	free(TAKE_PTR(*ret_stdin));
	return -1;
}

int spec_from_json(struct spec *s, const char *text, size_t size, bool host_paths, bool *was_set,
		   char **ret_stdin, size_t *ret_stdin_size, struct err *e)
{
	_cleanup_json_ json_t *root = json_read(text, size, e);
	json_t *value;
	const char *key;

	if (!root)
		return -1;
	if (!json_is_object(root))
		return err_set(e, 0, "a run must be a JSON object");
	json_object_foreach(root, key, value) {
		if (is_command_key(key))
			continue;
		if (spec_set_json(s, key, value, host_paths, was_set, e) < 0)
			return err_prefix(e, "%.60s", key);
	}
	return spec_command_from_json(s, root, ret_stdin, ret_stdin_size, e);
}
