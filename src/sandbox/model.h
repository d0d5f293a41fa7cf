/* SPDX-License-Identifier: Apache-2.0 */
/*
 * model.h - the closed sets of the product: error codes, reasons, limits that can be met, states.
 * Each comes from one table; parsers, documents, tests and clients read the same rows.
 */
#ifndef SANDBOX_MODEL_H
#define SANDBOX_MODEL_H

#include <stdbool.h>

#include "base/err.h"

enum code {
#define CODE(name, ...) CODE_##name,
#include "sandbox/codes.def"
#undef CODE
	CODE_COUNT
};

struct code_row {
	const char *name; /* the API's spelling */
	int http_status;
	bool retryable;
	const char *people;
	const char *model;
};

extern const struct code_row codes[CODE_COUNT];

/* exit_status of a reason that has no fixed one */
enum { EXIT_OWN = -1, EXIT_SIGNAL = -2 };

enum reason {
#define REASON(name, ...) REASON_##name,
#include "sandbox/reasons.def"
#undef REASON
	REASON_COUNT
};

struct reason_row {
	const char *name;
	enum code code;
	int exit_status;
	bool retryable;
};

extern const struct reason_row reasons[REASON_COUNT];

/* limits_hit: met during the run, did not end it. A bit set of these. */
enum limit_hit {
	HIT_MEMORY = 1 << 0,
	HIT_PIDS = 1 << 1,
	HIT_DISK = 1 << 2,   /* best effort: sampled, see docs/limits.md */
	HIT_INODES = 1 << 3, /* best effort */
	HIT_OUTPUT = 1 << 4,
	HIT_NETWORK_DENIED = 1 << 5,
	HIT_COUNT = 6
};

extern const char *const limit_hit_names[HIT_COUNT];

enum state { STATE_CREATING, STATE_RUNNING, STATE_PAUSED, STATE_ENDED, STATE_COUNT };
enum state_event { EVENT_STARTED, EVENT_FAILED, EVENT_PAUSE, EVENT_RESUME, EVENT_END, EVENT_COUNT };

/* The state after event, or -1 when the table has no such transition. */
int state_next(enum state from, enum state_event event);

/* e, as an error of this code: returns -1. */
int err_code(struct err *e, enum code code);

#endif
