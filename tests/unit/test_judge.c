/* SPDX-License-Identifier: Apache-2.0 */
/* One reason from the evidence: the order of SECURITY-BASIS 4.2, row by row, including ends that the
 * native runtime cannot come to (no such image, another runtime, a service that went away). */
#include "unit.h"

#include <signal.h>

#include "sandbox/judge.h"

struct row {
	const char *what;
	struct evidence e;
	enum reason reason;
	int exit_code; /* -1: none */
	int signal;
};

#define EXIT(n)     .main_ended = true, .main_status = (n)
#define SIGNAL(n)   .main_ended = true, .main_signaled = true, .main_status = (n)
#define VERDICT(v)  .has_verdict = true, .verdict = REASON_##v
#define INIT_KILLED .init_ended = true, .init_signaled = true, .init_status = SIGKILL

static const struct row rows[] = {
	{"exit 0", {EXIT(0)}, REASON_EXITED, 0, 0},
	{"exit 7", {EXIT(7)}, REASON_EXITED, 7, 0},
	{"exit 137 by the program", {EXIT(137)}, REASON_EXITED, 137, 0},
	{"exit 124 by the program", {EXIT(124)}, REASON_EXITED, 124, 0},
	{"exit 255", {EXIT(255)}, REASON_EXITED, 255, 0},
	{"kill -9 itself", {SIGNAL(SIGKILL)}, REASON_SIGNALED, -1, SIGKILL},
	{"SIGTERM", {SIGNAL(SIGTERM)}, REASON_SIGNALED, -1, SIGTERM},
	{"SIGSEGV with core", {SIGNAL(SIGSEGV), .main_core = true}, REASON_SIGNALED, -1, SIGSEGV},
	{"SIGABRT", {SIGNAL(SIGABRT)}, REASON_SIGNALED, -1, SIGABRT},
	{"SIGXFSZ", {SIGNAL(SIGXFSZ)}, REASON_SIGNALED, -1, SIGXFSZ},
	{"SIGSYS", {SIGNAL(SIGSYS)}, REASON_SECCOMP_VIOLATION, -1, SIGSYS},
	{"SIGSYS and an old OOM kill",
	 {SIGNAL(SIGSYS), .oom_kills = 1},
	 REASON_SECCOMP_VIOLATION,
	 -1,
	 SIGSYS},
	{"real-time signal", {SIGNAL(64)}, REASON_SIGNALED, -1, 64},
	{"SIGXCPU, limited", {SIGNAL(SIGXCPU), .cpu_limited = true}, REASON_CPU_TIME, -1, SIGXCPU},
	{"SIGXCPU, not limited", {SIGNAL(SIGXCPU)}, REASON_SIGNALED, -1, SIGXCPU},
	{"OOM of main", {SIGNAL(SIGKILL), .oom_kills = 1}, REASON_OOM, -1, SIGKILL},
	{"OOM of main, many kills", {SIGNAL(SIGKILL), .oom_kills = 9}, REASON_OOM, -1, SIGKILL},
	{"OOM of a child, main exits 0", {EXIT(0), .oom_kills = 1}, REASON_EXITED, 0, 0},
	{"OOM of a child, main exits 1", {EXIT(1), .oom_kills = 2}, REASON_EXITED, 1, 0},
	{"OOM of a child, main dies of SIGSEGV",
	 {SIGNAL(SIGSEGV), .oom_kills = 1},
	 REASON_SIGNALED,
	 -1,
	 SIGSEGV},
	{"OOM of init", {INIT_KILLED, .oom_kills = 1}, REASON_OOM, -1, 0},

	{"timeout", {VERDICT(TIMEOUT), INIT_KILLED}, REASON_TIMEOUT, -1, 0},
	{"timeout with OOM kills",
	 {VERDICT(TIMEOUT), INIT_KILLED, .oom_kills = 3},
	 REASON_TIMEOUT,
	 -1,
	 0},
	{"idle", {VERDICT(IDLE_TIMEOUT), INIT_KILLED}, REASON_IDLE_TIMEOUT, -1, 0},
	{"cpu time", {VERDICT(CPU_TIME), INIT_KILLED, .cpu_limited = true}, REASON_CPU_TIME, -1, 0},
	{"output", {VERDICT(OUTPUT_LIMIT), INIT_KILLED}, REASON_OUTPUT_LIMIT, -1, 0},
	{"cancelled", {VERDICT(CANCELLED), INIT_KILLED}, REASON_CANCELLED, -1, 0},
	{"killed by a caller", {VERDICT(KILLED), INIT_KILLED}, REASON_KILLED, -1, 0},
	{"disk, where policy kills", {VERDICT(DISK_QUOTA), INIT_KILLED}, REASON_DISK_QUOTA, -1, 0},
	{"lost with its service", {VERDICT(LOST)}, REASON_LOST, -1, 0},
	/* it had ended before: the exit wins */
	{"exit before the verdict", {EXIT(0), VERDICT(TIMEOUT)}, REASON_EXITED, 0, 0},
	{"signal before the verdict",
	 {SIGNAL(SIGTERM), VERDICT(CANCELLED)},
	 REASON_SIGNALED,
	 -1,
	 SIGTERM},
	{"OOM before the verdict",
	 {SIGNAL(SIGKILL), VERDICT(TIMEOUT), .oom_kills = 1},
	 REASON_OOM,
	 -1,
	 SIGKILL},

	{"not made",
	 {.create_failed = true, .failed_as = REASON_CREATE_FAILED},
	 REASON_CREATE_FAILED,
	 -1,
	 0},
	{"no image",
	 {.create_failed = true, .failed_as = REASON_IMAGE_MISSING},
	 REASON_IMAGE_MISSING,
	 -1,
	 0},
	{"no runtime",
	 {.create_failed = true, .failed_as = REASON_RUNTIME_UNAVAILABLE},
	 REASON_RUNTIME_UNAVAILABLE,
	 -1,
	 0},
	{"not made beats all else",
	 {.create_failed = true,
	  .failed_as = REASON_CREATE_FAILED,
	  VERDICT(TIMEOUT),
	  SIGNAL(SIGKILL),
	  .oom_kills = 1},
	 REASON_CREATE_FAILED,
	 -1,
	 0},

	{"init gone without a word", {0}, REASON_RUNTIME_CRASH, -1, 0},
	{"init killed, no OOM", {INIT_KILLED}, REASON_RUNTIME_CRASH, -1, 0},
	{"init died of SIGSEGV",
	 {.init_ended = true, .init_signaled = true, .init_status = SIGSEGV, .oom_kills = 1},
	 REASON_RUNTIME_CRASH,
	 -1,
	 0},
	{"init exited with 9",
	 {.init_ended = true, .init_status = SIGKILL, .oom_kills = 1},
	 REASON_RUNTIME_CRASH,
	 -1,
	 0},
	{"init exited with 0, no report: no success",
	 {.init_ended = true},
	 REASON_RUNTIME_CRASH,
	 -1,
	 0},
};

