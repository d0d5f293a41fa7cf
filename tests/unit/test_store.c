/* SPDX-License-Identifier: Apache-2.0 */
/* The state: what goes in comes out, lists and pages, transactions, retention. */
#include "store_unit.h"

#include <limits.h>

static void test_sandbox_round_trip(void **state)
{
	struct stored_sandbox a = some_sandbox("sbx_1", "uid:1000"), b;
	struct scratch t;
	struct err e = {0};

	(void)state;
	scratch_open(&t);
	assert_int_equal(store_sandbox_get(t.store, "sbx_1", &b, &e), 1);
	a.session = (char *)"chat-1";
	a.labels = (char *)"{\"a\":\"b\"}";
	a.expires_ms = 5;
	a.idle_timeout_ms = 6;
	a.idle_at_ms = 7;
	a.paused_ms = 8;
	a.resume_on_touch = true;
	must(store_sandbox_put(t.store, &a, &e), e);
	a.state = STATE_ENDED;
	a.reason = REASON_OOM;
	a.verdict = REASON_KILLED;
	a.enforced = (char *)"{\"x\":1}";
	a.usage = (char *)"{\"y\":1}";
	a.message = (char *)"it's over \xff";
	a.ended_ms = INT64_MAX;
	a.pause_on_timeout = true;
	must(store_sandbox_put(t.store, &a, &e), e);
	scratch_reopen(&t);
	must(store_sandbox_get(t.store, "sbx_1", &b, &e), e);
	assert_string_equal(b.id, "sbx_1");
	assert_string_equal(b.owner, "uid:1000");
	assert_string_equal(b.session, "chat-1");
	assert_int_equal(b.state, STATE_ENDED);
	assert_int_equal(b.reason, REASON_OOM);
	assert_int_equal(b.verdict, REASON_KILLED);
	assert_string_equal(b.spec, "{\"memory\":1}");
	assert_string_equal(b.labels, "{\"a\":\"b\"}");
	assert_string_equal(b.enforced, "{\"x\":1}");
	assert_string_equal(b.usage, "{\"y\":1}");
	assert_string_equal(b.message, "it's over \xff");
	assert_true(b.created_ms == 1000 && b.expires_ms == 5 && b.idle_timeout_ms == 6);
	assert_true(b.idle_at_ms == 7 && b.paused_ms == 8 && b.ended_ms == INT64_MAX);
	assert_true(b.pause_on_timeout && b.resume_on_touch && !b.one_shot);
	stored_sandbox_done(&b);
	scratch_close(&t);
}

/* A value that cannot be is an error of its own and leaves the turn as it is. */
static void test_bad_value_fails_alone(void **state)
{
	struct stored_sandbox a = some_sandbox("sbx_1", "uid:1"), b;
	struct scratch t;
	struct err e = {0};

	(void)state;
	scratch_open(&t);
	must(store_begin(t.store, &e), e);
	must(store_sandbox_put(t.store, &a, &e), e);
	a = some_sandbox("sbx_2", "uid:1");
	a.labels = (char *)"{no json";
	assert_int_equal(store_sandbox_put(t.store, &a, &e), -1);
	a = some_sandbox("sbx_3", NULL);
	assert_int_equal(store_sandbox_put(t.store, &a, &e), -1);
	must(store_commit(t.store, &e), e);
	must(store_sandbox_get(t.store, "sbx_1", &b, &e), e);
	stored_sandbox_done(&b);
	assert_int_equal(store_sandbox_get(t.store, "sbx_2", &b, &e), 1);
	scratch_close(&t);
}

