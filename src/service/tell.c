/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tell.c - what a sandbox's init is told without waiting for its answer.
 *
 * A command whose end is committed may be forgotten any time later: until then it takes one of init's
 * 1,024 places and what it wrote. So the numbers are collected, and a cloched that dies meanwhile loses
 * nothing: its successor finds the commands listed and ended, and tells init itself.
 */
#include "service/tell.h"

#include <string.h>

/* Later than a client's next request, sooner than anybody notices. */
#define LATER_MS 20
/* Bytes of one command's output that may wait so long. */
#define FORGET_SMALL 4096

static void on_told(struct talk *t, const struct frame *f, const unsigned char *payload)
{
	struct box *b = talk_data(t);

	(void)f;
	(void)payload;
	box_hang_up(b, t);
}

static void on_tell_end(struct talk *t, int error)
{
	(void)error;
	box_hang_up(talk_data(t), t);
}

static const struct talk_ops tell_ops = {.on_frame = on_told, .on_end = on_tell_end};

void tell_init(struct box *b, enum frame_type type, const void *record, size_t size)
{
	struct err e = {0};
	struct talk *t = box_talk(b, &tell_ops, b, &e);

	if (t)
		talk_send(t, type, record, size, NULL, 0);
}

static void flush(struct box *b)
{
	unsigned count = TAKE(b->forget_count, 0);

	if (count && b->stored.state != STATE_ENDED && !b->killing)
		tell_init(b, FRAME_FORGET, b->forget, count * sizeof *b->forget);
}

/* All that wait, whoever was first. */
static void on_time(uv_timer_t *t)
{
	struct service *v = t->data;

	while (v->forgetful) {
		struct box *b = v->forgetful;

		v->forgetful = b->forgetful_next;
		b->forgetful = false;
		flush(b);
		box_drop_idle(b);
		box_close_counters(b);
		box_release(b);
	}
}

static void later(struct box *b)
{
	struct service *v = b->service;

	if (b->forgetful)
		return;
	b->forgetful = true;
	b->forgetful_next = v->forgetful;
	v->forgetful = b;
	box_hold(b);
	if (!uv_is_active((uv_handle_t *)&v->forgetting))
		uv_timer_start(&v->forgetting, on_time, LATER_MS, 0);
}

void tell_forget(struct box *b, uint32_t number, uint64_t bytes)
{
	b->forget[b->forget_count++] = number;
	later(b);
	if (b->forget_count == FORGET_MAX || bytes > FORGET_SMALL)
		flush(b);
}
