/* SPDX-License-Identifier: Apache-2.0 */
/* The n-th allocation, ours or SQLite's, or the n-th system call of ours, fails while the state is opened,
 * written and listed: an error with a sentence or the right answer, never half a transaction, nothing
 * leaked, and the same handle works afterwards. */
#include "../unit/store_unit.h"

#include "store/quota.h"
#include "torture.h"

enum { MOST = 20000 };

/* SQLite asks here, so its allocations count like ours (--wrap). The size is kept in front of each piece. */
static void *piece_new(int size)
{
	size_t *p = malloc(16 + (size_t)size);

	if (!p)
		return NULL;
	*p = (size_t)size;
	return (char *)p + 16;
}

static void piece_free(void *p)
{
	if (p)
		free((char *)p - 16);
}

static void *piece_resize(void *p, int size)
{
	size_t *q = realloc((char *)p - 16, 16 + (size_t)size);

	if (!q)
		return NULL;
	*q = (size_t)size;
	return (char *)q + 16;
}

static int piece_size(void *p)
{
	return p ? (int)*(size_t *)((char *)p - 16) : 0;
}

static int round_up(int size)
{
	return (size + 7) & ~7;
}

static int nothing(void *ignored)
{
	(void)ignored;
	return SQLITE_OK;
}

static void nothing_back(void *ignored)
{
	(void)ignored;
}

static int count_sandbox(const struct stored_sandbox *b, void *data)
{
	assert_string_equal(b->owner, "a");
	assert_string_equal(b->labels, "{\"k\":\"v\"}");
	++*(int *)data;
	return 0;
}

/* One turn, then a look at it. 0, or -1 with e. */
static int work(struct store *s, int *ret_listed, struct err *e)
{
	struct sandbox_filter f = {.owner = "a", .state = -1, .label = "k=v", .limit = 10};
	struct stored_sandbox b = some_sandbox("sbx_1", "a");
	struct stored_run run = some_run("run_1", "sbx_1"), got;
	struct audit_row row = some_row("sbx_1");
	int64_t rows, bad;
	char head[65];
	int r;

	b.labels = (char *)"{\"k\":\"v\"}";
	if (store_begin(s, e) < 0)
		return -1;
	r = store_sandbox_put(s, &b, e);
	if (r == 0)
		r = store_run_put(s, &run, e);
	if (r == 0)
		r = store_audit_add(s, &row, e);
	if (r < 0)
		store_rollback(s);
	else
		r = store_commit(s, e);
	*ret_listed = 0;
	if (r == 0)
		r = store_sandbox_list(s, &f, count_sandbox, ret_listed, e);
	if (r == 0)
		r = store_run_get(s, "run_1", &got, e);
	if (r == 0) {
		stored_run_done(&got);
		r = store_audit_verify(s, &rows, &bad, head, e);
	}
	return r;
}

/* The sandbox, the run and the audit row are all there, or none is. */
static void check_whole(struct store *s, const char *when)
{
	struct stored_sandbox b;
	struct stored_run run;
	struct err e = {0};
	int64_t rows = -1, bad = -1;
	int listed, has_sandbox, has_run;
	char head[65];

	has_sandbox = store_sandbox_get(s, "sbx_1", &b, &e) == 0;
	has_run = store_run_get(s, "run_1", &run, &e) == 0;
	if (has_sandbox)
		stored_sandbox_done(&b);
	if (has_run)
		stored_run_done(&run);
	if (store_audit_verify(s, &rows, &bad, head, &e) != 0)
		fail_msg("%s: chain: %s", when, e.text);
	if (has_sandbox != has_run || rows != has_run)
		fail_msg("%s: half a turn: %d %d %d", when, has_sandbox, has_run, (int)rows);
	if (work(s, &listed, &e) != 0)
		fail_msg("%s: the handle is of no use any more: %s", when, e.text);
	assert_int_equal(listed, 1);
}

