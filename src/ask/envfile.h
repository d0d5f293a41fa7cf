/* SPDX-License-Identifier: Apache-2.0 */
/*
 * envfile.h - a .env file, strictly: lines NAME=VALUE, "#" lines and blank ones. Nothing is executed or expanded.
 *
 * A value is all that follows, or stands in one pair of quotes; what other readers would read differently (blanks
 * around, "export", a quote or a backslash inside of quotes, " #" outside of them, a name twice) is an error with its line.
 */
#ifndef ASK_ENVFILE_H
#define ASK_ENVFILE_H

#include <stddef.h>

#include "base/err.h"

enum { ENVFILE_BYTES = 64 << 10, ENVFILE_NAMES = 512 };

/* -1 with e ends it. Neither belongs to the sink. */
typedef int (*envfile_sink)(void *context, const char *name, const char *value, struct err *e);

/* text is NUL-terminated at size, and is written to. The error begins with "line N". */
int envfile_read(char *text, size_t size, envfile_sink sink, void *context,
		 struct err *e) must_check;

#endif
