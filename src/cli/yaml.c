/* SPDX-License-Identifier: Apache-2.0 */
/*
 * yaml.c - cloche-yaml FILE: print a YAML configuration as JSON, or one line that says what is wrong
 * with it (exit status 1).
 *
 * A small program of its own, so that only it links libyaml. Scalars become strings: what they mean is
 * for the option table to say. Anchors, aliases, tags and more than one document are refused, as are
 * duplicate keys.
 */
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <yaml.h>

enum { MAX_DEPTH = 16, MAX_BYTES = 1 << 20 };

struct reader {
	yaml_parser_t parser;
	const char *file;
	size_t line;
	char problem[160];
};

static json_t *read_node(struct reader *r, int depth);

static void *complain(struct reader *r, const char *what)
{
	if (!r->problem[0])
		snprintf(r->problem, sizeof r->problem, "%s", what);
	return NULL;
}

static bool next(struct reader *r, yaml_event_t *event)
{
	if (!yaml_parser_parse(&r->parser, event)) {
		r->line = r->parser.problem_mark.line + 1;
		complain(r, r->parser.problem ? r->parser.problem : "cannot be parsed");
		return false;
	}
	r->line = event->start_mark.line + 1;
	return true;
}

static json_t *scalar(struct reader *r, const yaml_event_t *event)
{
	json_t *j;

	if (event->data.scalar.anchor || event->data.scalar.tag)
		return complain(r, "anchors and tags are not understood");
	if (memchr(event->data.scalar.value, '\0', event->data.scalar.length))
		return complain(r, "a NUL character"); /* the word would end there */
	j = json_stringn((const char *)event->data.scalar.value, event->data.scalar.length);
	return j ? j : complain(r, "is not UTF-8");
}

static json_t *sequence(struct reader *r, int depth)
{
	json_t *list = json_array(), *item;

	while ((item = read_node(r, depth + 1)))
		json_array_append_new(list, item);
	if (!r->problem[0])
		return list;
	json_decref(list);
	return NULL;
}

static json_t *mapping(struct reader *r, int depth)
{
	json_t *map = json_object(), *key, *value;

	while ((key = read_node(r, depth + 1))) {
		value = json_is_string(key) ? read_node(r, depth + 1) : NULL;
		if (!value)
			complain(r, "a key must be a word, with a value");
		else if (json_object_get(map, json_string_value(key)))
			complain(r, "the same key twice");
		else
			json_object_set(map, json_string_value(key), value);
		json_decref(value);
		json_decref(key);
		if (r->problem[0])
			break;
	}
	if (!r->problem[0])
		return map;
	json_decref(map);
	return NULL;
}

/* The next node, or NULL: the end of the enclosing collection, or a problem. */
static json_t *read_node(struct reader *r, int depth)
{
	yaml_event_t event;
	json_t *j = NULL;

	if (depth > MAX_DEPTH)
		return complain(r, "is nested too deep");
	if (!next(r, &event))
		return NULL;
	switch (event.type) {
	case YAML_SCALAR_EVENT:
		j = scalar(r, &event);
		break;
	case YAML_SEQUENCE_START_EVENT:
		j = sequence(r, depth);
		break;
	case YAML_MAPPING_START_EVENT:
		j = mapping(r, depth);
		break;
	case YAML_SEQUENCE_END_EVENT:
	case YAML_MAPPING_END_EVENT:
		break;
	default:
		complain(r, "anchors, aliases and further documents are not understood");
	}
	yaml_event_delete(&event);
	return j;
}

static json_t *read_document(struct reader *r)
{
	static const yaml_event_type_t around[] = {YAML_STREAM_START_EVENT,
						   YAML_DOCUMENT_START_EVENT,
						   YAML_DOCUMENT_END_EVENT, YAML_STREAM_END_EVENT};
	json_t *j = NULL;

	for (size_t i = 0; i < sizeof around / sizeof *around; i++) {
		yaml_event_t event;
		yaml_event_type_t type;

		if (i == 2 && !(j = read_node(r, 0)))
			return complain(r, "is empty");
		if (!next(r, &event))
			break;
		type = event.type;
		yaml_event_delete(&event);
		if (i == 1 && type == YAML_STREAM_END_EVENT)
			return json_object(); /* only comments */
		if (type != around[i]) {
			complain(r, "has more than one document");
			break;
		}
	}
	if (!r->problem[0])
		return j;
	json_decref(j);
	return NULL;
}

int main(int argc, char **argv)
{
	struct reader r = {.file = argc == 2 ? argv[1] : NULL};
	FILE *f = r.file ? fopen(r.file, "re") : NULL;
	json_t *j;

	if (!f) {
		fprintf(stderr, "cloche-yaml: %s: cannot be opened\n",
			r.file ? r.file : "usage: cloche-yaml FILE");
		return 1;
	}
	if (fseek(f, 0, SEEK_END) == 0 && ftell(f) > MAX_BYTES) {
		printf("%s: larger than %d bytes\n", r.file, MAX_BYTES);
		fclose(f);
		return 1;
	}
	rewind(f);
	if (!yaml_parser_initialize(&r.parser))
		return 1;
	yaml_parser_set_input_file(&r.parser, f);
	j = read_document(&r);
	yaml_parser_delete(&r.parser);
	fclose(f);
	if (!j) {
		printf("%s line %zu: %s\n", r.file, r.line, r.problem);
		return 1;
	}
	json_dumpf(j, stdout, JSON_COMPACT);
	json_decref(j);
	return fflush(stdout) != 0;
}
