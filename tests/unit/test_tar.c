/* SPDX-License-Identifier: Apache-2.0 */
/* The one tar reader and the one writer: what is understood, what is refused and by which words, whatever the
 * pieces the bytes come in. */
#include "tar_unit.h"

struct seen {
	char text[16384]; /* a line per entry, content behind it */
	size_t size;
	unsigned ends;
};

static int see_entry(void *context, const struct tar_entry *t, struct err *e)
{
	struct seen *s = context;

	(void)e;
	s->size += (size_t)snprintf(s->text + s->size, sizeof s->text - s->size,
				    "%c %s %s%s%o %llu %lld\n", "fdl"[t->type], t -> path,
				    t -> target, *t -> target ? " " : "", t->mode,
				    (unsigned long long)t->size, (long long)t->mtime);
	assert_true(s->size < sizeof s->text);
	return 0;
}

static int see_data(void *context, const char *data, size_t size, struct err *e)
{
	struct seen *s = context;

	(void)e;
	assert_true(size > 0 && size < sizeof s->text - s->size);
	memcpy(s->text + s->size, data, size);
	s->size += size;
	s->text[s->size] = '\0';
	return 0;
}

static int see_end(void *context, struct err *e)
{
	struct seen *s = context;

	(void)e;
	s->ends++;
	return see_data(context, ";", 1, e);
}

static int read_all(const struct archive *a, size_t step, struct seen *s, struct err *e)
{
	struct tar_reader *r = malloc(sizeof *r);
	const struct tar_sink sink = {see_entry, see_data, see_end, s};
	int result = 0;

	assert_non_null(r);
	memset(r, 0xa5, sizeof *r);
	tar_reader_init(r, &sink);
	for (size_t i = 0; result == 0 && i < a->size; i += step)
		result = tar_feed(r, a->data + i, a->size - i < step ? a->size - i : step, e);
	if (result == 0)
		result = tar_eof(r, e);
	free(r);
	return result;
}

/* Takes the archive, ended by its two blocks; it gives exactly this. */
static void gives(struct archive *a, const char *want)
{
	static const size_t steps[] = {1, 511, 512, 513, 1 << 20};

	add_end(a);
	for (size_t i = 0; i < ARRAY_SIZE(steps); i++) {
		struct seen s = {0};
		struct err e = {0};

		if (read_all(a, steps[i], &s, &e) < 0)
			fail_msg("refused in pieces of %zu: %s", steps[i], e.text);
		assert_string_equal(s.text, want);
	}
	a->size = 0;
}

static void refuses(struct archive *a, const char *why)
{
	struct seen s = {0};
	struct err e = {0};

	if (read_all(a, 512, &s, &e) == 0)
		fail_msg("taken, not refused as \"%s\": %s", why, s.text);
	assert_contains(e.text, why);
	a->size = 0;
}

static int setup(void **state)
{
	*state = calloc(1, sizeof(struct archive));
	return *state ? 0 : -1;
}

static int teardown(void **state)
{
	free(*state);
	return 0;
}

static void test_names_are_cleaned(void **state)
{
	struct archive *a = *state;

	add_header(a, '5', "./", "", 0, 0755); /* the folder itself is no entry */
	add_file(a, "./a//b/./c", "x");
	add_header(a, '5', ".//d/.", "", 0, 0700);
	add_file(a, "...", "");
	add_file(a, "..a/b..", "");
	gives(a, "f a/b/c 644 1 0\nx;d d 700 0 0\nf ... 644 0 0\n;f ..a/b.. 644 0 0\n;");
}

static void test_names_that_lead_outside(void **state)
{
	static const char *const names[] = {"/x",     "/",    "..",     "../x",
					    "a/../x", "a/..", "./../x", "a//..//x"};
	struct archive *a = *state;

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		add_header(a, '5', names[i], "", 0, 0755);
		add_end(a);
		refuses(a, "a name that leads elsewhere");
	}
}

