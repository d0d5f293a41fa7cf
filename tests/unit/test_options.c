/* SPDX-License-Identifier: Apache-2.0 */
/* Every row of the option table: values it takes, values it refuses, and an error that names the option. */
#include "unit.h"

#include "sandbox/spec.h"

#define LONG_PATH_64 "/aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define LONG_PATH    LONG_PATH_64 LONG_PATH_64 LONG_PATH_64 LONG_PATH_64
#define NAME_65      "a23456789012345678901234567890123456789012345678901234567890123 5"

/* Rows without any value in `good` are covered by tests of their own below. */
static const struct {
	const char *option;
	const char *good[8], *bad[24];
} rows[] = {
	{"image",
	 {"host", "python:3.12-slim", "[::1]:5000/a/b"},
	 {"", "a b", "-x", "a//b", "/", "../host"}},
	{"runtime", {"native"}, {"", "docker", "NATIVE", "runc"}},
	{"profile",
	 {"default", "dev", "no-locks"},
	 {"", "none", "Default", "unconfined", "../dev"}},
	{"memory",
	 {"256m", "1g", "6m", "6291456"},
	 {"", "0", "-1", "1e30", "1e3m", "5m", "6291455", "unlimited", "max", " 1g", "1g ",
	  "99999999t", "0x100000000"}},
	{"memory-swap", {"256m", "2g"}, {"", "0", "-1", "1e30", "1m", "none"}},
	{"cpus",
	 {"0.5", "2", "0.01", "1024"},
	 {"", "0", "-1", "1e30", "0.009", "1024.1", "1025", "all", "500m", "0.5 "}},
	{"pids-limit",
	 {"1", "64", "4194304"},
	 {"", "0", "-1", "1e30", "4194305", "1.5", "64k", "max", "unlimited"}},
	{"timeout",
	 {"5s", "0.001", "2m", "1h"},
	 {"", "0", "-1", "-5s", "1e30", "0.0000001", "5 s", "never", "1d", "99999999999h"}},
	{"cpu-time", {"5s", "100ms", "off"}, {"", "0", "-1", "1e30", "Off"}},
	{"idle-timeout", {"5s", "100ms", "off"}, {"", "0", "-1", "1e30", "Off"}},
	{"max-output",
	 {"1", "65536", "1m", "unlimited"},
	 {"", "0", "-1", "1e30", "Unlimited", "none", "9223372036854775808"}},
	{"on-output-limit", {"drop", "kill"}, {"", "d", "k", "stop", "Kill", "killx"}},
	{"network",
	 {"none", "allow", "open"},
	 {"", "host", "bridge", "all", "None", "container:x", "allow ", "default"}},
	{"allow",
	 {"pypi.org", "*.pythonhosted.org:443", "GET,HEAD https://api.github.com/repos/*",
	  "registry.corp:5000 within=10.0.0.0/8", "192.0.2.7:5432", "passthrough **.example.org",
	  "[2001:db8::1]:443", "http://a.b"},
	 {"",
	  "*",
	  " ",
	  "*:443",
	  "127.1",
	  "0x7f000001",
	  "a.*.b",
	  "*a.b",
	  "***.a",
	  "10.0.0.0/8",
	  "a b",
	  "a.b:0",
	  "a.b:65536",
	  "a.b:",
	  "ftp://a.b",
	  "a.b # c",
	  "a.b\nallow c.d",
	  "https://u@a.b/",
	  "https://a.b/",
	  "https://a.b/c?d",
	  "a.b within=10.0.0.1/8",
	  "passthrough GET a.b",
	  "GET",
	  "within=10.0.0.0/8"}},
	{"deny", {"pypi.org", "*:25", "*", "POST https://a.b/*"}, {"", "a.*", "passthrough a.b"}},
	{"preset", {"pypi", "github-read", "a_1"}, {"", "../x", "A", "-a", "a.b", "a/b"}},
	{"credential", {"github", "1"}, {"", "../x", "A", "a b"}},
	{"network-bytes", {"1", "1g", "unlimited"}, {"", "0", "-1", "1e30", "none"}},
	{"network-connections",
	 {"1", "1000000000", "unlimited"},
	 {"", "0", "-1", "1000000001", "1k", "1.5"}},
	{"user",
	 {"1000", "1000:1000", "65534:1", "4294967294:4294967294"},
	 {"", "0", "0:0", "1000:0", "0:1000", "root", "nobody", "-1", "1e3", "4294967295",
	  "1000:4294967295", "1000:", ":1000", "1000:1000:1000", "1000 ", "0x3e8",
	  "99999999999999999999", "000000000000000000000000000000001"}},
	{"env",
	 {"A=b", "A=", "A==", "A=\n", "PATH=/x"},
	 {"", "=", "=b", "CLOCHE_UNIT_NOT_SET_ANYWHERE"}},
	{"workdir",
	 {"/", "/workspace", "/tmp", "/workspace/a b", "/process", "/procs/x", "/home"},
	 {"",          ".",         "workspace", "../x", "/..",     "/a/..", "/a/../b",
	  "/./a",      "/a/.",      "//",        "//a",  "/a//b",   "/proc", "/proc/self/fd/7",
	  "/dev",      "/dev/fd/3", "/dev/shm",  "/sys", "/sys/fs", "/a\nb", "/a\x7f",
	  "/a\x1b[2J", LONG_PATH}},
	{"tmpfs",
	 {"/data", "/data:size=1m", "/data:size=1m,inodes=2", "/tmp:size=16m",
	  "/data:exec,rw,nosuid,nodev", "/dev/shm:size=1m", "/data:", "/data:noexec"},
	 {"",
	  "data",
	  ":size=1m",
	  "/",
	  "/usr",
	  "/usr/x",
	  "/etc",
	  "/proc",
	  "/sys/x",
	  "/dev",
	  "/dev/x",
	  "/dev/shmx",
	  "/lib64",
	  "/data:size=0",
	  "/data:size=-1",
	  "/data:size=1e30",
	  "/data:size=",
	  "/data:inodes=1",
	  "/data:inodes=0",
	  "/data:suid",
	  "/data:size",
	  "/a/../usr",
	  "/dev/shm:exec",
	  LONG_PATH ":size=1m"}},
	{"volume",
	 {"/a:/b", "/a:/b:ro", "/a:/b:rw", "./a,b:/data", "a b:/c d"},
	 {"",
	  "/a",
	  "/a:",
	  ":/b",
	  ":",
	  "::",
	  "/a:b",
	  "/a:/b:",
	  "/a:/b:RO",
	  "/a:/b:ro,rw",
	  "/a:/b:/c",
	  "/a:/b:ro:rw",
	  "/a:/",
	  "/a:/usr",
	  "/a:/etc/passwd",
	  "/a:/proc",
	  "/a:/dev/null",
	  "/a:/lib",
	  "/a:/b/..",
	  "/a:/b\n",
	  "/a:" LONG_PATH}},
	{"in",
	 {"a", "/a", "a:b", "a:/workspace/b", "dir/", "a:/tmp/x"},
	 {"", ":b", ":", "a:..", "a:../b", "a:/x/../y", "..", "a/..", ".", "/", "a:/a//b", "a:/b\n",
	  "a:" LONG_PATH}},
	{"out", {"x", "/x y", ".", "/a:b"}, {""}},
	{"artifact", {"*.png", "a/b", "[ab]?"}, {"", "/x", "../x", "a/../b", "..", LONG_PATH}},
	{"venv", {"/venv", "venv"}, {""}},
	{"hostname", {"a", "a-b.c", "9"}, {"", "a_b", "a b", "a/b", "a\n", "\xc3\xa4", NAME_65}},
	{"best-effort", {"true", "false"}, {"", "yes", "1", "True", "on", "truefalse"}},
	{"rm", {"true"}, {"", "false", "no"}},
	{"interactive", {"true"}, {"false"}},
	{"read-only", {"true"}, {"false"}},
	{"cap-drop", {"ALL", "all"}, {"", "NET_RAW", "ALL,X"}},
	{"security-opt",
	 {"no-new-privileges", "no-new-privileges:true", "no-new-privileges=true"},
	 {"", "no-new-privileges:false", "seccomp=unconfined", "apparmor=unconfined"}},
	{"name", {"x"}, {""}},
	{"privileged", {NULL}, {"true", "false", ""}},
	{"cap-add", {NULL}, {"ALL", "SYS_ADMIN", ""}},
	{"env-file", {NULL}, {"", "/nonexistent/env", "/"}},
};

