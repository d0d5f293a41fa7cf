/* SPDX-License-Identifier: Apache-2.0 */
/* JSON bodies: every key in every body it may stand in with a right and a wrong value, and in every other
 * one as the unknown field it is there; what is taken, defaults, the operator's policy. */
#include "unit.h"

#include "service/body.h"
#include "service/path.h"
#include "service/problem.h"

static struct service service;
static json_t *root; /* of the body in hand: it lends */

static int take(struct body *b, enum body_kind kind, const struct spec *base, const char *text,
		struct err *e)
{
	json_decref(root);
	root = json_loads(text, JSON_ALLOW_NUL | JSON_DECODE_ANY, NULL);
	if (!root)
		fail_msg("the test's own JSON: %s", text);
	*e = (struct err){0};
	return body_read(b, kind, &service, base, root, e);
}

static void takes(struct body *b, enum body_kind kind, const char *text)
{
	struct err e;

	if (take(b, kind, NULL, text, &e) < 0)
		fail_msg("kind %d: %s: %s", kind, text, e.text);
}

static void refuses(enum body_kind kind, const char *text, int code, const char *why)
{
	struct body b;
	struct err e;

	if (take(&b, kind, NULL, text, &e) == 0)
		fail_msg("kind %d took %s", kind, text);
	body_done(&b);
	if (!strstr(e.text, why))
		fail_msg("kind %d: %s: \"%s\" is not in \"%s\"", kind, text, why, e.text);
	assert_int_equal(e.code, code);
}

#define RUN     BODY_RUN
#define BOX     BODY_SANDBOX
#define EXEC    BODY_EXEC
#define PROCESS BODY_PROCESS
#define ALL     (RUN | BOX | EXEC | PROCESS)

static const struct {
	const char *key;
	unsigned kinds;
	const char *good, *bad, *why;
	int code;
} keys[] = {
	{"memory", RUN | BOX, "\"64m\"", "\"lots\"", "lots"},
	{"memory_swap", RUN | BOX, "\"1g\"", "true", "must be a string or a number"},
	{"cpus", RUN | BOX, "0.5", "\"x\"", "x"},
	{"pids_limit", RUN | BOX, "50", "0", "0"},
	{"tmpfs", RUN | BOX, "[\"/t:size=1m\"]", "[\"t\"]", "absolute"},
	{"hostname", RUN | BOX, "\"h\"", "\"a b\"", "a b"},
	{"profile", RUN | BOX, "\"dev\"", "\"none\"", "none"},
	{"user", RUN | BOX, "\"1000:1000\"", "\"0\"", "0"},
	{"image", RUN | BOX, "\"python:3.12-slim\"", "\"../ubuntu\"", "ubuntu"},
	{"runtime", RUN | BOX, "\"native\"", "\"runsc\"", "runsc",
	 CODE_SANDBOX_RUNTIME_UNAVAILABLE},
	{"network", RUN | BOX, "\"none\"", "\"host\"", "host"},
	{"allow", RUN | BOX, "[\"pypi.org\"],\"network\":\"allow\"", "[\"*\"]", "--network open"},
	{"deny", RUN | BOX, "[\"*:25\"],\"network\":\"open\"", "null",
	 "must be an array of strings"},
	{"preset", RUN | BOX, "[\"pypi\"],\"network\":\"allow\"", "[\"../x\"]", "../x"},
	{"credential", RUN | BOX, "[\"github\"],\"network\":\"allow\"", "[\"\"]", "name"},
	{"network_bytes", RUN | BOX, "1000", "0", "0"},
	{"network_connections", RUN | BOX, "10", "1.5", "1.5"},
	{"volume", RUN | BOX, "[\"/srv/x:/data:ro\"]", "\"/srv/x:/data\"",
	 "must be an array of strings"},
	{"env", ALL, "{\"A\":\"b\"}", "{\"A=\":\"b\"}", "bad name"},
	{"workdir", ALL, "\"/tmp\"", "\"tmp\"", "absolute"},
	{"timeout", ALL, "\"30s\"", "\"soon\"", "soon"},
	{"max_output", RUN | EXEC | PROCESS, "\"1m\"", "\"-1\"", "-1"},
	{"idle_timeout", RUN | BOX, "\"30s\"", "\"soon\"", "soon"},
	{"cpu_time", RUN, "\"5s\"", "\"5\\u0000s\"", "NUL"},
	{"on_output_limit", RUN, "\"kill\"", "\"pause\"", "pause"},
	{"artifact", RUN, "[\"*.png\"]", "[1.5e300]", "a number that fits"},
	{"stdin", RUN | EXEC, "\"text\"", "1", "must be a string"},
	{"stdin_base64", RUN | EXEC, "\"AAE=\"", "\"AAE\"", "base64"},
	{"files", RUN, "[{\"path\":\"a\",\"content\":\"b\"}]", "[{\"path\":\"a\"}]",
	 "[0]: each needs"},
	{"output", RUN, "true", "1", "must be true or false"},
	{"volume_fds", RUN | BOX, "[\"/data:rw\"]", "[1]", "must be an array of strings"},
	{"disk", BOX, "\"64m\"", "\"1k\"", "at least 1m"},
	{"on_timeout", BOX, "\"pause\"", "\"stop\"", "must be kill or pause"},
	{"resume_on_touch", BOX, "false", "\"false\"", "must be true or false"},
	{"labels", BOX, "{\"a\":\"b\"}", "{\"a=\":\"b\"}", "names without ="},
	{"metadata", BOX, "{\"a\":\"b\"}", "{\"a\":1}", "are strings"},
	{"tty", PROCESS, "true", "null", "must be true or false"},
	{"rows", PROCESS, "24", "0", "from 1 to 4096"},
	{"columns", PROCESS, "80", "4097", "from 1 to 4096"},
	{"in", 0, "[\"/x:/y\"]", NULL, NULL},
	{"out", 0, "\"/x\"", NULL, NULL},
	{"venv", 0, "\"/x\"", NULL, NULL},
	{"best_effort", 0, "true", NULL, "a service gives up no limit"},
	{"env_file", 0, "[\"/etc/passwd\"]", NULL, NULL},
	{"memory-swap", 0, "\"1g\"", NULL, NULL},
	{"privileged", 0, "true", NULL, NULL},
};

