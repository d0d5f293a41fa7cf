/* SPDX-License-Identifier: Apache-2.0 */
/* The closed sets against CONTRACT "Ends", written out once more by hand: a change of a row in src/ must
 * be a change of the contract too. */
#include "unit.h"

#include "sandbox/model.h"
#include "sandbox/result.h"

static const struct {
	enum reason reason;
	const char *name, *code;
	int exit_status;
	bool retryable;
} ends[] = {
	{REASON_EXITED, "exited", "COMMAND_FAILED", EXIT_OWN, false},
	{REASON_SIGNALED, "signaled", "COMMAND_FAILED", EXIT_SIGNAL, false},
	{REASON_SECCOMP_VIOLATION, "seccomp_violation", "COMMAND_FAILED", 159, false},
	{REASON_TIMEOUT, "timeout", "SANDBOX_COMMAND_TIMEOUT", 124, false},
	{REASON_CPU_TIME, "cpu_time", "SANDBOX_COMMAND_TIMEOUT", 124, false},
	{REASON_IDLE_TIMEOUT, "idle_timeout", "SANDBOX_IDLE_TIMEOUT", 124, false},
	{REASON_OOM, "oom", "SANDBOX_OOM", 137, false},
	{REASON_OUTPUT_LIMIT, "output_limit", "SANDBOX_OUTPUT_LIMIT", 137, false},
	{REASON_DISK_QUOTA, "disk_quota", "SANDBOX_DISK_FULL", 137, false},
	{REASON_KILLED, "killed", "SANDBOX_KILLED", 137, false},
	{REASON_CANCELLED, "cancelled", "SANDBOX_KILLED", 130, false},
	{REASON_CREATE_FAILED, "create_failed", "SANDBOX_CREATE_FAILED", 125, true},
	{REASON_IMAGE_MISSING, "image_missing", "SANDBOX_IMAGE_MISSING", 125, false},
	{REASON_RUNTIME_UNAVAILABLE, "runtime_unavailable", "SANDBOX_RUNTIME_UNAVAILABLE", 125,
	 false},
	{REASON_RUNTIME_CRASH, "runtime_crash", "SANDBOX_CRASHED", 125, true},
	{REASON_LOST, "lost", "SANDBOX_LOST", 125, true},
};

static void test_reasons(void **state)
{
	(void)state;
	assert_int_equal(ARRAY_SIZE(ends), REASON_COUNT);
	for (size_t i = 0; i < ARRAY_SIZE(ends); i++) {
		const struct reason_row *r = &reasons[ends[i].reason];

		assert_int_equal(ends[i].reason, i);
		assert_string_equal(r->name, ends[i].name);
		assert_string_equal(codes[r->code].name, ends[i].code);
		assert_int_equal(r->exit_status, ends[i].exit_status);
		assert_int_equal(r->retryable, ends[i].retryable);
	}
}

/* No end but the command's own may claim success. */
static void test_only_exit_0_is_success(void **state)
{
	(void)state;
	for (int i = 0; i < REASON_COUNT; i++) {
		struct result r = {.reason = (enum reason)i,
				   .signal = i == REASON_SIGNALED ? 9 : 0};

		assert_int_equal(result_ok(&r), false);
		if (i != REASON_EXITED) {
			assert_int_not_equal(result_exit_status(&r), 0);
			assert_int_not_equal(result_code(&r), CODE_NONE);
		}
	}
}

static void test_codes(void **state)
{
	static const struct {
		const char *name;
		int http;
		bool retryable;
	} wanted[] = {
		{"NONE", 200, false},
		{"COMMAND_FAILED", 200, false},
		{"SANDBOX_COMMAND_TIMEOUT", 200, false},
		{"SANDBOX_IDLE_TIMEOUT", 200, false},
		{"SANDBOX_OOM", 200, false},
		{"SANDBOX_OUTPUT_LIMIT", 200, false},
		{"SANDBOX_DISK_FULL", 200, false},
		{"SANDBOX_KILLED", 200, false},
		{"SANDBOX_CREATE_FAILED", 503, true},
		{"SANDBOX_IMAGE_MISSING", 404, false},
		{"SANDBOX_RUNTIME_UNAVAILABLE", 501, false},
		{"SANDBOX_CRASHED", 500, true},
		{"SANDBOX_LOST", 500, true},
		{"SANDBOX_NETWORK_DENIED", 200, false},
		{"SANDBOX_QUOTA_EXCEEDED", 429, true},
		{"SANDBOX_ARTIFACT_EXPORT_FAILED", 500, false},
		{"MODEL_COMPLETION_FAILED", 502, true},
	};

	(void)state;
	assert_int_equal(ARRAY_SIZE(wanted), CODE_COUNT);
	for (size_t i = 0; i < ARRAY_SIZE(wanted); i++) {
		assert_string_equal(codes[i].name, wanted[i].name);
		assert_int_equal(codes[i].http_status, wanted[i].http);
		assert_int_equal(codes[i].retryable, wanted[i].retryable);
		assert_true(codes[i].people[0] && codes[i].model[0]);
		assert_null(strchr(codes[i].model, '/'));
	}
}

/* A reason and its code agree on whether to try again. */
static void test_retryable_agrees(void **state)
{
	(void)state;
	for (int i = 0; i < REASON_COUNT; i++)
		assert_int_equal(reasons[i].retryable, codes[reasons[i].code].retryable);
}

static void test_limits_hit(void **state)
{
	static const char *const names[] = {"memory", "pids",   "disk",
					    "inodes", "output", "network_denied"};

	(void)state;
	assert_int_equal(HIT_COUNT, ARRAY_SIZE(names));
	for (int i = 0; i < HIT_COUNT; i++)
		assert_string_equal(limit_hit_names[i], names[i]);
	assert_int_equal(HIT_NETWORK_DENIED, 1 << (HIT_COUNT - 1));
}

/* The whole product of states and events: -1 where the table has no row. */
static void test_state_table(void **state)
{
	static const int next[STATE_COUNT][EVENT_COUNT] = {
		[STATE_CREATING] = {STATE_RUNNING, STATE_ENDED, -1, -1, -1},
		[STATE_RUNNING] = {-1, -1, STATE_PAUSED, -1, STATE_ENDED},
		[STATE_PAUSED] = {-1, -1, -1, STATE_RUNNING, STATE_ENDED},
		[STATE_ENDED] = {-1, -1, -1, -1, -1},
	};

	(void)state;
	for (int s = 0; s < STATE_COUNT; s++)
		for (int e = 0; e < EVENT_COUNT; e++)
			assert_int_equal(state_next((enum state)s, (enum state_event)e),
					 next[s][e]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_reasons),    cmocka_unit_test(test_only_exit_0_is_success),
		cmocka_unit_test(test_codes),      cmocka_unit_test(test_retryable_agrees),
		cmocka_unit_test(test_limits_hit), cmocka_unit_test(test_state_table),
	};

	return cmocka_run_group_tests_name("model", tests, NULL, NULL);
}
