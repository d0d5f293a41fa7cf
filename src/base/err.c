/* SPDX-License-Identifier: Apache-2.0 */
#include "base/err.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static void mark_truncation(char *text, size_t size, int written)
{
	static const char dots[] = "...";

	if (written >= 0 && (size_t)written >= size)
		memcpy(text + size - sizeof dots, dots, sizeof dots);
}

int err_set(struct err *e, int errnum, const char *format, ...)
{
	va_list ap;
	int n;

	e->errnum = errnum;
	e->code = 0;
	e->stage[0] = '\0';
	va_start(ap, format);
	n = vsnprintf(e->text, sizeof e->text, format, ap);
	va_end(ap);
	mark_truncation(e->text, sizeof e->text, n);
	if (errnum != 0 && n >= 0 && (size_t)n < sizeof e->text) {
		char reason[96];
		size_t room = sizeof e->text - (size_t)n;

		n = snprintf(e->text + n, room, ": %s", strerror_r(errnum, reason, sizeof reason));
		mark_truncation(e->text + sizeof e->text - room, room, n);
	}
	return -1;
}

int err_prefix(struct err *e, const char *format, ...)
{
	char rest[sizeof e->text];
	va_list ap;
	int n;

	memcpy(rest, e->text, sizeof rest);
	va_start(ap, format);
	n = vsnprintf(e->text, sizeof e->text, format, ap);
	va_end(ap);
	mark_truncation(e->text, sizeof e->text, n);
	if (n >= 0 && (size_t)n < sizeof e->text) {
		size_t room = sizeof e->text - (size_t)n;
		int m = snprintf(e->text + n, room, ": %.*s", (int)sizeof rest, rest);

		mark_truncation(e->text + n, room, m);
	}
	return -1;
}

int err_stage(struct err *e, const char *stage)
{
	snprintf(e->stage, sizeof e->stage, "%s", stage);
	return -1;
}
