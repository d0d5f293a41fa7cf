/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/judge.h"

#include <signal.h>

static void judge_main(const struct evidence *e, struct result *r)
{
	if (!e->main_signaled) {
		r->reason = REASON_EXITED;
		r->has_exit_code = true;
		r->exit_code = e->main_status;
		return;
	}
	r->signal = e->main_status;
	r->core_dumped = e->main_core;
	if (e->main_status == SIGKILL && e->oom_kills > 0)
		r->reason = REASON_OOM;
	else if (e->main_status == SIGSYS)
		r->reason = REASON_SECCOMP_VIOLATION;
	else if (e->main_status == SIGXCPU && e->cpu_limited)
		r->reason = REASON_CPU_TIME;
	else
		r->reason = REASON_SIGNALED;
}

/* The OOM killer took init, and the sandbox with it. */
static bool init_was_oom_killed(const struct evidence *e)
{
	return e->init_ended && e->init_signaled && e->init_status == SIGKILL && e->oom_kills > 0;
}

void judge(const struct evidence *e, struct result *r)
{
	r->has_exit_code = false;
	r->exit_code = 0;
	r->signal = 0;
	if (e->create_failed)
		r->reason = e->init_vanished && init_was_oom_killed(e) ? REASON_OOM : e->failed_as;
	else if (e->main_ended)
		judge_main(e, r);
	else if (e->has_verdict)
		r->reason = e->verdict;
	else if (init_was_oom_killed(e))
		r->reason = REASON_OOM;
	else
		r->reason = REASON_RUNTIME_CRASH;
}
