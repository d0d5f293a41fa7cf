/* SPDX-License-Identifier: Apache-2.0 */
/*
 * box_talk.c - conversations with a sandbox's init, and the one that waits for the next.
 *
 * An idle one has said all; it is ready when init has said DONE, which takes another opening on it then.
 */
#include <errno.h>

#include "base/fd.h"
#include "service/box.h"
#include "service/problem.h"

struct talk *box_talk(struct box *b, const struct talk_ops *ops, void *data, struct err *e)
{
	struct talk *t = NULL;

	if (b->idle_ready && talk_is_quiet(b->idle))
		t = TAKE_PTR(b->idle);
	if (t)
		talk_hand_over(t, ops, data);
	else
		t = talk_open(&b->service->loop, b->ctl, ops, data, e);
	b->idle_ready = false;
	if (!t) {
		/* A dead one's socket refuses or is not there; anything else is want of something here. */
		if (e->errnum == ECONNREFUSED || e->errnum == ENOENT)
			problem_set(e, PROBLEM_SANDBOX_ENDED, "sandbox %s has ended", b->stored.id);
		else
			problem_set(e, PROBLEM_UNAVAILABLE, "too much at a time; try again");
		return NULL;
	}
	b->talks++;
	box_hold(b);
	return t;
}

void box_hang_up(struct box *b, struct talk *t)
{
	talk_close(t);
	b->talks--;
	b->idle_at_us = now_us();
	box_release(b);
}

void box_drop_idle(struct box *b)
{
	if (b->idle)
		talk_close(TAKE_PTR(b->idle));
	b->idle_ready = false;
}

static void on_idle_frame(struct talk *t, const struct frame *f, const unsigned char *payload)
{
	struct box *b = talk_data(t);

	(void)payload;
	if (f->type == FRAME_DONE && !b->idle_ready)
		b->idle_ready = true;
	else
		box_drop_idle(b);
}

static void on_idle_end(struct talk *t, int error)
{
	struct box *b = talk_data(t);

	(void)error;
	b->idle = NULL;
	b->idle_ready = false;
}

static void keep_idle(struct box *b, struct talk *t)
{
	static const struct talk_ops ops = {.on_frame = on_idle_frame, .on_end = on_idle_end};

	box_drop_idle(b);
	talk_hand_over(t, &ops, b);
	b->idle = t;
}

void box_lay_down(struct box *b, struct talk *t)
{
	keep_idle(b, t);
	b->talks--;
	b->idle_at_us = now_us();
	box_release(b);
}

void box_take_idle(struct box *b, struct talk *t)
{
	keep_idle(b, t);
	b->idle_ready = true;
}