/* One round in a new folder. False: nothing was made to fail any more. */
static bool round_of(enum torture_kind kind, unsigned n, int error, unsigned *failures)
{
	char path[256], when[80];
	int dir = scratch_make(path), listed = 0, r = -1;
	struct err e = {0};
	struct store *s;
	bool fired;

	torture_arm(kind, n, error);
	s = store_open(path, &e);
	if (s)
		r = work(s, &listed, &e);
	fired = torture_disarm();
	snprintf(when, sizeof when, "call %u (%s)", n, torture_victim());
	if (r != 0 && (!fired || !e.text[0]))
		fail_msg("%s: %d, says \"%s\"", when, r, e.text);
	if (r == 0 && listed != 1)
		fail_msg("%s: listed %d", when, listed);
	*failures += r != 0;
	if (!s)
		s = open_store(path);
	check_whole(s, when);
	store_close(s);
	close(dir);
	scratch_remove(path);
	return fired;
}

static void test_memory(void **state)
{
	/* A new database per round takes 8 ms: by default one of so many, others each time. */
	const unsigned step = getenv("TORTURE_ALL") ? 1 : 6, first = 1 + (unsigned)now_ms() % step;
	unsigned n, failures = 0;
	unsigned long heap;

	(void)state;
	round_of(TORTURE_MEMORY, MOST, 0, &failures);
	heap = torture_heap();
	for (n = first; n < MOST && round_of(TORTURE_MEMORY, n, 0, &failures); n += step)
		if (torture_heap() != heap)
			fail_msg("allocation %u (%s): %ld bytes leaked", n, torture_victim(),
				 (long)(torture_heap() - heap));
	print_message("store: each of %u from %u to %u, %u errors\n", step, first, n - 1, failures);
	assert_true(n > 100 && n < MOST && failures > 50);
}

static void test_calls(void **state)
{
	unsigned n, failures = 0;

	(void)state;
	for (n = 1; n < MOST && round_of(TORTURE_CALLS, n, EIO, &failures); n++)
		;
	print_message("store: %u system calls, %u errors\n", n - 1, failures);
	assert_true(n > 5 && failures == n - 1);
}

static void use_quotas(unsigned n)
{
	struct quota_need need = {1, 1, 1};
	struct quota_denial d;
	struct quota_table *t;
	struct quota_queue *q;
	struct quota all;
	struct err e = {0};
	json_t *j = NULL;
	int taken = 0;

	quota_none(&all);
	torture_arm(TORTURE_MEMORY, n, 0);
	t = quota_table_new(&all, &all, &quota_default_limits);
	q = quota_queue_new(2, 2);
	if (t) {
		taken = quota_acquire(t, "a", "s", &need, 0, &d, &e) == 0;
		j = quota_report(t, "a", "s", 0, 0);
	}
	if (q && quota_queue_push(q, "a", &need) == 0)
		assert_ptr_equal(quota_queue_pop(q), &need);
	torture_disarm();
	if (t && !taken)
		assert_int_equal(e.errnum, ENOMEM);
	if (j) /* whole or not at all */
		assert_int_equal(json_object_size(j), 3);
	if (t && taken)
		quota_release(t, "a", "s", &need);
	json_decref(j);
	quota_table_free(t);
	quota_queue_free(q);
}

static void test_quotas(void **state)
{
	unsigned long heap;
	unsigned n = 1;

	(void)state;
	use_quotas(MOST);
	heap = torture_heap();
	do {
		use_quotas(n);
		if (torture_heap() != heap)
			fail_msg("allocation %u (%s): leaked", n, torture_victim());
	} while (torture_victim()[0] && ++n < MOST);
	print_message("quota: %u allocations\n", n - 1);
	assert_true(n > 20 && n < MOST);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_memory),
		cmocka_unit_test(test_calls),
		cmocka_unit_test(test_quotas),
	};
	static sqlite3_mem_methods methods = {piece_new, piece_free, piece_resize, piece_size,
					      round_up,  nothing,    nothing_back, NULL};

	(void)argc;
	torture_start(argv);
	if (sqlite3_config(SQLITE_CONFIG_MALLOC, &methods) != SQLITE_OK ||
	    sqlite3_initialize() != SQLITE_OK)
		return 1;
	return cmocka_run_group_tests_name("torture-store", tests, NULL, NULL);
}
