/* SPDX-License-Identifier: Apache-2.0 */
/* Quotas: sums, buckets, hostile names, JSON, and the queue in which owners take turns. */
#include "unit.h"

#include "base/json.h"
#include "sandbox/model.h"
#include "store/quota.h"

#define SECOND 1000000ull

static struct quota_table *table(const struct quota *owner, const struct quota *session)
{
	static const struct quota_table_limits small = {.owners = 4, .sessions = 8};
	struct quota none;
	struct quota_table *t;

	quota_none(&none);
	t = quota_table_new(owner ? owner : &none, session ? session : &none, &small);
	assert_non_null(t);
	return t;
}

static struct quota quota_of(const char *json)
{
	struct quota q;
	struct err e = {0};

	quota_none(&q);
	if (quota_from_text(&q, json, strlen(json), &e) < 0)
		fail_msg("%s", e.text);
	return q;
}

/* QUOTA_COUNT + 1: taken */
#define TAKEN ((enum quota_kind)(QUOTA_COUNT + 1))
static enum quota_kind acquire(struct quota_table *t, const char *owner, const char *session,
			       const struct quota_need *need, uint64_t now, struct quota_denial *d)
{
	struct err e = {0};

	if (quota_acquire(t, owner, session, need, now, d, &e) == 0)
		return TAKEN;
	assert_int_equal(e.code, CODE_SANDBOX_QUOTA_EXCEEDED);
	assert_true(d->retry_after_s >= 1);
	return d->kind;
}

static enum quota_kind run(struct quota_table *t, const char *owner, const char *session,
			   uint64_t now, struct quota_denial *d)
{
	struct err e = {0};

	if (quota_take_run(t, owner, session, now, d, &e) == 0)
		return TAKEN;
	assert_int_equal(e.code, CODE_SANDBOX_QUOTA_EXCEEDED);
	return d->kind;
}

static void test_sums(void **state)
{
	const struct quota q =
		quota_of("{\"sandboxes\":2,\"memory\":1000,\"cpus\":1,\"disk\":500}");
	const struct quota_need some = {400, 400, 200}, memory = {601, 1, 1}, cpus = {1, 601, 1},
				disk = {1, 1, 301}, rest = {600, 600, 300},
				most = {UINT64_MAX, 1, 1};
	struct quota_table *t = table(&q, NULL);
	struct quota_denial d;

	(void)state;
	assert_int_equal(acquire(t, "a", NULL, &some, 0, &d), TAKEN);
	assert_int_equal(acquire(t, "a", NULL, &memory, 0, &d), QUOTA_MEMORY);
	assert_false(d.never);
	assert_int_equal(acquire(t, "a", NULL, &most, 0, &d), QUOTA_MEMORY);
	assert_true(d.never);
	assert_int_equal(acquire(t, "a", NULL, &cpus, 0, &d), QUOTA_CPUS);
	assert_int_equal(acquire(t, "a", NULL, &disk, 0, &d), QUOTA_DISK);
	assert_false(d.of_session);
	assert_int_equal(acquire(t, "a", NULL, &rest, 0, &d), TAKEN);
	assert_int_equal(acquire(t, "a", NULL, &(struct quota_need){0}, 0, &d), QUOTA_SANDBOXES);
	assert_int_equal(acquire(t, "b", NULL, &rest, 0, &d), TAKEN);
	quota_release(t, "a", NULL, &some);
	assert_int_equal(acquire(t, "a", NULL, &memory, 0, &d), QUOTA_MEMORY);
	assert_int_equal(acquire(t, "a", NULL, &some, 0, &d), TAKEN);
	/* what is there already is counted, whatever the quota */
	assert_int_equal(quota_adopt(t, "a", NULL, &rest, 0), 0);
	quota_release(t, "a", NULL, &rest);
	assert_int_equal(acquire(t, "a", NULL, &(struct quota_need){0}, 0, &d), QUOTA_SANDBOXES);
	/* too much given back does not make room for more than the quota */
	for (int i = 0; i < 5; i++)
		quota_release(t, "a", NULL, &rest);
	assert_int_equal(acquire(t, "a", NULL, &memory, 0, &d), TAKEN);
	assert_int_equal(acquire(t, "a", NULL, &some, 0, &d), QUOTA_MEMORY);
	quota_table_free(t);
}

