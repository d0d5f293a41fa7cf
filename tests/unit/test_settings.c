/* SPDX-License-Identifier: Apache-2.0 */
/* Where a value comes from: file, environment, policy - read by the real cloche-yaml beside the build. */
#include "unit.h"

#include "settings/settings.h"

struct scene {
	char path[256];
	int dir;
	struct places places;
	struct settings settings;
	struct spec spec;
	struct err e;
};

static void begin(struct scene *s)
{
	*s = (struct scene){0};
	s->dir = scratch_make(s->path);
	snprintf(s->places.system_config, sizeof s->places.system_config, "%.50s/etc.yaml",
		 s->path);
	snprintf(s->places.config, sizeof s->places.config, "%s/user.yaml", s->path);
	s->places.rootless = true;
	assert_int_equal(spec_init(&s->spec, &s->e), 0);
}

static void end(struct scene *s)
{
	close(s->dir);
	settings_done(&s->settings);
	spec_done(&s->spec);
	scratch_remove(s->path);
}

static int load(struct scene *s)
{
	return settings_load(&s->settings, &s->places, true, &s->spec, &s->e);
}

static void loaded(struct scene *s)
{
	if (load(s) < 0)
		fail_msg("%s", s->e.text);
}

static enum origin origin(const struct scene *s, const char *name)
{
	return s->settings.origins[option_find(name) - options];
}

static void test_no_files(void **state)
{
	struct scene s;

	(void)state;
	begin(&s);
	loaded(&s);
	assert_false(s.settings.has_file);
	assert_int_equal(settings_apply_policy(&s.settings, &s.spec, &s.e), 0);
	assert_int_equal(s.spec.memory_bytes, 256 << 20);
	assert_int_equal(origin(&s, "memory"), ORIGIN_DEFAULT);
	end(&s);
}

static void test_precedence(void **state)
{
	struct scene s;

	(void)state;
	begin(&s);
	text_at(s.dir, "etc.yaml", "defaults:\n  memory: 100m\n  cpus: 1\n  timeout: 9s\n");
	text_at(s.dir, "user.yaml",
		"defaults:\n  memory: 200m\n  cpus: 2\n  tmpfs: [/data:size=1m]\n");
	setenv("CLOCHE_MEMORY", "300m", 1);
	setenv("CLOCHE_SOMETHING_ELSE", "x", 1);
	loaded(&s);
	unsetenv("CLOCHE_MEMORY");
	assert_int_equal(s.spec.memory_bytes, 300 << 20);
	assert_int_equal(origin(&s, "memory"), ORIGIN_ENV);
	assert_int_equal(s.spec.cpus_millis, 2000);
	assert_int_equal(origin(&s, "cpus"), ORIGIN_FILE);
	assert_int_equal(s.spec.timeout_us, 9000000);
	assert_int_equal(origin(&s, "pids-limit"), ORIGIN_DEFAULT);
	assert_string_equal(s.spec.tmpfs[3].path, "/data");
	assert_true(s.settings.has_file);
	end(&s);
}

static void test_policy(void **state)
{
	struct scene s;

	(void)state;
	begin(&s);
	text_at(s.dir, "etc.yaml",
		"policy:\n  memory: 100m\n  timeout: 2s\n  volume_roots: [/srv]\nuid_range: 200000:1000\n");
	loaded(&s);
	assert_string_equal(s.settings.uid_range, "200000:1000");
	assert_int_equal(settings_apply_policy(&s.settings, &s.spec, &s.e), 0);
	assert_int_equal(s.spec.memory_bytes, 100 << 20); /* nobody chose 256m: lowered */
	assert_int_equal(origin(&s, "memory"), ORIGIN_POLICY);
	assert_int_equal(s.spec.timeout_us, 2000000);
	/* chosen: refused */
	assert_int_equal(spec_set(&s.spec, option_find("memory"), "101m", &s.e), 0);
	s.settings.origins[option_find("memory") - options] = ORIGIN_FLAG;
	assert_int_equal(settings_apply_policy(&s.settings, &s.spec, &s.e), -1);
	assert_contains(s.e.text, "--memory: the operator's policy allows at most 100m");
	assert_int_equal(spec_set(&s.spec, option_find("memory"), "100m", &s.e), 0);
	assert_int_equal(settings_apply_policy(&s.settings, &s.spec, &s.e), 0);
	end(&s);
}

static void volume_policy(const char *roots, const char *folder, int wanted)
{
	char text[300];
	struct scene s;

	begin(&s);
	snprintf(text, sizeof text, "policy:\n  volume_roots: [%s]\n", roots);
	text_at(s.dir, "etc.yaml", text);
	loaded(&s);
	snprintf(text, sizeof text, "%s:/data", folder);
	assert_int_equal(spec_set(&s.spec, option_find("volume"), text, &s.e), 0);
	if (settings_apply_policy(&s.settings, &s.spec, &s.e) != wanted)
		fail_msg("roots %s, volume %s: not %d", roots, folder, wanted);
	end(&s);
}