static void test_types(void **state)
{
	static const struct {
		char type;
		const char *why;
	} refused[] = {
		{'1', "hard links"},
		{'3', "devices and pipes"},
		{'4', "devices and pipes"},
		{'6', "devices and pipes"},
		{'S', "sparse"},
		{'M', "volumes"},
		{'V', "volumes"},
		{'D', "only files"},
		{'A', "only files"},
		{'X', "only files"},
		{'N', "only files"},
		{' ', "only files"},
	};
	struct archive *a = *state;

	add_header(a, '\0', "old", "", 0, 0644);
	add_header(a, '7', "contiguous", "", 0, 06711);
	add_header(a, '2', "link", "../any where", 0, 0777);
	gives(a, "f old 644 0 0\n;f contiguous 711 0 0\n;l link ../any where 777 0 0\n");
	for (size_t i = 0; i < ARRAY_SIZE(refused); i++) {
		add_header(a, refused[i].type, "x", "y", 0, 0644);
		add_end(a);
		refuses(a, refused[i].why);
	}
	add_header(a, '0', "", "", 0, 0644);
	refuses(a, "a file without a name");
	add_header(a, '0', "folder/", "", 0, 0644);
	refuses(a, "with a folder's");
	add_header(a, '2', "link", "", 0, 0777);
	refuses(a, "a link without name or target");
	add_header(a, '2', "./", "x", 0, 0777);
	refuses(a, "a link without name or target");
	add_header(a, '5', "d", "", 5, 0755);
	refuses(a, "content of what is no file");
	add_header(a, '2', "l", "x", 1, 0755);
	refuses(a, "content of what is no file");
}

static void test_ends(void **state)
{
	struct archive *a = *state;
	size_t whole;

	gives(a, "");
	refuses(a, "cut off");
	add_file(a, "f", "text");
	refuses(a, "cut off");
	add_file(a, "f", "text");
	add_bytes(a, "\0", 1); /* one block only */
	refuses(a, "cut off");
	add_file(a, "f", "text");
	add_end(a);
	whole = a->size;
	for (size_t size = 1; size < whole; size++) {
		a->size = size;
		refuses(a, "cut off");
	}
	a->size = whole;
	a->data[a->size++] = '\0'; /* filling, of any length */
	a->data[a->size++] = 'x';
	refuses(a, "more behind its end");
	add_bytes(a, "\0", 1);
	add_file(a, "x", "y");
	refuses(a, "more behind its end");
}

static char *field(struct archive *a, size_t at, const void *data, size_t size)
{
	char *b = a->data;

	a->size = 0;
	b = add_header(a, '0', "x", "", 0, 0644);
	memcpy(b + at, data, size);
	set_sum(b);
	return b;
}

static void test_numbers(void **state)
{
	static const char negative[12] = {'\xff', '\xff', '\xff', '\xff', '\xff', '\xff',
					  '\xff', '\xff', '\xff', '\xff', '\xff', '\xff'};
	static const char exabytes[12] = {'\x80', 0, 0, 0, 0x40}, far[12] = {'\x80', 1};
	static const char eight[12] = {'\x80', 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4};
	struct archive *a = *state;
	char *b;

	field(a, 124, eight, 12);
	add_bytes(a, "four", 4);
	gives(a, "f x 644 4 0\nfour;");
	field(a, 124, "  4 \0       ", 12);
	add_bytes(a, "four", 4);
	gives(a, "f x 644 4 0\nfour;");
	field(a, 136, "00000001750\0", 12);
	gives(a, "f x 644 0 1000\n;");
	field(a, 124, negative, 12);
	refuses(a, "a size in a header");
	field(a, 124, exabytes, 12);
	refuses(a, "a size in a header");
	field(a, 124, far, 12);
	refuses(a, "a size in a header");
	field(a, 124, "-0000000010", 11);
	refuses(a, "a size in a header");
	field(a, 124, "00000000009", 11);
	refuses(a, "a size in a header");
	field(a, 100, "rwxrwx", 6);
	refuses(a, "a number in a header");
	field(a, 136, negative, 12);
	refuses(a, "a number in a header");
	b = field(a, 0, "x", 1);
	b[0] = 'y';
	refuses(a, "no header block");
	field(a, 257, "\0\0\0\0\0\0", 6); /* of before 1988: no way to tell */
	refuses(a, "no header block");
}

