/* SPDX-License-Identifier: Apache-2.0 */
/*
 * port_tunnel.c - the bytes of one TCP connection to a port inside, as they are, behind `Upgrade: tcp`.
 *
 * 101 is said once the server inside has accepted. Each side's end is passed on by itself; the connection is over when
 * both have ended, or one is gone. Nothing is read that the other side does not take.
 */
#include <string.h>

#include "service/ask.h"
#include "service/port_gate.h"

enum { DIAL_LIMIT_S = 60 };

struct tunnel {
	bool client_ended, server_ended;
};

static struct tunnel *tunnel_of(struct call *c)
{
	return c->data;
}

bool port_tunnel_wanted(const struct exchange *x)
{
	const char *upgrade = exchange_field(x, "upgrade"), *on = exchange_field(x, "connection");

	return upgrade && on && strcasecmp(upgrade, "tcp") == 0 && strcasestr(on, "upgrade");
}

static void end(struct call *c, bool complete)
{
	struct exchange *x = c->x;

	call_free(c);
	exchange_end(x, complete);
}

static void on_client(struct exchange *x, const void *data, size_t size)
{
	struct call *c = exchange_data(x);

	if (!talk_send_raw(c->talk, data, size))
		exchange_pause(x);
}

static void on_client_end(struct exchange *x)
{
	struct call *c = exchange_data(x);

	tunnel_of(c)->client_ended = true;
	if (tunnel_of(c)->server_ended)
		end(c, true);
	else
		talk_finish(c->talk);
}

static void on_client_room(struct exchange *x)
{
	struct call *c = exchange_data(x);

	talk_resume(c->talk);
}

static void on_server(struct talk *t, const void *data, size_t size)
{
	struct call *c = talk_data(t);

	if (size > 0) {
		if (!exchange_write(c->x, data, size))
			talk_pause(t);
		return;
	}
	tunnel_of(c)->server_ended = true;
	if (tunnel_of(c)->client_ended)
		end(c, true);
	else
		exchange_end_writing(c->x);
}

static void on_server_room(struct talk *t)
{
	struct call *c = talk_data(t);

	exchange_resume(c->x);
}

/* Before the connection there is an answer to give; afterwards the bytes just stop. */
static void on_server_gone(struct talk *t, int error)
{
	struct call *c = talk_data(t);
	struct err e = {0};

	(void)error;
	if (exchange_began(c->x)) {
		end(c, false);
		return;
	}
	problem_set(&e, PROBLEM_BAD_GATEWAY, "port %s inside cannot be reached", c->sub);
	call_problem(c, &e);
}

static void on_dialled(struct talk *t, const struct frame *f, const unsigned char *payload)
{
	static const char head[] =
		"HTTP/1.1 101 Switching Protocols\r\nUpgrade: tcp\r\nConnection: Upgrade\r\n\r\n";
	struct call *c = talk_data(t);
	struct failed_record failed;

	if (f->type == FRAME_FAILED && failed_record_decode(payload, f->size, &failed) == 0) {
		failed.errnum = failed.errnum ? failed.errnum : ECONNREFUSED;
		ask_failed(c, &failed);
		return;
	}
	if (f->type != FRAME_DONE) {
		on_server_gone(t, -EPROTO);
		return;
	}
	talk_become_raw(t);
	talk_limit(t, 0);
	c->service->metrics.requests[1]++;
	exchange_take_over(c->x, head, sizeof head - 1);
	exchange_wait_patiently(c->x);
}

static const struct talk_ops dial_ops = {.on_frame = on_dialled,
					 .on_raw = on_server,
					 .on_room = on_server_room,
					 .on_end = on_server_gone};

void port_tunnel(struct call *c, uint32_t port)
{
	struct err e = {0};

	c->data = calloc(1, sizeof(struct tunnel));
	if (!c->data)
		e.code = PROBLEM_UNAVAILABLE;
	else if (strcmp(exchange_method(c->x), "GET") != 0 || exchange_body_size(c->x) > 0)
		err_set(&e, 0, "Upgrade: tcp: with a GET without a body only");
	else
		c->talk = box_talk(c->box, &dial_ops, c, &e);
	if (!c->talk) {
		call_problem(c, &e);
		return;
	}
	c->ops.on_body = on_client;
	c->ops.on_body_end = on_client_end;
	c->ops.on_room = on_client_room;
	exchange_pause(c->x);
	talk_limit(c->talk, DIAL_LIMIT_S);
	talk_send(c->talk, FRAME_DIAL, &port, sizeof port, NULL, 0);
}
