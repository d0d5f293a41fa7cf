/* SPDX-License-Identifier: Apache-2.0 */
/* The n-th allocation fails while a spec is read, options are set, settings are loaded and a result is
 * printed: an error or the right answer, never less than asked for, and nothing leaked. */
#include "../unit/unit.h"

#include <jansson.h>

#include "sandbox/result.h"
#include "settings/settings.h"
#include "torture.h"

enum { MOST = 20000 };

static const char spec_text[] =
	"{\"language\":\"python\",\"code\":\"print(1)\",\"args\":[\"a\",\"b\"],\"memory\":\"1g\",\"cpus\":1.5,\"out\":\"o\","
	"\"env\":{\"A\":\"b\",\"N\":1,\"PATH\":\"/x\"},\"tmpfs\":[\"/data:size=1m,inodes=9\"],\"volume\":[\"/a:/b:ro\",\"/c:/d\"],"
	"\"in\":[\"x\",\"y:z\"],\"artifact\":[\"*.png\",\"*.csv\"],\"venv\":\"/v\",\"best_effort\":true,\"timeout\":0.5}";

/* The whole of a finished spec as text, so that two can be compared. */
static char *describe(const struct spec *s, const char *input)
{
	char *text = NULL;
	size_t size;
	FILE *f = open_memstream(&text, &size);

	fprintf(f, "%llu %llu %llu %llu %s %s %s\n", (unsigned long long)s->memory_bytes,
		(unsigned long long)s->memory_swap_bytes, (unsigned long long)s->cpus_millis,
		(unsigned long long)s->timeout_us, s->out_dir, s->venv, input);
	for (size_t i = 0; i < s->command.count; i++)
		fprintf(f, "command %s\n", s->command.item[i]);
	for (size_t i = 0; i < s->env.count; i++)
		fprintf(f, "env %s\n", s->env.item[i]);
	for (size_t i = 0; i < s->artifacts.count; i++)
		fprintf(f, "artifact %s\n", s->artifacts.item[i]);
	for (size_t i = 0; i < s->tmpfs_count; i++)
		fprintf(f, "tmpfs %s %llu\n", s->tmpfs[i].path,
			(unsigned long long)s->tmpfs[i].size_bytes);
	for (size_t i = 0; i < s->volume_count; i++)
		fprintf(f, "volume %s %s %d\n", s->volumes[i].host, s->volumes[i].box,
			s->volumes[i].writable);
	for (size_t i = 0; i < s->input_count; i++)
		fprintf(f, "in %s %s\n", s->inputs[i].host, s->inputs[i].box);
	fclose(f);
	return text;
}

/* 0 and *ret_text (freed by the caller), or -1 with e. n 0: no failure. */
static int read_spec(unsigned n, char **ret_text, struct err *e)
{
	_cleanup_free_ char *input = NULL;
	struct spec s;
	size_t size;
	int r;

	*e = (struct err){0};
	torture_arm(TORTURE_MEMORY, n ? n : UINT32_MAX, 0);
	r = spec_init(&s, e);
	if (r == 0) {
		r = spec_from_json(&s, spec_text, sizeof spec_text - 1, true, NULL, &input, &size,
				   e);
		if (r == 0)
			r = spec_finish(&s, e);
	}
	torture_disarm();
	if (r == 0)
		*ret_text = describe(&s, input);
	spec_done(&s);
	return r;
}

static void test_spec(void **state)
{
	char *wanted = NULL, *got;
	unsigned n, failures = 0;
	unsigned long heap;
	struct err e;

	(void)state;
	assert_int_equal(read_spec(0, &wanted, &e), 0);
	heap = torture_heap();
	for (n = 1; n < MOST; n++) {
		int r;

		got = NULL;
		r = read_spec(n, &got, &e);
		if (r == 0 && strcmp(got, wanted) != 0)
			fail_msg("allocation %u (%s): taken, but not as asked:\n%s", n,
				 torture_victim(), got);
		if (r < 0 && !e.text[0])
			fail_msg("allocation %u (%s): failed without a sentence", n,
				 torture_victim());
		failures += r < 0;
		free(got);
		if (!torture_victim()[0])
			break;
		if (torture_heap() != heap)
			fail_msg("allocation %u (%s): %ld bytes leaked", n, torture_victim(),
				 (long)(torture_heap() - heap));
	}
	print_message("spec: %u allocations, %u errors\n", n - 1, failures);
	assert_true(n > 50 && n < MOST);
	free(wanted);
}

/* ---------------------------------------------------------------------------------------- result */

static struct result make_result(void)
{
	struct result r = {.id = "run_1",
			   .sandbox = "sbx_1",
			   .reason = REASON_TIMEOUT,
			   .limits_hit = 0x3f,
			   .stage = "exec",
			   .cpu_us = 5,
			   .memory_peak_bytes = 6,
			   .pids_peak = 7,
			   .signal = 9};