static void test_prefix(void **state)
{
	struct archive *a = *state;

	field(a, 345, "deep/er", 7);
	gives(a, "f deep/er/x 644 0 0\n;");
	field(a, 345, "..", 2);
	refuses(a, "a name that leads elsewhere");
	field(a, 345, "/", 1);
	refuses(a, "a name that leads elsewhere");
	/* GNU's own header has times there */
	field(a, 345, "14412341234", 11);
	memcpy(a->data + 257, "ustar  ", 8);
	set_sum(a->data);
	gives(a, "f x 644 0 0\n;");
}

static void test_pax(void **state)
{
	static const char *const bad[] = {
		"7 path=\n",
		"12 path=x\n",
		"8 path=x\n",
		"10 path=x\nrubbish",
		"10 size=-\n",
		"11 size=0x\n",
		"11 size=-1\n",
		"10 noequal\n",
		"x",
		"0 path=x\n",
		"22 GNU.sparse.major=1\n",
		"999999 path=x\n",
		"11 mtime=x\n",
		"13 mtime=1.x\n",
		"28 size=1000000000000000000\n",
		" 10 path=x\n",
		"+10 path=x\n",
	};
	struct archive *a = *state;

	add_header(a, 'g', "global", "", 13, 0644);
	add_bytes(a, "13 comment=x\n", 13);
	add_pax(a, "15 path=a/long\n20 mtime=1234567.89\n", 35);
	add_file(a, "short", "content");
	add_file(a, "short", "own");
	add_pax(a, "14 linkpath=y\n12 mtime=-5\n", 26);
	add_header(a, '2', "l", "x", 0, 0777);
	add_pax(a, "10 size=3\n", 10);
	add_header(a, '0', "sized", "", 0, 0600);
	add_bytes(a, "abc", 3);
	gives(a, "f a/long 644 7 1234567\ncontent;f short 644 3 0\nown;l l y 777 0 -5\n"
		 "f sized 600 3 0\nabc;");
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		add_pax(a, bad[i], strlen(bad[i]));
		add_file(a, "file", "");
		add_end(a);
		refuses(a, "a pax record");
	}
	add_pax(a, "13 path=../x\n", 13);
	add_file(a, "file", "");
	refuses(a, "a name that leads elsewhere");
	add_pax(a, "12 path=a\0b\n", 12);
	refuses(a, "a pax record");
	add_header(a, 'g', "global", "", 10, 0644);
	add_bytes(a, "10 path=g\n", 10);
	refuses(a, "a pax record");
	add_header(a, 'g', "global", "", 10, 0644);
	add_bytes(a, "10 size=9\n", 10);
	refuses(a, "a pax record");
	add_pax(a, "14 linkpath=y\n", 14);
	add_file(a, "file", "");
	refuses(a, "a target of what is no link");
}

static void test_extensions_for_nothing_twice_too_large(void **state)
{
	struct archive *a = *state;

	add_pax(a, "10 path=x\n", 10);
	add_end(a);
	refuses(a, "for nothing");
	add_pax(a, "10 path=x\n", 10);
	add_pax(a, "10 path=y\n", 10);
	refuses(a, "two extended headers");
	add_header(a, 'L', "long", "", 2, 0644);
	add_bytes(a, "x", 2);
	add_pax(a, "10 path=y\n", 10);
	refuses(a, "two extended headers");
	add_header(a, 'x', "pax", "", TAR_EXTENSION_BYTES + 1, 0644);
	refuses(a, "empty or too large");
	add_header(a, 'L', "long", "", 0, 0644);
	refuses(a, "empty or too large");
}

static void test_gnu_long_names(void **state)
{
	char name[TAR_PATH_SIZE + 1], want[TAR_PATH_SIZE + 64];
	struct archive *a = *state;

	memset(name, 'n', sizeof name);
	name[300] = '\0';
	add_header(a, 'K', "././@LongLink", "", 301, 0);
	add_bytes(a, name, 301);
	add_header(a, 'L', "././@LongLink", "", 3, 0);
	add_bytes(a, "a/b", 3); /* its NUL may be missing */
	add_header(a, '2', "short", "short", 0, 0777);
	add_file(a, "next", "");
	snprintf(want, sizeof want, "l a/b %s 777 0 0\nf next 644 0 0\n;", name);
	gives(a, want);
	add_header(a, 'L', "././@LongLink", "", 4, 0);
	add_bytes(a, "a\0b", 4);
	refuses(a, "more behind its end");
	add_header(a, 'L', "././@LongLink", "", 1, 0);
	add_bytes(a, "", 1);
	refuses(a, "empty or too long");
	name[300] = 'n';
	add_header(a, 'L', "././@LongLink", "", TAR_PATH_SIZE, 0);
	add_bytes(a, name, TAR_PATH_SIZE);
	refuses(a, "empty or too long");
}

