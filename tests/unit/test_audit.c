/* SPDX-License-Identifier: Apache-2.0 */
/* The audit chain: every kind of change is noticed, and kill -9 leaves whole turns only. */
#include "store_unit.h"

#include <signal.h>
#include <sys/wait.h>

#include "base/fd.h"

static void add_rows(struct store *s, int count)
{
	struct err e = {0};

	must(store_begin(s, &e), e);
	for (int i = 0; i < count; i++) {
		struct audit_row row = some_row("sbx_1");

		must(store_audit_add(s, &row, &e), e);
	}
	must(store_commit(s, &e), e);
}

static void chain_is_good(struct store *s, int64_t rows, char head[static 65])
{
	struct err e = {0};
	int64_t got = -1, bad = -1;
	int r = store_audit_verify(s, &got, &bad, head, &e);

	if (r != 0)
		fail_msg("%d at %lld: %s", r, (long long)bad, e.text);
	assert_int_equal(got, rows);
}

/* The bytes as docs/api.md has them; the hashes were computed by another program (Python's hashlib). */
static void test_bytes(void **state)
{
	struct audit_row row = some_row("a");
	struct scratch t;
	struct err e = {0};
	char head[65];

	(void)state;
	scratch_open(&t);
	must(store_audit_add(t.store, &row, &e), e);
	assert_int_equal(row.seq, 1);
	assert_string_equal(row.previous,
			    "0000000000000000000000000000000000000000000000000000000000000000");
	assert_string_equal(row.hash,
			    "3dc331a04eacd36c06a093265562c1ab46e620ebd26e50e5d509b9cf7552cc2d");
	scratch_reopen(&t);
	row = (struct audit_row){.time_ms = -5, .actor = "system", .session = "", .action = "x"};
	must(store_audit_add(t.store, &row, &e), e);
	assert_int_equal(row.seq, 2);
	assert_string_equal(row.previous,
			    "3dc331a04eacd36c06a093265562c1ab46e620ebd26e50e5d509b9cf7552cc2d");
	assert_string_equal(row.hash,
			    "4b1f1eef69b8686995d75c3ee5fc4b74a7c94914cb1370989d40664df4d5718f");
	chain_is_good(t.store, 2, head);
	assert_string_equal(head, row.hash);
	scratch_close(&t);
}

static void test_tampering(void **state)
{
	static const struct {
		const char *sql;
		int64_t bad;
	} cases[] = {
		{"UPDATE audit SET time_ms = time_ms + 1 WHERE seq = 5", 5},
		{"UPDATE audit SET actor = 'uid:2' WHERE seq = 5", 5},
		{"UPDATE audit SET session = '' WHERE seq = 5", 5},
		{"UPDATE audit SET action = 'sandbox.end' WHERE seq = 5", 5},
		{"UPDATE audit SET object = 'sbx_2' WHERE seq = 10", 10},
		{"UPDATE audit SET details = '{}' WHERE seq = 1", 1},
		{"UPDATE audit SET details = details || char(0) || 'more' WHERE seq = 5", 5},
		{"UPDATE audit SET hash = zeroblob(32) WHERE seq = 5", 5},
		{"UPDATE audit SET action = action || 's', object = substr(object, 2) WHERE seq = 5",
		 5},
		{"DELETE FROM audit WHERE seq = 5", 5},
		{"DELETE FROM audit WHERE seq BETWEEN 5 AND 7", 5},
		{"DELETE FROM audit WHERE seq = 1", 1},
		{"DELETE FROM audit WHERE seq = 5; UPDATE audit SET seq = seq - 1 WHERE seq > 5",
		 5},
		{"UPDATE audit SET seq = 100 WHERE seq = 5; UPDATE audit SET seq = 5 WHERE seq = 6;"
		 "UPDATE audit SET seq = 6 WHERE seq = 100",
		 5},
		{"INSERT INTO audit SELECT 11, time_ms, actor, session, action, object, details, hash "
		 "FROM audit WHERE seq = 10",
		 11},
		{"INSERT INTO audit SELECT 0, time_ms, actor, session, action, object, details, hash "
		 "FROM audit WHERE seq = 1",
		 0},
		{"INSERT INTO audit SELECT 12, time_ms, actor, session, action, object, details, hash "
		 "FROM audit WHERE seq = 10",
		 11},
		/* a prefix taken away as retention does it, but the chain says nothing of it */
		{"INSERT INTO anchors SELECT seq, hash FROM audit WHERE seq = 4; "
		 "DELETE FROM audit WHERE seq <= 4",
		 4},
		{"INSERT INTO anchors SELECT seq, hash FROM audit WHERE seq = 10; DELETE FROM audit",
		 10},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct scratch t;
		struct err e = {0};
		int64_t rows = -1, bad = -1;
		char head[65];
		int r;

		scratch_open(&t);
		add_rows(t.store, 10);
		chain_is_good(t.store, 10, head);
		tamper(t.path, cases[i].sql);
		r = store_audit_verify(t.store, &rows, &bad, head, &e);
		if (r != 1 || bad != cases[i].bad)
			fail_msg("%s: %d, first bad %lld", cases[i].sql, r, (long long)bad);
		scratch_close(&t);
	}
}