static void make(char *text, size_t size, enum body_kind kind, const char *key, const char *value)
{
	snprintf(text, size, "{%s\"%s\":%s}", kind == BOX ? "" : "\"command\":[\"true\"],", key,
		 value);
}

static void test_every_key_in_every_body(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(keys); i++)
		for (unsigned kind = 1; kind <= BODY_PROCESS; kind <<= 1) {
			char text[512], why[128];
			struct body b;

			make(text, sizeof text, kind, keys[i].key, keys[i].good);
			snprintf(why, sizeof why, "%s: ", keys[i].key);
			if (!(keys[i].kinds & kind)) {
				/* stdin of a process says whether it stays open; more below */
				if (kind == PROCESS && strcmp(keys[i].key, "stdin") == 0)
					continue;
				snprintf(why, sizeof why, "%s: %s", keys[i].key,
					 keys[i].kinds == 0 && keys[i].why ? keys[i].why
									   : "unknown field");
				refuses(kind, text, 0, why);
				continue;
			}
			takes(&b, kind, text);
			body_done(&b);
			make(text, sizeof text, kind, keys[i].key, keys[i].bad);
			refuses(kind, text, keys[i].code, why);
			/* the clocks of a sandbox are not the command line's */
			refuses(kind, text, keys[i].code,
				kind == BOX && strstr(keys[i].key, "timeout") &&
						strcmp(keys[i].why, "soon") == 0
					? "a duration"
					: keys[i].why);
		}
}

