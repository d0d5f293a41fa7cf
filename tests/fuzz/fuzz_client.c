/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The command line's reader of answers: any bytes, in pieces of any size.
 *
 * The first byte chooses the sizes of the pieces. Whatever they are, the same body comes out, and its lines
 * and their data are read too.
 */
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "client/lines.h"
#include "client/response.h"

struct seen {
	uint64_t bytes, digest, line_digest;
	unsigned count;
	int error, line_error;
	struct lines lines;
};

static int take_line(void *context, json_t *object, struct err *e)
{
	struct seen *s = context;
	char *data;
	size_t size;

	CHECK(json_is_object(object));
	s->count++;
	if (event_data(object, &data, &size, e) < 0)
		return 0;
	CHECK(data[size] == '\0');
	for (size_t i = 0; i < size; i++)
		s->line_digest = s->line_digest * 31 + (unsigned char)data[i];
	free(data);
	return 0;
}

static int take_body(void *context, const char *data, size_t size, struct err *e)
{
	struct seen *s = context;

	CHECK(size > 0);
	s->bytes += size;
	for (size_t i = 0; i < size; i++)
		s->digest = s->digest * 31 + (unsigned char)data[i];
	if (s->line_error == 0)
		s->line_error = lines_feed(&s->lines, data, size, take_line, s, e);
	CHECK(s->lines.splitter.left.size <= LINE_MAX_BYTES + 1);
	return 0;
}

static struct seen read_all(const char *data, size_t size, size_t step)
{
	struct response *r = malloc(sizeof *r);
	struct seen s = {0};
	struct err e;

	CHECK(r);
	response_init(r);
	r->takes_trailers = size % 2;
	for (size_t i = 0; i < size && s.error == 0; i += step) {
		s.error = response_feed(r, data + i, size - i < step ? size - i : step, take_body,
					&s, &e);
		if (s.error == 0 && r->state != RESPONSE_HEADER)
			CHECK(r->status >= 200 && r->status <= 599);
		CHECK(memchr(r->content_type, '\0', sizeof r->content_type));
	}
	if (s.error == 0 && r->state == RESPONSE_DONE && !r->chunked)
		CHECK(s.bytes == r->size);
	lines_done(&s.lines);
	free(r);
	return s;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct seen whole, pieces;

	if (size < 1)
		return 0;
	whole = read_all((const char *)data + 1, size - 1, SIZE_MAX / 2);
	pieces = read_all((const char *)data + 1, size - 1, (size_t)data[0] + 1);
	CHECK(whole.error == pieces.error && whole.bytes == pieces.bytes);
	CHECK(whole.digest == pieces.digest && whole.line_error == pieces.line_error);
	CHECK(whole.count == pieces.count && whole.line_digest == pieces.line_digest);
	return 0;
}
