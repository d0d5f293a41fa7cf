/* SPDX-License-Identifier: Apache-2.0 */
/* admin.c - audit, keys, quotas, runtimes, health, metrics, and the API's own document. */
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/fd.h"
#include "base/json.h"
#include "service/handlers.h"
#include "service/pool.h"

/* ---- audit ---- */

struct rows {
	json_t *list;
	int64_t last;
};

static int add_row(const struct audit_row *row, void *data)
{
	struct rows *r = data;
	json_t *details = row->details ? json_loads(row->details, 0, NULL) : NULL;

	r->last = row->seq;
	return json_array_append_new(
		r->list, json_pack("{sI so ss so ss ss so ss ss}", "seq", (json_int_t)row->seq,
				   "time", time_json(row->time_ms), "actor", row->actor, "session",
				   row->session ? json_string(row->session) : json_null(), "action",
				   row->action, "object", row->object, "details",
				   details ? details : json_object(), "previous", row->previous,
				   "hash", row->hash));
}

void audit_list(struct call *c)
{
	struct rows r = {json_array(), 0};
	struct err e = {0};
	uint64_t after, limit;

	if (call_number(c, "after", 0, INT64_MAX, &after, &e) < 0 ||
	    call_number(c, "limit", 100, 1000, &limit, &e) < 0 ||
	    store_audit_list(c->service->store, c->admin ? NULL : c->owner, (int64_t)after,
			     (unsigned)limit, add_row, &r, &e) < 0) {
		json_decref(r.list);
		call_problem(c, &e);
		return;
	}
	call_reply(c, 200,
		   json_pack("{so so}", "rows", r.list, "next",
			     json_array_size(r.list) == limit && limit
				     ? json_integer((json_int_t)r.last)
				     : json_null()));
}

void audit_verify(struct call *c)
{
	int64_t rows = 0, bad = 0;
	char head[65];
	struct err e = {0};
	int r;

	service_commit(c->service);
	r = store_audit_verify(c->service->store, &rows, &bad, head, &e);
	if (r < 0) {
		e.code = PROBLEM_INTERNAL;
		call_problem(c, &e);
		return;
	}
	call_reply(c, 200,
		   json_pack("{sb sI so ss}", "ok", r == 0, "rows", (json_int_t)rows, "first_bad",
			     r ? json_integer((json_int_t)bad) : json_null(), "head", head));
}

/* ---- keys ---- */

static json_t *key_json(const struct stored_key *k)
{
	json_t *quota = k->quota ? json_loads(k->quota, 0, NULL) : NULL;

	return json_pack("{ss ss so so so}", "id", k->id, "name", k->name, "created_at",
			 time_json(k->created_ms), "revoked_at", time_json(k->revoked_ms), "quota",
			 quota ? quota : json_null());
}

static int read_key(const struct call *c, const char **name, char **quota, struct err *e)
{
	json_t *n = json_object_get(c->body, "name"), *q = json_object_get(c->body, "quota");
	struct quota check = c->service->owner_quota;

	if (!json_is_string(n) || json_object_size(c->body) != 1 + (q != NULL) ||
	    json_string_length(n) == 0 || json_string_length(n) > 128 ||
	    strlen(json_string_value(n)) != json_string_length(n))
		return err_set(e, 0, "give name, a string of 1 to 128 bytes, and perhaps quota");
	*name = json_string_value(n);
	if (q && !json_is_null(q)) {
		if (quota_from_json(&check, q, e) < 0)
			return err_prefix(e, "quota");
		*quota = json_dumps(q, JSON_COMPACT);
	}
	return 0;
}

void keys_create(struct call *c)
{
	_cleanup_free_ char *quota = NULL;
	struct stored_key key = {0};
	const char *name = NULL;
	char secret[48];
	struct err e = {0};
	json_t *j;

	if (read_key(c, &name, &quota, &e) < 0) {
		call_problem(c, &e);
		return;
	}
	if (store_begin(c->service->store, &e) < 0 ||
	    store_key_create(c->service->store, name, quota, secret, &key, &e) < 0) {
		e.code = PROBLEM_INTERNAL;
		call_problem(c, &e);
		return;
	}
	audit(c->service, c->owner, NULL, "key.create", key.id, json_pack("{ss}", "name", name));
	j = key_json(&key);
	json_object_set_new(j, "secret", json_string(secret));
	explicit_bzero(secret, sizeof secret);
	stored_key_done(&key);
	call_reply(c, 201, j);
}

