/* SPDX-License-Identifier: Apache-2.0 */
#include "base/splitter.h"

#include <string.h>

/* Memory of a long line is given back when it is over. */
#define KEPT_ROOM (256u << 10)

static void shrink(struct splitter *s)
{
	if (s->size > 0 || s->room <= KEPT_ROOM)
		return;
	free(TAKE_PTR(s->data));
	s->room = 0;
}

int splitter_put(struct splitter *s, const void *data, size_t size)
{
	if (size == 0)
		return 0;
	if (s->start > 0 && s->size > 0)
		memmove(s->data, s->data + s->start, s->size);
	s->start = 0;
	shrink(s);
	if (s->size + size > s->room) {
		size_t room = s->room ? s->room : 4096;
		char *more;

		while (room < s->size + size)
			room *= 2;
		more = realloc(s->data, room);
		if (!more)
			return -ENOMEM;
		s->data = more;
		s->room = room;
	}
	memcpy(s->data + s->size, data, size);
	s->size += size;
	return 0;
}

static void drop(struct splitter *s, size_t size)
{
	s->start += size;
	s->size -= size;
	s->looked = 0;
}

/* The end of the line that is being skipped, if it is there. */
static bool skip(struct splitter *s)
{
	const char *end = s->size ? memchr(s->data + s->start, '\n', s->size) : NULL;

	if (!end) {
		drop(s, s->size);
		return false;
	}
	drop(s, (size_t)(end - (s->data + s->start)) + 1);
	s->skipping = false;
	return true;
}

enum splitter_answer splitter_next(struct splitter *s, bool ended, const char **ret_line,
				   size_t *ret_size)
{
	const char *line, *end;
	size_t n;

	if ((s->skipping && !skip(s)) || s->size == 0)
		return SPLITTER_NONE;
	line = s->data + s->start;
	end = memchr(line + s->looked, '\n', s->size - s->looked);
	n = end ? (size_t)(end - line) : s->size;
	/* One byte more may still be the "\r" of its end. */
	if (n > s->most + 1 || (n == s->most + 1 && (end || ended) && line[n - 1] != '\r')) {
		s->skipping = !end;
		drop(s, end ? n + 1 : n);
		return SPLITTER_TOO_LONG;
	}
	if (!end && !ended) {
		s->looked = n;
		return SPLITTER_NONE;
	}
	drop(s, end ? n + 1 : n);
	*ret_line = line;
	*ret_size = n > 0 && line[n - 1] == '\r' ? n - 1 : n;
	return SPLITTER_LINE;
}

void splitter_done(struct splitter *s)
{
	free(s->data);
	*s = (struct splitter){0};
}
