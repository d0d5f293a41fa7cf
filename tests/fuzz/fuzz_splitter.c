/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The splitter of NDJSON: any bytes, in pieces of any size, with any limit.
 *
 * The first byte is the size of a piece, the second the longest line. What comes out is held against a second
 * splitter that is written in the obvious way over the whole text.
 */
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "base/splitter.h"

struct plain {
	const char *at, *end;
	size_t most;
};

/* The next line of the whole text; false: there is none. */
static bool plain_next(struct plain *p, bool *ret_too_long, const char **ret_line, size_t *ret_size)
{
	const char *line = p->at;

	if (line == p->end)
		return false;
	while (p->at < p->end && *p->at != '\n')
		p->at++;
	*ret_line = line;
	*ret_size = (size_t)(p->at - line);
	if (*ret_size > 0 && p->at[-1] == '\r')
		--*ret_size;
	if (p->at < p->end)
		p->at++;
	*ret_too_long = *ret_size > p->most;
	return true;
}

static void take(struct splitter *s, struct plain *p, bool ended)
{
	enum splitter_answer a;
	const char *line, *expected;
	size_t size, expected_size;
	bool too_long;

	while ((a = splitter_next(s, ended, &line, &size)) != SPLITTER_NONE) {
		CHECK(plain_next(p, &too_long, &expected, &expected_size));
		CHECK((a == SPLITTER_TOO_LONG) == too_long);
		if (!too_long)
			CHECK(size == expected_size && memcmp(line, expected, size) == 0);
	}
	CHECK(s->left.size <= s->most + 1);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct splitter s = {0};
	struct plain p;
	size_t piece;

	if (size < 2)
		return 0;
	piece = (size_t)data[0] + 1;
	p = (struct plain){(const char *)data + 2, (const char *)data + size, data[1]};
	s.most = data[1];
	for (size_t i = 2; i < size; i += piece) {
		CHECK(splitter_put(&s, data + i, size - i < piece ? size - i : piece) == 0);
		take(&s, &p, false);
	}
	take(&s, &p, true);
	CHECK(s.left.size == 0 && p.at == p.end);
	splitter_done(&s);
	return 0;
}
