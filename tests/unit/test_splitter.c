/* SPDX-License-Identifier: Apache-2.0 */
/* Lines out of pieces: the same ones whatever the pieces, none longer than the most. */
#include "unit.h"

#include <string.h>

#include "base/splitter.h"

/* All lines of text put in pieces, as "LINE|LINE|", "#|" for one that was too long. */
static void join(char *ret, size_t room, const char *text, size_t size, size_t piece, size_t most)
{
	struct splitter s = {.most = most};
	enum splitter_answer a = SPLITTER_NONE;
	const char *line;
	size_t n, at = 0;

	for (size_t i = 0; i <= size; i += piece) {
		bool ended = i + piece > size;

		assert_int_equal(splitter_put(&s, text + i, ended ? size - i : piece), 0);
		while ((a = splitter_next(&s, ended, &line, &n)) != SPLITTER_NONE) {
			if (a == SPLITTER_TOO_LONG) {
				line = "#";
				n = 1;
			}
			assert_true(at + n + 2 < room);
			memcpy(ret + at, line, n);
			at += n;
			ret[at++] = '|';
		}
	}
	ret[at] = '\0';
	assert_int_equal(s.left.size, 0);
	splitter_done(&s);
}

static void test_lines(void **state)
{
	static const struct {
		const char *text, *lines;
		size_t most;
	} cases[] = {
		{"", "", 9},
		{"a", "a|", 9},
		{"a\n", "a|", 9},
		{"a\r\nb", "a|b|", 9},
		{"\n\n\r\n", "|||", 9},
		{"a\rb\n", "a\rb|", 9},
		{"abc\n", "abc|", 3},
		{"abc\r\n", "abc|", 3},
		{"abc\r", "abc|", 3},
		{"abcd\nx", "#|x|", 3},
		{"abcd\r\nx", "#|x|", 3},
		{"abcd", "#|", 3},
		{"abc\rd\nx\n", "#|x|", 3},
		{"abcdefghijkl\n\nabcdefghijkl\nabc\n", "#||#|abc|", 3},
		{"abcdefghijkl", "#|", 3},
		{"a\n\n", "#||", 0},
	};
	char seen[256];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
		for (size_t piece = 1; piece < 16; piece++) {
			join(seen, sizeof seen, cases[i].text, strlen(cases[i].text), piece,
			     cases[i].most);
			assert_string_equal(seen, cases[i].lines);
		}
}

static void test_bytes_of_any_kind(void **state)
{
	struct splitter s = {.most = 100};
	const char *line;
	size_t n;

	(void)state;
	assert_int_equal(splitter_put(&s, "\0\xff\n", 3), 0);
	assert_int_equal(splitter_next(&s, false, &line, &n), SPLITTER_LINE);
	assert_int_equal(n, 2);
	assert_memory_equal(line, "\0\xff", 2);
	splitter_done(&s);
}

/* What never ends is thrown away as it comes, and memory of a long line is given back. */
static void test_memory(void **state)
{
	static char piece[65536];
	struct splitter s = {.most = 1 << 20};
	unsigned too_long = 0;
	const char *line;
	size_t n;

	(void)state;
	for (int i = 0; i < 1000; i++) {
		assert_int_equal(splitter_put(&s, piece, sizeof piece), 0);
		too_long += splitter_next(&s, false, &line, &n) == SPLITTER_TOO_LONG;
		assert_true(s.left.room <= 4 << 20);
	}
	assert_int_equal(too_long, 1);
	assert_int_equal(splitter_put(&s, "\nx\n", 3), 0);
	assert_true(s.left.room <= 1 << 18);
	assert_int_equal(splitter_next(&s, false, &line, &n), SPLITTER_LINE);
	assert_int_equal(n, 1);
	splitter_done(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_lines),
		cmocka_unit_test(test_bytes_of_any_kind),
		cmocka_unit_test(test_memory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