static void test_run_round_trip(void **state)
{
	struct stored_run a = some_run("run_1", "sbx_gone"), b;
	struct scratch t;
	struct err e = {0};

	(void)state;
	scratch_open(&t);
	a.limits = (char *)"{\"a\":1}";
	must(store_run_put(t.store, &a, &e), e);
	must(store_run_get(t.store, "run_1", &b, &e), e);
	assert_true(!b.ended && b.exit_code == -1 && !b.result && !b.error_code && !b.session);
	stored_run_done(&b);
	a.ended = true;
	a.reason = REASON_TIMEOUT;
	a.error_code = (char *)"SANDBOX_COMMAND_TIMEOUT";
	a.exit_code = 3;
	a.result = (char *)"{}";
	a.artifact_path = (char *)"/a/b";
	a.ended_ms = 2000;
	a.input_bytes = 1ull << 40;
	a.limits = (char *)"not this one"; /* they stay what they were at the beginning */
	must(store_run_put(t.store, &a, &e), e);
	must(store_run_get(t.store, "run_1", &b, &e), e);
	assert_string_equal(b.sandbox, "sbx_gone");
	assert_string_equal(b.kind, "exec");
	assert_string_equal(b.error_code, "SANDBOX_COMMAND_TIMEOUT");
	assert_string_equal(b.result, "{}");
	assert_string_equal(b.artifact_path, "/a/b");
	assert_string_equal(b.limits, "{\"a\":1}");
	assert_true(b.ended && b.reason == REASON_TIMEOUT && b.exit_code == 3);
	assert_true(b.ended_ms == 2000 && b.input_bytes == 1ull << 40);
	stored_run_done(&b);
	assert_int_equal(store_run_get(t.store, "run_2", &b, &e), 1);
	scratch_close(&t);
}

/* ------------------------------------------------------------------------------------------- lists */

struct seen {
	char ids[4096];
	char last[40];
	unsigned count, stop_after;
};

static int see(struct seen *seen, const char *id)
{
	size_t used = strlen(seen->ids);

	snprintf(seen->ids + used, sizeof seen->ids - used, "%s ", id + 4);
	snprintf(seen->last, sizeof seen->last, "%s", id);
	return ++seen->count == seen->stop_after;
}

static int see_sandbox(const struct stored_sandbox *b, void *data)
{
	return see(data, b->id);
}

static int see_run(const struct stored_run *r, void *data)
{
	return see(data, r->id);
}

static void list_is(struct store *s, struct sandbox_filter f, const char *wanted)
{
	struct seen seen = {0};
	struct err e = {0};

	f.limit = f.limit ? f.limit : 100;
	must(store_sandbox_list(s, &f, see_sandbox, &seen, &e), e);
	assert_string_equal(seen.ids, wanted);
}

static void test_list_filters(void **state)
{
	static const struct {
		const char *id, *owner, *session, *labels;
		enum state state;
		bool one_shot;
	} rows[] = {
		{"sbx_1", "a", NULL, "{\"k\":\"v\",\"n\":\"1\"}", STATE_RUNNING, false},
		{"sbx_2", "a", "s", "{\"k\":\"w\"}", STATE_PAUSED, false},
		{"sbx_3", "b", "s", "{\"k\":\"v=x\",\"a.b\\\"\":\"\"}", STATE_RUNNING, false},
		{"sbx_4", "b", NULL, "{}", STATE_ENDED, true},
		{"sbx_5", "a", "s", "{\"k\":\"v\"}", STATE_ENDED, true},
	};
	struct scratch t;
	struct err e = {0};

	(void)state;
	scratch_open(&t);
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct stored_sandbox b = some_sandbox(rows[i].id, rows[i].owner);

		b.session = (char *)rows[i].session;
		b.labels = (char *)rows[i].labels;
		b.state = rows[i].state;
		b.one_shot = rows[i].one_shot;
		must(store_sandbox_put(t.store, &b, &e), e);
	}
