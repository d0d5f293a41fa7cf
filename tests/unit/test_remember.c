/* SPDX-License-Identifier: Apache-2.0 */
/* What the store keeps of sandboxes and runs as text, read back as after a restart; the API's objects of them. */
#include "store_unit.h"

#include "base/json.h"
#include "service/run.h"

/* In the place of box.c and recover.c. */
static unsigned followed;

void box_follow_wall_clock(struct box *b)
{
	(void)b;
	followed++;
}

/* Of sandboxes that have one: here none has. */
json_t *network_usage_json(const struct box *b)
{
	(void)b;
	return json_null();
}

void recover_store(struct service *v)
{
	(void)v;
	fail_msg("the store failed");
}

static void make_box(struct box *b)
{
	struct err e = {0};

	*b = (struct box){.disk_bytes = 64 << 20, .life_us = 5000000, .expires_us = 1ull << 41};
	must(spec_init(&b->spec, &e), e);
	b->stored = some_sandbox("sbx_1", "uid:1");
	b->stored.spec = b->stored.labels = NULL;
	b->spec.memory_bytes = 100 << 20;
	b->spec.cpus_millis = 1501;
	b->spec.pids_limit = 77;
	b->spec.uid = 70000;
	b->spec.gid = UINT32_MAX - 1;
	b->spec.max_output_bytes = 1ull << 40;
	snprintf(b->spec.workdir, sizeof b->spec.workdir, "/srv/\xc3\xa4");
	snprintf(b->spec.profile, sizeof b->spec.profile, "dev");
	must(spec_add_env(&b->spec, "SECRET=\"quoted\"\n", &e), e);
	b->metadata = json_pack("{ss}", "a", "b");
	b->commands = json_pack("{s[ss]}", "prc_1", "sh", "-c");
}

static void drop(struct box *b)
{
	spec_done(&b->spec);
	json_decref(b->metadata);
	json_decref(b->commands);
	free(b->stored.spec);
	free(b->stored.usage);
	free(b->stored.enforced);
}

static bool same(const struct strings *a, const struct strings *b)
{
	for (size_t i = 0; i < a->count && a->count == b->count; i++)
		if (strcmp(a->item[i], b->item[i]) != 0)
			return false;
	return a->count == b->count;
}

static void test_a_sandbox_comes_back(void **state)
{
	struct box a, b = {0};
	struct err e = {0};

	(void)state;
	make_box(&a);
	box_keep_texts(&a);
	assert_non_null(a.stored.spec);
	assert_null(a.stored.usage); /* not before its end */
	b.stored.spec = strdup(a.stored.spec);
	must(box_restore_spec(&b, &e), e);
	assert_int_equal(b.spec.memory_bytes, a.spec.memory_bytes);
	assert_int_equal(b.spec.cpus_millis, 1501);
	assert_int_equal(b.spec.pids_limit, 77);
	assert_int_equal(b.spec.uid, 70000);
	assert_int_equal(b.spec.gid, UINT32_MAX - 1);
	assert_int_equal(b.spec.max_output_bytes, 1ull << 40);
	assert_int_equal(b.disk_bytes, a.disk_bytes);
	assert_int_equal(b.life_us, a.life_us);
	assert_int_equal(b.expires_us, a.expires_us);
	assert_string_equal(b.spec.workdir, a.spec.workdir);
	assert_string_equal(b.spec.profile, "dev");
	assert_true(same(&a.spec.env, &b.spec.env));
	assert_true(json_equal(a.metadata, b.metadata) && json_equal(a.commands, b.commands));
	/* and is kept the same again */
	snprintf(b.spec.image, sizeof b.spec.image, "%s", a.spec.image);
	box_keep_texts(&b);
	assert_string_equal(b.stored.spec, a.stored.spec);
	drop(&a);
	drop(&b);
}