/* Nothing in the file tells that its end is gone: the head that somebody kept does. */
static void test_truncated_tail(void **state)
{
	char remembered[65], head[65];
	struct scratch t;

	(void)state;
	scratch_open(&t);
	add_rows(t.store, 10);
	chain_is_good(t.store, 10, remembered);
	tamper(t.path, "DELETE FROM audit WHERE seq > 8");
	chain_is_good(t.store, 8, head);
	assert_string_not_equal(head, remembered);
	/* also not when other rows take their numbers */
	scratch_reopen(&t);
	for (int i = 0; i < 2; i++) {
		struct audit_row row = some_row("another");
		struct err e = {0};

		must(store_audit_add(t.store, &row, &e), e);
	}
	chain_is_good(t.store, 10, head);
	assert_string_not_equal(head, remembered);
	scratch_close(&t);
}

struct walk {
	int64_t seq;
	int count;
	char hash[65];
};

static int follow(const struct audit_row *row, void *data)
{
	struct walk *w = data;

	if (w->count++ > 0) {
		assert_int_equal(row->seq, w->seq + 1);
		assert_string_equal(row->previous, w->hash);
	}
	w->seq = row->seq;
	memcpy(w->hash, row->hash, sizeof w->hash);
	return 0;
}

static int count_rows(const struct audit_row *row, void *data)
{
	assert_string_equal(row->actor, "uid:2");
	assert_string_equal(row->session, "s");
	assert_string_equal(row->details, "{}");
	return ++*(int *)data == 3;
}

static void test_list(void **state)
{
	struct walk w = {0};
	struct scratch t;
	struct err e = {0};
	int count = 0;

	(void)state;
	scratch_open(&t);
	add_rows(t.store, 5);
	for (int i = 0; i < 4; i++) {
		struct audit_row row = {.actor = "uid:2", .session = "s", .action = "x"};

		must(store_audit_add(t.store, &row, &e), e);
	}
	must(store_audit_list(t.store, NULL, 0, 100, follow, &w, &e), e);
	assert_int_equal(w.count, 9);
	w = (struct walk){0};
	must(store_audit_list(t.store, NULL, 2, 3, follow, &w, &e), e);
	assert_true(w.count == 3 && w.seq == 5);
	must(store_audit_list(t.store, "uid:2", 0, 100, count_rows, &count, &e), e);
	assert_int_equal(count, 3);
	scratch_close(&t);
}

static void test_retention(void **state)
{
	const struct retention all = {.ended_sandbox_ms = 1, .run_ms = 1, .audit_ms = 3600000};
	struct walk w = {0};
	struct scratch t;
	struct err e = {0};
	char head[65], before[65];
	struct audit_row row = some_row("new");

	(void)state;
	scratch_open(&t);
	add_rows(t.store, RETAIN_BATCH + 5); /* from 2023 */
	row.time_ms = now_ms();
	must(store_audit_add(t.store, &row, &e), e);
	assert_int_equal(store_retain(t.store, &all, &e), 1);
	chain_is_good(t.store, 5 + 1 + 1, head);
	must(store_retain(t.store, &all, &e), e);
	chain_is_good(t.store, 1 + 2, head);
	memcpy(before, head, sizeof before);
	must(store_retain(t.store, &all, &e), e); /* nothing to do writes nothing */
	chain_is_good(t.store, 3, head);
	assert_string_equal(head, before);
	scratch_reopen(&t);
	add_rows(t.store, 1);
	chain_is_good(t.store, 4, head);
	/* the first row that is left names the one that is gone */
	must(store_audit_list(t.store, NULL, 0, 1, follow, &w, &e), e);
	assert_int_equal(w.seq, RETAIN_BATCH + 6);
	assert_string_equal(w.hash, row.hash);
	/* more of the prefix cannot go unsaid, nor the anchor be moved or lost */
	tamper(t.path,
	       "CREATE TABLE put_aside AS SELECT * FROM anchors; UPDATE anchors SET hash = zeroblob(32)");
	assert_int_equal(store_audit_verify(t.store, &w.seq, &w.seq, head, &e), 1);
	tamper(t.path, "DELETE FROM anchors");
	assert_int_equal(store_audit_verify(t.store, &w.seq, &w.seq, head, &e), 1);
	tamper(t.path, "INSERT INTO anchors SELECT * FROM put_aside");
	chain_is_good(t.store, 4, head);
	tamper(t.path,
	       "UPDATE anchors SET seq = seq + 1, hash = (SELECT hash FROM audit ORDER BY seq LIMIT 1);"
	       "DELETE FROM audit WHERE seq IN (SELECT seq FROM anchors)");
	assert_int_equal(store_audit_verify(t.store, &w.seq, &w.seq, head, &e), 1);
	scratch_close(&t);
}