#define FILTER(...) (struct sandbox_filter){.state = -1, __VA_ARGS__}
	list_is(t.store, FILTER(.with_one_shot = true), "5 4 3 2 1 ");
	list_is(t.store, FILTER(.with_one_shot = false), "3 2 1 ");
	list_is(t.store, FILTER(.owner = "a"), "2 1 ");
	list_is(t.store, FILTER(.owner = "a", .with_one_shot = true), "5 2 1 ");
	list_is(t.store, FILTER(.owner = "nobody"), "");
	list_is(t.store, FILTER(.session = "s"), "3 2 ");
	list_is(t.store, FILTER(.owner = "a", .session = "s", .with_one_shot = true), "5 2 ");
	list_is(t.store, (struct sandbox_filter){.state = STATE_RUNNING}, "3 1 ");
	list_is(t.store, (struct sandbox_filter){.state = STATE_RUNNING, .owner = "a"}, "1 ");
	list_is(t.store,
		(struct sandbox_filter){.state = STATE_ENDED, .owner = "b", .with_one_shot = true},
		"4 ");
	list_is(t.store, (struct sandbox_filter){.state = STATE_ENDED, .with_one_shot = true},
		"5 4 ");
	list_is(t.store, FILTER(.label = "k=v"), "1 ");
	list_is(t.store, FILTER(.label = "k=v=x"), "3 ");
	list_is(t.store, FILTER(.label = "k="), "");
	list_is(t.store, FILTER(.label = "k"), "3 2 1 ");
	list_is(t.store, FILTER(.label = "n=1"), "1 ");
	list_is(t.store, FILTER(.label = "a.b\""), "3 ");
	list_is(t.store, FILTER(.label = "a.b\"="), "3 ");
	list_is(t.store, FILTER(.label = "' OR 1 --"), "");
	list_is(t.store, FILTER(.after = "sbx_3"), "2 1 ");
	list_is(t.store, FILTER(.after = "sbx_1"), "");
	list_is(t.store, FILTER(.after = "", .limit = 1), "3 ");
	scratch_close(&t);
}

static void test_list_bounds(void **state)
{
	struct sandbox_filter f = FILTER(.limit = 1, .after = "sbx_none");
	struct seen seen = {0};
	struct scratch t;
	struct err e = {0};

	(void)state;
	scratch_open(&t);
	assert_int_equal(store_sandbox_list(t.store, &f, see_sandbox, &seen, &e), 1);
	f = FILTER(.limit = 0);
	assert_int_equal(store_sandbox_list(t.store, &f, see_sandbox, &seen, &e), -1);
	f = FILTER(.limit = 1002);
	assert_int_equal(store_sandbox_list(t.store, &f, see_sandbox, &seen, &e), -1);
	f = (struct sandbox_filter){.limit = 1, .state = STATE_COUNT};
	assert_int_equal(store_sandbox_list(t.store, &f, see_sandbox, &seen, &e), -1);
	scratch_close(&t);
}

/* All in the same millisecond, one changed meanwhile, new ones on top: each is seen once, in order. */
static void test_pages(void **state)
{
	struct sandbox_filter f = FILTER(.limit = 10, .owner = "a");
	struct seen seen = {0};
	struct stored_sandbox b;
	struct scratch t;
	struct err e = {0};
	char id[40], after[40] = "", wanted[512] = "";

	(void)state;
	scratch_open(&t);
	for (int i = 0; i < 95; i++) {
		snprintf(id, sizeof id, "sbx_%d", (i * 37) % 95);
		b = some_sandbox(id, "a");
		must(store_sandbox_put(t.store, &b, &e), e);
	}
	for (int i = 94; i >= 0; i--)
		snprintf(wanted + strlen(wanted), sizeof wanted - strlen(wanted), "%d ",
			 (i * 37) % 95);
	for (int page = 0; page < 10; page++) {
		f.after = after;
		must(store_sandbox_list(t.store, &f, see_sandbox, &seen, &e), e);
		memcpy(after, seen.last, sizeof after);
		snprintf(id, sizeof id, "sbx_new%d", page);
		b = some_sandbox(id, "a");
		must(store_sandbox_put(t.store, &b, &e), e);
		b = some_sandbox("sbx_5", "a");
		b.idle_at_ms = page;
		must(store_sandbox_put(t.store, &b, &e), e);
	}
	assert_string_equal(seen.ids, wanted);
	assert_int_equal(seen.count, 95);
	scratch_close(&t);
}