static int add_key(const struct stored_key *k, void *data)
{
	return json_array_append_new(data, key_json(k));
}

void keys_list(struct call *c)
{
	json_t *list = json_array();
	struct err e = {0};

	if (store_key_list(c->service->store, add_key, list, &e) < 0) {
		json_decref(list);
		e.code = PROBLEM_INTERNAL;
		call_problem(c, &e);
		return;
	}
	call_reply(c, 200, json_pack("{so}", "keys", list));
}

void keys_delete(struct call *c)
{
	struct err e = {0};
	int r = store_begin(c->service->store, &e);

	if (r == 0)
		r = store_key_revoke(c->service->store, c->id, &e);
	if (r != 0) {
		if (r > 0)
			problem_set(&e, PROBLEM_NOT_FOUND, "no such key: %s", c->id);
		else
			e.code = PROBLEM_INTERNAL;
		call_problem(c, &e);
		return;
	}
	audit(c->service, c->owner, NULL, "key.revoke", c->id, NULL);
	call_reply(c, 204, NULL);
}

/* ---- small answers ---- */

void quota_get(struct call *c)
{
	struct err e = {0};
	uint64_t stored;
	json_t *j;

	if (store_kept(c->service->store, c->owner, &stored, &e) < 0) {
		e.code = PROBLEM_UNAVAILABLE;
		call_problem(c, &e);
		return;
	}
	j = quota_report(c->service->quotas, c->owner, c->session[0] ? c->session : NULL, stored,
			 now_us());
	if (j)
		json_object_set_new(j, "owner", json_string(c->owner));
	call_reply(c, 200, j);
}

void runtimes_list(struct call *c)
{
	bool up = link_is_up(c->service->link);

	call_reply(c, 200,
		   json_pack("[{ss sb ss}]", "name", "native", "available", up, "detail",
			     up ? "namespaces, cgroups, Landlock and seccomp of this kernel"
				: "the spawner does not answer"));
}

/* Half of what was counted took at most this: the upper bound of a bucket, in milliseconds. */
static json_t *at_most_ms(const struct histogram *h, double part)
{
	uint64_t below = 0;

	if (h->count == 0)
		return json_null();
	for (int i = 0; i < HISTOGRAM_BUCKETS; i++) {
		below += h->bucket[i];
		if ((double)below >= (double)h->count * part)
			return json_real((double)histogram_bounds[i] / 1000);
	}
	return json_null();
}

static json_t *times_json(const struct histogram *h)
{
	return json_pack("{sI so so}", "count", (json_int_t)h->count, "p50_ms", at_most_ms(h, 0.5),
			 "p99_ms", at_most_ms(h, 0.99));
}

void pool_get(struct call *c)
{
	const struct service *v = c->service;
	const struct metrics *m = &v->metrics;
	json_t *misses = json_object();
	struct pool_counts p;

	pool_count(v, &p);
	for (int i = 0; i < MISS_COUNT; i++)
		json_object_set_new(misses, pool_miss_names[i],
				    json_integer((json_int_t)p.misses[i]));
	call_reply(c, 200,
		   json_pack("{sI sI sI sI sI sI sI sI sI sI sI so s{so so so}}", "kinds",
			     (json_int_t)p.kinds, "ready", (json_int_t)p.ready, "making",
			     (json_int_t)p.making, "dying", (json_int_t)v->dying_count,
			     "memory_bytes", (json_int_t)p.memory_bytes, "made", (json_int_t)p.made,
			     "failed", (json_int_t)p.failed, "dropped", (json_int_t)p.dropped,
			     "hits", (json_int_t)p.hits, "interpreter_hits",
			     (json_int_t)p.waiting_hits, "zygote_hits", (json_int_t)p.joined_hits,
			     "misses", misses, "times", "begin", times_json(&m->begin), "run",
			     times_json(&m->run), "teardown", times_json(&m->teardown)));
}