static void test_shape(void **state)
{
	static const char *const none[] = {"[]", "1", "null", "\"{}\"", "true"};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(none); i++)
		for (unsigned kind = 1; kind <= BODY_PROCESS; kind <<= 1)
			refuses(kind, none[i], 0, "must be a JSON object");
	refuses(BOX, "{\"command\":[\"true\"]}", 0, "command: unknown field");
	refuses(BOX, "{\"code\":\"1\"}", 0, "code: unknown field");
	refuses(RUN, "{}", 0, "give either command");
	refuses(EXEC, "{\"language\":\"python\"}", 0, "give either command");
	refuses(EXEC, "{\"command\":[\"a\"],\"code\":\"1\",\"language\":\"python\"}", 0,
		"give either command");
	refuses(RUN, "{\"command\":[]}", 0, "command");
	refuses(RUN, "{\"command\":[\"a\\u0000b\"]}", 0, "without NUL");
	refuses(RUN, "{\"language\":\"perl\",\"code\":\"1\"}", 0, "python, bash or node");
}

static void test_input(void **state)
{
	struct body b;

	(void)state;
	takes(&b, RUN, "{\"language\":\"python\",\"code\":\"print(1)\\u0000\"}");
	assert_int_equal(b.input_size, 9);
	assert_memory_equal(b.input, "print(1)\0", 10);
	assert_int_equal(b.input_bytes, 9);
	assert_int_equal(strlen(b.input_sha256), 64);
	body_done(&b);
	/* printf abc | sha256sum */
	takes(&b, EXEC, "{\"language\":\"bash\",\"code\":\"abc\"}");
	assert_string_equal(b.input_sha256,
			    "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
	body_done(&b);
	takes(&b, EXEC, "{\"command\":[\"cat\"],\"stdin_base64\":\"AP8A\"}");
	assert_int_equal(b.input_size, 3);
	assert_memory_equal(b.input, "\0\xff\0", 3);
	body_done(&b);
	takes(&b, EXEC, "{\"command\":[\"cat\"],\"stdin\":\"\"}");
	assert_non_null(b.input); /* there, and empty */
	assert_int_equal(b.input_size, 0);
	body_done(&b);
	takes(&b, EXEC, "{\"command\":[\"cat\"]}");
	assert_null(b.input);
	body_done(&b);
	refuses(EXEC, "{\"command\":[\"cat\"],\"stdin\":\"a\",\"stdin_base64\":\"AAE=\"}", 0,
		"give one of");
	refuses(RUN, "{\"language\":\"bash\",\"code\":\"a\",\"stdin\":\"b\"}", 0, "give one of");
	refuses(RUN, "{\"language\":\"bash\",\"code\":\"a\",\"stdin\":true}", 0,
		"stdin: true is for");
	takes(&b, PROCESS,
	      "{\"command\":[\"cat\"],\"stdin\":true,\"tty\":true,\"rows\":5,\"columns\":4096}");
	assert_true(b.stdin_open && b.tty);
	assert_int_equal(b.rows, 5);
	assert_int_equal(b.columns, 4096);
	body_done(&b);
	refuses(PROCESS, "{\"command\":[\"cat\"],\"stdin\":1}", 0, "stdin: must be");
}

static void file_is(const char *row, const char *why)
{
	char text[1024];
	struct body b;

	snprintf(text, sizeof text, "{\"command\":[\"true\"],\"files\":[%s]}", row);
	if (why) {
		refuses(RUN, text, 0, why);
		return;
	}
	takes(&b, RUN, text);
	assert_int_equal(json_array_size(b.files), 1);
	body_done(&b);
}

static void test_files(void **state)
{
	char text[400], row[500];
	struct body b;

	(void)state;
	file_is("{\"path\":\"a/b c\",\"content\":\"\"}", NULL);
	file_is("{\"path\":\"/tmp/x\",\"content_base64\":\"\",\"mode\":\"0755\"}", NULL);
	file_is("{\"path\":\"/dev/shm/x\",\"content\":\"\"}", NULL);
	file_is("{\"path\":\"a\",\"content\":\"\",\"content_base64\":\"\"}", "each needs");
	file_is("{\"path\":\"a\",\"content\":\"\",\"owner\":1}", "each needs");
	file_is("{\"content\":\"\"}", "each needs");
	file_is("[]", "each needs");
	file_is("{\"path\":1,\"content\":\"\"}", "path:");
	file_is("{\"path\":\"\",\"content\":\"\"}", "path:");
	file_is("{\"path\":\"a\\u0000\",\"content\":\"\"}", "path:");
	file_is("{\"path\":\"../a\",\"content\":\"\"}", "path:");
	file_is("{\"path\":\"/a/../b\",\"content\":\"\"}", "path:");
	file_is("{\"path\":\"/\",\"content\":\"\"}", "path:");
	file_is("{\"path\":\"/proc/self/mem\",\"content\":\"\"}", "the kernel's");
	file_is("{\"path\":\"//sys/x\",\"content\":\"\"}", "the kernel's");
	file_is("{\"path\":\"a\",\"content\":1}", "content:");
	file_is("{\"path\":\"a\",\"content_base64\":\"A\"}", "content_base64:");
	file_is("{\"path\":\"a\",\"content_base64\":1}", "content_base64:");
	file_is("{\"path\":\"a\",\"content\":\"\",\"mode\":420}", "mode:");
	file_is("{\"path\":\"a\",\"content\":\"\",\"mode\":\"4755\"}", "mode:");
	file_is("{\"path\":\"a\",\"content\":\"\",\"mode\":\"888\"}", "mode:");
	file_is("{\"path\":\"a\",\"content\":\"\",\"mode\":\"44\"}", "mode:");
	memset(text, 'n', sizeof text);
	text[300] = '\0';
	snprintf(row, sizeof row, "{\"path\":\"%s\",\"content\":\"\"}", text);
	file_is(row, "path:");
	takes(&b, RUN,
	      "{\"command\":[\"true\"],\"files\":[{\"path\":\"a\",\"content\":\"\",\"mode\":\"640\"}]}");
	assert_int_equal(json_integer_value(json_object_get(json_array_get(b.files, 0), "mode")),
			 0640);
	body_done(&b);
}

/* n of them, of one shape. */
static char *many(const char *before, const char *each, int n, const char *after)
{
	size_t size = strlen(before) + strlen(after) + (size_t)n * (strlen(each) + 16) + 1, at;
	char *text = malloc(size);

	assert_non_null(text);
	at = (size_t)snprintf(text, size, "%s", before);
	for (int i = 0; i < n; i++) {
		at += (size_t)snprintf(text + at, size - at, "%s", i ? "," : "");
		/* the formats are the four below */
		at += (size_t)snprintf(text + at, size - at, "\"%d\"%s", i, each);
	}
	snprintf(text + at, size - at, "%s", after);
	return text;
}

static void test_how_many(void **state)
{
	struct body b;
	char *text;

	(void)state;
	text = many("{\"labels\":{", ":\"v\"", MAX_LABELS, "}}");
	takes(&b, BOX, text);
	body_done(&b);
	free(text);
	text = many("{\"labels\":{", ":\"v\"", MAX_LABELS + 1, "}}");
	refuses(BOX, text, 0, "at most 32");
	free(text);
	text = many("{\"volume_fds\":[", "", SPEC_MAX_VOLUMES + 1, "]}");
	refuses(BOX, text, 0, "at most 32");
	free(text);
	text = many("{\"command\":[\"true\"],\"files\":[", "", MAX_FILES + 1, "]}");
	refuses(RUN, text, 0, "at most 1024");
	free(text);
}

static void test_clocks_and_defaults(void **state)
{
	struct body b;
	uint64_t us;
	struct err e;

	(void)state;
	takes(&b, BOX, "{}");
	assert_int_equal(b.life_us, 3600ull * 1000000);
	assert_int_equal(b.idle_us, 0);
	assert_true(b.resume_on_touch && !b.pause_on_timeout);
	body_done(&b);
	takes(&b, BOX,
	      "{\"timeout\":\"never\",\"idle_timeout\":90,\"on_timeout\":\"pause\","
	      "\"resume_on_touch\":false}");
	assert_int_equal(b.life_us, 0);
	assert_int_equal(b.idle_us, 90ull * 1000000);
	assert_true(!b.resume_on_touch && b.pause_on_timeout);
	body_done(&b);
	takes(&b, BOX, "{\"timeout\":1.5,\"idle_timeout\":\"off\"}");
	assert_int_equal(b.life_us, 1500000);
	assert_int_equal(b.idle_us, 0);
	body_done(&b);
	refuses(BOX, "{\"timeout\":0}", 0, "timeout: must be a duration");
	refuses(BOX, "{\"timeout\":-5}", 0, "timeout: must be a duration");
	refuses(BOX, "{\"idle_timeout\":[]}", 0,
		"idle_timeout: must be a number or a short string");
	takes(&b, PROCESS, "{\"command\":[\"true\"]}");
	assert_int_equal(b.rows, 24);
	assert_int_equal(b.columns, 80);
	assert_false(b.has_max_output);
	body_done(&b);
	takes(&b, EXEC, "{\"command\":[\"true\"],\"max_output\":\"4k\"}");
	assert_true(b.has_max_output);
	assert_int_equal(b.spec.max_output_bytes, 4096);
	body_done(&b);
	e = (struct err){0};
	root = (json_decref(root), json_string("2h"));
	assert_int_equal(body_duration(root, 7, &us, &e), 0);
	assert_int_equal(us, 7200ull * 1000000);
}

static bool has(const struct strings *list, const char *want)
{
	for (size_t i = 0; i < list->count; i++)
		if (strcmp(list->item[i], want) == 0)
			return true;
	return false;
}

static void test_a_command_takes_its_sandboxes_defaults(void **state)
{
	struct spec base;
	struct body b;
	struct err e = {0};

	(void)state;
	assert_int_equal(spec_init(&base, &e), 0);
	assert_int_equal(spec_add_env(&base, "OF=box", &e), 0);
	snprintf(base.workdir, sizeof base.workdir, "/srv");
	base.uid = base.gid = 4242;
	base.memory_bytes = 77 << 20;
	assert_int_equal(
		take(&b, EXEC, &base, "{\"command\":[\"true\"],\"env\":{\"ITS\":\"own\"}}", &e), 0);
	assert_string_equal(b.spec.workdir, "/srv");
	assert_int_equal(b.spec.uid, 4242);
	assert_int_equal(b.spec.memory_bytes, 77 << 20);
	assert_int_equal(b.spec.timeout_us, 30ull * 1000000);
	assert_true(has(&b.spec.env, "ITS=own") && has(&b.spec.env, "OF=box"));
	body_done(&b);
	assert_int_equal(take(&b, EXEC, &base,
			      "{\"command\":[\"true\"],\"workdir\":\"/w\",\"timeout\":\"1m\"}", &e),
			 0);
	assert_string_equal(b.spec.workdir, "/w");
	assert_int_equal(b.spec.timeout_us, 60ull * 1000000);
	body_done(&b);
	spec_done(&base);
}

static void test_policy(void **state)
{
	struct body b;

	(void)state;
	service.file = json_loads(
		"{\"defaults\":{\"pids_limit\":\"40\"},"
		"\"policy\":{\"memory\":\"100m\",\"timeout\":\"3s\",\"pids_limit\":\"60\","
		"\"volume_roots\":[\"/nowhere\"]}}",
		0, NULL);
	assert_non_null(service.file);
	service.config.max_timeout_us = 600ull * 1000000;
	/* nobody chose: lowered */
	takes(&b, RUN, "{\"command\":[\"true\"]}");
	assert_int_equal(b.spec.memory_bytes, 100 << 20);
	assert_int_equal(b.spec.timeout_us, 3000000);
	assert_int_equal(b.spec.pids_limit, 40);
	body_done(&b);
	takes(&b, BOX, "{}");
	assert_int_equal(b.life_us, 600ull * 1000000);
	body_done(&b);
	/* somebody chose: refused by name */
	refuses(RUN, "{\"command\":[\"true\"],\"memory\":\"101m\"}", PROBLEM_FORBIDDEN, "--memory");
	refuses(RUN, "{\"command\":[\"true\"],\"timeout\":\"4s\"}", PROBLEM_FORBIDDEN, "--timeout");
	refuses(EXEC, "{\"command\":[\"true\"],\"timeout\":\"4s\"}", PROBLEM_FORBIDDEN,
		"--timeout");
	refuses(BOX, "{\"pids_limit\":61}", PROBLEM_FORBIDDEN, "--pids-limit");
	refuses(BOX, "{\"timeout\":\"601s\"}", PROBLEM_FORBIDDEN, "timeout: at most 600 s");
	refuses(BOX, "{\"timeout\":\"never\"}", PROBLEM_FORBIDDEN, "timeout: at most 600 s");
	takes(&b, BOX, "{\"timeout\":\"600s\",\"memory\":\"100m\",\"pids_limit\":60}");
	body_done(&b);
	/* roots of volumes are the spawner's to judge: it opens them */
	takes(&b, BOX, "{\"volume\":[\"/elsewhere:/data\"]}");
	body_done(&b);
	json_decref(TAKE(service.file, NULL));
	service.config.max_timeout_us = 0;
	/* an operator's file that is wrong is nobody's policy */
	service.file = json_loads("{\"policy\":{\"nonsense\":\"1\"}}", 0, NULL);
	service.file_name = "cloche.yaml";
	refuses(RUN, "{\"command\":[\"true\"]}", 0, "cloche.yaml: policy: nonsense");
	json_decref(TAKE(service.file, NULL));
}

static void test_kernel_paths(void **state)
{
	static const char *const kernel[] = {"/proc",     "/proc/1/mem", "//proc",
					     "/./proc/x", "/sys/",       "/dev",
					     "/dev/null", "/dev/shmx",   "/././/dev/x"};
	static const char *const others[] = {"/",          "/procx", "/workspace/proc", "/dev/shm",
					     "/dev/shm/x", "/..",    "/devices",        "/.proc"};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(kernel); i++)
		if (!is_kernel_path(kernel[i]))
			fail_msg("not the kernel's: %s", kernel[i]);
	for (size_t i = 0; i < ARRAY_SIZE(others); i++)
		if (is_kernel_path(others[i]))
			fail_msg("the kernel's: %s", others[i]);
}