struct nested {
	struct store *store;
	int inner;
	unsigned calls;
};

static int put_inside(const struct stored_sandbox *b, void *data)
{
	struct sandbox_filter f = FILTER(.limit = 10, .owner = "a");
	struct nested *n = data;
	struct stored_sandbox again, copy = *b;
	struct seen seen = {0};
	struct err e = {0};

	n->calls++;
	must(store_sandbox_get(n->store, b->id, &again, &e), e);
	stored_sandbox_done(&again);
	copy.idle_at_ms = 99;
	must(store_sandbox_put(n->store, &copy, &e), e);
	n->inner = store_sandbox_list(n->store, &f, see_sandbox, &seen, &e);
	return 0;
}

static void test_store_inside_a_list(void **state)
{
	struct sandbox_filter f = FILTER(.limit = 10, .owner = "a");
	struct stored_sandbox b = some_sandbox("sbx_1", "a"), c = some_sandbox("sbx_2", "a");
	struct nested n = {0};
	struct scratch t;
	struct err e = {0};

	(void)state;
	scratch_open(&t);
	must(store_sandbox_put(t.store, &b, &e), e);
	must(store_sandbox_put(t.store, &c, &e), e);
	n.store = t.store;
	must(store_begin(t.store, &e), e);
	must(store_sandbox_list(t.store, &f, put_inside, &n, &e), e);
	must(store_commit(t.store, &e), e);
	assert_int_equal(n.calls, 2);
	assert_int_equal(n.inner, -1);
	scratch_close(&t);
}

/* No statement sorts, and none reads a whole table but those that mean to: a plan that changes with a new
 * index or condition would be slow only when there is much. */
static void test_plans(void **state)
{
	static const struct {
		enum query which;
		const char *name, *sql;
	} queries[] = {
#define QUERY(name, sql) {QUERY_##name, #name, sql},
#include "store/queries.def"
#undef QUERY
	};
	static const char *const whole[] = {"RUN_LIST_ALL", "AUDIT_LAST", "AUDIT_ANCHOR",
					    "AUDIT_WALK", "KEY_LIST"};
	struct scratch t;

	(void)state;
	scratch_open(&t);
	for (size_t i = 0; i < ARRAY_SIZE(queries); i++) {
		_cleanup_free_ char *sql = NULL;
		bool scans = false, may_scan = false;
		sqlite3_stmt *q;

		assert_true(asprintf(&sql, "EXPLAIN QUERY PLAN %s", queries[i].sql) > 0);
		assert_int_equal(sqlite3_prepare_v2(t.store->db, sql, -1, &q, NULL), SQLITE_OK);
		while (sqlite3_step(q) == SQLITE_ROW) {
			const char *step = (const char *)sqlite3_column_text(q, 3);

			if (strstr(step, "TEMP B-TREE"))
				fail_msg("%s sorts: %s", queries[i].name, step);
			scans |= strncmp(step, "SCAN", 4) == 0 && !strstr(step, "VIRTUAL TABLE") &&
				 !strstr(step, "CONSTANT ROW");
		}
		sqlite3_finalize(q);
		for (size_t j = 0; j < ARRAY_SIZE(whole); j++)
			may_scan |= strcmp(queries[i].name, whole[j]) == 0;
		if (scans != may_scan)
			fail_msg("%s %s", queries[i].name,
				 scans ? "reads a whole table" : "does not scan");
	}
	scratch_close(&t);
}

static void runs_are(struct store *s, const char *sandbox, bool unended, unsigned limit,
		     const char *wanted)
{
	struct seen seen = {0};
	struct err e = {0};

	must(store_run_list(s, sandbox, unended, limit, see_run, &seen, &e), e);
	assert_string_equal(seen.ids, wanted);
}

