/* SPDX-License-Identifier: Apache-2.0 */
#include "client/lines.h"

#include <string.h>

#include "base/base64.h"
#include "base/json.h"

static int give(const char *line, size_t size, line_sink sink, void *context, struct err *e)
{
	_cleanup_json_ json_t *object = json_read_output(line, size, e);

	if (!object)
		return err_prefix(e, "a line of the service's answer");
	if (!json_is_object(object))
		return err_set(e, 0, "a line of the service's answer is no JSON object");
	return sink(context, object, e);
}

int lines_feed(struct lines *l, const char *data, size_t size, line_sink sink, void *context,
	       struct err *e)
{
	enum splitter_answer answer;
	const char *line;
	size_t n;

	l->splitter.most = LINE_MAX_BYTES;
	if (splitter_put(&l->splitter, data, size) < 0)
		return err_set(e, ENOMEM, "keep a line of the service's answer");
	while ((answer = splitter_next(&l->splitter, false, &line, &n)) == SPLITTER_LINE)
		if (give(line, n, sink, context, e) < 0)
			return -1;
	return answer == SPLITTER_TOO_LONG
		       ? err_set(e, 0, "a line of the service's answer is longer than %d bytes",
				 LINE_MAX_BYTES)
		       : 0;
}

void lines_done(struct lines *l)
{
	splitter_done(&l->splitter);
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
