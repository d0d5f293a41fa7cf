/* SPDX-License-Identifier: Apache-2.0 */
#include "ask/sse.h"

#include <string.h>

static const char mark[] = "\xef\xbb\xbf"; /* may stand before the first line */

static int dispatch(struct sse *s, sse_sink sink, void *context, struct err *e)
{
	int r = 0;

	if (s->has_data)
		r = sink(context, s->data.data ? s->data.data : "", s->data.size, e);
	s->has_data = false;
	s->data.size = 0;
	if (s->data.room > 64 << 10)
		text_done(&s->data);
	return r;
}

static int take_line(struct sse *s, const char *line, size_t size, struct err *e)
{
	size_t name = 4;

	if (size < name || memcmp(line, "data", name) != 0 || (size > name && line[name] != ':'))
		return 0;
	line += size > name ? name + 1 : name;
	size -= size > name ? name + 1 : name;
	if (size > 0 && *line == ' ') {
		line++;
		size--;
	}
	if (s->data.size + size + 1 > SSE_BYTES)
		return err_set(e, 0, "an event of the stream is longer than %d bytes", SSE_BYTES);
	if ((s->has_data && text_add(&s->data, "\n", 1) < 0) || text_add(&s->data, line, size) < 0)
		return err_set(e, ENOMEM, "keep an event");
	s->has_data = true;
	return 0;
}

int sse_feed(struct sse *s, const char *data, size_t size, sse_sink sink, void *context,
	     struct err *e)
{
	enum splitter_answer answer;
	const char *line;
	size_t n;

	s->lines.most = SSE_BYTES;
	if (splitter_put(&s->lines, data, size) < 0)
		return err_set(e, ENOMEM, "keep a line");
	while ((answer = splitter_next(&s->lines, false, &line, &n)) != SPLITTER_NONE) {
		if (answer == SPLITTER_TOO_LONG)
			return err_set(e, 0, "a line of the stream is longer than %d bytes",
				       SSE_BYTES);
		if (!s->looked && n >= sizeof mark - 1 &&
		    memcmp(line, mark, sizeof mark - 1) == 0) {
			line += sizeof mark - 1;
			n -= sizeof mark - 1;
		}
		s->looked = true;
		if ((n == 0 ? dispatch(s, sink, context, e) : take_line(s, line, n, e)) < 0)
			return -1;
	}
	return 0;
}

void sse_done(struct sse *s)
{
	splitter_done(&s->lines);
	text_done(&s->data);
}