static int set(struct spec *s, const char *option, const char *value, struct err *e)
{
	const struct option *o = option_find(option);

	if (!o)
		fail_msg("no such option: %s", option);
	return spec_set(s, o, value, e);
}

static void init(struct spec *s)
{
	struct err e;

	assert_int_equal(spec_init(s, &e), 0);
}

static void test_good_values(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		for (size_t j = 0; j < ARRAY_SIZE(rows[i].good) && rows[i].good[j]; j++) {
			struct err e = {0};
			struct spec s;

			init(&s);
			if (set(&s, rows[i].option, rows[i].good[j], &e) < 0)
				fail_msg("--%s %s: %s", rows[i].option, rows[i].good[j], e.text);
			spec_done(&s);
		}
}

static void test_bad_values(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		for (size_t j = 0; j < ARRAY_SIZE(rows[i].bad) && rows[i].bad[j]; j++) {
			char name[64];
			struct err e = {0};
			struct spec s;

			init(&s);
			snprintf(name, sizeof name, "--%s: ", rows[i].option);
			if (set(&s, rows[i].option, rows[i].bad[j], &e) == 0)
				fail_msg("%s took \"%s\"", name, rows[i].bad[j]);
			if (strncmp(e.text, name, strlen(name)) != 0 ||
			    strlen(e.text) <= strlen(name) + 4)
				fail_msg("%s \"%s\": says \"%s\"", name, rows[i].bad[j], e.text);
			spec_done(&s);
		}
}

