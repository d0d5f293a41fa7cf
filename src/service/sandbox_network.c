/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sandbox_network.c - what a sandbox may connect to, read and changed while it runs.
 *
 * New rules are the whole of them. They are checked here for the caller's sake; what holds is the spawner's check and the
 * answer of the process that connects. Until that has said yes the old ones hold, and so they do when it says no.
 */
#include <string.h>

#include "service/handlers.h"
#include "service/network.h"
#include "settings/egress.h"

enum { TOTALS_LIMIT_MS = 500 };

/* Between a request and its answer. */
struct asked {
	struct network_flush flush;
	struct call *call;
	struct spec spec; /* the new rules */
	bool has_spec;
};

static struct asked *asked_of(struct call *c)
{
	return c->data;
}

static void release(struct call *c)
{
	struct asked *a = asked_of(c);

	network_unflush(&a->flush);
	if (a->has_spec)
		spec_done(&a->spec);
}

static struct asked *begin(struct call *c)
{
	struct asked *a = calloc(1, sizeof *a);
	struct err e = {.code = PROBLEM_UNAVAILABLE};

	if (!a) {
		call_problem(c, &e);
		return NULL;
	}
	a->call = c;
	c->data = a;
	c->release = release;
	return a;
}

/* ---- reading ---- */

static void reply(struct call *c)
{
	struct box *b = c->box;
	json_t *j = box_network_json(&b->spec), *usage = network_usage_json(b);
	const char *capture = network_capture(b);

	json_object_set_new(j, "state", json_string(network_state(b)));
	json_object_set_new(j, "capture", capture ? json_string(capture) : json_null());
	json_object_set_new(j, "usage", usage);
	json_object_set_new(j, "refused", network_refused_json(b));
	call_reply(c, 200, j);
}

static void on_totals(struct network_flush *f)
{
	reply(((struct asked *)((char *)f - offsetof(struct asked, flush)))->call);
}

static void reply_with_totals(struct call *c)
{
	struct asked *a = asked_of(c);

	a->flush.done = on_totals;
	if (!network_flush(c->box, &a->flush, TOTALS_LIMIT_MS))
		reply(c);
}

void network_get(struct call *c)
{
	if (begin(c))
		reply_with_totals(c);
}

/* ---- changing ---- */

static const struct {
	const char *key, *option;
} keys[] = {
	{"mode", "network"},
	{"allow", "allow"},
	{"deny", "deny"},
	{"preset", "preset"},
	{"credential", "credential"},
	{"network_bytes", "network_bytes"},
	{"network_connections", "network_connections"},
};

static int set_key(struct spec *s, const char *key, json_t *value, bool *was_set, struct err *e)
{
	for (size_t i = 0; i < ARRAY_SIZE(keys); i++)
		if (strcmp(keys[i].key, key) == 0)
			return spec_set_json(s, keys[i].option, value, false, was_set, e);
	return err_set(e, 0, "unknown field");
}

/* The spec of a sandbox that had nothing but these rules, within the policy. */
static int read_rules(const struct service *v, json_t *body, struct spec *s, struct err *e)
{
	struct settings t = v->policy; /* borrowed; only its origins are written to */
	bool was_set[SETTINGS_MAX_OPTIONS] = {false};
	const char *key;
	json_t *value;

	if (!json_is_object(body) || !json_object_get(body, "mode"))
		return err_set(e, 0,
			       "the body must be an object with \"mode\": none, allow or open");
	if (spec_init(s, e) < 0 || spec_add_argument(s, "init", e) < 0 ||
	    set_key(s, "mode", json_object_get(body, "mode"), was_set, e) < 0)
		return -1;
	json_object_foreach(body, key, value)
		if (strcmp(key, "mode") != 0 && set_key(s, key, value, was_set, e) < 0)
			return err_prefix(e, "%.60s", key);
	t.network.serves_others = true;
	for (size_t i = 0; i < ARRAY_SIZE(t.origins); i++)
		t.origins[i] = was_set[i] ? ORIGIN_FLAG : ORIGIN_DEFAULT;
	if (settings_apply_policy(&t, s, e) < 0) {
		e->code = PROBLEM_FORBIDDEN;
		return -1;
	}
	return spec_finish(s, e);
}

static bool is_in(const struct strings *list, const char *name)
{
	for (size_t i = 0; i < list->count; i++)
		if (strcmp(list->item[i], name) == 0)
			return true;
	return false;
}