static void test_sessions(void **state)
{
	const struct quota owner = quota_of("{\"sandboxes\":3}"),
			   session = quota_of("{\"sandboxes\":2}");
	const struct quota_need need = {1, 1, 1};
	struct quota_table *t = table(&owner, &session);
	struct quota_denial d;

	(void)state;
	assert_int_equal(acquire(t, "a", "s", &need, 0, &d), TAKEN);
	assert_int_equal(acquire(t, "a", "s", &need, 0, &d), TAKEN);
	assert_int_equal(acquire(t, "a", "s", &need, 0, &d), QUOTA_SANDBOXES);
	assert_true(d.of_session);
	/* refused by the session, so nothing was taken of the owner's */
	assert_int_equal(acquire(t, "a", "t", &need, 0, &d), TAKEN);
	assert_int_equal(acquire(t, "a", "t", &need, 0, &d), QUOTA_SANDBOXES);
	assert_false(d.of_session);
	assert_int_equal(acquire(t, "b", "s", &need, 0, &d), TAKEN);
	quota_release(t, "a", "s", &need);
	assert_int_equal(acquire(t, "a", "s", &need, 0, &d), TAKEN);
	quota_table_free(t);
}

static void test_rate(void **state)
{
	const struct quota q = quota_of("{\"runs_per_minute\":6}");
	struct quota_table *t = table(&q, NULL);
	struct quota_denial d;
	uint64_t now = 1000 * SECOND;
	int taken = 0;

	(void)state;
	for (int i = 0; i < 6; i++)
		assert_int_equal(run(t, "a", NULL, now, &d), TAKEN);
	assert_int_equal(run(t, "a", NULL, now, &d), QUOTA_RUNS);
	assert_int_equal(d.retry_after_s, 10);
	assert_int_equal(run(t, "a", NULL, now + 10 * SECOND - 1, &d), QUOTA_RUNS);
	assert_int_equal(d.retry_after_s, 1);
	assert_int_equal(run(t, "a", NULL, now + 10 * SECOND, &d), TAKEN);
	assert_int_equal(run(t, "a", NULL, now + 10 * SECOND, &d), QUOTA_RUNS);
	assert_int_equal(run(t, "a", NULL, now, &d), QUOTA_RUNS); /* a clock that went back */
	/* an hour of asking often loses no fraction: 6 in the minute, and no more than that */
	now += 3600 * SECOND;
	for (uint64_t at = now; at < now + 60 * SECOND; at += 7777)
		taken += run(t, "a", NULL, at, &d) == TAKEN;
	assert_int_equal(taken, 6 + 5);
	quota_table_free(t);
}

static void test_output(void **state)
{
	const struct quota q = quota_of("{\"output_bytes_per_minute\":\"6k\"}");
	struct quota_table *t = table(&q, NULL);
	struct quota_denial d;

	(void)state;
	assert_int_equal(run(t, "a", NULL, 0, &d), TAKEN);
	quota_count_output(t, "a", NULL, 6143, 0);
	assert_int_equal(run(t, "a", NULL, 0, &d), TAKEN);
	quota_count_output(t, "a", NULL, 1 + 1024, 0); /* 1 KiB below nothing: ten seconds */
	assert_int_equal(run(t, "a", NULL, 0, &d), QUOTA_OUTPUT);
	assert_int_equal(d.retry_after_s, 11);
	assert_int_equal(acquire(t, "a", NULL, &(struct quota_need){0}, 0, &d), QUOTA_OUTPUT);
	assert_int_equal(run(t, "a", NULL, 10 * SECOND, &d), QUOTA_OUTPUT);
	assert_int_equal(run(t, "a", NULL, 11 * SECOND, &d), TAKEN);
	/* the debt is bounded */
	quota_count_output(t, "a", NULL, UINT64_MAX, 11 * SECOND);
	quota_count_output(t, "a", NULL, UINT64_MAX, 11 * SECOND);
	assert_int_equal(run(t, "a", NULL, 11 * SECOND, &d), QUOTA_OUTPUT);
	assert_in_range(d.retry_after_s, 600, 601);
	assert_int_equal(run(t, "a", NULL, 612 * SECOND, &d), TAKEN);
	quota_count_output(t, "nobody", "x", 1, 0);
	assert_int_equal(quota_owners(t), 1);
	quota_table_free(t);
}

