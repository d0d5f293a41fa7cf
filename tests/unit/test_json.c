/* SPDX-License-Identifier: Apache-2.0 */
/* Strict JSON: one value, bounded, no duplicates. And fd_slurp(), which bounds what is read at all. */
#include "unit.h"

#include <sys/mman.h>

#include "base/fd.h"
#include "base/json.h"

static json_t *parse(const char *text, struct err *e)
{
	return json_read(text, strlen(text), e);
}

static void refused(const char *text, const char *why)
{
	struct err e = {0};
	json_t *j = parse(text, &e);

	if (j)
		fail_msg("taken: %.60s", text);
	assert_contains(e.text, why);
}

static void test_good(void **state)
{
	static const char *const good[] = {"{}",
					   "[]",
					   " {\"a\":1} \n",
					   "[[],{}]",
					   "{\"a\":[{\"a\":1}]}",
					   "{\"a\":\"\\\"}]]]]\"}",
					   "{\"\":0}"};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
		struct err e = {0};
		json_t *j = parse(good[i], &e);

		if (!j)
			fail_msg("%s: %s", good[i], e.text);
		json_decref(j);
	}
}

static void test_refused(void **state)
{
	static const char *const bad[] = {
		"",
		" ",
		"nul",
		"{",
		"}",
		"[1,]",
		"{\"a\":1,}",
		"{a:1}",
		"'a'",
		"[1] [2]",
		"{}x",
		"{}{}",
		"[NaN]",
		"[Infinity]",
		"[01]",
		"[+1]",
		"[1e999]",
		"[\"\\u0000\"]",
		"[\"\\ud800\"]",
		"[\"\xff\"]",
		"[\"\xc0\x80\"]",
		"[\"\n\"]",
		"/**/{}",
		"{\"\\u0000\":1}",
		"[99999999999999999999]",
		"\xef\xbb\xbf{}",
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		refused(bad[i], "JSON line");
}

static void test_duplicates(void **state)
{
	(void)state;
	refused("{\"a\":1,\"a\":1}", "duplicate");
	refused("{\"a\":1,\"\\u0061\":2}", "duplicate");
	refused("[{\"x\":{\"b\":1,\"b\":2}}]", "duplicate");
}

static void test_nul_inside(void **state)
{
	struct err e = {0};

	(void)state;
	assert_null(json_read("{}\0", 3, &e));
	assert_null(json_read("{\0}", 3, &e));
	assert_null(json_read("[\"a\0b\"]", 7, &e));
	assert_null(json_read("\0", 1, &e));
}

static void test_depth(void **state)
{
	char text[2 * (JSON_MAX_DEPTH + 1) + 1];
	struct err e = {0};
	json_t *j;

	(void)state;
	memset(text, '[', JSON_MAX_DEPTH);
	memset(text + JSON_MAX_DEPTH, ']', JSON_MAX_DEPTH);
	j = json_read(text, 2 * JSON_MAX_DEPTH, &e);
	assert_non_null(j);
	json_decref(j);
	memset(text, '[', JSON_MAX_DEPTH + 1);
	memset(text + JSON_MAX_DEPTH + 1, ']', JSON_MAX_DEPTH + 1);
	assert_null(json_read(text, 2 * JSON_MAX_DEPTH + 2, &e));
	assert_contains(e.text, "nested deeper than 32");
	/* brackets in strings do not count, escaped quotes do not end them */
	j = parse("[\"[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[\\\"[[[[[\\\\\"]", &e);
	assert_non_null(j);
	json_decref(j);
}

static void test_size(void **state)
{
	size_t size = JSON_MAX_BYTES + 1;
	char *text = malloc(size);
	struct err e = {0};
	json_t *j;

	(void)state;
	if (getenv("CLOCHE_UNDER_VALGRIND")) {
		free(text);
		skip_because("16 MiB take long under valgrind");
	}
	assert_non_null(text);
	memset(text, ' ', size);
	memcpy(text, "{}", 2);
	assert_null(json_read(text, size, &e));
	assert_contains(e.text, "at most 16777216");
	j = json_read(text, size - 1, &e);
	assert_non_null(j);
	json_decref(j);
	free(text);
}

static int slurp(size_t size, size_t limit, size_t *ret_size)
{
	_cleanup_close_ int fd = memfd_create("slurp", MFD_CLOEXEC);
	_cleanup_free_ char *data = NULL;
	int r;

	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, (off_t)size), 0);
	lseek(fd, 0, SEEK_SET);
	r = fd_slurp(fd, limit, &data, ret_size);
	if (r == 0)
		assert_int_equal(data[*ret_size], '\0');
	return r;
}

static void test_slurp(void **state)
{
	static const size_t limits[] = {0, 1, 100, 16382, 16383, 16384, 40000};
	size_t got = 0;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(limits); i++) {
		for (size_t size = limits[i] > 2 ? limits[i] - 2 : 0; size <= limits[i]; size++) {
			assert_int_equal(slurp(size, limits[i], &got), 0);
			assert_int_equal(got, size);
		}
		assert_int_equal(slurp(limits[i] + 1, limits[i], &got), -EFBIG);
		assert_int_equal(slurp(limits[i] + 2, limits[i], &got), -EFBIG);
		assert_int_equal(slurp(limits[i] + 3, limits[i], &got), -EFBIG);
	}
	assert_int_equal(fd_slurp(-1, 10, &(char *){NULL}, &got), -EBADF);
}

static void test_read_file(void **state)
{
	char path[256], text[8];
	_cleanup_close_ int dir = scratch_make(path);

	(void)state;
	text_at(dir, "seven", "1234567");
	text_at(dir, "eight", "12345678");
	text_at(dir, "none", "");
	assert_int_equal(fd_read_file(dir, "seven", text, sizeof text), 7);
	assert_string_equal(text, "1234567");
	assert_int_equal(fd_read_file(dir, "none", text, sizeof text), 0);
	assert_string_equal(text, "");
	assert_int_equal(fd_read_file(dir, "eight", text, sizeof text), -EFBIG);
	assert_int_equal(fd_read_file(dir, "missing", text, sizeof text), -ENOENT);
	assert_int_equal(fd_read_file(dir, ".", text, sizeof text), -EISDIR);
	assert_int_equal(fd_write_file(dir, "missing", "x"), -ENOENT);
	assert_int_equal(fd_write_file(dir, "seven", "7654321"), 0);
	assert_int_equal(fd_read_file(dir, "seven", text, sizeof text), 7);
	assert_string_equal(text, "7654321");
	scratch_remove(path);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_good),       cmocka_unit_test(test_refused),
		cmocka_unit_test(test_duplicates), cmocka_unit_test(test_nul_inside),
		cmocka_unit_test(test_depth),      cmocka_unit_test(test_size),
		cmocka_unit_test(test_slurp),      cmocka_unit_test(test_read_file),
	};

	return cmocka_run_group_tests_name("json", tests, NULL, NULL);
}
