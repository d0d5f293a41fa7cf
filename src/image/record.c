/* SPDX-License-Identifier: Apache-2.0 */
#include "image/record.h"

#include <stdio.h>
#include <string.h>

#include "base/json.h"

bool layer_name_is_valid(const char *name)
{
	size_t n = strlen(name);

	return n > 0 && n < LAYER_NAME_SIZE &&
	       strspn(name, "0123456789abcdefghijklmnopqrstuvwxyz") == n;
}

static json_t *strings_to_json(const struct strings *list)
{
	json_t *array = json_array();

	for (size_t i = 0; array && i < list->count; i++)
		if (json_array_append_new(array, json_string(list->item[i])) < 0) {
			json_decref(array);
			return NULL;
		}
	return array;
}

static json_t *labels_to_json(const struct strings *labels)
{
	json_t *object = json_object();

	for (size_t i = 0; object && i < labels->count; i++) {
		_cleanup_free_ char *name = strdup(labels->item[i]);
		char *value = name ? strchr(name, '=') : NULL;

		if (value)
			*value++ = '\0';
		if (!value || json_object_set_new(object, name, json_string(value)) < 0) {
			json_decref(object);
			return NULL;
		}
	}
	return object;
}

static json_t *layers_to_json(const struct image_record *r)
{
	json_t *array = json_array();

	for (size_t i = 0; array && i < r->layer_count; i++) {
		const struct record_layer *l = &r->layers[i];
		json_t *o = json_pack("{ss ss sI}", "digest", l->digest, "name", l->name, "bytes",
				      (json_int_t)l->bytes);

		if (!o || json_array_append_new(array, o) < 0) {
			json_decref(array);
			return NULL;
		}
	}
	return array;
}

char *image_record_write(const struct image_record *r, struct err *e)
{
	const struct image_config *c = &r->config;
	_cleanup_json_ json_t *root =
		json_pack("{si ss ss ss sI ss ss ss so ss s{so so so so ss ss}}", "format",
			  RECORD_FORMAT, "id", r->id, "manifest", r->manifest, "index", r->index,
			  "imported", (json_int_t)r->imported, "created", c->created, "os", c->os,
			  "architecture", c->architecture, "layers", layers_to_json(r), "merged",
			  r->merged, "config", "Env", strings_to_json(&c->env), "Entrypoint",
			  strings_to_json(&c->entrypoint), "Cmd", strings_to_json(&c->cmd),
			  "Labels", labels_to_json(&c->labels), "WorkingDir", c->workdir, "User",
			  c->user);
	char *text = root ? json_dumps(root, JSON_COMPACT) : NULL;

	if (!text)
		err_set(e, ENOMEM, "write the record of an image");
	return text;
}

static int copy_text(char *field, size_t size, json_t *o, const char *key, struct err *e)
{
	const char *text = json_string_value(json_object_get(o, key));

	if (!text || strlen(text) >= size)
		return err_set(e, 0, "%s is not as it was written", key);
	memcpy(field, text, strlen(text) + 1);
	return 0;
}

static int read_layer(json_t *o, struct record_layer *l, struct err *e)
{
	json_int_t bytes = json_integer_value(json_object_get(o, "bytes"));

	if (copy_text(l->digest, sizeof l->digest, o, "digest", e) < 0 ||
	    copy_text(l->name, sizeof l->name, o, "name", e) < 0)
		return -1;
	if (!digest_is_valid(l->digest) || !layer_name_is_valid(l->name) || bytes < 0)
		return err_set(e, 0, "a layer is not as it was written");
	l->bytes = (uint64_t)bytes;
	return 0;
}

static int read_layers(json_t *root, struct image_record *r, struct err *e)
{
	json_t *layers = json_object_get(root, "layers"), *item;
	size_t i, count = json_array_size(layers);

	if (count == 0 || count > CONFIG_MAX_LAYERS)
		return err_set(e, 0, "%zu layers", count);
	r->layers = calloc(count, sizeof *r->layers);
	if (!r->layers)
		return err_set(e, ENOMEM, "read it");
	r->layer_count = count;
	json_array_foreach(layers, i, item)
		if (read_layer(item, &r->layers[i], e) < 0)
			return -1;
	return 0;
}

/* Records of before there was such a thing have none. */
static int read_merged(json_t *root, struct image_record *r, struct err *e)
{
	if (!json_object_get(root, "merged"))
		return 0;
	if (copy_text(r->merged, sizeof r->merged, root, "merged", e) < 0)
		return -1;
	if (*r->merged && !layer_name_is_valid(r->merged))
		return err_set(e, 0, "merged is not as it was written");
	return 0;
}

static int read_root(json_t *root, struct image_record *r, struct err *e)
{
	struct image_config *c = &r->config;

	if (json_integer_value(json_object_get(root, "format")) != RECORD_FORMAT)
		return err_set(e, 0, "it was written by another version of cloche");
	r->imported = json_integer_value(json_object_get(root, "imported"));
	if (copy_text(r->id, sizeof r->id, root, "id", e) < 0 ||
	    copy_text(r->manifest, sizeof r->manifest, root, "manifest", e) < 0 ||
	    copy_text(r->index, sizeof r->index, root, "index", e) < 0 ||
	    copy_text(c->created, sizeof c->created, root, "created", e) < 0 ||
	    copy_text(c->os, sizeof c->os, root, "os", e) < 0 ||
	    copy_text(c->architecture, sizeof c->architecture, root, "architecture", e) < 0 ||
	    read_layers(root, r, e) < 0 || read_merged(root, r, e) < 0)
		return -1;
	return image_config_read_process(json_object_get(root, "config"), c, e);
}

int image_record_read(const char *text, size_t size, struct image_record *ret, struct err *e)
{
	_cleanup_json_ json_t *root = json_read(text, size, e);
	_cleanup_image_record_ struct image_record r = {0};

	if (!root || read_root(root, &r, e) < 0)
		return err_prefix(e, "record of an image");
	*ret = r;
	r = (struct image_record){0};
	return 0;
}

void image_record_done(struct image_record *r)
{
	image_config_done(&r->config);
	free(r->layers);
	*r = (struct image_record){0};
}

uint64_t image_record_bytes(const struct image_record *r)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < r->layer_count; i++)
		sum += r->layers[i].bytes;
	return sum;
}