/* Others' runs take no place of the limit. */
static void test_run_list_of_one(void **state)
{
	struct seen seen = {0}, there = {0};
	struct scratch t;
	struct err e = {0};

	(void)state;
	scratch_open(&t);
	for (int i = 0; i < 6; i++) {
		char id[40];
		struct stored_run r;

		snprintf(id, sizeof id, "run_%d", i);
		r = some_run(id, i % 2 ? "sbx_1" : "sbx_0");
		r.owner = (char *)(uintptr_t)(i < 3 ? "one" : "other");
		must(store_run_put(t.store, &r, &e), e);
	}
	must(store_run_list_of(t.store, "one", NULL, 2, see_run, &seen, &e), e);
	assert_string_equal(seen.ids, "2 1 ");
	must(store_run_list_of(t.store, "one", "sbx_0", 9, see_run, &there, &e), e);
	assert_string_equal(there.ids, "2 0 ");
	scratch_close(&t);
}

static void test_run_lists(void **state)
{
	struct seen seen = {.stop_after = 2};
	struct scratch t;
	struct err e = {0};

	(void)state;
	scratch_open(&t);
	for (int i = 0; i < 6; i++) {
		char id[40];
		struct stored_run r;

		snprintf(id, sizeof id, "run_%d", i);
		r = some_run(id, i % 2 ? "sbx_1" : "sbx_0");
		r.ended = i >= 3;
		must(store_run_put(t.store, &r, &e), e);
	}
	runs_are(t.store, NULL, false, UINT_MAX, "5 4 3 2 1 0 ");
	runs_are(t.store, NULL, true, UINT_MAX, "2 1 0 ");
	runs_are(t.store, "sbx_1", false, UINT_MAX, "5 3 1 ");
	runs_are(t.store, "sbx_0", true, UINT_MAX, "2 0 ");
	runs_are(t.store, "sbx_0", true, 1, "2 ");
	must(store_run_list(t.store, NULL, false, 10, see_run, &seen, &e), e);
	assert_int_equal(seen.count, 2);
	scratch_close(&t);
}

/* ------------------------------------------------------------------------------------ transactions */

static void test_transactions(void **state)
{
	struct stored_sandbox a = some_sandbox("sbx_1", "a"), b;
	struct audit_row row = some_row("sbx_1");
	struct scratch t;
	struct err e = {0};
	char hash[65];

	(void)state;
	scratch_open(&t);
	must(store_commit(t.store, &e), e);
	must(store_begin(t.store, &e), e);
	must(store_begin(t.store, &e), e);
	must(store_sandbox_put(t.store, &a, &e), e);
	must(store_audit_add(t.store, &row, &e), e);
	memcpy(hash, row.hash, sizeof hash);
	store_rollback(t.store);
	assert_int_equal(store_sandbox_get(t.store, "sbx_1", &b, &e), 1);
	/* the chain goes on from what is there, not from what was rolled back */
	must(store_audit_add(t.store, &row, &e), e);
	assert_int_equal(row.seq, 1);
	assert_string_equal(row.hash, hash);
	must(store_begin(t.store, &e), e);
	must(store_sandbox_put(t.store, &a, &e), e);
	scratch_reopen(&t); /* a close without commit loses it */
	assert_int_equal(store_sandbox_get(t.store, "sbx_1", &b, &e), 1);
	scratch_close(&t);
}

