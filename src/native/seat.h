/* SPDX-License-Identifier: Apache-2.0 */
/*
 * seat.h - what is said between a process that joins a prepared sandbox and that sandbox's init.
 *
 * One SEQPACKET socket pair per sandbox. Whoever has joined the namespaces says one byte; init makes
 * itself undumpable, so that nobody can join any more, and answers with the record and, where there is
 * Landlock, the ruleset that it is itself under. Once.
 */
#ifndef NATIVE_SEAT_H
#define NATIVE_SEAT_H

#include "native/plan.h"

enum { SEAT_JOINED = 'J' };

struct seat_record {
	uint32_t uid, gid; /* inside: the sandbox user */
	uint32_t landlock; /* 1: a ruleset comes along */
	uint32_t zero;
	char profile[32];              /* seccomp, NUL-terminated */
	uint64_t rlimit[PLAN_RLIMITS]; /* by RLIMIT_* number; UINT64_MAX: leave as it is */
};

#endif