/* A refused value leaves what was there. */
static void test_bad_values_change_nothing(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		for (size_t j = 0; j < ARRAY_SIZE(rows[i].bad) && rows[i].bad[j]; j++) {
			const struct option *o = option_find(rows[i].option);
			struct spec s, before;
			struct err e;

			init(&s);
			before = s;
			assert_int_equal(spec_set(&s, o, rows[i].bad[j], &e), -1);
			/* the lists may have made room, past their counts */
			before.volumes = s.volumes;
			before.inputs = s.inputs;
			if (memcmp(&s, &before, sizeof s) != 0)
				fail_msg("--%s \"%s\" was refused and changed the spec", o->name,
					 rows[i].bad[j]);
			spec_done(&s);
		}
}

static void test_every_row_is_tested(void **state)
{
	(void)state;
	for (size_t i = 0; i < option_count; i++) {
		bool found = false;

		for (size_t j = 0; j < ARRAY_SIZE(rows); j++)
			found |= strcmp(options[i].name, rows[j].option) == 0;
		if (!found)
			fail_msg("--%s has no row in this test", options[i].name);
	}
}

static void test_table_is_sound(void **state)
{
	(void)state;
	for (size_t i = 0; i < option_count; i++) {
		const struct option *o = &options[i];

		assert_true(o->name && o->set && o->help && o->help[0]);
		assert_ptr_equal(option_find(o->name), o);
		if (o->letter)
			assert_ptr_equal(option_find_letter(o->letter), o);
		assert_int_equal(o->kind == OPTION_FLAG, o->placeholder == NULL);
		if (o->docker)
			assert_false(o->configurable);
	}
	assert_null(option_find(""));
	assert_null(option_find("memor"));
	assert_null(option_find("memory-swapp"));
	assert_null(option_find_letter(0));
	assert_null(option_find_letter('Z'));
	assert_ptr_equal(option_find("memory_swap"), option_find("memory-swap"));
}