static int stop_at_entry(void *context, const struct tar_entry *t, struct err *e)
{
	(void)context;
	return err_set(e, 0, "no room for %s", t->path);
}

static void test_the_sink_ends_it(void **state)
{
	const struct tar_sink sink = {stop_at_entry, see_data, NULL, NULL};
	struct archive *a = *state;
	struct tar_reader *r = malloc(sizeof *r);
	struct err e = {0};

	assert_non_null(r);
	add_file(a, "f", "text");
	tar_reader_init(r, &sink);
	assert_int_equal(tar_feed(r, a->data, a->size, &e), -1);
	assert_string_equal(e.text, "no room for f");
	free(r);
}

/* What the writer makes, the reader gives back: names around the fields' sizes, sizes around the octal's. */
static void test_written_and_read_back(void **state)
{
	static const size_t lengths[] = {1, 99, 100, 101, 255, TAR_PATH_SIZE - 1};
	static const int64_t times[] = {0, 1, (1ll << 33) - 1};
	char name[TAR_PATH_SIZE + 1], want[2 * TAR_PATH_SIZE + 64], out[TAR_HEADER_MAX];
	struct archive *a = *state;
	struct tar_entry t = {.type = TAR_LINK, .path = name, .target = name, .mode = 0777};

	for (size_t i = 0; i < ARRAY_SIZE(lengths); i++) {
		memset(name, 'n', sizeof name);
		name[lengths[i]] = '\0';
		a->size = tar_header(a->data, &t);
		assert_true(a->size > 0 && a->size % TAR_BLOCK == 0 && a->size <= TAR_HEADER_MAX);
		snprintf(want, sizeof want, "l %s %s 777 0 0\n", name, name);
		gives(a, want);
	}
	memset(name, 'n', sizeof name);
	name[TAR_PATH_SIZE] = '\0';
	assert_int_equal(tar_header(out, &t), 0);
	t = (struct tar_entry){.type = TAR_FOLDER, .path = "d", .target = "", .mode = 0750};
	for (size_t i = 0; i < ARRAY_SIZE(times); i++) {
		t.mtime = times[i];
		a->size = tar_header(a->data, &t);
		snprintf(want, sizeof want, "d d 750 0 %lld\n", (long long)times[i]);
		gives(a, want);
	}
}

static uint64_t size_seen;

static int see_size(void *context, const struct tar_entry *t, struct err *e)
{
	(void)context;
	(void)e;
	size_seen = t->size;
	return 0;
}

static void test_large_sizes(void **state)
{
	static const uint64_t sizes[] = {0, 1, (1ull << 33) - 1, 1ull << 33, 1ull << 50};
	const struct tar_sink sink = {see_size, see_data, NULL, NULL};
	struct tar_reader *r = malloc(sizeof *r);
	char out[TAR_HEADER_MAX];
	struct err e = {0};

	(void)state;
	assert_non_null(r);
	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
		const struct tar_entry t = {TAR_FILE, "f", "", sizes[i], 0644, 0};

		tar_reader_init(r, &sink);
		size_seen = 1234567;
		assert_int_equal(tar_feed(r, out, tar_header(out, &t), &e), 0);
		assert_int_equal(size_seen, sizes[i]);
		assert_int_equal((sizes[i] + tar_padding(sizes[i])) % TAR_BLOCK, 0);
		assert_true(tar_padding(sizes[i]) < TAR_BLOCK);
	}
	free(r);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_names_are_cleaned),
		TEST(test_names_that_lead_outside),
		TEST(test_types),
		TEST(test_ends),
		TEST(test_numbers),
		TEST(test_prefix),
		TEST(test_pax),
		TEST(test_extensions_for_nothing_twice_too_large),
		TEST(test_gnu_long_names),
		TEST(test_the_sink_ends_it),
		TEST(test_written_and_read_back),
		TEST(test_large_sizes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
