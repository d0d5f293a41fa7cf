/* SPDX-License-Identifier: Apache-2.0 */
#include "client/lines.h"

#include <stdbool.h>
#include <string.h>

#include "base/base64.h"
#include "base/json.h"

static int append(struct lines *l, const char *data, size_t size, struct err *e)
{
	if (size > LINE_MAX_BYTES - l->size)
		return err_set(e, 0, "a line of the service's answer is longer than %d bytes",
			       LINE_MAX_BYTES);
	if (l->size + size > l->room) {
		size_t room = l->room ? l->room : 4096;
		char *more;

		while (room < l->size + size)
			room *= 2;
		more = realloc(l->data, room);
		if (!more)
			return err_set(e, ENOMEM, "keep a line of the service's answer");
		l->data = more;
		l->room = room;
	}
	if (size > 0)
		memcpy(l->data + l->size, data, size);
	l->size += size;
	return 0;
}

static int give(struct lines *l, line_sink sink, void *context, struct err *e)
{
	_cleanup_json_ json_t *object = json_read_output(l->data, l->size, e);

	if (!object)
		return err_prefix(e, "a line of the service's answer");
	if (!json_is_object(object))
		return err_set(e, 0, "a line of the service's answer is no JSON object");
	l->size = 0;
	return sink(context, object, e);
}

int lines_feed(struct lines *l, const char *data, size_t size, line_sink sink, void *context,
	       struct err *e)
{
	while (size > 0) {
		const char *end = memchr(data, '\n', size);
		size_t n = end ? (size_t)(end - data) : size;

		if (append(l, data, n, e) < 0)
			return -1;
		if (!end)
			return 0;
		if (give(l, sink, context, e) < 0)
			return -1;
		data += n + 1;
		size -= n + 1;
	}
	return 0;
}

void lines_done(struct lines *l)
{
	free(l->data);
	*l = (struct lines){0};
}

int event_data(json_t *event, char **ret_data, size_t *ret_size, struct err *e)
{
	const json_t *data = json_object_get(event, "data");
	const json_t *encoding = json_object_get(event, "encoding");
	const char *name = encoding ? json_string_value(encoding) : "utf-8";
	int r = 0;

	if (!json_is_string(data) || !name)
		return err_set(e, 0, "an event of the service has no data");
	if (strcmp(name, "base64") == 0) {
		r = base64_decode(json_string_value(data), json_string_length(data), ret_data,
				  ret_size);
	} else if (strcmp(name, "utf-8") == 0) {
		*ret_size = json_string_length(data);
		*ret_data = malloc(*ret_size + 1);
		if (*ret_data)
			memcpy(*ret_data, json_string_value(data), *ret_size + 1);
		else
			r = -ENOMEM;
	} else {
		r = -EINVAL;
	}
	return r < 0 ? err_set(e, -r, "read an event of the service") : 0;
}