void healthz(struct call *c)
{
	const struct service *v = c->service;
	const char *why = v->store_error[0]      ? "the state cannot be written"
			  : !link_is_up(v->link) ? "the spawner does not answer"
						 : NULL;

	if (why)
		call_reply(c, 503, json_pack("{sb ss}", "ok", 0, "why", why));
	else
		call_reply(c, 200, json_pack("{sb}", "ok", 1));
}

void openapi(struct call *c)
{
	struct exchange *x = c->x;
	const struct service *v = c->service;
	struct err e = {0};

	if (!v->openapi) {
		problem_set(&e, PROBLEM_UNAVAILABLE, "openapi.json is not installed");
		call_problem(c, &e);
		return;
	}
	call_free(c);
	exchange_reply(x, 200, "application/json", NULL, v->openapi, v->openapi_size);
}

/* ---- OpenMetrics ---- */

struct text {
	char data[16384];
	size_t size;
};

static void __attribute__((format(printf, 2, 3))) line(struct text *t, const char *format, ...)
{
	va_list ap;
	int n;

	va_start(ap, format);
	n = vsnprintf(t->data + t->size, sizeof t->data - t->size, format, ap);
	va_end(ap);
	if (n > 0 && (size_t)n < sizeof t->data - t->size)
		t->size += (size_t)n;
}

static void counter(struct text *t, const char *name, const char *help, uint64_t value)
{
	line(t, "# TYPE %s counter\n# HELP %s %s\n%s_total %llu\n", name, name, help, name,
	     (unsigned long long)value);
}

static void gauge(struct text *t, const char *name, const char *help, uint64_t value)
{
	line(t, "# TYPE %s gauge\n# HELP %s %s\n%s %llu\n", name, name, help, name,
	     (unsigned long long)value);
}

static void by_reason(struct text *t, const char *name, const char *help,
		      const uint64_t counts[REASON_COUNT])
{
	line(t, "# TYPE %s counter\n# HELP %s %s\n", name, name, help);
	for (int i = 0; i < REASON_COUNT; i++)
		line(t, "%s_total{reason=\"%s\"} %llu\n", name, reasons[i].name,
		     (unsigned long long)counts[i]);
}

static void by_verdict(struct text *t, const uint64_t counts[3])
{
	static const char *const names[] = {"denied", "allowed", "failed"};

	line(t, "# TYPE cloche_connections counter\n# HELP cloche_connections Connections of "
		"sandboxes.\n");
	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		line(t, "cloche_connections_total{verdict=\"%s\"} %llu\n", names[i],
		     (unsigned long long)counts[i]);
}

static void seconds(struct text *t, const char *name, const char *help, const struct histogram *h)
{
	uint64_t below = 0;

	line(t, "# TYPE %s histogram\n# UNIT %s seconds\n# HELP %s %s\n", name, name, name, help);
	for (int i = 0; i < HISTOGRAM_BUCKETS; i++) {
		below += h->bucket[i];
		line(t, "%s_bucket{le=\"%g\"} %llu\n", name, (double)histogram_bounds[i] / 1e6,
		     (unsigned long long)below);
	}
	line(t, "%s_bucket{le=\"+Inf\"} %llu\n%s_sum %.6f\n%s_count %llu\n", name,
	     (unsigned long long)h->count, name, (double)h->sum_us / 1e6, name,
	     (unsigned long long)h->count);
}

