/* SPDX-License-Identifier: Apache-2.0 */
#include "service/reply.h"

#include <stdlib.h>
#include <string.h>

#include "base/base64.h"
#include "base/json.h"
#include "sandbox/result.h"

void reply_json_text(struct exchange *x, int status, const char *type, const char *fields,
		     const char *text)
{
	static const char none[] =
		"{\"title\":\"out of memory\",\"status\":500,\"code\":\"INTERNAL\","
		"\"type\":\"about:blank\",\"retryable\":true}";

	if (text)
		exchange_reply(x, status, type, fields, text, strlen(text));
	else
		exchange_reply(x, 500, "application/problem+json", NULL, none, sizeof none - 1);
}

void reply_json_as(struct exchange *x, int status, const char *type, const char *fields, json_t *j)
{
	_cleanup_free_ char *text = j ? json_dumps(j, JSON_OUT) : NULL;

	json_decref(j);
	reply_json_text(x, status, type, fields, text);
}

void reply_json(struct exchange *x, int status, json_t *j)
{
	reply_json_as(x, status, "application/json", NULL, j);
}

void reply_lines_begin(struct exchange *x)
{
	exchange_begin(x, 200, "application/x-ndjson", "X-Accel-Buffering: no\r\n", UINT64_MAX);
}

char *reply_text(json_t *j, size_t *ret_size)
{
	char *text = j ? json_dumps(j, JSON_OUT) : NULL;

	json_decref(j);
	if (!text)
		return NULL;
	*ret_size = strlen(text) + 1;
	text[*ret_size - 1] = '\n'; /* in the place of its NUL: one write */
	return text;
}

bool reply_line(struct exchange *x, json_t *j)
{
	size_t size;
	_cleanup_free_ char *text = reply_text(j, &size);

	return text ? exchange_write(x, text, size) : true;
}

int json_set_bytes(json_t *object, const void *data, size_t size)
{
	_cleanup_free_ char *text = NULL;
	size_t n;

	if (utf8_prefix(data, size, false) == (ssize_t)size)
		return json_object_set_new(object, "data", json_stringn(data, size)) < 0 ||
				       json_object_set_new(object, "encoding",
							   json_string("utf-8")) < 0
			       ? -1
			       : 0;
	text = base64_encode(data, size, &n);
	return !text || json_object_set_new(object, "data", json_stringn(text, n)) < 0 ||
			       json_object_set_new(object, "encoding", json_string("base64")) < 0
		       ? -1
		       : 0;
}