/* What the help says about defaults is what a fresh spec has: setting it changes nothing. */
static void test_default_texts(void **state)
{
	(void)state;
	for (size_t i = 0; i < option_count; i++) {
		const char *text = options[i].default_text;
		struct spec s, before;
		struct err e;

		if (!text || strcmp(text, "off") == 0 || text[0] == '=')
			continue;
		init(&s);
		before = s;
		if (spec_set(&s, &options[i], text, &e) < 0)
			fail_msg("%s", e.text);
		if (memcmp(&s, &before, sizeof s) != 0)
			fail_msg("--%s: default text %s is not the default", options[i].name, text);
		spec_done(&s);
	}
}

/* CONTRACT "Command line". */
static void test_defaults(void **state)
{
	struct spec s;

	(void)state;
	init(&s);
	assert_string_equal(s.image, "host");
	assert_string_equal(s.runtime, "native");
	assert_int_equal(s.memory_bytes, 256 << 20);
	assert_int_equal(s.cpus_millis, 500);
	assert_int_equal(s.pids_limit, 64);
	assert_int_equal(s.timeout_us, 5000000);
	assert_true(s.cpu_time_us == SPEC_UNLIMITED && s.idle_timeout_us == SPEC_UNLIMITED);
	assert_int_equal(s.max_output_bytes, 65536);
	assert_false(s.kill_on_output_limit || s.best_effort);
	assert_int_equal(s.uid, 65534);
	assert_int_equal(s.gid, 65534);
	assert_string_equal(s.workdir, "/workspace");
	assert_int_equal(s.tmpfs_count, 3);
	assert_string_equal(s.tmpfs[0].path, "/tmp");
	assert_int_equal(s.tmpfs[0].size_bytes, 64 << 20);
	assert_int_equal(s.tmpfs[0].inodes, 16384);
	assert_false(s.tmpfs[0].exec);
	assert_string_equal(s.tmpfs[1].path, "/dev/shm");
	assert_int_equal(s.tmpfs[1].size_bytes, 16 << 20);
	assert_false(s.tmpfs[1].exec);
	assert_string_equal(s.tmpfs[2].path, "/workspace");
	assert_int_equal(s.tmpfs[2].size_bytes, 256 << 20);
	assert_true(s.tmpfs[2].exec);
	assert_int_equal(s.env.count, 3);
	assert_string_equal(s.env.item[0], "HOME=/tmp");
	assert_string_equal(s.env.item[1], "PATH=/usr/local/bin:/usr/bin:/bin");
	assert_string_equal(s.env.item[2], "LANG=C.UTF-8");
	assert_null(s.env.item[3]);
	spec_done(&s);
	spec_done(&s);
}

static void test_values_arrive(void **state)
{
	struct spec s;
	struct err e;

	(void)state;
	init(&s);
	assert_int_equal(set(&s, "memory", "1.5g", &e), 0);
	assert_true(s.memory_bytes == 3ull << 29);
	assert_int_equal(set(&s, "cpus", "1.5", &e), 0);
	assert_int_equal(s.cpus_millis, 1500);
	assert_int_equal(set(&s, "max-output", "unlimited", &e), 0);
	assert_true(s.max_output_bytes == SPEC_UNLIMITED);
	assert_int_equal(set(&s, "on-output-limit", "kill", &e), 0);
	assert_true(s.kill_on_output_limit);
	assert_int_equal(set(&s, "user", "1000", &e), 0);
	assert_int_equal(s.uid, 1000);
	assert_int_equal(s.gid, 1000);
	assert_int_equal(set(&s, "user", "7:8", &e), 0);
	assert_int_equal(s.uid, 7);
	assert_int_equal(s.gid, 8);
	assert_int_equal(set(&s, "best-effort", "true", &e), 0);
	assert_true(s.best_effort);
	assert_int_equal(set(&s, "out", "one", &e), 0);
	assert_int_equal(set(&s, "out", "two", &e), 0);
	assert_string_equal(s.out_dir, "two");
	spec_done(&s);
}

