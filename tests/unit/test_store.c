/* SPDX-License-Identifier: Apache-2.0 */
/* The state: what goes in comes out, pages, transactions, migrations, and every way a file can be bad. */
#include "store_unit.h"

#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/wait.h>

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
	must(store_run_put(t.store, &a, &e), e);
	must(store_run_get(t.store, "run_1", &b, &e), e);
	assert_string_equal(b.sandbox, "sbx_gone");
	assert_string_equal(b.kind, "exec");
	assert_string_equal(b.error_code, "SANDBOX_COMMAND_TIMEOUT");
	assert_string_equal(b.result, "{}");
	assert_string_equal(b.artifact_path, "/a/b");
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
	f = FILTER(.limit = 1001);
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

static void runs_are(struct store *s, const char *sandbox, bool unended, unsigned limit,
		     const char *wanted)
{
	struct seen seen = {0};
	struct err e = {0};

	must(store_run_list(s, sandbox, unended, limit, see_run, &seen, &e), e);
	assert_string_equal(seen.ids, wanted);
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
		.ended_sandbox_ms = 1000, .run_ms = 1000000, .audit_ms = 1 << 30};
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
		b.ended_ms = i < 3 ? 0 : i < 5 ? now : now - 5000;
		must(store_sandbox_put(t.store, &b, &e), e);
	}
	r = some_run("run_1", "sbx_7");
	must(store_run_put(t.store, &r, &e), e);
	r = some_run("run_2", "sbx_7");
	r.ended = true;
	r.ended_ms = now - 5000;
	must(store_run_put(t.store, &r, &e), e);
	r = some_run("run_3", "sbx_7");
	r.ended = true;
	r.ended_ms = now - 5000000;
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

/* ----------------------------------------------------------------------------------------- opening */

static void open_fails(const char *folder, const char *part)
{
	struct err e = {0};
	struct store *s = store_open(folder, &e);

	if (s)
		fail_msg("opened although: %s", part);
	assert_contains(e.text, part);
}

static void mode_is(int dir, const char *name, mode_t mode)
{
	struct stat st;

	assert_int_equal(fstatat(dir, name, &st, 0), 0);
	assert_int_equal(st.st_mode & 07777, mode);
}

static void test_modes(void **state)
{
	struct stored_sandbox b = some_sandbox("sbx_1", "a");
	struct err e = {0};
	char path[256], folder[300];
	int top = scratch_make(path), dir;
	struct store *s;
	mode_t before = umask(0);

	(void)state;
	snprintf(folder, sizeof folder, "%s/new", path);
	s = open_store(folder);
	must(store_sandbox_put(s, &b, &e), e);
	dir = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	mode_is(top, "new", 0700);
	mode_is(dir, "state.db", 0600);
	mode_is(dir, "state.db-wal", 0600);
	mode_is(dir, "state.db-shm", 0600);
	mode_is(dir, "state.lock", 0600);
	store_close(s);
	/* what somebody opened up is closed again; an odd umask changes nothing */
	umask(0177);
	assert_int_equal(fchmodat(dir, "state.db", 0666, 0), 0);
	store_close(open_store(folder));
	mode_is(dir, "state.db", 0600);
	umask(before);
	assert_int_equal(chmod(folder, 0777), 0);
	open_fails(folder, "others may write");
	assert_int_equal(chmod(folder, 0700), 0);
	assert_int_equal(renameat(dir, "state.db", dir, "other"), 0);
	assert_int_equal(symlinkat("other", dir, "state.db"), 0);
	open_fails(folder, "not a file");
	close(dir);
	close(top);
	scratch_remove(path);
}

