/* SPDX-License-Identifier: Apache-2.0 */
/* The error record: one line, never cut silently, never past its end. */
#include "unit.h"

#include "base/err.h"
#include "sandbox/model.h"

enum { SIZE = sizeof((struct err *)0)->text };

/* An err between two walls. */
struct walled {
	char before[64];
	struct err e;
	char after[64];
};

static void walls_up(struct walled *w)
{
	memset(w, 'W', sizeof *w);
}

static void walls_stand(const struct walled *w)
{
	for (size_t i = 0; i < sizeof w->before; i++) {
		assert_int_equal(w->before[i], 'W');
		assert_int_equal(w->after[i], 'W');
	}
	assert_non_null(memchr(w->e.text, '\0', SIZE));
}

static void assert_ends_with_dots(const struct err *e)
{
	assert_int_equal(strlen(e->text), SIZE - 1);
	assert_string_equal(e->text + SIZE - 4, "...");
}

static void test_set(void **state)
{
	struct err e = {.errnum = 7, .code = 3, .stage = "old"};

	(void)state;
	assert_int_equal(err_set(&e, ENOENT, "open %s", "/x"), -1);
	assert_string_equal(e.text, "open /x: No such file or directory");
	assert_int_equal(e.errnum, ENOENT);
	assert_int_equal(e.code, 0);
	assert_string_equal(e.stage, "");
	assert_int_equal(err_set(&e, 0, "no command"), -1);
	assert_string_equal(e.text, "no command");
	assert_int_equal(e.errnum, 0);
	err_set(&e, 4000, "x");
	assert_string_equal(e.text, "x: Unknown error 4000");
}

/* Every length around the end of the buffer, with and without an errno. */
static void test_set_truncation(void **state)
{
	static char text[2 * SIZE];
	struct walled w;

	(void)state;
	for (size_t n = 0; n < sizeof text - 1; n++) {
		memset(text, 'a', n);
		text[n] = '\0';
		walls_up(&w);
		err_set(&w.e, 0, "%s", text);
		walls_stand(&w);
		if (n < SIZE)
			assert_string_equal(w.e.text, text);
		else
			assert_ends_with_dots(&w.e);
		walls_up(&w);
		err_set(&w.e, EPERM, "%s", text);
		walls_stand(&w);
		if (n + strlen(": Operation not permitted") >= SIZE)
			assert_ends_with_dots(&w.e);
		else
			assert_int_equal(strlen(w.e.text), n + strlen(": Operation not permitted"));
	}
}

static void test_prefix(void **state)
{
	struct err e;

	(void)state;
	err_set(&e, ENOENT, "open /x");
	err_code(&e, CODE_SANDBOX_IMAGE_MISSING);
	err_stage(&e, "image");
	assert_int_equal(err_prefix(&e, "--%s", "image"), -1);
	assert_string_equal(e.text, "--image: open /x: No such file or directory");
	assert_int_equal(e.errnum, ENOENT);
	assert_int_equal(e.code, CODE_SANDBOX_IMAGE_MISSING);
	assert_string_equal(e.stage, "image");
}

static void test_prefix_truncation(void **state)
{
	static char text[SIZE + 8];
	struct walled w;

	(void)state;
	for (size_t n = 0; n < sizeof text - 1; n++) {
		memset(text, 'p', n);
		text[n] = '\0';
		walls_up(&w);
		err_set(&w.e, 0, "the rest");
		err_prefix(&w.e, "%s", text);
		walls_stand(&w);
		if (n + strlen(": the rest") < SIZE)
			assert_string_equal(w.e.text + n, ": the rest");
		else
			assert_ends_with_dots(&w.e);
	}
	walls_up(&w);
	err_set(&w.e, 0, "%s", text);
	for (int i = 0; i < 5; i++)
		err_prefix(&w.e, "again");
	walls_stand(&w);
	assert_ends_with_dots(&w.e);
}

static void test_stage_is_cut(void **state)
{
	struct err e = {0};

	(void)state;
	err_stage(&e, "a-stage-with-a-very-long-name");
	assert_string_equal(e.stage, "a-stage-with-a-");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_set),          cmocka_unit_test(test_set_truncation),
		cmocka_unit_test(test_prefix),       cmocka_unit_test(test_prefix_truncation),
		cmocka_unit_test(test_stage_is_cut),
	};

	return cmocka_run_group_tests_name("err", tests, NULL, NULL);
}