static void test_tmpfs(void **state)
{
	char path[32];
	struct spec s;
	struct err e;

	(void)state;
	init(&s);
	assert_int_equal(set(&s, "tmpfs", "/tmp:size=1m,inodes=100", &e), 0);
	assert_int_equal(s.tmpfs_count, 3);
	assert_int_equal(s.tmpfs[0].size_bytes, 1 << 20);
	assert_int_equal(s.tmpfs[0].inodes, 100);
	assert_int_equal(set(&s, "tmpfs", "/tmp:exec", &e), 0);
	assert_int_equal(s.tmpfs[0].size_bytes, 1 << 20);
	assert_true(s.tmpfs[0].exec);
	assert_int_equal(set(&s, "tmpfs", "/data", &e), 0);
	assert_int_equal(s.tmpfs[3].size_bytes, 64 << 20);
	assert_int_equal(s.tmpfs[3].inodes, 16384);
	assert_false(s.tmpfs[3].exec);
	while (s.tmpfs_count < SPEC_MAX_TMPFS) {
		snprintf(path, sizeof path, "/m%zu", s.tmpfs_count);
		assert_int_equal(set(&s, "tmpfs", path, &e), 0);
	}
	assert_int_equal(set(&s, "tmpfs", "/one-more", &e), -1);
	assert_contains(e.text, "at most 16");
	assert_int_equal(set(&s, "tmpfs", "/m5:size=2m", &e), 0);
	assert_int_equal(s.tmpfs_count, SPEC_MAX_TMPFS);
	spec_done(&s);
}

static void test_volume(void **state)
{
	static const struct {
		const char *text, *host, *box;
		bool writable;
	} good[] = {
		{"/a:/b", "/a", "/b", true},
		{"/a:/b:rw", "/a", "/b", true},
		{"/a:/b:ro", "/a", "/b", false},
		{"rel,a=b:/b,size=1:ro", "rel,a=b", "/b,size=1", false},
		{"/a\\:/b", "/a\\", "/b", true},
	};
	char text[32];
	struct spec s;
	struct err e;

	(void)state;
	init(&s);
	for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
		assert_int_equal(set(&s, "volume", good[i].text, &e), 0);
		assert_string_equal(s.volumes[i].host, good[i].host);
		assert_string_equal(s.volumes[i].box, good[i].box);
		assert_int_equal(s.volumes[i].writable, good[i].writable);
	}
	while (s.volume_count < SPEC_MAX_VOLUMES) {
		snprintf(text, sizeof text, "/a:/v%zu", s.volume_count);
		assert_int_equal(set(&s, "volume", text, &e), 0);
	}
	assert_int_equal(set(&s, "volume", "/a:/more", &e), -1);
	assert_contains(e.text, "at most 32");
	assert_int_equal(s.volume_count, SPEC_MAX_VOLUMES);
	spec_done(&s);
}

static void test_in(void **state)
{
	static const struct {
		const char *text, *host, *box;
	} good[] = {
		{"data.csv", "data.csv", "/workspace/data.csv"},
		{"/etc/hosts", "/etc/hosts", "/workspace/hosts"},
		{"dir/", "dir/", "/workspace/dir"},
		{"dir///", "dir///", "/workspace/dir"},
		{"a:b", "a", "/workspace/b"},
		{"a:b/c", "a", "/workspace/b/c"},
		{"a:/tmp/b", "a", "/tmp/b"},
		{"a:b:c", "a:b", "/workspace/c"},
	};
	struct spec s;
	struct err e;

	(void)state;
	init(&s);
	for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
		assert_int_equal(set(&s, "in", good[i].text, &e), 0);
		assert_string_equal(s.inputs[i].host, good[i].host);
		assert_string_equal(s.inputs[i].box, good[i].box);
	}
	while (s.input_count < SPEC_MAX_INPUTS)
		assert_int_equal(set(&s, "in", "x", &e), 0);
	assert_int_equal(set(&s, "in", "x", &e), -1);
	assert_contains(e.text, "at most 256");
	spec_done(&s);
}

