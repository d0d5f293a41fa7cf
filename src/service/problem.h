/* SPDX-License-Identifier: Apache-2.0 */
/*
 * problem.h - RFC 9457 problem documents, the answer where there is no run (docs/api.md).
 *
 * An err's code is a row of codes.def, or one of these; 0 is INVALID_REQUEST for what a client said.
 */
#ifndef SERVICE_PROBLEM_H
#define SERVICE_PROBLEM_H

#include <jansson.h>

#include "base/err.h"
#include "sandbox/model.h"
#include "http/http.h"

enum problem {
	PROBLEM_BASE = 1000, /* above every enum code */
#define PROBLEM(name, ...) PROBLEM_##name,
#include "service/problem.def"
#undef PROBLEM
};

/* Fill e with this problem; returns -1. */
int problem_set(struct err *e, enum problem p, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* Answer with it and end the exchange. retry_after: seconds for the field, 0: none. */
void problem_reply(struct exchange *x, const struct err *e, unsigned retry_after);
int problem_status(const struct err *e);
/* The document itself. A new reference, or NULL. */
json_t *problem_json(const struct err *e) must_check;

#endif
