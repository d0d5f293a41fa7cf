/* SPDX-License-Identifier: Apache-2.0 */
/* sandboxes.c - make, list, read, pause, resume, renew and end kept sandboxes. */
#include <stdio.h>
#include <string.h>

#include "base/fd.h"
#include "service/handlers.h"

enum { PAGE = 100, PAGE_MAX = 1000 };

static void close_fds(int *fds, size_t count)
{
	for (size_t i = 0; i < count; i++)
		close(fds[i]);
}

static int take_quota(struct call *c, const struct quota_need *need, struct err *e)
{
	struct quota_denial denial = {.retry_after_s = 1};

	if (quota_acquire(c->service->quotas, c->owner, c->session[0] ? c->session : NULL, need,
			  now_us(), &denial, e) == 0)
		return 0;
	return call_over_quota(c, &denial, e);
}

struct box *sandbox_begin_with(struct call *c, struct stored_sandbox *stored, struct spec *spec,
			       uint64_t disk, uint64_t life_us, json_t *metadata,
			       const struct pool_want *want, json_t *volume_fds, const int *fds,
			       size_t count, struct err *e)
{
	const char *boxes[SPEC_MAX_VOLUMES];
	struct quota_need need = {spec->memory_bytes, spec->cpus_millis, disk};
	struct box *b = NULL;

	if (count != json_array_size(volume_fds)) {
		err_set(e, 0, "volume_fds: %zu paths, but %zu descriptors came along",
			json_array_size(volume_fds), count);
	} else if (take_quota(c, &need, e) == 0) {
		for (size_t i = 0; i < count; i++)
			boxes[i] = json_string_value(json_array_get(volume_fds, i));
		stored->owner = strdup(c->owner);
		stored->session = c->session[0] ? strdup(c->session) : NULL;
		b = box_create(c->service, stored, spec, disk, life_us, metadata, want, boxes, fds,
			       count, exchange_peer(c->x)->uid, e);
		if (b)
			b->admitted = true;
		else
			quota_release(c->service->quotas, c->owner,
				      c->session[0] ? c->session : NULL, &need);
	}
	stored_sandbox_done(stored);
	spec_done(spec);
	return b;
}

struct box *sandbox_begin(struct call *c, struct stored_sandbox *stored, struct spec *spec,
			  uint64_t disk, uint64_t life_us, json_t *metadata,
			  const struct pool_want *want, json_t *volume_fds, struct err *e)
{
	int fds[SPEC_MAX_VOLUMES];
	size_t count = exchange_take_fds(c->x, fds, ARRAY_SIZE(fds));
	struct box *b = sandbox_begin_with(c, stored, spec, disk, life_us, metadata, want,
					   volume_fds, fds, count, e);

	close_fds(fds, count);
	return b;
}

void sandbox_problem(const struct box *b, struct err *e)
{
	err_set(e, 0, "%s",
		b->stored.message ? b->stored.message : "the sandbox could not be made");
	if (sandbox_was_refused(b))
		e->code = b->errnum == EPERM || b->errnum == EACCES ? PROBLEM_FORBIDDEN
								    : PROBLEM_INVALID_REQUEST;
	else
		e->code = b->failed_code ? (int)b->failed_code : CODE_SANDBOX_CREATE_FAILED;
}

bool sandbox_was_refused(const struct box *b)
{
	return b->refused && b->failed_code == CODE_NONE;
}

/* ---- one ---- */

static void reply_box(struct call *c, int status, struct box *b)
{
	call_reply(c, status, sandbox_json(&b->stored, b->stored.state == STATE_ENDED ? NULL : b));
}

static void on_made(struct waiter *w, struct box *b)
{
	struct call *c = call_of_waiter(w);
	struct err e = {0};

	if (b->stored.state != STATE_ENDED) {
		reply_box(c, 201, b);
		return;
	}
	sandbox_problem(b, &e);
	call_problem(c, &e);
}

static void wait_until_made(struct call *c, struct box *b)
{
	c->box = b;
	if (b->stored.state == STATE_CREATING)
		call_wait(c, &b->made, on_made);
	else
		reply_box(c, 201, b);
}