/* Its environment may hold secrets: it goes with the sandbox. */
static void test_an_ended_sandbox_keeps_no_environment(void **state)
{
	_cleanup_json_ json_t *usage = NULL;
	struct box b;

	(void)state;
	make_box(&b);
	box_keep_texts(&b);
	assert_contains(b.stored.spec, "SECRET");
	b.stored.state = STATE_ENDED;
	b.has_counters = true;
	b.counters = (struct spawner_counters){
		.cpu_us = 1500, .memory_peak_bytes = UINT64_MAX, .pids_peak = 3};
	box_keep_texts(&b);
	assert_null(strstr(b.stored.spec, "SECRET"));
	assert_null(strstr(b.stored.spec, "prc_1"));
	assert_contains(b.stored.spec, "\"metadata\":{\"a\":\"b\"}");
	usage = json_loads(b.stored.usage, 0, NULL);
	assert_true(json_real_value(json_object_get(usage, "cpu_ms")) == 1.5);
	assert_true(json_is_null(json_object_get(usage, "memory_peak_bytes")));
	assert_int_equal(json_integer_value(json_object_get(usage, "pids_peak")), 3);
	drop(&b);
}

static void test_what_a_store_may_hold(void **state)
{
	static const char *const texts[] = {NULL, "{}", "{\"limits\":5,\"defaults\":[]}"};
	struct err e = {0};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
		struct box b = {0};

		b.stored.spec = texts[i] ? strdup(texts[i]) : NULL;
		must(box_restore_spec(&b, &e), e);
		assert_string_equal(b.spec.profile, "default");
		assert_string_equal(b.spec.workdir, "/workspace");
		assert_int_equal(b.spec.env.count, 0);
		drop(&b);
	}
	for (int i = 0; i < 2; i++) {
		struct box b = {0};

		b.stored.spec =
			strdup(i ? "{\"defaults\":{\"env\":[\"no equals sign\"]}}" : "rubbish");
		assert_int_equal(box_restore_spec(&b, &e), -1);
		assert_true(e.text[0]);
		drop(&b);
	}
}

static void test_the_object_of_a_sandbox(void **state)
{
	static const char *const names[] = {"creating", "running", "paused", "ended"};
	struct box b;

	(void)state;
	make_box(&b);
	b.stored.labels = (char *)"{\"l\":\"v\"}";
	b.stored.expires_ms = 1700000000000;
	b.stored.reason = REASON_TIMEOUT;
	for (int s = STATE_CREATING; s <= STATE_ENDED; s++) {
		bool ended = s == STATE_ENDED;
		json_t *j;

		b.stored.state = (enum state)s;
		box_keep_texts(&b);
		j = sandbox_json(&b.stored, ended ? NULL : &b);
		assert_non_null(j);
		assert_string_equal(json_string_value(json_object_get(j, "state")), names[s]);
		assert_int_equal(json_is_null(json_object_get(j, "reason")), !ended);
		assert_int_equal(json_is_null(json_object_get(j, "expires_at")), ended);
		assert_string_equal(
			json_string_value(json_object_get(json_object_get(j, "labels"), "l")), "v");
		assert_int_equal(
			json_integer_value(json_object_get(json_object_get(j, "limits"), "pids")),
			77);
		assert_null(json_object_get(j, "defaults"));
		assert_int_equal(json_object_size(json_object_get(j, "usage")), 6);
		json_decref(j);
	}
	assert_int_equal(followed, 3); /* while it lives its end is told by the clock of the day */
	drop(&b);
}

static void test_where_artifacts_are(void **state)
{
	static struct artifact list[] = {
		{.path = (char *)"a b/\xc3\xa4#?.png", .size_bytes = 3},
		{.path = (char *)"left", .size_bytes = RESULT_UNKNOWN, .skipped = "too large"}};
	struct run r = {.result = {.artifacts = list, .artifact_count = 2}};
	json_t *j, *rows;

	(void)state;
	snprintf(r.result.id, sizeof r.result.id, "run_1");
	r.result.enforced = (struct enforced){
		"native",      .memory = "",          .swap = "",   .cpu = "",  .pids = "",
		.network = "", .network_denials = "", .rootfs = "", .disk = "", .capabilities = ""};
	j = run_result_json(&r);
	assert_non_null(j);
	rows = json_object_get(j, "artifacts");
	assert_string_equal(json_string_value(json_object_get(json_array_get(rows, 0), "href")),
			    "/v1/runs/run_1/artifacts/a%20b/%C3%A4%23%3F.png");
	assert_null(json_object_get(json_array_get(rows, 1), "href"));
	r.json = j; /* once it is complete it is given as it is */
	assert_ptr_equal(run_result_json(&r), j);
	json_decref(j);
	json_decref(j);
}

