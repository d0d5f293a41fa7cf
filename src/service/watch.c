/* SPDX-License-Identifier: Apache-2.0 */
/* watch.c - what happens, as a stream: GET /v1/events. The last events are kept, so that one who was cut off
 * can go on from where it was. */
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

static bool may_see(const struct call *c, json_t *event)
{
	return call_may_see(c, json_string_value(json_object_get(event, "owner")));
}

/* As the caller gets it: the owner is for us. */
static json_t *shown(json_t *event)
{
	json_t *j = json_copy(event);

	json_object_del(j, "owner");
	return j;
}

static void send_events(struct subscriber *s)
{
	struct service *v = s->call->service;

	if (s->sent < v->event_seq - EVENTS_KEPT)
		s->sent = v->event_seq - EVENTS_KEPT;
	while (!s->full && s->sent < v->event_seq) {
		json_t *event = v->events[++s->sent % EVENTS_KEPT];
		const char *sandbox = json_string_value(json_object_get(event, "sandbox"));

		if (!event || !may_see(s->call, event) ||
		    (s->sandbox[0] && (!sandbox || strcmp(sandbox, s->sandbox) != 0)))
			continue;
		s->full = !reply_line(s->call->x, shown(event));
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
	int64_t seq = ++v->event_seq;
	json_t *event =
		json_pack("{sI so ss ss so so ss}", "seq", (json_int_t)seq, "time",
			  time_json(wall_ms()), "type", type, "sandbox", b->stored.id, "run",
			  run ? json_string(run) : json_null(), "reason",
			  reason ? json_string(reason) : json_null(), "owner", b->stored.owner);

	json_decref(v->events[seq % EVENTS_KEPT]);
	v->events[seq % EVENTS_KEPT] = event;
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
	s->sent = (int64_t)since;
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
