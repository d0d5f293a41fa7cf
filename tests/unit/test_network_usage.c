/* SPDX-License-Identifier: Apache-2.0 */
/* What a result says of its connections: bounded, the most recent, and the code that it makes. */
#include "unit.h"

#include "base/json.h"
#include "sandbox/result.h"

static void refuse(struct network_usage *u, const char *host, uint16_t port)
{
	u->denied++;
	network_usage_refused(u, host, port);
}

static void test_same_is_counted(void **state)
{
	struct network_usage u = {0};

	(void)state;
	refuse(&u, "a.test", 443);
	refuse(&u, "a.test", 80);
	refuse(&u, "a.test", 443);
	assert_int_equal(u.refused_count, 2);
	assert_int_equal(u.refused[1].count, 2);
	assert_int_equal(u.refused[1].port, 443);
	assert_int_equal(u.refused[0].count, 1);
	network_usage_done(&u);
	assert_null(u.refused);
}

/* A program that asks for ever new names costs no more memory, and the last ones are shown. */
static void test_most_recent_are_kept(void **state)
{
	struct network_usage u = {0};
	char host[32];

	(void)state;
	for (int i = 0; i < 1000; i++) {
		snprintf(host, sizeof host, "h%d.test", i);
		refuse(&u, host, 443);
		refuse(&u, "again.test", 443);
	}
	assert_int_equal(u.refused_count, NETWORK_DENIED_MAX);
	assert_int_equal(u.denied, 2000);
	for (size_t i = 0; i < u.refused_count; i++)
		if (strcmp(u.refused[i].host, "again.test") == 0)
			assert_int_equal(u.refused[i].count, 1000);
		else
			assert_true(strtol(u.refused[i].host + 1, NULL, 10) >=
				    1000 - NETWORK_DENIED_MAX);
	network_usage_done(&u);
}

static void test_text(void **state)
{
	struct network_usage u = {0};
	char text[400], small[40];

	(void)state;
	refuse(&u, "a.test", 443);
	refuse(&u, "a.test", 443);
	refuse(&u, "b.test", 0);
	network_usage_text(&u, text, sizeof text);
	assert_string_equal(text, "a.test:443 (2 times), b.test");
	network_usage_text(&u, small, sizeof small);
	assert_string_equal(small, "a.test:443 (2 times), and 1 more");
	for (int i = 0; i < 60; i++) {
		snprintf(text, sizeof text, "h%d.test", i);
		refuse(&u, text, 443);
	}
	for (size_t size = 30; size <= sizeof text; size++) {
		network_usage_text(&u, text, size);
		assert_true(strlen(text) < size);
	}
	network_usage_done(&u);
}

static struct result ended(enum reason reason, int exit_code, uint64_t denied)
{
	struct result r = {
		.reason = reason,
		.has_exit_code = reason == REASON_EXITED,
		.exit_code = exit_code,
		.enforced = {"", false, true, 1, "", "", "", "", "", "", "", "", "", true, "", 7},
	};

	for (uint64_t i = 0; i < denied; i++)
		refuse(&r.network, "evil.test", 443);
	return r;
}

static void test_code(void **state)
{
	static const struct {
		enum reason reason;
		int exit_code;
		uint64_t denied;
		enum code code;
	} rows[] = {
		{REASON_EXITED, 0, 3, CODE_NONE},
		{REASON_EXITED, 1, 0, CODE_COMMAND_FAILED},
		{REASON_EXITED, 1, 1, CODE_SANDBOX_NETWORK_DENIED},
		{REASON_SIGNALED, 0, 1, CODE_SANDBOX_NETWORK_DENIED},
		{REASON_TIMEOUT, 0, 1, CODE_SANDBOX_COMMAND_TIMEOUT},
		{REASON_OOM, 0, 1, CODE_SANDBOX_OOM},
		{REASON_CREATE_FAILED, 0, 1, CODE_SANDBOX_CREATE_FAILED},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct result r = ended(rows[i].reason, rows[i].exit_code, rows[i].denied);

		assert_int_equal(result_code(&r), rows[i].code);
		result_done(&r);
	}
}

static void test_model_is_told(void **state)
{
	struct result r = ended(REASON_EXITED, 1, 2);
	_cleanup_json_ json_t *j = result_to_json(&r);
	const char *text = json_string_value(json_object_get(j, "model_message"));

	(void)state;
	assert_string_equal(json_string_value(json_object_get(j, "error_code")),
			    "SANDBOX_NETWORK_DENIED");
	assert_false(json_is_true(json_object_get(j, "retryable")));
	assert_string_equal(
		text, "The code failed, and its connections to evil.test:443 (2 times) were "
		      "refused: these hosts are not allowed here. Trying again will not help.");
	assert_int_equal(result_exit_status(&r), 1);
	result_done(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_same_is_counted),
		cmocka_unit_test(test_most_recent_are_kept),
		cmocka_unit_test(test_text),
		cmocka_unit_test(test_code),
		cmocka_unit_test(test_model_is_told),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