/* Only what we bring about is a verdict; what init tells is judged anew. */
static void test_verdicts_come_back(void **state)
{
	static const enum reason ours[] = {REASON_TIMEOUT,      REASON_CPU_TIME,
					   REASON_IDLE_TIMEOUT, REASON_OUTPUT_LIMIT,
					   REASON_CANCELLED,    REASON_KILLED};
	static const char *const none[] = {
		NULL, "", "rubbish", "{}", "{\"reason\":5}", "{\"reason\":\"\"}"};
	char text[128];

	(void)state;
	for (int i = 0; i < REASON_COUNT; i++) {
		struct run r = {0};
		bool is_ours = false;

		for (size_t k = 0; k < ARRAY_SIZE(ours); k++)
			is_ours = is_ours || ours[k] == (enum reason)i;
		snprintf(text, sizeof text, "{\"reason\":\"%s\",\"message\":\"why\"}",
			 reasons[i].name);
		run_take_stored_verdict(&r, text);
		assert_int_equal(r.evidence.has_verdict, is_ours);
		if (is_ours)
			assert_int_equal(r.evidence.verdict, i);
		assert_string_equal(r.result.message, is_ours ? "why" : "");
	}
	for (size_t i = 0; i < ARRAY_SIZE(none); i++) {
		struct run r = {0};

		run_take_stored_verdict(&r, none[i]);
		assert_false(r.evidence.has_verdict);
	}
}

/* A run that nobody knows any more, with this result in the store; ended for `why`: it becomes `want`. */
static void lost(struct service *v, const char *result, enum reason why, enum reason want)
{
	struct stored_run stored = some_run("run_1", "sbx_1"), got;
	_cleanup_json_ json_t *j = NULL;
	struct err e = {0};

	stored.result = result ? strdup(result) : NULL;
	run_lost(v, &stored, why);
	assert_int_equal(service_commit(v), 0);
	free(stored.result);
	free(stored.error_code);
	must(store_run_get(v->store, "run_1", &got, &e), e);
	assert_true(got.ended && got.ended_ms > 0);
	assert_int_equal(got.reason, want);
	j = json_loads(got.result, 0, NULL);
	assert_string_equal(json_string_value(json_object_get(j, "reason")), reasons[want].name);
	stored_run_done(&got);
}

static void test_lost_runs(void **state)
{
	static struct service v;
	struct scratch t;

	(void)state;
	scratch_open(&t);
	v.store = t.store;
	lost(&v, NULL, REASON_KILLED, REASON_KILLED);
	lost(&v, NULL, REASON_LOST, REASON_LOST);
	/* that its sandbox ended in order says nothing of how it ended */
	lost(&v, NULL, REASON_EXITED, REASON_LOST);
	lost(&v, "rubbish", REASON_OOM, REASON_OOM);
	/* what was written down before its end was brought about is what it was */
	lost(&v, "{\"reason\":\"timeout\",\"error_code\":\"SANDBOX_TIMEOUT\"}", REASON_KILLED,
	     REASON_TIMEOUT);
	lost(&v, "{\"reason\":\"exited\",\"exit_code\":3}", REASON_LOST, REASON_EXITED);
	scratch_close(&t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_sandbox_comes_back),
		cmocka_unit_test(test_an_ended_sandbox_keeps_no_environment),
		cmocka_unit_test(test_what_a_store_may_hold),
		cmocka_unit_test(test_the_object_of_a_sandbox),
		cmocka_unit_test(test_where_artifacts_are),
		cmocka_unit_test(test_verdicts_come_back),
		cmocka_unit_test(test_lost_runs),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