/* Names that a client makes up: bounded, forgotten only when that gives nobody a fresh start. */
static void test_hostile_names(void **state)
{
	const struct quota session = quota_of("{\"runs_per_minute\":1}");
	const struct quota_need need = {1, 1, 1};
	struct quota_table *t = table(NULL, &session);
	struct quota_denial d;
	char name[16];

	(void)state;
	assert_int_equal(acquire(t, "a", "live", &need, 0, &d), TAKEN);
	for (int i = 0; i < 7; i++) {
		snprintf(name, sizeof name, "s%d", i);
		assert_int_equal(run(t, "a", name, 0, &d), TAKEN);
		assert_int_equal(run(t, "a", name, 0, &d), QUOTA_RUNS);
	}
	for (int i = 0; i < 1000; i++) {
		snprintf(name, sizeof name, "x%d", i);
		assert_int_equal(run(t, "a", name, 59 * SECOND, &d), QUOTA_NAMES);
		assert_true(d.of_session);
	}
	assert_int_equal(quota_sessions(t, "a"), 8);
	/* known ones still answer, other owners have names of their own */
	assert_int_equal(run(t, "a", "s1", 59 * SECOND, &d), QUOTA_RUNS);
	assert_int_equal(run(t, "b", "x1", 59 * SECOND, &d), TAKEN);
	/* once full again they make room, but for the one that lives */
	assert_int_equal(run(t, "a", "new", 60 * SECOND, &d), TAKEN);
	assert_int_equal(quota_sessions(t, "a"), 2);
	assert_int_equal(acquire(t, "a", "live", &need, 60 * SECOND, &d), TAKEN);
	quota_release(t, "a", "live", &need);
	quota_release(t, "a", "live", &need);
	quota_table_free(t);
}

static void test_many_owners(void **state)
{
	const struct quota own = quota_of("{\"sandboxes\":9}");
	const struct quota_need need = {1, 1, 1};
	struct quota_table *t = table(NULL, NULL);
	struct quota_denial d;

	(void)state;
	for (int i = 0; i < 4; i++)
		assert_int_equal(acquire(t, (char[]){(char)('a' + i), 0}, "s", &need, 0, &d),
				 TAKEN);
	assert_int_equal(acquire(t, "e", NULL, &need, 0, &d), QUOTA_NAMES);
	assert_false(d.of_session);
	assert_int_equal(quota_set_owner(t, "e", &own, 0), -EAGAIN);
	/* what runs already is adopted beyond that */
	assert_int_equal(quota_adopt(t, "f", "s", &need, 0), 0);
	assert_int_equal(quota_owners(t), 5);
	quota_release(t, "a", "s", &need);
	quota_release(t, "f", "s", &need);
	assert_int_equal(acquire(t, "e", NULL, &need, 0, &d), TAKEN);
	assert_int_equal(quota_owners(t), 4);
	quota_table_free(t);
}

static void test_own_quota(void **state)
{
	const struct quota usual = quota_of("{\"sandboxes\":1,\"runs_per_minute\":2}");
	const struct quota own = quota_of("{\"sandboxes\":2,\"runs_per_minute\":4}");
	const struct quota_need need = {1, 1, 1};
	struct quota_table *t = table(&usual, NULL);
	struct quota_denial d;

	(void)state;
	assert_int_equal(acquire(t, "a", NULL, &need, 0, &d), TAKEN);
	assert_int_equal(acquire(t, "a", NULL, &need, 0, &d), QUOTA_SANDBOXES);
	assert_int_equal(run(t, "a", NULL, 0, &d), TAKEN);
	assert_int_equal(run(t, "a", NULL, 0, &d), TAKEN);
	assert_int_equal(quota_set_owner(t, "a", &own, 0), 0);
	assert_int_equal(acquire(t, "a", NULL, &need, 0, &d), TAKEN);
	assert_int_equal(acquire(t, "a", NULL, &need, 0, &d), QUOTA_SANDBOXES);
	/* what was taken stays taken: two more, and saying it again gives none */
	for (int i = 0; i < 2; i++) {
		assert_int_equal(run(t, "a", NULL, 0, &d), TAKEN);
		assert_int_equal(quota_set_owner(t, "a", &own, 0), 0);
	}
	assert_int_equal(run(t, "a", NULL, 0, &d), QUOTA_RUNS);
	/* back to less than what is in use: nothing more until it is given back */
	assert_int_equal(quota_set_owner(t, "a", NULL, 0), 0);
	quota_release(t, "a", NULL, &need);
	assert_int_equal(acquire(t, "a", NULL, &need, 0, &d), QUOTA_SANDBOXES);
	quota_table_free(t);
}

