/* SPDX-License-Identifier: Apache-2.0 */
#include "base/splitter.h"

#include <string.h>

/* Memory of a long line is given back when it is over. */
#define KEPT_ROOM (256u << 10)

int splitter_put(struct splitter *s, const void *data, size_t size)
{
	if (size == 0)
		return 0;
	if (s->left.size == 0 && s->left.room > KEPT_ROOM)
		bytes_done(&s->left);
	return bytes_add(&s->left, data, size) ? 0 : -ENOMEM;
}

/* Not bytes_drop(): a line that was taken is still looked at. */
static void drop(struct splitter *s, size_t size)
{
	s->left.start += size;
	s->left.size -= size;
	s->looked = 0;
}

/* The end of the line that is being skipped, if it is there. */
static bool skip(struct splitter *s)
{
	const char *end =
		s->left.size ? memchr(s->left.data + s->left.start, '\n', s->left.size) : NULL;

	if (!end) {
		drop(s, s->left.size);
		return false;
	}
	drop(s, (size_t)(end - (s->left.data + s->left.start)) + 1);
	s->skipping = false;
	return true;
}

enum splitter_answer splitter_next(struct splitter *s, bool ended, const char **ret_line,
				   size_t *ret_size)
{
	const char *line, *end;
	size_t n;

	if ((s->skipping && !skip(s)) || s->left.size == 0)
		return SPLITTER_NONE;
	line = s->left.data + s->left.start;
	end = memchr(line + s->looked, '\n', s->left.size - s->looked);
	n = end ? (size_t)(end - line) : s->left.size;
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
	bytes_done(&s->left);
	*s = (struct splitter){0};
}