/* The same key: the same sandbox, whatever became of it. 1 when it was answered. */
static int answer_again(struct call *c, const char *key, struct err *e)
{
	struct stored_sandbox stored = {0};
	char id[40];
	int r = store_idempotency_get(c->service->store, c->owner, key, c->body_sha256, id, e);

	if (r == 1)
		return 0;
	if (r < 0) {
		e->code = e->errnum == EEXIST ? PROBLEM_CONFLICT : PROBLEM_INTERNAL;
		return -1;
	}
	if (box_find(c->service, id)) {
		struct box *b = box_find(c->service, id);

		box_hold(b);
		wait_until_made(c, b);
		return 1;
	}
	if (store_sandbox_get(c->service->store, id, &stored, e) != 0)
		return problem_set(e, PROBLEM_CONFLICT,
				   "the sandbox of this Idempotency-Key is gone");
	{
		json_t *j = sandbox_json(&stored, NULL);

		stored_sandbox_done(&stored);
		call_reply(c, 201, j);
	}
	return 1;
}

static int check_key(const char *key, struct err *e)
{
	size_t n = strlen(key);

	for (size_t i = 0; i < n; i++)
		if (key[i] <= ' ' || key[i] > '~')
			n = 0;
	return n == 0 || n > 255 ? err_set(e, 0, "Idempotency-Key: 1 to 255 printable characters")
				 : 0;
}

static void create(struct call *c, const char *key)
{
	struct stored_sandbox stored = {.created_ms = wall_ms()};
	struct err e = {0};
	struct body body;
	struct box *b = NULL;

	if (body_read(&body, BODY_SANDBOX, c->service, NULL, c->body, &e) == 0) {
		stored.idle_timeout_ms = (int64_t)(body.idle_us / 1000);
		stored.pause_on_timeout = body.pause_on_timeout;
		stored.resume_on_touch = body.resume_on_touch;
		stored.labels = body.labels ? json_dumps(body.labels, JSON_COMPACT) : strdup("{}");
		b = sandbox_begin(c, &stored, &body.spec, body.disk_bytes, body.life_us,
				  body.metadata, NULL, body.volume_fds, &e);
	}
	if (b && key &&
	    store_idempotency_put(c->service->store, c->owner, key, c->body_sha256, b->stored.id,
				  &e) < 0)
		store_failed(c->service, &e);
	body_done(&body);
	if (!b) {
		stored_sandbox_done(&stored);
		call_problem(c, &e);
		return;
	}
	audit(c->service, c->owner, c->session[0] ? c->session : NULL, "sandbox.create",
	      b->stored.id, NULL);
	wait_until_made(c, b);
}

void sandboxes_create(struct call *c)
{
	const char *key = exchange_field(c->x, "idempotency-key");
	struct err e = {0};
	int r = 0;

	if (key) {
		r = check_key(key, &e);
		if (r == 0)
			r = answer_again(c, key, &e);
	}
	if (r < 0)
		call_problem(c, &e);
	else if (r == 0)
		create(c, key);
}

/* ---- many ---- */

struct page {
	struct service *service;
	json_t *rows;
	char last[40];
	size_t limit;
	bool more;
};

static int add(const struct stored_sandbox *s, void *data)
{
	struct page *p = data;
	struct box *live = box_find(p->service, s->id);

	if (json_array_size(p->rows) == p->limit) {
		p->more = true;
		return 0;
	}
	memcpy(p->last, s->id, sizeof p->last);
	return json_array_append_new(p->rows, sandbox_json(live ? &live->stored : s, live));
}

static int find_state(const char *text)
{
	static const char *const names[] = {"creating", "running", "paused", "ended"};

	for (int i = 0; i < 4; i++)
		if (strcmp(names[i], text) == 0)
			return i;
	return -2;
}

