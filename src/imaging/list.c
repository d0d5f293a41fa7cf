/* SPDX-License-Identifier: Apache-2.0 */
#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/json.h"
#include "imaging/imaging.h"

/* One line of `ls`: a name of an image, or an image without one. */
struct row {
	char name[REFERENCE_TEXT];
	char key[RECORD_KEY_SIZE];
	int64_t imported;
	uint64_t bytes;
};

struct table {
	const struct image_store *store;
	struct row *rows;
	size_t count, room;
};

static int add_row(struct table *t, const char *name, const char *key, struct err *e)
{
	_cleanup_image_record_ struct image_record record = {0};
	_cleanup_close_ int lease = -1;
	struct row *row;

	if (image_take(t->store, key, &lease, &record, e) < 0)
		return e->errnum == ENOENT ? 0 : -1; /* it goes just now */
	if (t->count == t->room) {
		size_t room = t->room ? 2 * t->room : 32;
		void *more = realloc(t->rows, room * sizeof *t->rows);

		if (!more)
			return err_set(e, ENOMEM, "list images");
		t->rows = more;
		t->room = room;
	}
	row = &t->rows[t->count++];
	*row = (struct row){.imported = record.imported, .bytes = image_record_bytes(&record)};
	memcpy(row->key, key, strlen(key) + 1);
	memcpy(row->name, name, strlen(name) + 1);
	return 0;
}

static int each_ref(void *context, const char *file, struct err *e)
{
	struct table *t = context;
	char key[RECORD_KEY_SIZE], name[REF_NAME_SIZE], familiar[REFERENCE_TEXT];
	struct reference r;
	int n = image_ref_read(t->store, file, key, e);

	if (n != 0)
		return n < 0 ? -1 : 0;
	snprintf(name, sizeof name, "%s", file);
	for (char *p = name; *p; p++)
		if (*p == '+')
			*p = '/';
	if (reference_parse(name, &r, e) < 0)
		return -1;
	reference_familiar(&r, familiar);
	return add_row(t, familiar, key, e);
}

static int each_image(void *context, const char *key, struct err *e)
{
	struct table *t = context;

	for (size_t i = 0; i < t->count; i++)
		if (strcmp(t->rows[i].key, key) == 0)
			return 0;
	return strlen(key) == RECORD_KEY_SIZE - 1 ? add_row(t, "", key, e) : 0;
}

static int by_name(const void *a, const void *b)
{
	const struct row *x = a, *y = b;

	return strcmp(x->name, y->name);
}

static void format_time(int64_t seconds, char text[32])
{
	time_t t = (time_t)seconds;
	struct tm tm;

	if (!gmtime_r(&t, &tm) || strftime(text, 32, "%Y-%m-%dT%H:%M:%SZ", &tm) == 0)
		*text = '\0';
}

static int print_json(const struct table *t, struct err *e)
{
	_cleanup_json_ json_t *list = json_array();
	_cleanup_free_ char *text = NULL;

	for (size_t i = 0; i < t->count; i++) {
		const struct row *row = &t->rows[i];
		char id[DIGEST_TEXT + 1], when[32];

		snprintf(id, sizeof id, "sha256:%.64s", row->key);
		format_time(row->imported, when);
		json_array_append_new(list, json_pack("{ss* ss ss sI}", "name",
						      *row->name ? row->name : NULL, "id", id,
						      "imported_at", when, "bytes",
						      (json_int_t)row->bytes));
	}
	text = json_dumps(list, JSON_COMPACT);
	if (!text)
		return err_set(e, ENOMEM, "print the list");
	puts(text);
	return 0;
}