/* "/tmp/" is "/tmp", or refused: a second spelling of a place would get past every comparison. */
static void test_one_spelling_of_a_place(void **state)
{
	struct err e;
	struct spec s;

	(void)state;
	init(&s);
	if (set(&s, "tmpfs", "/tmp/:size=1m", &e) == 0)
		assert_int_equal(s.tmpfs_count, 3);
	if (set(&s, "volume", "/a:/data/", &e) == 0)
		assert_string_equal(s.volumes[0].box, "/data");
	if (set(&s, "in", "a:dir/", &e) == 0)
		assert_int_not_equal(s.inputs[0].box[strlen(s.inputs[0].box) - 1], '/');
	if (set(&s, "in", "a:", &e) == 0)
		assert_int_not_equal(s.inputs[0].box[strlen(s.inputs[0].box) - 1], '/');
	spec_done(&s);
}

static void test_env(void **state)
{
	_cleanup_free_ char *big = malloc(SPEC_ARG_BYTES + 8);
	char text[32];
	struct spec s;
	struct err e;

	(void)state;
	init(&s);
	assert_int_equal(set(&s, "env", "HOME=/x", &e), 0);
	assert_int_equal(s.env.count, 3);
	assert_string_equal(s.env.item[0], "HOME=/x");
	assert_int_equal(set(&s, "env", "HOM=/y", &e), 0);
	assert_int_equal(s.env.count, 4);
	setenv("CLOCHE_UNIT_PASSED", "a=b c", 1);
	assert_int_equal(set(&s, "env", "CLOCHE_UNIT_PASSED", &e), 0);
	assert_string_equal(s.env.item[4], "CLOCHE_UNIT_PASSED=a=b c");
	memset(big, 'x', SPEC_ARG_BYTES + 7);
	big[1] = '=';
	big[SPEC_ARG_BYTES] = '\0';
	assert_int_equal(set(&s, "env", big, &e), -1);
	assert_contains(e.text, "longer than 131071 bytes");
	big[SPEC_ARG_BYTES - 1] = '\0';
	assert_int_equal(set(&s, "env", big, &e), 0);
	while (s.env.count < SPEC_MAX_ENV) {
		snprintf(text, sizeof text, "V%zu=", s.env.count);
		assert_int_equal(set(&s, "env", text, &e), 0);
	}
	assert_int_equal(set(&s, "env", "MORE=1", &e), -1);
	assert_int_equal(set(&s, "env", "HOME=/again", &e), 0);
	spec_done(&s);
}

static void env_file(struct spec *s, const char *path, int dir, const char *text, size_t size,
		     int wanted, struct err *e)
{
	char name[300];

	write_at(dir, "env", text, size, 0644);
	snprintf(name, sizeof name, "%s/env", path);
	assert_int_equal(set(s, "env-file", name, e), wanted);
}

static void test_env_file(void **state)
{
	static const char good[] = "# comment\n\nA=1\r\nB=a b=c #d\n  C=2\nD=\nE=last";
	char path[256];
	_cleanup_close_ int dir = scratch_make(path);
	struct spec s;
	struct err e;

	(void)state;
	init(&s);
	env_file(&s, path, dir, good, sizeof good - 1, 0, &e);
	assert_int_equal(s.env.count, 8);
	assert_string_equal(s.env.item[3], "A=1");
	assert_string_equal(s.env.item[4], "B=a b=c #d");
	assert_string_equal(s.env.item[6], "D=");
	assert_string_equal(s.env.item[7], "E=last");
	env_file(&s, path, dir, "", 0, 0, &e);
	env_file(&s, path, dir, "A=1\nB\n", 6, -1, &e);
	assert_contains(e.text, "env line 2");
	env_file(&s, path, dir, "A=1\n=x\n", 7, -1, &e);
	env_file(&s, path, dir, "A=\0x\n", 5, -1, &e);
	assert_contains(e.text, "line 1: has a NUL byte");
	spec_done(&s);
	scratch_remove(path);
}

