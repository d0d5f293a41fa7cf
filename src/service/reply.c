/* SPDX-License-Identifier: Apache-2.0 */
#include "service/reply.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "sandbox/result.h"

enum { FORMAT = JSON_COMPACT | JSON_REAL_PRECISION(9) };

void reply_json_as(struct exchange *x, int status, const char *type, const char *fields, json_t *j)
{
	_cleanup_free_ char *text = j ? json_dumps(j, FORMAT) : NULL;
	static const char none[] = "{\"title\":\"out of memory\",\"status\":500,\"code\":\"INTERNAL\","
				   "\"type\":\"about:blank\",\"retryable\":true}";

	json_decref(j);
	if (text)
		exchange_reply(x, status, type, fields, text, strlen(text));
	else
		exchange_reply(x, 500, "application/problem+json", NULL, none, sizeof none - 1);
}

void reply_json(struct exchange *x, int status, json_t *j)
{
	reply_json_as(x, status, "application/json", NULL, j);
}

void reply_lines_begin(struct exchange *x)
{
	exchange_begin(x, 200, "application/x-ndjson", "X-Accel-Buffering: no\r\n", UINT64_MAX);
}

bool reply_line(struct exchange *x, json_t *j)
{
	_cleanup_free_ char *text = j ? json_dumps(j, FORMAT) : NULL;
	bool room;
	size_t n;

	json_decref(j);
	if (!text)
		return true;
	n = strlen(text);
	text[n] = '\n'; /* in the place of its NUL: one write */
	room = exchange_write(x, text, n + 1);
	return room;
}

int json_set_bytes(json_t *object, const void *data, size_t size)
{
	_cleanup_free_ char *text = NULL;
	size_t n;

	if (utf8_prefix(data, size, false) == (ssize_t)size)
		return json_object_set_new(object, "data", json_stringn(data, size)) < 0 ||
				       json_object_set_new(object, "encoding", json_string("utf-8")) < 0
			       ? -1
			       : 0;
	text = base64_encode(data, size, &n);
	return !text || json_object_set_new(object, "data", json_stringn(text, n)) < 0 ||
			       json_object_set_new(object, "encoding", json_string("base64")) < 0
		       ? -1
		       : 0;
}

static int digit(unsigned char c)
{
	if (c >= 'A' && c <= 'Z')
		return c - 'A';
	if (c >= 'a' && c <= 'z')
		return c - 'a' + 26;
	if (c >= '0' && c <= '9')
		return c - '0' + 52;
	return c == '+' ? 62 : c == '/' ? 63 : -1;
}

char *base64_decode(const char *text, size_t size, size_t *ret_size)
{
	_cleanup_free_ unsigned char *data = malloc(size / 4 * 3 + 1);
	size_t n = 0, padding = 0;

	if (!data || size % 4)
		return NULL;
	while (padding < 2 && size > padding && text[size - 1 - padding] == '=')
		padding++;
	for (size_t i = 0; i < size; i += 4) {
		unsigned v = 0;

		for (size_t k = 0; k < 4; k++) {
			int d = i + k >= size - padding ? 0 : digit((unsigned char)text[i + k]);

			if (d < 0)
				return NULL;
			v = v << 6 | (unsigned)d;
		}
		data[n++] = (unsigned char)(v >> 16);
		data[n++] = (unsigned char)(v >> 8);
		data[n++] = (unsigned char)v;
	}
	/* Bits behind the last byte must be zero: one text per value. */
	for (size_t i = 1; i <= padding; i++)
		if (data[n - i])
			return NULL;
	*ret_size = n - padding;
	data[*ret_size] = '\0';
	return (char *)TAKE_PTR(data);
}