static void test_two_openers(void **state)
{
	struct stored_sandbox b = some_sandbox("sbx_1", "a"), got;
	struct scratch t;
	struct store *reader;
	struct err e = {0};
	pid_t child;
	int status;

	(void)state;
	scratch_open(&t);
	open_fails(t.path, "another cloche service has it open");
	child = fork();
	if (child == 0) {
		struct store *other = store_open(t.path, &e);

		_exit(!other && e.errnum == EBUSY ? 0 : 1);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	/* a reader sees what is committed, and writes nothing */
	must(store_sandbox_put(t.store, &b, &e), e);
	reader = store_open_reader(t.path, &e);
	if (!reader)
		fail_msg("%s", e.text);
	must(store_sandbox_get(reader, "sbx_1", &got, &e), e);
	stored_sandbox_done(&got);
	assert_int_equal(store_sandbox_put(reader, &b, &e), -1);
	assert_contains(e.text, "read only");
	assert_int_equal(store_begin(reader, &e), -1);
	store_close(reader);
	/* the reader took no lock away: two are still impossible, and the writer writes */
	open_fails(t.path, "another cloche service has it open");
	must(store_sandbox_put(t.store, &b, &e), e);
	scratch_close(&t);
}

/* Without the lock file's help: a foreign program that is writing is an error, not a wait. */
static void test_foreign_writer(void **state)
{
	struct stored_sandbox b = some_sandbox("sbx_1", "a");
	struct scratch t;
	struct err e = {0};
	char file[300];
	sqlite3 *db;

	(void)state;
	scratch_open(&t);
	snprintf(file, sizeof file, "%s/state.db", t.path);
	assert_int_equal(sqlite3_open(file, &db), SQLITE_OK);
	assert_int_equal(sqlite3_exec(db, "BEGIN IMMEDIATE", NULL, NULL, NULL), SQLITE_OK);
	assert_int_equal(store_sandbox_put(t.store, &b, &e), -1);
	assert_contains(e.text, "another program holds it");
	assert_int_equal(store_begin(t.store, &e), -1);
	assert_int_equal(sqlite3_exec(db, "ROLLBACK", NULL, NULL, NULL), SQLITE_OK);
	must(store_sandbox_put(t.store, &b, &e), e);
	sqlite3_close(db);
	scratch_close(&t);
}

static void test_damaged(void **state)
{
	static const char noise[8192] = "this is not a database at all, it only looks like a file";
	struct stored_sandbox b = some_sandbox("sbx_1", "a");
	struct scratch t;
	struct err e = {0};
	int fd;

	(void)state;
	scratch_open(&t);
	for (int i = 0; i < 200; i++) {
		snprintf(b.id, sizeof b.id, "sbx_%d", i);
		must(store_sandbox_put(t.store, &b, &e), e);
	}
	store_close(t.store);
	/* pages of a table overwritten: the check at opening sees it */
	fd = openat(t.dir, "state.db", O_RDWR | O_CLOEXEC);
	assert_true(lseek(fd, 0, SEEK_END) > 40000);
	assert_int_equal(pwrite(fd, noise, 4096, 4096), 4096);
	close(fd);
	open_fails(t.path, "state.db is damaged");
	open_fails(t.path, "move state.db* away");
	write_at(t.dir, "state.db", noise, sizeof noise, 0600);
	open_fails(t.path, "state.db is damaged");
	/* and after the remedy it works */
	assert_int_equal(unlinkat(t.dir, "state.db", 0), 0);
	t.store = open_store(t.path);
	scratch_close(&t);
}

static void test_value_that_cannot_be(void **state)
{
	struct stored_sandbox b = some_sandbox("sbx_1", "a");
	struct scratch t;
	struct err e = {0};

	(void)state;
	scratch_open(&t);
	must(store_sandbox_put(t.store, &b, &e), e);
	tamper(t.path, "UPDATE sandboxes SET state = 'sleeping'");
	assert_int_equal(store_sandbox_get(t.store, "sbx_1", &b, &e), -1);
	assert_contains(e.text, "damaged");
	tamper(t.path, "UPDATE sandboxes SET state = 'ended', reason = 'boredom'");
	assert_int_equal(store_sandbox_get(t.store, "sbx_1", &b, &e), -1);
	scratch_close(&t);
}

/* --------------------------------------------------------------------------------------- migrations */

/* What version 1 wrote, kept as it was: never to be changed with the schema. */
#include "store_version1.h"

static void make_version1(struct scratch *t)
{
	t->dir = scratch_make(t->path);
	tamper(t->path, version1);
}

static void test_migration(void **state)
{
	struct stored_sandbox b;
	struct stored_run r;
	struct stored_key k;
	struct scratch t;
	struct err e = {0};
	int64_t rows, bad;
	char head[65];
	int version;

	(void)state;
	make_version1(&t);
	assert_null(store_open_reader(t.path, &e));
	assert_contains(e.text, "has format 1");
	t.store = open_store(t.path);
	must(schema_read_version(t.store->db, "x", &version, &e), e);
	assert_int_equal(version, schema_version);
	assert_true(version > 1);
	must(store_sandbox_get(t.store, "sbx_old", &b, &e), e);
	assert_int_equal(b.state, STATE_ENDED);
	assert_int_equal(b.reason, REASON_LOST);
	stored_sandbox_done(&b);
	must(store_run_get(t.store, "run_old", &r, &e), e);
	stored_run_done(&r);
	must(store_key_find(t.store, "clk_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA", &k, &e), e);
	assert_string_equal(k.id, "key_0000000000000001");
	stored_key_done(&k);
	must(store_audit_verify(t.store, &rows, &bad, head, &e), e);
	assert_int_equal(rows, 2);
	scratch_reopen(&t); /* a second opening changes nothing */
	must(store_sandbox_get(t.store, "sbx_old", &b, &e), e);
	stored_sandbox_done(&b);
	scratch_close(&t);
}

static void test_failed_migration_leaves_the_version_before(void **state)
{
	const char *const scripts[] = {
		schema_scripts[0], "CREATE TABLE extra (a INTEGER) STRICT",
		"CREATE TABLE more (a INTEGER) STRICT; INSERT INTO nowhere VALUES (1)"};
	struct scratch t;
	struct err e = {0};
	char file[300];
	sqlite3 *db;
	int version;

	(void)state;
	make_version1(&t);
	snprintf(file, sizeof file, "%s/state.db", t.path);
	assert_int_equal(sqlite3_open(file, &db), SQLITE_OK);
	assert_int_equal(schema_migrate(db, "f", scripts, 3, &e), -1);
	assert_contains(e.text, "format 2 to 3");
	must(schema_read_version(db, "f", &version, &e), e);
	assert_int_equal(version, 2);
	assert_int_equal(sqlite3_get_autocommit(db), 1);
	assert_int_equal(sqlite3_exec(db, "SELECT * FROM extra", NULL, NULL, NULL), SQLITE_OK);
	assert_int_equal(sqlite3_exec(db, "SELECT * FROM more", NULL, NULL, NULL), SQLITE_ERROR);
	sqlite3_close(db);
	close(t.dir);
	scratch_remove(t.path);
}

static void test_foreign_files(void **state)
{
	struct scratch t;

	(void)state;
	t.dir = scratch_make(t.path);
	tamper(t.path, "PRAGMA user_version = 1000; CREATE TABLE a (b)");
	open_fails(t.path, "was written by a newer cloche");
	tamper(t.path, "PRAGMA user_version = 0");
	open_fails(t.path, "is no state of cloche");
	tamper(t.path, "PRAGMA user_version = -1");
	open_fails(t.path, "is no state of cloche");
	close(t.dir);
	scratch_remove(t.path);
}

/* ------------------------------------------------------------------------------------------- a full disk */

/* Writes until the disk is full, in turns of one transaction. The number of turns that were committed. */
static int fill(struct store *s, int turn, struct err *e)
{
	char large[20000];
	struct stored_sandbox b = some_sandbox("", "a");
	struct audit_row row = some_row("x");

	memset(large, 'x', sizeof large - 1);
	large[sizeof large - 1] = '\0';
	b.message = large;
	for (;; turn++) {
		int r = store_begin(s, e);

		for (int i = 0; i < 4 && r == 0; i++) {
			snprintf(b.id, sizeof b.id, "sbx_%d_%d", turn, i);
			r = store_sandbox_put(s, &b, e);
			if (r == 0)
				r = store_audit_add(s, &row, e);
		}
		if (r < 0) { /* nothing gets in behind it, and the commit says so */
			struct err again = {0};

			b.message = NULL;
			snprintf(b.id, sizeof b.id, "sbx_late");
			assert_int_equal(store_sandbox_put(s, &b, &again), -1);
			assert_string_equal(again.text, e->text);
			assert_int_equal(store_begin(s, &again), -1);
			assert_int_equal(store_commit(s, &again), -1);
			return turn;
		}
		if (store_commit(s, e) < 0)
			return turn;
	}
}

static void check_turns(struct store *s, int turns)
{
	struct stored_sandbox b;
	struct err e = {0};
	int64_t rows, bad;
	char id[40], head[65];

	for (int turn = 0; turn < turns; turn++)
		for (int i = 0; i < 4; i++) {
			snprintf(id, sizeof id, "sbx_%d_%d", turn, i);
			must(store_sandbox_get(s, id, &b, &e), e);
			stored_sandbox_done(&b);
		}
	snprintf(id, sizeof id, "sbx_%d_0", turns);
	assert_int_equal(store_sandbox_get(s, id, &b, &e), 1);
	assert_int_equal(store_sandbox_get(s, "sbx_late", &b, &e), 1);
	must(store_audit_verify(s, &rows, &bad, head, &e), e);
	assert_int_equal(rows, turns * 4);
}

static bool mount_small(const char *path)
{
	return unshare(CLONE_NEWNS) == 0 &&
	       mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
	       mount("small", path, "tmpfs", 0, "size=2m,mode=0700") == 0;
}

static void test_full_disk(void **state)
{
	char path[256];
	int top = scratch_make(path), turns;
	struct store *s;
	struct err e = {0};

	(void)state;
	if (!mount_small(path)) {
		close(top);
		scratch_remove(path);
		skip_because("no right to mount");
	}
	s = open_store(path);
	turns = fill(s, 0, &e);
	assert_true(turns > 2);
	assert_int_equal(e.errnum, ENOSPC);
	assert_contains(e.text, "state.db: make space there");
	check_turns(s, turns);
	/* with space again, the same handle goes on */
	assert_int_equal(mount(NULL, path, NULL, MS_REMOUNT, "size=6m"), 0);
	turns = fill(s, turns, &e);
	assert_int_equal(e.errnum, ENOSPC);
	check_turns(s, turns);
	store_close(s);
	/* and a full disk is no reason not to start, or a clear one */
	s = store_open(path, &e);
	if (s)
		check_turns(s, turns);
	else
		assert_contains(e.text, "make space there");
	store_close(s);
	/* read-only: an error with its cause; a look is possible */
	assert_int_equal(mount(NULL, path, NULL, MS_REMOUNT | MS_RDONLY, NULL), 0);
	open_fails(path, "ead-only file system");
	s = store_open_reader(path, &e);
	if (!s)
		fail_msg("%s", e.text);
	check_turns(s, turns);
	store_close(s);
	assert_int_equal(umount(path), 0);
	close(top);
	scratch_remove(path);
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
		cmocka_unit_test(test_run_lists),
		cmocka_unit_test(test_transactions),
		cmocka_unit_test(test_idempotency),
		cmocka_unit_test(test_retention),
		cmocka_unit_test(test_modes),
		cmocka_unit_test(test_two_openers),
		cmocka_unit_test(test_foreign_writer),
		cmocka_unit_test(test_damaged),
		cmocka_unit_test(test_value_that_cannot_be),
		cmocka_unit_test(test_migration),
		cmocka_unit_test(test_failed_migration_leaves_the_version_before),
		cmocka_unit_test(test_foreign_files),
		cmocka_unit_test(test_full_disk),
		cmocka_unit_test(test_sha256),
	};

	return cmocka_run_group_tests_name("store", tests, NULL, NULL);
}
