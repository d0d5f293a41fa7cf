/* SPDX-License-Identifier: Apache-2.0 */
#include "service/problem.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "sandbox/result.h"
#include "service/reply.h"

static const struct row {
	const char *name;
	int status;
	bool retryable;
	const char *title;
} rows[] = {
#define PROBLEM(name, status, retryable, title) {#name, status, retryable, title},
#include "service/problem.def"
#undef PROBLEM
};

int problem_set(struct err *e, enum problem p, const char *format, ...)
{
	char text[sizeof e->text];
	va_list ap;

	va_start(ap, format);
	vsnprintf(text, sizeof text, format, ap);
	va_end(ap);
	err_set(e, 0, "%s", text);
	e->code = (int)p;
	return -1;
}

static struct row row_of(const struct err *e)
{
	if (e->code > PROBLEM_BASE)
		return rows[e->code - PROBLEM_BASE - 1];
	if (e->code > 0) {
		const struct code_row *c = &codes[e->code];

		return (struct row){c->name, c->http_status == 200 ? 500 : c->http_status,
				    c->retryable, c->people};
	}
	return rows[0];
}

int problem_status(const struct err *e)
{
	return row_of(e).status;
}

json_t *problem_json(const struct err *e)
{
	struct row row = row_of(e);
	char detail[sizeof e->text];

	snprintf(detail, sizeof detail, "%s", e->text[0] ? e->text : row.title);
	/* Names from a client may be any bytes, and a text that was cut may end inside a character. */
	if (utf8_prefix(detail, strlen(detail), false) < 0)
		for (char *p = detail; *p; p++)
			if ((unsigned char)*p >= 0x80)
				*p = '?';
	return json_pack("{ss ss si ss ss sb}", "type", "about:blank", "title", row.title, "status",
			 row.status, "detail", detail, "code", row.name, "retryable",
			 row.retryable);
}

void problem_reply(struct exchange *x, const struct err *e, unsigned retry_after)
{
	int status = problem_status(e);
	char fields[128] = "";

	if (retry_after)
		snprintf(fields, sizeof fields, "Retry-After: %u\r\n", retry_after);
	if (status == 401)
		snprintf(fields, sizeof fields, "WWW-Authenticate: Bearer\r\n");
	reply_json_as(x, status, "application/problem+json", fields, problem_json(e));
}