static void test_hostname_length(void **state)
{
	char name[80];
	struct spec s;
	struct err e;

	(void)state;
	init(&s);
	memset(name, 'a', sizeof name);
	name[64] = '\0';
	assert_int_equal(set(&s, "hostname", name, &e), 0);
	assert_string_equal(s.hostname, name);
	name[64] = 'a';
	name[65] = '\0';
	assert_int_equal(set(&s, "hostname", name, &e), -1);
	spec_done(&s);
}

static void test_box_path_length(void **state)
{
	char path[SPEC_PATH_SIZE + 2];
	struct err e;

	(void)state;
	memset(path, 'a', sizeof path);
	path[0] = '/';
	path[SPEC_PATH_SIZE - 1] = '\0';
	assert_int_equal(box_path_check("path", path, &e), 0);
	path[SPEC_PATH_SIZE - 1] = 'a';
	path[SPEC_PATH_SIZE] = '\0';
	assert_int_equal(box_path_check("path", path, &e), -1);
	assert_contains(e.text, "longer than 255 bytes");
}

/* Its errors carry the code of the API. */
static void test_codes_of_errors(void **state)
{
	struct spec s;
	struct err e;

	(void)state;
	init(&s);
	assert_int_equal(set(&s, "runtime", "gvisor", &e), -1);
	assert_int_equal(e.code, CODE_SANDBOX_RUNTIME_UNAVAILABLE);
	assert_int_equal(set(&s, "memory", "x", &e), -1);
	assert_int_equal(e.code, 0);
	spec_done(&s);
}

/* The amounts that policy compares follow the fields. */
static void test_amounts(void **state)
{
	static const struct {
		const char *option, *value;
		uint64_t amount;
	} amounts[] = {
		{"memory", "1g", 1u << 30},
		{"memory-swap", "2g", 2u << 30},
		{"cpus", "2", 2000},
		{"pids-limit", "5", 5},
		{"timeout", "1s", 1000000},
		{"cpu-time", "2s", 2000000},
		{"idle-timeout", "3s", 3000000},
		{"max-output", "4", 4},
	};
	struct spec s;
	struct err e;

	(void)state;
	init(&s);
	for (size_t i = 0; i < ARRAY_SIZE(amounts); i++) {
		assert_int_equal(set(&s, amounts[i].option, amounts[i].value, &e), 0);
		assert_int_equal(option_find(amounts[i].option)->amount(&s), amounts[i].amount);
	}
	spec_done(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_good_values),
		cmocka_unit_test(test_bad_values),
		cmocka_unit_test(test_bad_values_change_nothing),
		cmocka_unit_test(test_every_row_is_tested),
		cmocka_unit_test(test_table_is_sound),
		cmocka_unit_test(test_default_texts),
		cmocka_unit_test(test_defaults),
		cmocka_unit_test(test_values_arrive),
		cmocka_unit_test(test_tmpfs),
		cmocka_unit_test(test_volume),
		cmocka_unit_test(test_in),
		cmocka_unit_test(test_one_spelling_of_a_place),
		cmocka_unit_test(test_env),
		cmocka_unit_test(test_env_file),
		cmocka_unit_test(test_hostname_length),
		cmocka_unit_test(test_box_path_length),
		cmocka_unit_test(test_codes_of_errors),
		cmocka_unit_test(test_amounts),
	};

	return cmocka_run_group_tests_name("options", tests, NULL, NULL);
}
