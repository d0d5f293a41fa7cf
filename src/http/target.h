/* SPDX-License-Identifier: Apache-2.0 */
/*
 * target.h - the request target: origin-form only, taken apart and decoded once, strictly.
 *
 * A path is what a router compares, so there is one spelling of each: "%00", an encoded slash, a control
 * character, "." and ".." components, an empty component that is not the last, and what is not UTF-8 are
 * refused. Query values may be any bytes but NUL (names of files need not be UTF-8); '+' is a space.
 */
#ifndef HTTP_TARGET_H
#define HTTP_TARGET_H

#include <stdbool.h>
#include <stddef.h>

#include "base/cleanup.h"

enum { TARGET_MAX_PARAMS = 64 };

struct param {
	const char *name, *value;
};

struct target {
	const char *path;                 /* decoded, starts with '/' */
	const char *raw_path, *raw_query; /* as they came; the query without '?', "" when absent */
	struct param params[TARGET_MAX_PARAMS];
	size_t param_count;
	char *memory; /* owns all of the texts */
};

/* 0; -EINVAL with *ret_why (a literal); -ENOMEM. Free with target_done(). */
int target_parse(const char *text, size_t size, struct target *ret,
		 const char **ret_why) must_check;
void target_done(struct target *t);

/* NULL when absent. */
const char *target_param(const struct target *t, const char *name);
/* 0, or -1: a name that is not allowed or is given twice, in *ret_bad. */
int target_check(const struct target *t, const char *const allowed[], const char **ret_bad);

bool utf8_valid(const char *text, size_t size);

#endif