static void test_volume_roots(void **state)
{
	(void)state;
	volume_policy("/", "/etc", 0);
	volume_policy("/usr", "/etc", -1);
	volume_policy("/usr/", "/usr/share", 0);
	volume_policy("/usr", "/usr", 0);
	volume_policy("/us", "/usr", -1);
	volume_policy("/usr", "/usr/../etc", -1);
	volume_policy("/usr", "/nonexistent", -1);
	volume_policy("/usr, /etc", "/etc/ssl", 0);
}

static void test_a_link_leads_out_of_no_root(void **state)
{
	char text[700];
	struct scene s;

	(void)state;
	begin(&s);
	mkdirat(s.dir, "in", 0755);
	symlinkat("/etc", s.dir, "in/etc");
	snprintf(text, sizeof text, "policy:\n  volume_roots: [%s/in]\n", s.path);
	text_at(s.dir, "etc.yaml", text);
	loaded(&s);
	snprintf(text, sizeof text, "%s/in/etc:/data", s.path);
	assert_int_equal(spec_set(&s.spec, option_find("volume"), text, &s.e), 0);
	assert_int_equal(settings_apply_policy(&s.settings, &s.spec, &s.e), -1);
	assert_contains(s.e.text, "volume_roots");
	end(&s);
}

static void refused(const char *file, const char *text, const char *why)
{
	struct scene s;

	begin(&s);
	text_at(s.dir, file, text);
	if (load(&s) == 0)
		fail_msg("taken: %s", text);
	assert_contains(s.e.text, why);
	assert_contains(s.e.text, file);
	end(&s);
}

static void test_refused(void **state)
{
	(void)state;
	refused("etc.yaml", "defalts:\n  memory: 1g\n", "defalts");
	refused("etc.yaml", "defaults:\n  memry: 1g\n", "memry");
	refused("etc.yaml", "defaults:\n  memory: -1\n", "--memory");
	refused("etc.yaml", "defaults:\n  memory: 0\n", "--memory");
	refused("etc.yaml", "defaults:\n  memory: [1g]\n", "memory");
	refused("etc.yaml", "defaults:\n  memory: {a: b}\n", "memory");
	refused("etc.yaml", "defaults:\n  volume: [/a:/b]\n", "volume");
	refused("etc.yaml", "defaults:\n  env: [A=b]\n", "env");
	refused("etc.yaml", "defaults: x\n", "defaults");
	refused("etc.yaml", "policy: x\n", "policy");
	refused("etc.yaml", "policy:\n  network: some\n", "network");
	refused("etc.yaml", "policy:\n  memory: x\n", "memory");
	refused("etc.yaml", "policy:\n  volume_roots: /srv\n", "volume_roots");
	refused("etc.yaml", "[]\n", "mapping");
	refused("etc.yaml", "defaults:\n  memory: 1g\n  memory: 2g\n", "the same key twice");
	refused("etc.yaml", "\"defaults\\0x\":\n  memory: 1g\n", "NUL");
	refused("etc.yaml", "defaults:\n  memory: \"1g\\0x\"\n", "NUL");
	refused("user.yaml", "policy:\n  memory: 1g\n", "policy");
	refused("user.yaml", "uid_range: 1:2\n", "uid_range");
}

static void test_bad_variable(void **state)
{
	struct scene s;

	(void)state;
	begin(&s);
	setenv("CLOCHE_PIDS_LIMIT", "0", 1);
	assert_int_equal(load(&s), -1);
	unsetenv("CLOCHE_PIDS_LIMIT");
	assert_contains(s.e.text, "CLOCHE_PIDS_LIMIT");
	assert_contains(s.e.text, "--pids-limit");
	end(&s);
}

/* The library's callers have an environment that is no setting of theirs. */
static void test_without_environment(void **state)
{
	struct scene s;

	(void)state;
	begin(&s);
	setenv("CLOCHE_MEMORY", "300m", 1);
	assert_int_equal(settings_load(&s.settings, &s.places, false, &s.spec, &s.e), 0);
	unsetenv("CLOCHE_MEMORY");
	assert_int_equal(s.spec.memory_bytes, 256 << 20);
	end(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_no_files),
		cmocka_unit_test(test_precedence),
		cmocka_unit_test(test_policy),
		cmocka_unit_test(test_volume_roots),
		cmocka_unit_test(test_a_link_leads_out_of_no_root),
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_bad_variable),
		cmocka_unit_test(test_without_environment),
	};

	return cmocka_run_group_tests_name("settings", tests, NULL, NULL);
}