void sandboxes_list(struct call *c)
{
	const char *state = exchange_query(c->x, "state"), *after = exchange_query(c->x, "after");
	struct sandbox_filter f = {
		.owner = c->admin ? NULL : c->owner,
		.session = exchange_query(c->x, "session"),
		.state = state ? find_state(state) : -1,
		.label = exchange_query(c->x, "label"),
		.after = after ? after : "",
	};
	struct page p = {.service = c->service, .rows = json_array()};
	struct err e = {0};
	uint64_t limit;
	int r = call_number(c, "limit", PAGE, PAGE_MAX, &limit, &e);

	if (r == 0 && limit == 0)
		r = err_set(&e, 0, "limit: must be from 1 to %d", PAGE_MAX);
	if (r == 0 && f.state == -2)
		r = err_set(&e, 0, "state: creating, running, paused or ended");
	if (r == 0 && after && !is_object_id(after, "sbx_"))
		r = err_set(&e, 0, "after: must be the id that \"next\" gave");
	p.limit = (size_t)limit;
	f.limit = (unsigned)limit + 1;
	if (r == 0)
		r = store_sandbox_list(c->service->store, &f, add, &p, &e);
	if (r < 0) {
		json_decref(p.rows);
		call_problem(c, &e);
		return;
	}
	call_reply(c, 200,
		   json_pack("{so so}", "sandboxes", p.rows, "next",
			     p.more ? json_string(p.last) : json_null()));
}

/* ---- by id ---- */

/* The live one, held; or its row. -1: there is none for this caller. */
static int find(struct call *c, struct stored_sandbox *ret, struct err *e)
{
	struct box *b = box_find(c->service, c->id);
	int r;

	if (b && call_may_see(c, b->stored.owner)) {
		box_hold(b);
		c->box = b;
		return 0;
	}
	r = b ? 1 : store_sandbox_get(c->service->store, c->id, ret, e);
	if (r == 0 && call_may_see(c, ret->owner))
		return 0;
	if (r == 0)
		stored_sandbox_done(ret);
	return r < 0 ? -1 : problem_set(e, PROBLEM_NOT_FOUND, "no such sandbox: %s", c->id);
}

static void reply_row(struct call *c, struct stored_sandbox *s)
{
	json_t *j = sandbox_json(s, NULL);

	stored_sandbox_done(s);
	call_reply(c, 200, j);
}

/* The client may have gone meanwhile: the call is found again by the box's waiters only. */
static void on_stats(void *data, const struct spawner_header *message)
{
	struct box *b = data;

	if (message && message->type == SPAWNER_STATS_ARE) {
		b->counters = ((const struct spawner_stats *)message)->counters;
		b->has_counters = true;
	}
	box_tell_counted(b);
	box_release(b);
}

static void on_counted(struct waiter *w, struct box *b)
{
	reply_box(call_of_waiter(w), 200, b);
}

void sandboxes_get(struct call *c)
{
	struct stored_sandbox stored = {0};
	struct err e = {0};

	if (find(c, &stored, &e) < 0) {
		call_problem(c, &e);
		return;
	}
	if (!c->box) {
		reply_row(c, &stored);
		return;
	}
	if (c->box->stored.state == STATE_CREATING || c->box->killing) {
		reply_box(c, 200, c->box);
		return;
	}
	call_wait(c, &c->box->counted_again, on_counted);
	box_hold(c->box);
	if (link_ask(c->service->link, SPAWNER_STATS, c->id, on_stats, c->box) < 0)
		on_stats(c->box, NULL);
}

static void on_ended(struct waiter *w, struct box *b)
{
	reply_box(call_of_waiter(w), 200, b);
}

void sandboxes_delete(struct call *c)
{
	struct stored_sandbox stored = {0};
	struct err e = {0};

	if (find(c, &stored, &e) < 0) {
		call_problem(c, &e);
		return;
	}
	audit(c->service, c->owner, c->session[0] ? c->session : NULL, "sandbox.kill", c->id, NULL);
	if (!c->box) {
		reply_row(c, &stored);
		return;
	}
	snprintf(c->box->killer, sizeof c->box->killer, "%s", c->owner);
	call_wait(c, &c->box->gone, on_ended);
	box_end(c->box, REASON_KILLED);
}

