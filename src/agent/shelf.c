/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shelf.c - artifacts as resources: the last SHELF_ROWS files that runs left in /output. With a service
 * only their place is kept, else their bytes, SHELF_BYTES together. Names come from inside a sandbox.
 */
#include <stdint.h>
#include <string.h>
#include <strings.h>

#include "base/base64.h"
#include "agent/worker.h"

static bool starts_with(const char *data, size_t size, const char *magic, size_t n)
{
	return size >= n && memcmp(data, magic, n) == 0;
}

static const char any_bytes[] = "application/octet-stream", svg[] = "image/svg+xml";

static const char *mime_by_name(const char *name)
{
	static const struct {
		const char *ending, *mime;
	} rows[] = {
		{".svg", svg},
		{".png", "image/png"},
		{".jpg", "image/jpeg"},
		{".jpeg", "image/jpeg"},
		{".gif", "image/gif"},
		{".webp", "image/webp"},
		{".csv", "text/csv"},
		{".json", "application/json"},
		{".html", "text/html"},
		{".md", "text/markdown"},
		{".txt", "text/plain"},
		{".py", "text/x-python"},
		{".pdf", "application/pdf"},
		{".xml", "application/xml"},
	};
	size_t n = strlen(name);

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		size_t m = strlen(rows[i].ending);

		if (n > m && strcasecmp(name + n - m, rows[i].ending) == 0)
			return rows[i].mime;
	}
	return any_bytes;
}

/* What models are shown. An SVG is none: no provider takes it, and whoever passes it on fails. */
bool mime_is_image(const char *mime)
{
	return strncmp(mime, "image/", 6) == 0 && strcmp(mime, svg) != 0;
}

/* Without bytes by the name alone. With them the name is not believed: what says it is an image and is
 * none would make the client's whole request fail. */
const char *mime_of(const char *name, const char *data, size_t size)
{
	const char *mime = mime_by_name(name);

	if (!data)
		return mime;
	if (starts_with(data, size, "\x89PNG\r\n\x1a\n", 8))
		return "image/png";
	if (starts_with(data, size, "\xff\xd8\xff", 3))
		return "image/jpeg";
	if (starts_with(data, size, "GIF87a", 6) || starts_with(data, size, "GIF89a", 6))
		return "image/gif";
	if (starts_with(data, size, "RIFF", 4) && size >= 12 && memcmp(data + 8, "WEBP", 4) == 0)
		return "image/webp";
	if (mime_is_image(mime))
		mime = any_bytes;
	if (text_is_text(data, size))
		return mime == any_bytes ? "text/plain" : mime;
	return strncmp(mime, "text/", 5) == 0 || mime == svg ? any_bytes : mime;
}

static void row_done(struct shelf *s, struct shelved *r)
{
	if (r->data)
		s->bytes -= r->size;
	free(r->uri);
	free(r->name);
	free(r->target);
	free(r->data);
	*r = (struct shelved){0};
}

static void drop_oldest(struct shelf *s)
{
	row_done(s, &s->rows[s->first]);
	s->first = (s->first + 1) % SHELF_ROWS;
	s->count--;
}

static int make_names(struct shelved *r, const char *run, const char *path, bool remote)
{
	size_t room = 3 * strlen(path) + 8;
	_cleanup_free_ char *coded = malloc(room);

	if (!coded || url_encode(path, coded, room) < 0)
		return -1;
	if (asprintf(&r->uri, "cloche://runs/%s/artifacts/%s", run, coded) < 0)
		r->uri = NULL;
	if (remote && asprintf(&r->target, "/v1/runs/%s/artifacts/%s", run, coded) < 0)
		r->target = NULL;
	r->name = strdup(path);
	return r->uri && r->name && (!remote || (r->target && strlen(r->target) < TARGET_BYTES))
		       ? 0
		       : -1;
}

const struct shelved *shelf_put(struct shelf *s, const char *run, const char *path, size_t size,
				const char *data)
{
	struct shelved row = {.size = size, .mime = mime_of(path, data, size)}, *place;

	if (size > RESOURCE_BYTES || !job_is_id(run) || make_names(&row, run, path, !data) < 0) {
		row_done(s, &row);
		return NULL;
	}
	while (s->count == SHELF_ROWS || (data && s->count > 0 && s->bytes + size > SHELF_BYTES))
		drop_oldest(s);
	if (data) {
		char *copy = malloc(size + 1);

		if (!copy) {
			row_done(s, &row);
			return NULL;
		}
		memcpy(copy, data, size);
		row.data = copy;
		s->bytes += size;
	}
	place = &s->rows[(s->first + s->count++) % SHELF_ROWS];
	*place = row;
	return place;
}

const struct shelved *shelf_find(const struct shelf *s, const char *uri)
{
	for (size_t i = s->count; i-- > 0;) {
		const struct shelved *r = &s->rows[(s->first + i) % SHELF_ROWS];

		if (strcmp(r->uri, uri) == 0)
			return r;
	}
	return NULL;
}

json_t *shelf_list(const struct shelf *s)
{
	json_t *list = json_array();

	for (size_t i = s->count; i-- > 0;) {
		const struct shelved *r = &s->rows[(s->first + i) % SHELF_ROWS];

		json_array_append_new(list,
				      json_pack("{ss ss ss sI}", "uri", r->uri, "name", r->name,
						"mimeType", r->mime, "size", (json_int_t)r->size));
	}
	return list;
}

void shelf_done(struct shelf *s)
{
	while (s->count > 0)
		drop_oldest(s);
}

json_t *resource_contents(const char *uri, const char *mime, const char *data, size_t size)
{
	json_t *j = json_pack("{ss ss}", "uri", uri, "mimeType", mime);
	_cleanup_free_ char *coded = NULL;
	size_t n = 0;

	if (text_is_text(data, size)) {
		json_object_set_new(j, "text", json_stringn(data, size));
	} else {
		coded = base64_encode(data, size, &n);
		json_object_set_new(j, "blob", coded ? json_stringn(coded, n) : NULL);
	}
	return j;
}

json_t *image_content(const char *mime, const char *data, size_t size)
{
	size_t n = 0;
	_cleanup_free_ char *coded = base64_encode(data, size, &n);

	return json_pack("{ss so ss}", "type", "image", "data",
			 coded ? json_stringn(coded, n) : json_string(""), "mimeType", mime);
}