static void pool_metrics(struct text *t, const struct service *v)
{
	struct pool_counts p;

	pool_count(v, &p);
	gauge(t, "cloche_pool_kinds", "Kinds of sandboxes that are prepared.", p.kinds);
	gauge(t, "cloche_pool_ready", "Prepared sandboxes.", p.ready);
	gauge(t, "cloche_pool_making", "Sandboxes that are being prepared.", p.making);
	gauge(t, "cloche_pool_memory_bytes", "Memory of the prepared sandboxes.", p.memory_bytes);
	counter(t, "cloche_pool_made", "Sandboxes that were prepared.", p.made);
	counter(t, "cloche_pool_failed", "Sandboxes that could not be prepared.", p.failed);
	counter(t, "cloche_pool_dropped", "Prepared sandboxes that nobody has used.", p.dropped);
	counter(t, "cloche_pool_hits", "Runs that got a prepared sandbox.", p.hits);
	counter(t, "cloche_pool_interpreter_hits", "And in it an interpreter that waited.",
		p.waiting_hits);
	counter(t, "cloche_pool_zygote_hits", "And it was a child of a zygote's.", p.joined_hits);
	line(t,
	     "# TYPE cloche_pool_misses counter\n# HELP cloche_pool_misses Runs that got none, by cause.\n");
	for (int i = 0; i < MISS_COUNT; i++)
		line(t, "cloche_pool_misses_total{cause=\"%s\"} %llu\n", pool_miss_names[i],
		     (unsigned long long)p.misses[i]);
}

void metrics(struct call *c)
{
	const struct service *v = c->service;
	const struct metrics *m = &v->metrics;
	struct exchange *x = c->x;
	uint64_t by_state[STATE_COUNT] = {0};
	_cleanup_free_ struct text *t = calloc(1, sizeof *t);
	struct err e = {0};

	if (!t) {
		e.code = PROBLEM_UNAVAILABLE;
		call_problem(c, &e);
		return;
	}
	for (size_t i = 0; i < ARRAY_SIZE(v->boxes); i++)
		for (const struct box *b = v->boxes[i]; b; b = b->next)
			by_state[b->stored.state]++;
	line(t,
	     "# TYPE cloche_http_requests counter\n# HELP cloche_http_requests Answers by status.\n");
	for (int i = 1; i < 6; i++)
		line(t, "cloche_http_requests_total{status=\"%dxx\"} %llu\n", i,
		     (unsigned long long)m->requests[i]);
	gauge(t, "cloche_http_connections", "Open connections.", http_server_connections(v->http));
	gauge(t, "cloche_sandboxes_creating", "Sandboxes being made.", by_state[STATE_CREATING]);
	gauge(t, "cloche_sandboxes_running", "Sandboxes that run.", by_state[STATE_RUNNING]);
	gauge(t, "cloche_sandboxes_paused", "Sandboxes that are paused.", by_state[STATE_PAUSED]);
	counter(t, "cloche_sandboxes_created", "Sandboxes made.", m->sandboxes_created);
	by_reason(t, "cloche_sandboxes_ended", "Sandboxes that ended, by reason.",
		  m->sandboxes_ended);
	by_reason(t, "cloche_runs", "Runs that ended, by reason.", m->runs);
	seconds(t, "cloche_sandbox_create_seconds", "From request to running.", &m->create);
	seconds(t, "cloche_run_begin_seconds", "From request to the command's beginning.",
		&m->begin);
	seconds(t, "cloche_run_seconds", "From request to result.", &m->run);
	seconds(t, "cloche_sandbox_teardown_seconds",
		"From the kill of a sandbox that nobody waits for to its death.", &m->teardown);
	gauge(t, "cloche_sandboxes_dying", "Sandboxes that are killed behind the answers.",
	      v->dying_count);
	pool_metrics(t, v);
	counter(t, "cloche_output_bytes", "Output that commands wrote.", m->output_bytes);
	by_verdict(t, m->connections);
	counter(t, "cloche_connection_bytes", "Bytes of sandboxes' connections, both ways.",
		m->connection_bytes);
	counter(t, "cloche_quota_refusals", "Requests refused for a quota.", m->refused_quota);
	gauge(t, "cloche_spawner_up", "1 when the spawner answers.", link_is_up(v->link));
	gauge(t, "cloche_store_ok", "1 when the state can be written.", !v->store_error[0]);
	line(t, "# EOF\n");
	call_free(c);
	exchange_reply(x, 200, "application/openmetrics-text; version=1.0.0; charset=utf-8", NULL,
		       t->data, t->size);
}
