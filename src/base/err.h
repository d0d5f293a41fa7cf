/* SPDX-License-Identifier: Apache-2.0 */
/*
 * err.h - the one error type above the bottom layer: flat, caller-owned, no allocation.
 *
 * The bottom layer (fd.h, path.h) returns 0 or -errno. Everything above takes `struct err *e` as
 * its last parameter and returns 0/-1 or pointer/NULL. Exactly one function fills an err; callers
 * may add context with err_prefix() where they know something the callee does not. Library code
 * never prints.
 */
#ifndef BASE_ERR_H
#define BASE_ERR_H

#include "base/cleanup.h"

struct err {
	int errnum;     /* errno of the failing call, 0 if no system call was involved */
	int code;       /* a row of sandbox/codes.def; 0 until a layer that knows says so */
	char stage[16]; /* which part of a sandbox's creation failed; "" otherwise */
	char text[768]; /* one line, lower case: what was attempted on which object, and why not */
};

/* Fill e with a formatted sentence; errnum, if not 0, adds ": <its description>". Returns -1 so
 * that a caller can `return err_set(...)`. Never truncates silently: an ellipsis marks it. */
int err_set(struct err *e, int errnum, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* Put "prefix: " in front of what e says. Returns -1. */
int err_prefix(struct err *e, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Name the creation stage that failed. Returns -1. */
int err_stage(struct err *e, const char *stage);

#endif