static void test_rows(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		const struct row *row = &rows[i];
		/* what an earlier use may have left must not show */
		struct result r = {.reason = REASON_LOST,
				   .has_exit_code = true,
				   .exit_code = 99,
				   .signal = 99};
		bool exited = row->exit_code >= 0;

		judge(&row->e, &r);
		if (r.reason != row->reason)
			fail_msg("%s: %s, not %s", row->what, reasons[r.reason].name,
				 reasons[row->reason].name);
		if (r.has_exit_code != exited || r.exit_code != (exited ? row->exit_code : 0) ||
		    r.signal != row->signal)
			fail_msg("%s: exit %d %d, signal %d", row->what, r.has_exit_code,
				 r.exit_code, r.signal);
		assert_int_equal(r.core_dumped, row->e.main_core);
	}
}

/* Over the whole space of flags: success is said only when the command itself exited with 0 and the
 * sandbox had been made. */
static void test_success_needs_an_exit(void **state)
{
	(void)state;
	for (unsigned bits = 0; bits < 1u << 9; bits++) {
		struct evidence e = {
			.create_failed = bits & 1,
			.failed_as = REASON_CREATE_FAILED,
			.has_verdict = bits & 2,
			.verdict = REASON_TIMEOUT,
			.main_ended = bits & 4,
			.main_signaled = bits & 8,
			.main_status = bits & 16 ? 9 : 0,
			.init_ended = bits & 32,
			.init_signaled = bits & 64,
			.init_status = bits & 128 ? 9 : 0,
			.oom_kills = bits & 256 ? 1 : 0,
		};
		struct result r = {0};
		bool success =
			!e.create_failed && e.main_ended && !e.main_signaled && e.main_status == 0;

		judge(&e, &r);
		assert_int_equal(result_ok(&r), success);
		if (r.reason == REASON_OOM)
			assert_true(e.oom_kills > 0);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_rows),
		cmocka_unit_test(test_success_needs_an_exit),
	};

	return cmocka_run_group_tests_name("judge", tests, NULL, NULL);
}
