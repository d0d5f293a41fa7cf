/* SPDX-License-Identifier: Apache-2.0 */
/*
 * map_line.c - what a line of --map may be, and the answer it gets.
 *
 * The file may come from anywhere: a line is read as strictly as a request to the service, and what is wrong with
 * it is said in its answer. A string is the code; an object has "code" ("command" for `run`) and may have "args",
 * "stdin" and "tag". What limits a run is not the line's business.
 */
#include <string.h>

#include "base/json.h"
#include "cli/map.h"

enum { TAG_BYTES = 256 }; /* as the service has it */

static const struct {
	const char *title, *code;
	int status;
	bool retryable;
} problems[] = {
	[MAP_INVALID] = {"The request is not valid", "INVALID_REQUEST", 400, false},
	[MAP_TOO_LARGE] = {"The body is too large", "TOO_LARGE", 413, false},
	[MAP_INTERNAL] = {"Something failed here", "INTERNAL", 500, true},
};

int map_line_answer(struct map_line *l, enum map_outcome outcome, json_t *value, struct err *e)
{
	_cleanup_json_ json_t *j = json_pack("{sI so so}", "index", (json_int_t)l->index, "tag",
					     l->tag ? json_incref(l->tag) : json_null(),
					     outcome == MAP_ERROR ? "error" : "result", value);

	l->answer = j ? json_dumps(j, JSON_OUT) : NULL;
	if (!l->answer)
		return err_set(e, ENOMEM, "keep a result");
	l->answer_size = strlen(l->answer) + 1;
	l->answer[l->answer_size - 1] = '\n';
	l->outcome = outcome;
	return 0;
}

int map_line_problem(struct map_line *l, enum map_problem p, const struct err *why, struct err *e)
{
	char detail[sizeof why->text];

	snprintf(detail, sizeof detail, "%s", why->text);
	if (utf8_prefix(detail, strlen(detail), false) < 0)
		for (char *c = detail; *c; c++)
			if ((unsigned char)*c >= 0x80)
				*c = '?';
	return map_line_answer(l, MAP_ERROR,
			       json_pack("{ss ss si ss ss sb}", "type", "about:blank", "title",
					 problems[p].title, "status", problems[p].status, "detail",
					 detail, "code", problems[p].code, "retryable",
					 problems[p].retryable),
			       e);
}

static int wrong(struct err *e, const char *text)
{
	return err_set(e, 0, "%s", text);
}

/* A string alone is no JSON text to jansson: it becomes the only item of an array. */
static json_t *read_string(const char *text, size_t size, const char *key, struct err *e)
{
	_cleanup_free_ char *array = malloc(size + 2);
	_cleanup_json_ json_t *j = NULL;

	if (!array) {
		err_set(e, ENOMEM, "read a line");
		return NULL;
	}
	array[0] = '[';
	memcpy(array + 1, text, size);
	array[size + 1] = ']';
	j = json_read(array, size + 2, e);
	if (!j)
		return NULL;
	if (json_array_size(j) != 1 || !json_is_string(json_array_get(j, 0))) {
		wrong(e, "give one string, or one object");
		return NULL;
	}
	return json_pack("{sO}", key, json_array_get(j, 0));
}

static json_t *read_object(const char *text, size_t size, const char *key, struct err *e)
{
	size_t blank = 0;
	json_t *j;

	while (blank < size && (text[blank] == ' ' || text[blank] == '\t'))
		blank++;
	if (blank < size && text[blank] == '"')
		return read_string(text, size, key, e);
	j = json_read(text, size, e);
	if (j && !json_is_object(j)) {
		json_decref(j);
		wrong(e, "give one string, or one object");
		return NULL;
	}
	return j;
}

static int check_keys(json_t *object, const char *code_key, struct err *e)
{
	const char *key;
	json_t *value;

	json_object_foreach(object, key, value)
		if (strcmp(key, code_key) != 0 && strcmp(key, "stdin") != 0 &&
		    strcmp(key, "tag") != 0 &&
		    (strcmp(key, "args") != 0 || strcmp(code_key, "code") != 0))
			return err_set(e, 0, "%.60s: unknown field", key);
	value = json_object_get(object, "stdin");
	if (value && !json_is_string(value))
		return wrong(e, "stdin: must be a string");
	value = json_object_get(object, "tag");
	if (value && (!json_is_string(value) || json_string_length(value) > TAG_BYTES))
		return err_set(e, 0, "tag: must be a string of at most %d bytes", TAG_BYTES);
	return 0;
}

/* The same words as with the run itself, and before it: an argument that is too long, a NUL in it. */
static int check_command(const json_t *request, struct err *e)
{
	_cleanup_free_ char *code = NULL;
	struct spec scratch = {0};
	size_t size;
	int r = spec_command_from_json(&scratch, request, &code, &size, e);

	spec_done(&scratch);
	return r;
}

/* Code with input of its own goes in as an argument, as with -c. */
static int with_input(json_t *request, enum language language, struct err *e)
{
	json_t *code = json_object_get(request, "code"), *list = json_array(), *item;
	struct spec s = {0};
	int r = 0;
	size_t i;

	if (strlen(json_string_value(code)) != json_string_length(code))
		r = wrong(e, "code: has a NUL character");
	if (r == 0)
		r = spec_language(&s, language, CODE_STRING, json_string_value(code), e);
	for (i = 0; r == 0 && i < s.command.count; i++)
		r = json_array_append_new(list, json_string(s.command.item[i]));
	json_array_foreach(json_object_get(request, "args"), i, item)
		if (r == 0)
			r = json_array_append(list, item);
	spec_done(&s);
	if (r < 0) {
		json_decref(list);
		return e->text[0] ? -1 : err_set(e, ENOMEM, "read a line");
	}
	json_object_del(request, "language");
	json_object_del(request, "code");
	json_object_del(request, "args");
	return json_object_set_new(request, "command", list) < 0 ? err_set(e, ENOMEM, "read a line")
								 : 0;
}

static int complete(struct map_line *l, json_t *request, enum language language, struct err *e)
{
	const char *key = language == LANGUAGE_NONE ? "command" : "code";

	if (check_keys(request, key, e) < 0)
		return -1;
	l->tag = json_incref(json_object_get(request, "tag"));
	json_object_del(request, "tag");
	if (!json_object_get(request, key))
		return err_set(e, 0, "%s: is missing", key);
	if (language != LANGUAGE_NONE &&
	    json_object_set_new(request, "language", json_string(language_name(language))) < 0)
		return err_set(e, ENOMEM, "read a line");
	if (check_command(request, e) < 0)
		return -1;
	if (language == LANGUAGE_NONE || !json_object_get(request, "stdin"))
		return 0;
	return with_input(request, language, e) < 0 ? -1 : check_command(request, e);
}

int map_line_read(struct map_line *l, const char *text, size_t size, enum language language,
		  struct err *e)
{
	json_t *request =
		read_object(text, size, language == LANGUAGE_NONE ? "command" : "code", e);

	if (!request)
		return -1;
	*e = (struct err){0};
	if (complete(l, request, language, e) < 0) {
		json_decref(request);
		return -1;
	}
	l->request = request;
	return 0;
}