static void path_is(const char *path, size_t size, int code, const char *why)
{
	struct err e = {0};
	int r = check_path("path", path, size, &e);

	if (!why) {
		assert_int_equal(r, 0);
		return;
	}
	assert_int_equal(r, -1);
	assert_contains(e.text, why);
	assert_int_equal(e.code, code);
}

static void test_paths(void **state)
{
	char text[4097];

	(void)state;
	path_is("/", 1, 0, NULL);
	path_is("/a/..b/b../...", 14, 0, NULL);
	path_is("/\xc3\xa4", 3, 0, NULL);
	path_is(NULL, 0, 0, "path: is missing");
	path_is("", 0, 0, "absolute");
	path_is("a", 1, 0, "absolute");
	path_is("/a\0b", 4, 0, "no NUL");
	path_is("/\xff", 2, 0, "UTF-8");
	path_is("/..", 3, 0, "..");
	path_is("/a/../b", 7, 0, "..");
	path_is("/a//..", 6, 0, "..");
	path_is("/a/../../proc", 13, 0, "..");
	path_is("/proc/self", 10, PROBLEM_FORBIDDEN, "the kernel's");
	memset(text, 'a', sizeof text);
	text[0] = '/';
	text[4095] = '\0';
	path_is(text, 4095, 0, NULL);
	text[4095] = 'a';
	text[4096] = '\0';
	path_is(text, 4096, 0, "at most 4095");
}

static int forget(void **state)
{
	(void)state;
	json_decref(TAKE(root, NULL));
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_every_key_in_every_body),
		cmocka_unit_test(test_shape),
		cmocka_unit_test(test_input),
		cmocka_unit_test(test_files),
		cmocka_unit_test(test_how_many),
		cmocka_unit_test(test_clocks_and_defaults),
		cmocka_unit_test(test_a_command_takes_its_sandboxes_defaults),
		cmocka_unit_test(test_policy),
		cmocka_unit_test(test_kernel_paths),
		cmocka_unit_test(test_paths),
	};

	return cmocka_run_group_tests(tests, NULL, forget);
}
