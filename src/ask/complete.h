/* SPDX-License-Identifier: Apache-2.0 */
/*
 * complete.h - one answer of the model, tried again where that is allowed: too many requests, a server that is not well, a
 * connection that was refused or lost before a byte of the answer. Never what the provider refused, and never an
 * answer that had begun.
 */
#ifndef ASK_COMPLETE_H
#define ASK_COMPLETE_H

#include <stdint.h>

#include "ask/settings.h"
#include "ask/show.h"

struct asking {
	struct ask_settings *s;
	struct show *show;
	json_t *messages, *tools;
	int signals; /* a descriptor that ends it */
	uint64_t deadline_us;
	long long attempts; /* so far, in all */
};

enum asked { ASKED_DONE, ASKED_FAILED, ASKED_DEADLINE, ASKED_CANCELLED };

/* e: one sentence that names whom was asked; *ret_retryable: the whole may be tried later. */
enum asked complete(struct asking *q, struct answer *ret, bool *ret_retryable, struct err *e);

#endif
