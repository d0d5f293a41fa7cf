/* SPDX-License-Identifier: Apache-2.0 */
/*
 * input.c - stdin of a command that has begun: the body goes through frame by frame. At most STDIN_WINDOW
 * bytes are with init and not taken by the command; while it does not read, the client is not read.
 */
#include "service/input.h"

#include <string.h>

#include "service/ask.h"

static void go_on(struct call *c)
{
	if (c->input_sent - c->input_taken < STDIN_WINDOW / 2)
		exchange_resume(c->x);
}

static bool on_frame(struct call *c, const struct frame *f, const unsigned char *payload)
{
	uint32_t credit;

	if (f->type != FRAME_CREDIT)
		return false;
	memcpy(&credit, payload, sizeof credit);
	c->input_taken += credit;
	go_on(c);
	return true;
}

static void on_done(struct call *c)
{
	call_reply(c, 204, NULL);
}

static const struct asking feeding = {on_frame, on_done, go_on};

static void on_body(struct exchange *x, const void *data, size_t size)
{
	struct call *c = exchange_data(x);

	for (size_t done = 0; done < size;) {
		size_t n = size - done < FRAME_DATA_MAX ? size - done : FRAME_DATA_MAX;

		talk_send(c->talk, FRAME_DATA, (const char *)data + done, n, NULL, 0);
		done += n;
	}
	c->input_sent += size;
	if (c->input_sent - c->input_taken >= STDIN_WINDOW / 2)
		exchange_pause(x);
}

static void on_body_end(struct exchange *x)
{
	struct call *c = exchange_data(x);

	if (call_flag(c, "eof"))
		talk_send(c->talk, FRAME_EOF, NULL, 0, NULL, 0);
	talk_send(c->talk, FRAME_FINISH, NULL, 0, NULL, 0);
}

void input_feed(struct call *c, uint32_t number)
{
	if (!ask(c, &feeding, FRAME_INPUT, &number, sizeof number, NULL, 0))
		return;
	c->ops.on_body = on_body;
	c->ops.on_body_end = on_body_end;
	exchange_resume(c->x);
}