static void test_report(void **state)
{
	const struct quota q = quota_of("{\"runs_per_minute\":10,\"memory\":\"1g\"}");
	const struct quota_need need = {1 << 20, 1500, 7};
	struct quota_table *t = table(&q, NULL);
	struct quota_denial d;
	json_t *j, *used;

	(void)state;
	assert_int_equal(acquire(t, "a", "s", &need, 0, &d), TAKEN);
	assert_int_equal(run(t, "a", NULL, 0, &d), TAKEN);
	j = quota_report(t, "a", "s", 7, 0);
	used = json_object_get(j, "used");
	assert_int_equal(json_integer_value(json_object_get(used, "runs_per_minute")), 1);
	assert_int_equal(json_integer_value(json_object_get(used, "memory")), 1 << 20);
	assert_true(json_real_value(json_object_get(used, "cpus")) == 1.5);
	assert_int_equal(
		json_integer_value(json_object_get(json_object_get(j, "limits"), "memory")),
		1 << 30);
	used = json_object_get(json_object_get(j, "session"), "used");
	assert_int_equal(json_integer_value(json_object_get(used, "sandboxes")), 1);
	assert_int_equal(json_integer_value(json_object_get(used, "runs_per_minute")), 0);
	json_decref(j);
	j = quota_report(t, "nobody", NULL, 9, 0);
	assert_int_equal(
		json_integer_value(json_object_get(json_object_get(j, "limits"), "memory")),
		1 << 30);
	assert_int_equal(json_integer_value(json_object_get(json_object_get(j, "used"), "kept")),
			 9);
	json_decref(j);
	quota_table_free(t);
}

/* ----------------------------------------------------------------------------------- what is kept */

static void test_kept(void **state)
{
	const struct quota q = quota_of("{\"kept\":1000}"), own = quota_of("{\"kept\":5000}");
	struct quota_table *t = table(&q, NULL);
	struct quota_denial d;
	json_t *j;

	(void)state;
	assert_true(quota_kept_limit(t, "a") == 1000);
	assert_true(quota_keep(t, "a", 300, 700, 0));
	assert_false(quota_keep(t, "a", 300, 1, 0));
	assert_true(quota_keep(t, "b", 0, 1000, 0)); /* another's own */
	j = quota_report(t, "a", NULL, 300, 0);
	assert_int_equal(json_integer_value(json_object_get(json_object_get(j, "used"), "kept")),
			 1000);
	json_decref(j);
	quota_keep_end(t, "a", 200);
	assert_true(quota_keep(t, "a", 500, 0, 0));
	assert_false(quota_keep(t, "a", 501, 0, 0));
	assert_false(quota_keep(t, "a", 0, UINT64_MAX, 0));
	assert_false(quota_keep(t, "a", UINT64_MAX, 1, 0));
	assert_int_equal(quota_set_owner(t, "c", &own, 0), 0);
	assert_true(quota_kept_limit(t, "c") == 5000 && quota_keep(t, "c", 0, 5000, 0));
	/* what is on its way is not forgotten when there are too many owners */
	for (char name[] = "m"; name[0] < 'z'; name[0]++)
		(void)!run(t, name, NULL, 0, &d);
	assert_false(quota_keep(t, "a", 501, 0, 0));
	assert_true(quota_kept_limit(t, "c") == 5000);
	quota_keep_end(t, "b", UINT64_MAX);
	assert_true(quota_keep(t, "b", 0, 1000, 0));
	quota_keep_end(t, "nobody", 1);
	quota_table_free(t);
}

/* -------------------------------------------------------------------------------------------- JSON */

static void test_json(void **state)
{
	struct quota
		q = quota_of(
			"{\"sandboxes\":5,\"runs_per_minute\":\"60\",\"memory\":\"1.5g\",\"cpus\":2.5,"
			"\"disk\":1000,\"output_bytes_per_minute\":null}"),
		back;
	struct err e = {0};
	json_t *j;

	(void)state;
	assert_true(q.sandboxes == 5 && q.runs_per_minute == 60 && q.memory_bytes == 3ull << 29);
	assert_true(q.cpus_millis == 2500 && q.disk_bytes == 1000);
	assert_true(q.output_bytes_per_minute == QUOTA_NONE);
	j = quota_to_json(&q);
	assert_int_equal(json_object_size(j), QUOTA_COUNT);
	memset(&back, 0, sizeof back);
	assert_int_equal(quota_from_json(&back, j, &e), 0);
	assert_memory_equal(&back, &q, sizeof q);
	json_decref(j);
	/* only what is named changes */
	assert_int_equal(quota_from_text(&q, "{\"sandboxes\":\"unlimited\"}", 25, &e), 0);
	assert_true(q.sandboxes == QUOTA_NONE && q.cpus_millis == 2500);
}

