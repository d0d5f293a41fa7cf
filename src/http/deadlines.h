/* SPDX-License-Identifier: Apache-2.0 */
/*
 * deadlines.h - many deadlines of few lengths by one timer.
 *
 * Each kind has one length, so its list is in the order of time when what is armed goes to the end:
 * arming is a few pointers, whatever the number. The timer is set to the earliest and is not moved when
 * that is disarmed: it then fires once for nothing.
 */
#ifndef HTTP_DEADLINES_H
#define HTTP_DEADLINES_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

enum { DEADLINE_KINDS = 8 }; /* at most; the owner has an enum of them */

struct deadline {
	struct deadline *prev, *next; /* NULL: not armed */
	uint64_t at;
	unsigned kind;
	void *owner;
};

struct deadlines {
	uv_timer_t timer;
	uint64_t due; /* of the timer, while it is active */
	struct deadline lists[DEADLINE_KINDS];
	uint64_t length_ms[DEADLINE_KINDS];
	void (*expired)(struct deadline *d); /* d is disarmed before the call */
};

void deadlines_init(struct deadlines *ds, uv_loop_t *loop, void (*expired)(struct deadline *d));
/* From now on, anew if it was armed. */
void deadline_arm(struct deadlines *ds, struct deadline *d, unsigned kind);
void deadline_disarm(struct deadline *d);
static inline bool deadline_armed(const struct deadline *d, unsigned kind)
{
	return d->next && d->kind == kind;
}

#endif
