/* SPDX-License-Identifier: Apache-2.0 */
/*
 * filter.h - a process of ours gives up all system calls but those of a list (libseccomp).
 *
 * A list is a file of rows, sorted, that a table of struct filter_call includes:
 *
 *	CALL(name)                   with any arguments
 *	WHEN(name, condition, ...)   only so; several lines of one call: any of them
 *	INT(n, value)                a condition: argument n, an int, has this value
 *	BITS(n, mask, value)         a condition: these bits of argument n, all 64, have this value
 */
#ifndef BASE_FILTER_H
#define BASE_FILTER_H

#include <linux/filter.h>
#include <seccomp.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum {
	FILTER_CONDITIONS = 2,
	SELF = -1, /* as a value: this process's id */
};

struct filter_call {
	int call;
	unsigned count;
	struct scmp_arg_cmp conditions[FILTER_CONDITIONS];
};

/* The kernel looks at 32 bits of an int, so the filter does. */
#define INT(n, value)                                                    \
	{                                                                \
		n, SCMP_CMP_MASKED_EQ, UINT32_MAX, (scmp_datum_t)(value) \
	}
#define BITS(n, mask, value)                                       \
	{                                                          \
		n, SCMP_CMP_MASKED_EQ, (scmp_datum_t)(mask), value \
	}
#define COUNT(...)      (sizeof((struct scmp_arg_cmp[]){__VA_ARGS__}) / sizeof(struct scmp_arg_cmp))
#define CALL(name)      {SCMP_SYS(name), 0, {{0}}},
#define WHEN(name, ...) {SCMP_SYS(name), COUNT(__VA_ARGS__), {__VA_ARGS__}},

/* Others than these answer EPERM; clone3, io_uring and rseq, unless listed, ENOSYS, which their callers take as "not
 * there"; other architectures are killed. For the calling thread and those it makes. */
int filter_load(const struct filter_call *allowed, size_t count, struct err *e) must_check;

/* The same in two steps, for who is waited for at the second: the first takes most of the time. SELF is who makes it. */
struct filter {
	struct sock_filter *code; /* NULL: none */
	unsigned short length;
};

int filter_make(const struct filter_call *allowed, size_t count, struct filter *ret,
		struct err *e) must_check;
int filter_use(const struct filter *f, struct err *e) must_check;
void filter_done(struct filter *f);

#endif