/* One that a run made for itself can be read and ended, and has no life of its own. */
static int find_kept(struct call *c, struct stored_sandbox *ret, struct err *e)
{
	if (find(c, ret, e) < 0)
		return -1;
	if (!(c->box ? c->box->stored.one_shot : ret->one_shot))
		return 0;
	stored_sandbox_done(ret);
	return problem_set(e, PROBLEM_NOT_FOUND, "no such sandbox: %s", c->id);
}

static void on_changed(struct waiter *w, struct box *b)
{
	struct call *c = call_of_waiter(w);
	struct err e = {0};

	if (b->stored.state == STATE_ENDED)
		problem_set(&e, PROBLEM_SANDBOX_ENDED, "sandbox %s has ended", b->stored.id);
	else if (b->not_changed)
		problem_set(&e, PROBLEM_UNAVAILABLE, "%s", b->not_changed);
	if (e.text[0])
		call_problem(c, &e);
	else
		reply_box(c, 200, b);
}

static void change(struct call *c, enum state wanted, const char *action)
{
	struct stored_sandbox stored = {0};
	struct err e = {0};

	if (find_kept(c, &stored, &e) < 0) {
		call_problem(c, &e);
		return;
	}
	if (!c->box || c->box->killing) {
		stored_sandbox_done(&stored);
		problem_set(&e, PROBLEM_SANDBOX_ENDED, "sandbox %s has ended", c->id);
	} else if (c->box->stored.state == STATE_CREATING) {
		problem_set(&e, PROBLEM_CONFLICT, "sandbox %s is still being made", c->id);
	} else if (json_object_size(c->body) > 0) {
		err_set(&e, 0, "the body must be empty or {}");
	} else if (c->box->stored.state == wanted && !c->box->pause_wanted) {
		reply_box(c, 200, c->box);
		return;
	} else {
		bool pause = wanted == STATE_PAUSED;

		audit(c->service, c->owner, c->session[0] ? c->session : NULL, action, c->id, NULL);
		call_wait(c, pause ? &c->box->paused : &c->box->resumed, on_changed);
		(pause ? box_pause : box_resume)(c->box);
		return;
	}
	call_problem(c, &e);
}

void sandboxes_pause(struct call *c)
{
	change(c, STATE_PAUSED, "sandbox.pause");
}

void sandboxes_resume(struct call *c)
{
	change(c, STATE_RUNNING, "sandbox.resume");
}

static int read_renewal(struct call *c, uint64_t *life, uint64_t *idle, struct err *e)
{
	const char *key;
	json_t *value;

	json_object_foreach(c->body, key, value) {
		uint64_t *field = strcmp(key, "timeout") == 0        ? life
				  : strcmp(key, "idle_timeout") == 0 ? idle
								     : NULL;

		if (!field)
			return err_set(e, 0, "%.60s: unknown field", key);
		if (body_duration(value, 0, field, e) < 0)
			return err_prefix(e, "%s", key);
	}
	if (!json_is_object(c->body) || (*life == UINT64_MAX && *idle == UINT64_MAX))
		return err_set(e, 0, "give timeout, idle_timeout or both");
	if (*life != UINT64_MAX && (*life == 0 || *life > c->service->config.max_timeout_us)) {
		err_set(e, 0, "timeout: longer than max_timeout allows");
		e->code = PROBLEM_FORBIDDEN;
		return -1;
	}
	return 0;
}

void sandboxes_renew(struct call *c)
{
	uint64_t life = UINT64_MAX, idle = UINT64_MAX;
	struct stored_sandbox stored = {0};
	struct err e = {0};
	int r = find_kept(c, &stored, &e);

	if (r == 0 && (!c->box || c->box->killing)) {
		stored_sandbox_done(&stored);
		r = problem_set(&e, PROBLEM_SANDBOX_ENDED, "sandbox %s has ended", c->id);
	}
	if (r == 0)
		r = read_renewal(c, &life, &idle, &e);
	if (r < 0) {
		call_problem(c, &e);
		return;
	}
	audit(c->service, c->owner, c->session[0] ? c->session : NULL, "sandbox.renew", c->id,
	      NULL);
	box_renew(c->box, life, idle);
	reply_box(c, 200, c->box);
}
