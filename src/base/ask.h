/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ask.h - run a program for what it prints: a keeper of logins, an operator's command for a secret.
 *
 * It is trusted with what it is asked, and not with its wits: it may hang, flood, or die. It runs in a process group of its
 * own, so that what it started ends with it. Its stderr goes nowhere.
 */
#ifndef BASE_ASK_H
#define BASE_ASK_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct ask {
	char *const *argv; /* no shell; [0] is looked up in PATH unless it has a slash */
	const char *input; /* on its stdin; short enough for a pipe */
	const char *hint;  /* what follows its name when it cannot be run, or "" */
	int cancel_fd;     /* readable: give up (errnum ECANCELED); -1: none */
	uint64_t timeout_us;
};

/* What it printed, at most room - 1 bytes and a NUL, in answer. 0 and *ret_status as wait() gives it; -1 and e. Blocks. */
int ask_program(const struct ask *a, char *answer, size_t room, size_t *ret_size, int *ret_status,
		struct err *e) must_check;

#endif