int verb_ls(struct request *q, struct err *e)
{
	_cleanup_image_store_ struct image_store store = {.dir = -1};
	struct table t = {.store = &store};
	size_t width = strlen("NAME");
	int r;

	if (image_store_open(&q->places, false, &store, e) < 0) {
		if (e->errnum != ENOENT)
			return -1;
		r = 0; /* none was ever made */
	} else {
		r = image_store_list(&store, "refs", each_ref, &t, e);
		if (r == 0)
			r = image_store_list(&store, "images", each_image, &t, e);
	}
	if (r == 0 && t.count)
		qsort(t.rows, t.count, sizeof *t.rows, by_name);
	if (r == 0 && q->json) {
		r = print_json(&t, e);
	} else if (r == 0) {
		for (size_t i = 0; i < t.count; i++)
			if (strlen(t.rows[i].name) > width)
				width = strlen(t.rows[i].name);
		printf("%-*s  %-12s  %-20s  %10s\n", (int)width, "NAME", "IMAGE ID", "IMPORTED",
		       "SIZE");
		for (size_t i = 0; i < t.count; i++) {
			char when[32];

			format_time(t.rows[i].imported, when);
			printf("%-*s  %.12s  %-20s  %7.1f MB\n", (int)width,
			       *t.rows[i].name ? t.rows[i].name : "-", t.rows[i].key, when,
			       (double)t.rows[i].bytes / 1e6);
		}
	}
	free(t.rows);
	return r;
}

/* ---- inspect */

struct naming_list {
	const struct image_store *store;
	const char *key;
	json_t *names;
};

static int note_name(void *context, const char *file, struct err *e)
{
	struct naming_list *l = context;
	char key[RECORD_KEY_SIZE], name[REF_NAME_SIZE];
	int r = image_ref_read(l->store, file, key, e);

	if (r != 0 || strcmp(key, l->key) != 0)
		return r < 0 ? -1 : 0;
	snprintf(name, sizeof name, "%s", file);
	for (char *p = name; *p; p++)
		if (*p == '+')
			*p = '/';
	return json_array_append_new(l->names, json_string(name)) < 0
		       ? err_set(e, ENOMEM, "list names")
		       : 0;
}

static int inspect_one(const struct image_store *s, const char *name, json_t *list, struct err *e)
{
	_cleanup_image_record_ struct image_record record = {0};
	_cleanup_close_ int lease = -1;
	_cleanup_json_ json_t *root = NULL;
	_cleanup_free_ char *text = NULL;
	char key[RECORD_KEY_SIZE], when[32];
	struct naming_list names = {.store = s, .key = key, .names = json_array()};

	if (image_find(s, name, key, e) < 0 || image_take(s, key, &lease, &record, e) < 0 ||
	    image_store_list(s, "refs", note_name, &names, e) < 0) {
		json_decref(names.names);
		return -1;
	}
	/* The record as it is, with what people ask for besides. */
	text = image_record_write(&record, e);
	root = text ? json_read(text, strlen(text), e) : NULL;
	format_time(record.imported, when);
	if (!root || json_object_del(root, "format") < 0 ||
	    json_object_set_new(root, "names", names.names) < 0 ||
	    json_object_set_new(root, "imported_at", json_string(when)) < 0 ||
	    json_object_del(root, "imported") < 0 ||
	    json_object_set_new(root, "bytes",
				json_integer((json_int_t)image_record_bytes(&record))) < 0 ||
	    json_array_append(list, root) < 0)
		return err_set(e, ENOMEM, "print an image");
	return 0;
}

int verb_inspect(struct request *q, struct err *e)
{
	_cleanup_image_store_ struct image_store store = {.dir = -1};
	_cleanup_json_ json_t *list = json_array();
	_cleanup_free_ char *text = NULL;

	if (image_store_open(&q->places, true, &store, e) < 0)
		return -1;
	for (size_t i = 0; i < q->count; i++)
		if (inspect_one(&store, q->operands[i], list, e) < 0)
			return -1;
	text = json_dumps(list, JSON_INDENT(2));
	if (!text)
		return err_set(e, ENOMEM, "print images");
	puts(text);
	return 0;
}