static void test_json_refused(void **state)
{
	static const char *const bad[] = {
		"[]",
		"1",
		"{\"sandbox\":1}",
		"{\"memory_bytes\":1}",
		"{\"\":1}",
		"{\"sandboxes\":0}",
		"{\"sandboxes\":-1}",
		"{\"sandboxes\":1.5}",
		"{\"sandboxes\":\"1.5\"}",
		"{\"sandboxes\":\"2k\"}",
		"{\"sandboxes\":true}",
		"{\"sandboxes\":{}}",
		"{\"memory\":\"\"}",
		"{\"memory\":\"-1\"}",
		"{\"memory\":\"0\"}",
		"{\"memory\":\"1x\"}",
		"{\"memory\":\"99999999t\"}",
		"{\"memory\":1.5}",
		"{\"cpus\":0.001}",
		"{\"cpus\":1e300}",
		"{\"cpus\":-2}",
		"{\"cpus\":\"1000001\"}",
		"{\"cpus\":\"x\"}",
		"{\"sandboxes\":1,\"sandboxes\":2}",
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		struct quota q = quota_of("{\"sandboxes\":7}"), before = q;
		struct err e = {0};

		if (quota_from_text(&q, bad[i], strlen(bad[i]), &e) == 0)
			fail_msg("taken: %s", bad[i]);
		assert_true(e.text[0]);
		assert_memory_equal(&q, &before, sizeof q);
	}
}

/* ------------------------------------------------------------------------------------------- queue */

static void test_queue(void **state)
{
	static char items[] = "abcdefgh";
	struct quota_queue *q = quota_queue_new(3, 6);
	char order[16] = "";
	char *item;

	(void)state;
	assert_null(quota_queue_pop(q));
	for (int i = 0; i < 3; i++)
		assert_int_equal(quota_queue_push(q, "greedy", items + i), 0); /* a b c */
	assert_int_equal(quota_queue_push(q, "greedy", items + 7), -EAGAIN);
	assert_int_equal(quota_queue_push(q, "x", items + 3), 0); /* d e */
	assert_int_equal(quota_queue_push(q, "x", items + 4), 0);
	assert_int_equal(quota_queue_push(q, "y", items + 5), 0); /* f */
	assert_int_equal(quota_queue_push(q, "z", items + 6), -EAGAIN);
	assert_int_equal(quota_queue_length(q), 6);
	while ((item = quota_queue_pop(q)))
		snprintf(order + strlen(order), sizeof order - strlen(order), "%c", *item);
	assert_string_equal(order, "adfbec");
	assert_int_equal(quota_queue_length(q), 0);
	quota_queue_free(q);
}

static void test_queue_remove(void **state)
{
	static char items[] = "abcd";
	struct quota_queue *q = quota_queue_new(10, 10);

	(void)state;
	for (int i = 0; i < 4; i++)
		assert_int_equal(quota_queue_push(q, i < 3 ? "a" : "b", items + i), 0);
	assert_true(quota_queue_remove(q, items + 1));
	assert_false(quota_queue_remove(q, items + 1));
	assert_true(quota_queue_remove(q, items + 3)); /* the last of b: b goes */
	assert_ptr_equal(quota_queue_pop(q), items + 0);
	assert_ptr_equal(quota_queue_pop(q), items + 2);
	assert_null(quota_queue_pop(q));
	assert_int_equal(quota_queue_push(q, "a", items), 0);
	quota_queue_free(q); /* with something in it */
	quota_queue_free(NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_sums),          cmocka_unit_test(test_sessions),
		cmocka_unit_test(test_rate),          cmocka_unit_test(test_output),
		cmocka_unit_test(test_hostile_names), cmocka_unit_test(test_many_owners),
		cmocka_unit_test(test_own_quota),     cmocka_unit_test(test_report),
		cmocka_unit_test(test_kept),          cmocka_unit_test(test_json),
		cmocka_unit_test(test_json_refused),  cmocka_unit_test(test_queue),
		cmocka_unit_test(test_queue_remove),
	};

	return cmocka_run_group_tests_name("quota", tests, NULL, NULL);
}