/* All rows old: the chain goes on behind the anchor. */
static void test_retention_of_everything(void **state)
{
	const struct retention all = {.audit_ms = 3600000};
	struct scratch t;
	struct err e = {0};
	char head[65];

	(void)state;
	scratch_open(&t);
	must(store_retain(t.store, &all, &e), e);
	chain_is_good(t.store, 0, head);
	add_rows(t.store, 3);
	must(store_retain(t.store, &all, &e), e);
	chain_is_good(t.store, 1, head);
	scratch_reopen(&t);
	add_rows(t.store, 1);
	chain_is_good(t.store, 2, head);
	scratch_close(&t);
}

/* ------------------------------------------------------------------------------------------- kill -9 */

enum { TURN_ROWS = 3 };

/* Turns of three rows and a sandbox, each told to the parent when it is committed, until killed. */
static void write_until_killed(const char *path, int told)
{
	struct err e = {0};
	struct store *s = store_open(path, &e);
	struct stored_sandbox b = some_sandbox("sbx_count", "a");

	for (int turn = 0; s; turn++) {
		if (store_begin(s, &e) < 0)
			break;
		for (int i = 0; i < TURN_ROWS; i++) {
			struct audit_row row = some_row(i == 0 ? "first" : "other");

			if (store_audit_add(s, &row, &e) < 0)
				_exit(1);
			b.idle_at_ms = row.seq;
		}
		if (store_sandbox_put(s, &b, &e) < 0 || store_commit(s, &e) < 0)
			break;
		if (write(told, &b.idle_at_ms, sizeof b.idle_at_ms) != sizeof b.idle_at_ms)
			break;
	}
	_exit(1);
}

/* The last number that the child told; it lives for so many microseconds after its first. */
static int64_t kill_one(const char *path, unsigned after_us)
{
	int64_t last = 0, told;
	uint64_t end = 0;
	int p[2], status;
	pid_t child;

	assert_int_equal(pipe2(p, O_CLOEXEC), 0);
	child = fork();
	if (child == 0)
		write_until_killed(path, p[1]);
	close(p[1]);
	while (read(p[0], &told, sizeof told) == sizeof told) {
		last = told;
		if (end == 0)
			end = now_us() + after_us;
		if (now_us() >= end)
			kill(child, SIGKILL);
	}
	close(p[0]);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	return last;
}

static void test_killed(void **state)
{
	struct scratch t;
	char head[65];
	unsigned seed = (unsigned)now_us();
	int64_t rows = 0;

	(void)state;
	print_message("seed %u\n", seed);
	t.dir = scratch_make(t.path);
	for (int i = 0; i < 50; i++) {
		struct stored_sandbox b;
		struct err e = {0};
		int64_t told = kill_one(t.path, (unsigned)rand_r(&seed) % 20000), bad;

		t.store = open_store(t.path);
		if (store_audit_verify(t.store, &rows, &bad, head, &e) != 0)
			fail_msg("kill %d: bad at %lld: %s", i, (long long)bad, e.text);
		must(store_sandbox_get(t.store, "sbx_count", &b, &e), e);
		/* whole turns, and all that were told (it was the process that died, not the machine) */
		assert_int_equal(rows % TURN_ROWS, 0);
		assert_int_equal(b.idle_at_ms, rows);
		assert_true(rows >= told && told > 0);
		stored_sandbox_done(&b);
		store_close(t.store);
	}
	print_message("50 kills, %lld rows\n", (long long)rows);
	close(t.dir);
	scratch_remove(t.path);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_bytes),
		cmocka_unit_test(test_tampering),
		cmocka_unit_test(test_truncated_tail),
		cmocka_unit_test(test_list),
		cmocka_unit_test(test_retention),
		cmocka_unit_test(test_retention_of_everything),
		cmocka_unit_test(test_killed),
	};

	return cmocka_run_group_tests_name("audit", tests, NULL, NULL);
}
