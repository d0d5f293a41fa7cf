/* SPDX-License-Identifier: Apache-2.0 */
#include "http/deadlines.h"

static void set_timer(struct deadlines *ds);

static void on_timer(uv_timer_t *timer)
{
	struct deadlines *ds = timer->data;
	uint64_t now = uv_now(timer->loop);

	for (unsigned kind = 0; kind < DEADLINE_KINDS; kind++) {
		struct deadline *list = &ds->lists[kind];

		while (list->next != list && list->next->at <= now) {
			struct deadline *d = list->next;

			deadline_disarm(d);
			ds->expired(d);
		}
	}
	set_timer(ds);
}

static void set_timer(struct deadlines *ds)
{
	uint64_t now = uv_now(ds->timer.loop), due = UINT64_MAX;

	for (unsigned kind = 0; kind < DEADLINE_KINDS; kind++) {
		struct deadline *list = &ds->lists[kind];

		if (list->next != list && list->next->at < due)
			due = list->next->at;
	}
	if (due == UINT64_MAX || uv_is_closing((uv_handle_t *)&ds->timer))
		return;
	if (uv_is_active((uv_handle_t *)&ds->timer) && ds->due <= due)
		return;
	ds->due = due;
	uv_timer_start(&ds->timer, on_timer, due > now ? due - now : 0, 0);
}

void deadlines_init(struct deadlines *ds, uv_loop_t *loop, void (*expired)(struct deadline *d))
{
	uv_timer_init(loop, &ds->timer);
	ds->timer.data = ds;
	ds->expired = expired;
	for (unsigned kind = 0; kind < DEADLINE_KINDS; kind++)
		ds->lists[kind].prev = ds->lists[kind].next = &ds->lists[kind];
}

void deadline_arm(struct deadlines *ds, struct deadline *d, unsigned kind)
{
	struct deadline *list = &ds->lists[kind];

	deadline_disarm(d);
	d->kind = kind;
	d->at = uv_now(ds->timer.loop) + ds->length_ms[kind];
	d->prev = list->prev;
	d->next = list;
	list->prev->next = d;
	list->prev = d;
	if (!uv_is_active((uv_handle_t *)&ds->timer) || d->at < ds->due)
		set_timer(ds);
}

void deadline_disarm(struct deadline *d)
{
	if (!d->next)
		return;
	d->prev->next = d->next;
	d->next->prev = d->prev;
	d->prev = d->next = NULL;
}
