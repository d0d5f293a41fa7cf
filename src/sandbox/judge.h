/* SPDX-License-Identifier: Apache-2.0 */
/*
 * judge.h - one honest reason from everything that was seen (docs/ends.md).
 *
 * Pure: evidence in, reason out. Exit status 137 alone proves nothing, so the order matters:
 *	1. the sandbox was never started (the exec-error record)
 *	2. a verdict of ours, set before our own kill - unless the command had already exited
 *	3. the kernel's OOM counter moved and the main process, or init, died by SIGKILL
 *	4. a signal, with SIGSYS and SIGXCPU told apart
 *	5. the exit code
 *	6. init died without a record: runtime_crash
 */
#ifndef SANDBOX_JUDGE_H
#define SANDBOX_JUDGE_H

#include "sandbox/result.h"

struct evidence {
	bool create_failed;
	enum reason failed_as; /* CREATE_FAILED, IMAGE_MISSING or RUNTIME_UNAVAILABLE */
	bool has_verdict;
	enum reason verdict; /* what we decided, before the kill was sent */
	bool main_ended;     /* init reported how the command ended, before any verdict of ours */
	bool main_signaled;
	int main_status; /* exit code or signal number */
	bool main_core;
	bool init_vanished; /* it ended without having said why, before the command started */
	bool init_ended;    /* how init itself ended; without main_ended only */
	bool init_signaled;
	int init_status;
	uint64_t oom_kills; /* the counter's increase; 0 when it cannot be read */
	bool cpu_limited;   /* a CPU time limit was set */
};

/* Fill reason, exit code or signal of r from e. */
void judge(const struct evidence *e, struct result *r);

#endif