static void test_idempotency(void **state)
{
	struct scratch t;
	struct err e = {0};
	char object[40] = "untouched";

	(void)state;
	scratch_open(&t);
	assert_int_equal(store_idempotency_get(t.store, "a", "k", "h1", object, &e), 1);
	must(store_idempotency_put(t.store, "a", "k", "h1", "sbx_1", &e), e);
	must(store_idempotency_get(t.store, "a", "k", "h1", object, &e), e);
	assert_string_equal(object, "sbx_1");
	assert_int_equal(store_idempotency_get(t.store, "b", "k", "h1", object, &e), 1);
	assert_int_equal(store_idempotency_get(t.store, "a", "k", "h2", object, &e), -1);
	assert_int_equal(e.errnum, EEXIST);
	assert_int_equal(store_idempotency_put(t.store, "a", "k", "h2", "sbx_2", &e), -1);
	assert_int_equal(e.errnum, EEXIST);
	/* a day later it is free again */
	tamper(t.path, "UPDATE idempotency SET created_ms = created_ms - 86400001");
	assert_int_equal(store_idempotency_get(t.store, "a", "k", "h1", object, &e), 1);
	must(store_idempotency_put(t.store, "a", "k", "h2", "sbx_2", &e), e);
	must(store_idempotency_get(t.store, "a", "k", "h2", object, &e), e);
	assert_string_equal(object, "sbx_2");
	scratch_close(&t);
}

static void test_retention(void **state)
{
	const struct retention keep = {
		.ended_sandbox_ms = 3600000, .run_ms = 36000000, .audit_ms = 1 << 30};
	struct stored_sandbox b;
	struct stored_run r;
	struct scratch t;
	struct err e = {0};
	int64_t now = now_ms();
	int calls = 0, left;

	(void)state;
	scratch_open(&t);
	must(store_begin(t.store, &e), e);
	for (int i = 0; i < RETAIN_BATCH + 10; i++) {
		char id[40];

		snprintf(id, sizeof id, "sbx_%d", i);
		b = some_sandbox(id, "a");
		b.state = i < 3 ? STATE_RUNNING : STATE_ENDED;
		b.ended_ms = i < 3 ? 0 : i < 5 ? now : now - 7200000;
		must(store_sandbox_put(t.store, &b, &e), e);
	}
	r = some_run("run_1", "sbx_7");
	must(store_run_put(t.store, &r, &e), e);
	r = some_run("run_2", "sbx_7");
	r.ended = true;
	r.ended_ms = now - 7200000;
	must(store_run_put(t.store, &r, &e), e);
	r = some_run("run_3", "sbx_7");
	r.ended = true;
	r.ended_ms = now - 72000000;
	must(store_run_put(t.store, &r, &e), e);
	must(store_commit(t.store, &e), e);
	while ((left = store_retain(t.store, &keep, &e)) == 1)
		calls++;
	must(left, e);
	assert_int_equal(calls, 1);
	list_is(t.store, FILTER(.limit = 1000), "4 3 2 1 0 ");
	runs_are(t.store, NULL, false, UINT_MAX, "2 1 ");
	scratch_close(&t);
}

static uint64_t kept_of(struct store *s, const char *owner)
{
	uint64_t bytes;
	struct err e = {0};

	must(store_kept(s, owner, &bytes, &e), e);
	return bytes;
}

static void put_kept(struct store *s, const char *id, const char *owner, bool ended,
		     const char *result, uint64_t artifacts)
{
	struct stored_run r = some_run(id, "sbx_1");
	struct err e = {0};

	r.owner = (char *)(uintptr_t)owner;
	r.ended = ended;
	r.ended_ms = ended ? 1000 : 0;
	r.result = (char *)(uintptr_t)result;
	r.artifact_path = artifacts ? (char *)(uintptr_t)id : NULL;
	r.artifact_bytes = artifacts;
	must(store_run_put(s, &r, &e), e);
}