/* Secrets go to the process that adds them once, when it begins: later there can be fewer of them, not others. */
static int keep_credentials(const struct box *b, json_t *body, struct spec *s, struct err *e)
{
	const struct strings *have = &b->spec.network.credentials;
	struct strings *wanted = &s->network.credentials;

	for (size_t i = 0; i < wanted->count; i++)
		if (!is_in(have, wanted->item[i]))
			return problem_set(
				e, PROBLEM_CONFLICT,
				"credential %.60s: a sandbox that runs gets no other credential than it "
				"was made with; make one with it (POST /v1/sandboxes); the old rules "
				"hold",
				wanted->item[i]);
	if (json_object_get(body, "credential") || s->network.mode == NETWORK_NONE)
		return 0;
	for (size_t i = 0; i < have->count; i++)
		if (strings_add(wanted, have->item[i], SPEC_MAX_CREDENTIALS, e) < 0)
			return -1;
	return 0;
}

/* What the spawner's refusal is of. */
static enum problem problem_of(const struct spawner_refused *r)
{
	if (r->code == CODE_SANDBOX_CREATE_FAILED) /* nor could any be made now */
		return PROBLEM_UNAVAILABLE;
	switch (r->errnum) {
	case EPERM:
		return PROBLEM_FORBIDDEN;
	case ENOENT: /* also of a process that is gone */
		return strcmp(r->stage, STAGE_RULES) == 0 ? PROBLEM_INVALID_REQUEST
							  : PROBLEM_CONFLICT;
	case ESRCH:
		return PROBLEM_SANDBOX_ENDED;
	case EAGAIN:
		return PROBLEM_UNAVAILABLE;
	default:
		return PROBLEM_CONFLICT;
	}
}

static void take_rules(struct call *c)
{
	struct box *b = c->box;
	struct spec *s = &asked_of(c)->spec;

	network_spec_done(&b->spec.network);
	b->spec.network = s->network;
	s->network = (struct network_spec){0};
	b->texts_are_old = true;
	box_write_again(b);
	audit(c->service, c->owner, c->session[0] ? c->session : NULL, "network.change",
	      b->stored.id, box_network_json(&b->spec));
	event_emit(c->service, "sandbox.network_changed", b, NULL, NULL);
}

static void on_changed(void *data, const struct spawner_header *message)
{
	const struct spawner_refused *r = (const struct spawner_refused *)message;
	struct call *c = *(struct call **)data;
	struct err e = {0};

	free(data);
	if (!c) /* it holds all the same: whoever reads it is told by the process itself */
		return;
	c->waits_for = NULL;
	if (message && message->type == SPAWNER_DONE) {
		take_rules(c);
		reply_with_totals(c);
		return;
	}
	if (message && message->type == SPAWNER_REFUSED)
		problem_set(&e, problem_of(r), "%.600s; the old rules hold", r->text);
	else
		problem_set(&e, PROBLEM_UNAVAILABLE,
			    "the spawner went away: ask which rules hold (GET)");
	call_problem(c, &e);
}

static int change(struct call *c, struct err *e)
{
	_cleanup_free_ struct spawner_change *m = calloc(1, sizeof *m);
	struct call **slot = malloc(sizeof *slot);
	struct box *b = c->box;

	if (!m || !slot) {
		free(slot);
		return problem_set(e, PROBLEM_UNAVAILABLE, "out of memory");
	}
	*slot = c;
	memcpy(m->id, b->stored.id, sizeof m->id);
	if (box_fill_network(&m->network, &asked_of(c)->spec, b->stored.owner, e) < 0 ||
	    link_change(c->service->link, m, on_changed, slot) < 0) {
		free(slot);
		return e->text[0] ? -1
				  : problem_set(e, PROBLEM_UNAVAILABLE,
						"the spawner does not answer; try again");
	}
	c->waits_for = slot;
	return 0;
}

void network_put(struct call *c)
{
	struct asked *a = begin(c);
	struct err e = {0};
	int r;

	if (!a)
		return;
	if (!network_capture(c->box)) {
		problem_set(
			&e, PROBLEM_CONFLICT,
			"sandbox %s was made without a network, and cannot get one: make it with "
			"\"network\": \"allow\", which allows nothing until rules say so",
			c->id);
		call_problem(c, &e);
		return;
	}
	a->has_spec = true;
	r = read_rules(c->service, c->body, &a->spec, &e);
	if (r == 0)
		r = keep_credentials(c->box, c->body, &a->spec, &e);
	if (r == 0)
		r = change(c, &e);
	if (r < 0)
		call_problem(c, &e);
}
