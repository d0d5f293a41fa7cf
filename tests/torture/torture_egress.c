/* SPDX-License-Identifier: Apache-2.0 */
/* The n-th allocation fails while names get addresses, a target its parameter and an answer is redacted: an error or the
 * right answer, never one with the secret in it, and nothing leaked. */
#include "../unit/unit.h"

#include "egress/credential.h"
#include "egress/names.h"
#include "torture.h"

enum { MOST = 200 };

static char secret[] = "Basic dTpwYXNzd29yZA==";
static struct egress_settings settings = {.credential_count = 1};

static void do_names(void)
{
	struct names *n = names_new();
	struct in_addr a;

	if (n && names_address(n, "a.test", 0, &a))
		assert_string_equal(names_host(n, a, 0), "a.test");
	names_free(n);
}

static void do_target(void)
{
	struct credential c = {.query = "key", .value = secret, .size = sizeof secret - 1};
	_cleanup_free_ char *t = credential_target(&c, "/a?key=x");

	if (t)
		assert_string_equal(t, "/a?key=Basic%20dTpwYXNzd29yZA%3D%3D");
}

/* Two pieces; what came out may be less, but never shows it. */
static void do_redact(void)
{
	struct redactor *first = redactor_new(&settings), *r = first ? redactor_dup(first) : NULL;
	const char *out = "";
	size_t size = 0;

	if (r && redactor_feed(r, "x u:pass", 8, false, &out, &size) == 0) {
		assert_int_equal(size, 2);
		if (redactor_feed(r, "word, dTpwYXNzd29yZA==", 22, true, &out, &size) == 0) {
			assert_int_equal(size, 28);
			assert_memory_equal(out, "**********, ****************", 28);
		}
	}
	redactor_free(first);
	redactor_free(r);
}

static void torture(void (*run)(void), unsigned least)
{
	unsigned long heap;
	unsigned n;

	run();
	heap = torture_heap();
	for (n = 1; n < MOST; n++) {
		bool fired;

		torture_arm(TORTURE_MEMORY, n, 0);
		run();
		fired = torture_disarm();
		if (torture_heap() != heap)
			fail_msg("allocation %u (%s): leaked", n, torture_victim());
		if (!fired)
			break;
	}
	print_message("%u allocations\n", n - 1);
	assert_true(n > least && n < MOST);
}

static void test_names(void **state)
{
	(void)state;
	torture(do_names, 2);
}

static void test_target(void **state)
{
	(void)state;
	torture(do_target, 2);
}

static void test_redact(void **state)
{
	(void)state;
	settings.credentials[0].value = secret;
	settings.credentials[0].size = sizeof secret - 1;
	memcpy(settings.credentials[0].header, "Authorization", sizeof "Authorization");
	torture(do_redact, 5);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_names),
		cmocka_unit_test(test_target),
		cmocka_unit_test(test_redact),
	};

	(void)argc;
	torture_start(argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
