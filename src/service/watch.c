/* SPDX-License-Identifier: Apache-2.0 */
/* watch.c - what happens, as a stream: GET /v1/events. The last events are kept, so that one who was cut off
 * can go on from where it was. */
#include <stdio.h>
#include <string.h>

#include "service/handlers.h"

enum { HEARTBEAT_S = 15 };

struct subscriber {
	struct subscriber *next;
	struct call *call;
	char sandbox[64]; /* "": all */
	int64_t sent;     /* last seq that went out */
	bool full;        /* waits for room */
	uv_timer_t heartbeat;
	bool caught_up; /* the client has all that was there when it came */
};

/* As the caller gets it: the owner is for us. */
static json_t *shown(int64_t seq, const struct event *e)
{
	return json_pack("{sI so ss ss so so}", "seq", (json_int_t)seq, "time",
			 time_json(e->time_ms), "type", e->type, "sandbox", e->sandbox, "run",
			 e->run[0] ? json_string(e->run) : json_null(), "reason",
			 e->reason ? json_string(e->reason) : json_null());
}

static void send_events(struct subscriber *s)
{
	struct service *v = s->call->service;

	if (s->sent < v->event_seq - EVENTS_KEPT)
		s->sent = v->event_seq - EVENTS_KEPT;
	while (!s->full && s->sent < v->event_seq) {
		const struct event *event = &v->events[++s->sent % EVENTS_KEPT];

		if (!event->type || !call_may_see(s->call, event->owner) ||
		    (s->sandbox[0] && strcmp(event->sandbox, s->sandbox) != 0))
			continue;
		s->full = !reply_line(s->call->x, shown(s->sent, event));
	}
	/* Whoever wants only what was there knows now that this was all. */
	if (!s->full && !s->caught_up) {
		s->caught_up = true;
		s->full = !reply_line(s->call->x, json_object());
	}
}

void event_emit(struct service *v, const char *type, const struct box *b, const char *run,
		const char *reason)
{
	struct event *e = &v->events[++v->event_seq % EVENTS_KEPT];

	*e = (struct event){.time_ms = wall_ms(), .type = type, .reason = reason};
	snprintf(e->sandbox, sizeof e->sandbox, "%s", b->stored.id);
	snprintf(e->run, sizeof e->run, "%s", run ? run : "");
	snprintf(e->owner, sizeof e->owner, "%s", b->stored.owner);
	for (struct subscriber *s = v->subscribers, *next; s; s = next) {
		next = s->next;
		send_events(s);
	}
}

static void on_heartbeat(uv_timer_t *t)
{
	struct subscriber *s = t->data;

	if (!s->full)
		s->full = !reply_line(s->call->x, json_object());
}

static void on_closed(uv_handle_t *h)
{
	free(h->data);
}

static void unsubscribe(struct call *c)
{
	struct subscriber *s = TAKE_PTR(c->data);
	struct subscriber **at = &c->service->subscribers;

	while (*at != s)
		at = &(*at)->next;
	*at = s->next;
	uv_close((uv_handle_t *)&s->heartbeat, on_closed);
}

static void on_room(struct exchange *x)
{
	struct call *c = exchange_data(x);
	struct subscriber *s = c->data;

	s->full = false;
	send_events(s);
}

void events_follow(struct call *c)
{
	const char *sandbox = exchange_query(c->x, "sandbox");
	struct subscriber *s = calloc(1, sizeof *s);
	struct err e = {0};
	uint64_t since;

	if (!s) {
		e.code = PROBLEM_UNAVAILABLE;
		call_problem(c, &e);
		return;
	}
	c->data = s;
	if (call_number(c, "since", (uint64_t)c->service->event_seq, INT64_MAX, &since, &e) < 0 ||
	    (sandbox && !is_object_id(sandbox, "sbx_") &&
	     err_set(&e, 0, "sandbox: must be an id") < 0)) {
		call_problem(c, &e);
		return;
	}
	s->call = c;
	/* Numbers begin anew with each cloched: one that is not reached yet is of an earlier one, whose
	 * reader has missed all that there is. */
	s->sent = (int64_t)since <= c->service->event_seq ? (int64_t)since : 0;
	if (sandbox)
		memcpy(s->sandbox, sandbox, strlen(sandbox) + 1);
	uv_timer_init(&c->service->loop, &s->heartbeat);
	s->heartbeat.data = s;
	uv_timer_start(&s->heartbeat, on_heartbeat, HEARTBEAT_S * 1000, HEARTBEAT_S * 1000);
	s->next = c->service->subscribers;
	c->service->subscribers = s;
	c->release = unsubscribe;
	c->ops.on_room = on_room;
	reply_lines_begin(c->x);
	s->full = !reply_line(c->x, json_object()); /* so that the client sees that it is heard */
	send_events(s);
}