/* The sum follows each row, through a roll-back and a restart. */
static void test_kept(void **state)
{
	struct stored_run r;
	struct scratch t;
	struct err e = {0};
	char id[40];

	(void)state;
	scratch_open(&t);
	assert_true(kept_of(t.store, "a") == 0);
	put_kept(t.store, "run_1", "a", false, NULL, 0);
	put_kept(t.store, "run_1", "a", false, "12345", 0);
	put_kept(t.store, "run_1", "a", true, "\xc3\xa4\xc3\xa4", 4096); /* bytes, not characters */
	put_kept(t.store, "run_2", "a", false, "12", 8192);
	put_kept(t.store, "run_3", "b", true, "123", 0);
	assert_true(kept_of(t.store, "a") == 4 + 4096 + 2 + 8192);
	must(store_begin(t.store, &e), e);
	put_kept(t.store, "run_4", "a", true, "1234567", 0);
	store_rollback(t.store);
	scratch_reopen(&t);
	assert_true(kept_of(t.store, "a") == 4 + 4096 + 2 + 8192 && kept_of(t.store, "b") == 3);

	/* the oldest that has ended */
	put_kept(t.store, "run_5", "a", true, "1", 4096);
	put_kept(t.store, "run_6", "a", true, "1", 0);
	must(store_run_oldest(t.store, "a", true, NULL, id, &e), e);
	assert_string_equal(id, "run_1");
	must(store_run_oldest(t.store, "a", true, "run_1", id, &e), e);
	assert_string_equal(id, "run_5");
	must(store_artifacts_forget(t.store, "run_1", &e), e);
	must(store_run_get(t.store, "run_1", &r, &e), e);
	assert_true(!r.artifact_path && r.artifact_bytes == 0 && r.result);
	stored_run_done(&r);
	must(store_artifacts_old(t.store, 1001, id, &e), e);
	assert_string_equal(id, "run_5");
	assert_int_equal(store_artifacts_old(t.store, 1000, id, &e), 1);
	must(store_artifacts_forget(t.store, "run_5", &e), e);
	assert_int_equal(store_run_oldest(t.store, "a", true, NULL, id, &e), 1);
	must(store_run_oldest(t.store, "a", false, "run_1", id, &e), e);
	assert_string_equal(id, "run_5");
	must(store_run_forget(t.store, "run_5", &e), e);
	assert_int_equal(store_run_get(t.store, "run_5", &r, &e), 1);
	assert_true(kept_of(t.store, "a") == 4 + 2 + 8192 + 1);
	assert_int_equal(store_run_oldest(t.store, "b", false, "run_3", id, &e), 1);
	scratch_close(&t);
}

/* A run is not removed over its artifacts: nobody would find them again. */
static void test_retention_leaves_artifacts(void **state)
{
	const struct retention keep = {.audit_ms = 1 << 30};
	struct scratch t;
	struct err e = {0};

	(void)state;
	scratch_open(&t);
	put_kept(t.store, "run_1", "a", true, "1", 4096);
	put_kept(t.store, "run_2", "a", true, "1", 0);
	must(store_retain(t.store, &keep, &e), e);
	runs_are(t.store, NULL, false, UINT_MAX, "1 ");
	must(store_artifacts_forget(t.store, "run_1", &e), e);
	must(store_retain(t.store, &keep, &e), e);
	runs_are(t.store, NULL, false, UINT_MAX, "");
	assert_true(kept_of(t.store, "a") == 0);
	scratch_close(&t);
}

static void test_sha256(void **state)
{
	char hash[65];

	(void)state;
	sha256_hex("", 0, hash);
	assert_string_equal(hash,
			    "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
	sha256_hex("abc", 3, hash);
	assert_string_equal(hash,
			    "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_sandbox_round_trip),
		cmocka_unit_test(test_bad_value_fails_alone),
		cmocka_unit_test(test_run_round_trip),
		cmocka_unit_test(test_list_filters),
		cmocka_unit_test(test_list_bounds),
		cmocka_unit_test(test_pages),
		cmocka_unit_test(test_store_inside_a_list),
		cmocka_unit_test(test_plans),
		cmocka_unit_test(test_run_lists),
		cmocka_unit_test(test_run_list_of_one),
		cmocka_unit_test(test_transactions),
		cmocka_unit_test(test_idempotency),
		cmocka_unit_test(test_retention),
		cmocka_unit_test(test_kept),
		cmocka_unit_test(test_retention_leaves_artifacts),
		cmocka_unit_test(test_sha256),
	};

	return cmocka_run_group_tests_name("store", tests, NULL, NULL);
}