	r.enforced = (struct enforced){.runtime = "native",
				       .memory = "m",
				       .swap = "s",
				       .cpu = "c",
				       .pids = "p",
				       .network = "n",
				       .network_denials = "d",
				       .rootfs = "r",
				       .disk = "k",
				       .capabilities = "none"};
	r.out = (struct captured){3, 3, strdup("\xff\xfe\xfd"), 3};
	r.err = (struct captured){3, 3, strdup("abc"), 3};
	snprintf(r.message, sizeof r.message, "open /\xff: no");
	r.artifacts = calloc(3, sizeof *r.artifacts);
	r.artifact_count = 3;
	for (size_t i = 0; i < 3; i++)
		r.artifacts[i].path = strdup(i ? "x\xff" : "y");
	r.artifacts[1].skipped = "symbolic link";
	r.artifacts[1].size_bytes = RESULT_UNKNOWN;
	return r;
}

static void test_result(void **state)
{
	struct result r = make_result();
	json_t *wanted = result_to_json(&r);
	unsigned long heap;
	unsigned n;

	(void)state;
	assert_non_null(wanted);
	heap = torture_heap();
	for (n = 1; n < MOST; n++) {
		json_t *j;

		torture_arm(TORTURE_MEMORY, n, 0);
		j = result_to_json(&r);
		torture_disarm();
		if (j && !json_equal(j, wanted)) {
			char *text = json_dumps(j, JSON_COMPACT);

			fail_msg("allocation %u (%s): an object with something missing: %s", n,
				 torture_victim(), text);
		}
		json_decref(j);
		if (!torture_victim()[0])
			break;
		if (torture_heap() != heap)
			fail_msg("allocation %u (%s): %ld bytes leaked", n, torture_victim(),
				 (long)(torture_heap() - heap));
	}
	print_message("result: %u allocations\n", n - 1);
	assert_true(n > 50 && n < MOST);
	json_decref(wanted);
	result_done(&r);
}

/* -------------------------------------------------------------------------------------- settings */

static int load(unsigned n, const struct places *places, char *ret, size_t size, struct err *e)
{
	struct settings t;
	struct spec s;
	int r;

	*e = (struct err){0};
	torture_arm(TORTURE_MEMORY, n ? n : UINT32_MAX, 0);
	r = spec_init(&s, e);
	if (r == 0) {
		r = settings_load(&t, places, true, &s, e);
		if (r == 0)
			r = settings_apply_policy(&t, &s, e);
		torture_disarm();
		if (r == 0)
			snprintf(ret, size, "%llu %llu %s %zu %d",
				 (unsigned long long)s.memory_bytes,
				 (unsigned long long)s.pids_limit,
				 t.uid_range ? t.uid_range : "default block",
				 json_array_size(t.volume_roots), t.has_file);
		settings_done(&t);
	}
	torture_disarm();
	spec_done(&s);
	return r;
}

static void test_settings(void **state)
{
	char path[256], wanted[200], got[200];
	_cleanup_close_ int dir = scratch_make(path);
	struct places places = {.rootless = true};
	unsigned n, failures = 0;
	unsigned long heap;
	struct err e;

	(void)state;
	snprintf(places.system_config, sizeof places.system_config, "%.50s/etc.yaml", path);
	snprintf(places.config, sizeof places.config, "%s/user.yaml", path);
	text_at(dir, "etc.yaml",
		"defaults:\n  memory: 100m\npolicy:\n  pids_limit: 32\n  volume_roots: [/srv]\nuid_range: 200000:1000\n");
	text_at(dir, "user.yaml", "defaults:\n  memory: 200m\n  tmpfs: [/data]\n");
	if (load(0, &places, wanted, sizeof wanted, &e) < 0)
		fail_msg("%s", e.text);
	assert_string_equal(wanted, "209715200 32 200000:1000 1 1");
	heap = torture_heap();
	for (n = 1; n < MOST; n++) {
		int r = load(n, &places, got, sizeof got, &e);

		if (r == 0 && strcmp(got, wanted) != 0)
			fail_msg("allocation %u (%s): settings lost: %s", n, torture_victim(), got);
		if (r < 0 && !e.text[0])
			fail_msg("allocation %u (%s): failed without a sentence", n,
				 torture_victim());
		failures += r < 0;
		if (!torture_victim()[0])
			break;
		if (torture_heap() != heap)
			fail_msg("allocation %u (%s): %ld bytes leaked", n, torture_victim(),
				 (long)(torture_heap() - heap));
	}
	print_message("settings: %u allocations, %u errors\n", n - 1, failures);
	assert_true(n > 30 && n < MOST);
	scratch_remove(path);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_spec),
		cmocka_unit_test(test_result),
		cmocka_unit_test(test_settings),
	};

	(void)argc;
	torture_start(argv);
	return cmocka_run_group_tests_name("torture-parse", tests, NULL, NULL);
}
