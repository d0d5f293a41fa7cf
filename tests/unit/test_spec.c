/* SPDX-License-Identifier: Apache-2.0 */
/* A spec from JSON, and what spec_finish() makes of it. */
#include "unit.h"

#include "base/json.h"
#include "sandbox/spec.h"

#define RUN "\"command\":[\"true\"]"

static int from_json(struct spec *s, const char *text, char **ret_stdin, size_t *ret_size,
		     struct err *e)
{
	struct err ignored;
	int r;

	*ret_stdin = NULL;
	assert_int_equal(spec_init(s, &ignored), 0);
	r = spec_from_json(s, text, strlen(text), true, NULL, ret_stdin, ret_size, e);
	if (r < 0)
		assert_null(*ret_stdin);
	return r;
}

static void good(struct spec *s, const char *text)
{
	_cleanup_free_ char *input = NULL;
	struct err e = {0};
	size_t size;

	if (from_json(s, text, &input, &size, &e) < 0)
		fail_msg("%s: %s", text, e.text);
	assert_null(input);
}

static void bad(const char *text, const char *why)
{
	_cleanup_free_ char *input = NULL;
	struct err e = {0};
	struct spec s;
	size_t size;

	if (from_json(&s, text, &input, &size, &e) == 0)
		fail_msg("taken: %.100s", text);
	assert_contains(e.text, why);
	spec_done(&s);
}

static void test_all_fields(void **state)
{
	struct spec s;

	(void)state;
	good(&s,
	     "{\"command\":[\"echo\",\"a b\",\"\"],\"image\":\"host\",\"runtime\":\"native\",\"profile\":\"dev\","
	     "\"memory\":\"1g\",\"memory_swap\":\"2g\",\"cpus\":1.5,\"pids_limit\":10,\"timeout\":2.5,"
	     "\"cpu_time\":1,\"idle_timeout\":\"500ms\",\"max_output\":1000,\"on_output_limit\":\"kill\","
	     "\"network\":\"none\",\"user\":\"1000:1001\",\"env\":{\"A\":\"b\",\"N\":1,\"T\":true},"
	     "\"workdir\":\"/tmp\",\"tmpfs\":[\"/data:size=1m\"],\"volume\":[\"/a:/b:ro\"],\"in\":[\"x\",\"y:z\"],"
	     "\"out\":\"o\",\"artifact\":[\"*.png\"],\"venv\":\"/v\",\"hostname\":\"h\",\"best_effort\":true}");
	assert_int_equal(s.command.count, 3);
	assert_string_equal(s.command.item[1], "a b");
	assert_string_equal(s.command.item[2], "");
	assert_null(s.command.item[3]);
	assert_string_equal(s.profile, "dev");
	assert_true(s.memory_bytes == 1u << 30 && s.memory_swap_bytes == 2ull << 30);
	assert_int_equal(s.cpus_millis, 1500);
	assert_int_equal(s.pids_limit, 10);
	assert_int_equal(s.timeout_us, 2500000);
	assert_int_equal(s.cpu_time_us, 1000000);
	assert_int_equal(s.idle_timeout_us, 500000);
	assert_int_equal(s.max_output_bytes, 1000);
	assert_true(s.kill_on_output_limit && s.best_effort);
	assert_int_equal(s.uid, 1000);
	assert_int_equal(s.gid, 1001);
	assert_string_equal(s.env.item[3], "A=b");
	assert_string_equal(s.env.item[4], "N=1");
	assert_string_equal(s.env.item[5], "T=true");
	assert_string_equal(s.workdir, "/tmp");
	assert_string_equal(s.tmpfs[3].path, "/data");
	assert_string_equal(s.volumes[0].box, "/b");
	assert_string_equal(s.inputs[1].box, "/workspace/z");
	assert_string_equal(s.out_dir, "o");
	assert_string_equal(s.artifacts.item[0], "*.png");
	assert_string_equal(s.venv, "/v");
	assert_string_equal(s.hostname, "h");
	spec_done(&s);
}

static void test_numbers_are_bytes_and_seconds(void **state)
{
	static const struct {
		const char *text;
		uint64_t memory, timeout;
	} rows[] = {
		{"268435456", 268435456, 0},
		{"268435456.0", 268435456, 0},
		{"9007199254740992", 1ull << 53, 0},
		{"\"256m\"", 256u << 20, 0},
	};
	struct spec s;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		char text[200];

		snprintf(text, sizeof text, "{" RUN ",\"memory\":%s}", rows[i].text);
		good(&s, text);
		assert_true(s.memory_bytes == rows[i].memory);
		spec_done(&s);
	}
	good(&s, "{" RUN ",\"timeout\":0.1,\"idle_timeout\":1e1}");
	assert_int_equal(s.timeout_us, 100000);
	assert_int_equal(s.idle_timeout_us, 10000000);
	spec_done(&s);
}

static void test_command_string(void **state)
{
	struct spec s;

	(void)state;
	good(&s, "{\"command\":\"echo $HOME; exit 3\"}");
	assert_int_equal(s.command.count, 3);
	assert_string_equal(s.command.item[0], "sh");
	assert_string_equal(s.command.item[1], "-c");
	assert_string_equal(s.command.item[2], "echo $HOME; exit 3");
	spec_done(&s);
}

static void test_code(void **state)
{
	static const struct {
		const char *language, *program, *flag;
	} rows[] = {{"python", "python3", "-"}, {"bash", "bash", "-s"}, {"node", "node", "-"}};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		_cleanup_free_ char *input = NULL;
		struct err e;
		struct spec s;
		size_t size;
		char text[200];

		snprintf(
			text, sizeof text,
			"{\"language\":\"%s\",\"code\":\"print(1)\\r\\n\\u00e4\",\"args\":[\"-x\",\"\"]}",
			rows[i].language);
		assert_int_equal(from_json(&s, text, &input, &size, &e), 0);
		assert_int_equal(s.command.count, 4);
		assert_string_equal(s.command.item[0], rows[i].program);
		assert_string_equal(s.command.item[1], rows[i].flag);
		assert_string_equal(s.command.item[2], "-x");
		assert_string_equal(s.command.item[3], "");
		assert_int_equal(size, 12);
		assert_memory_equal(input, "print(1)\r\n\xc3\xa4", 13);
		spec_done(&s);
	}
}

static void test_empty_code(void **state)
{
	_cleanup_free_ char *input = NULL;
	struct err e;
	struct spec s;
	size_t size = 9;

	(void)state;
	assert_int_equal(from_json(&s, "{\"language\":\"bash\",\"code\":\"\"}", &input, &size, &e),
			 0);
	assert_non_null(input);
	assert_int_equal(size, 0);
	spec_done(&s);
}

static void test_what_runs(void **state)
{
	(void)state;
	bad("{}", "either command, or language and code");
	bad("{\"memory\":\"1g\"}", "either command");
	bad("{" RUN ",\"language\":\"python\",\"code\":\"1\"}", "either command");
	bad("{" RUN ",\"args\":[\"x\"]}", "either command");
	bad("{\"language\":\"python\"}", "either command");
	bad("{\"code\":\"1\"}", "either command");
	bad("{\"language\":\"ruby\",\"code\":\"1\"}", "language: must be");
	bad("{\"language\":\"\",\"code\":\"1\"}", "language: must be");
	bad("{\"language\":1,\"code\":\"1\"}", "language: must be");
	bad("{\"language\":null,\"code\":\"1\"}", "language: must be");
	bad("{\"language\":\"python\",\"code\":1}", "code: must be a string");
	bad("{\"language\":\"python\",\"code\":\"1\",\"args\":\"x\"}", "args: must be an array");
	bad("{\"language\":\"python\",\"code\":\"1\",\"args\":[1]}", "args[0]: must be a string");
	bad("{\"command\":null}", "command: must be");
	bad("{\"command\":1}", "command: must be");
	bad("{\"command\":true,\"best_effort\":true}", "command: must be");
	bad("{\"command\":{}}", "command: must be");
	bad("{\"command\":[\"a\",1]}", "command[1]: must be a string");
	bad("{\"command\":[\"a\",null]}", "command[1]: must be a string");
	bad("{\"command\":[[\"a\"]]}", "command[0]: must be a string");
	bad("[]", "must be a JSON object");
	bad("1", "JSON line");
	bad("\"true\"", "JSON line");
	bad("", "JSON line");
}

static void test_refused_fields(void **state)
{
	static const char *const unknown[] = {
		"memry",        "Memory",     "",        "memory-swap",
		"env_file",     "env-file",   "rm",      "interactive",
		"read_only",    "cap_drop",   "cap_add", "privileged",
		"security_opt", "name",       "json",    "direct",
		"__proto__",    "pids-limit",
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(unknown); i++) {
		char text[100];

		snprintf(text, sizeof text, "{" RUN ",\"%s\":\"true\"}", unknown[i]);
		bad(text, "unknown field");
	}
	bad("{" RUN "," RUN "}", "duplicate");
	bad("{" RUN ",\"memory\":1,\"memory\":1}", "duplicate");
}

static void test_types(void **state)
{
	(void)state;
	bad("{" RUN ",\"memory\":null}", "memory: ");
	bad("{" RUN ",\"memory\":[1]}", "memory: ");
	bad("{" RUN ",\"memory\":{}}", "memory: ");
	bad("{" RUN ",\"memory\":true}", "memory: ");
	bad("{" RUN ",\"memory\":-1}", "memory: ");
	bad("{" RUN ",\"memory\":-268435456.0}", "memory: ");
	bad("{" RUN ",\"memory\":0}", "memory: ");
	bad("{" RUN ",\"memory\":1e30}", "memory: ");
	bad("{" RUN ",\"memory\":9223372036854775807123}", "JSON line");
	bad("{" RUN ",\"timeout\":0.0000001}", "timeout: ");
	bad("{" RUN ",\"timeout\":-0.5}", "timeout: ");
	bad("{" RUN ",\"pids_limit\":1.5}", "pids_limit: ");
	bad("{" RUN ",\"best_effort\":1}", "best_effort: ");
	bad("{" RUN ",\"best_effort\":null}", "best_effort: ");
	bad("{" RUN ",\"env\":[\"A=b\"]}", "env: must be an object");
	bad("{" RUN ",\"env\":{\"A\":null}}", "env: A: ");
	bad("{" RUN ",\"env\":{\"A\":[]}}", "env: A: ");
	bad("{" RUN ",\"env\":{\"A=B\":\"c\"}}", "env: A=B: ");
	bad("{" RUN ",\"env\":{\"\":\"c\"}}", "env: ");
	bad("{" RUN ",\"tmpfs\":\"/a\"}", "tmpfs: must be an array");
	bad("{" RUN ",\"volume\":{\"/a\":\"/b\"}}", "volume: must be an array");
	bad("{" RUN ",\"volume\":[null]}", "volume: ");
	bad("{" RUN ",\"volume\":[\"/a\"]}", "volume: ");
	bad("{" RUN ",\"user\":0}", "user: ");
	bad("{" RUN ",\"image\":\"x\\u0000y\"}", "JSON line");
}

/* "env" in JSON is literal: a name alone never takes a value of the service's environment. */
static void test_env_is_literal(void **state)
{
	struct spec s;

	(void)state;
	setenv("CLOCHE_UNIT_SECRET", "secret", 1);
	good(&s, "{" RUN ",\"env\":{\"CLOCHE_UNIT_SECRET\":\"\"}}");
	assert_string_equal(s.env.item[3], "CLOCHE_UNIT_SECRET=");
	spec_done(&s);
}

/* A caller on another machine names no path of this one and gives up no limit. */
static void test_far_caller(void **state)
{
	static const char *const mine[] = {"volume\":[\"/a:/b\"]", "in\":[\"x\"]",
					   "out\":\"o\"",          "venv\":\"/v\"",
					   "best_effort\":true",   "best_effort\":false"};
	char *input, text[200];
	struct err e = {0};
	struct spec s;
	size_t size;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(mine); i++) {
		snprintf(text, sizeof text, "{" RUN ",\"%s}", mine[i]);
		assert_int_equal(spec_init(&s, &e), 0);
		assert_int_equal(
			spec_from_json(&s, text, strlen(text), false, NULL, &input, &size, &e), -1);
		assert_contains(e.text, "not allowed here");
		spec_done(&s);
		good(&s, text);
		spec_done(&s);
	}
}

static void test_was_set(void **state)
{
	static const char text[] = "{" RUN ",\"memory_swap\":\"1g\",\"env\":{}}";
	bool was_set[64] = {false};
	char *input;
	struct err e = {0};
	struct spec s;
	size_t size;

	(void)state;
	assert_int_equal(spec_init(&s, &e), 0);
	assert_int_equal(
		spec_from_json(&s, text, sizeof text - 1, false, was_set, &input, &size, &e), 0);
	for (size_t i = 0; i < option_count; i++)
		assert_int_equal(was_set[i], &options[i] == option_find("memory-swap") ||
						     &options[i] == option_find("env"));
	spec_done(&s);
}

static void test_too_much(void **state)
{
	size_t size = SPEC_ARG_BYTES + 64;
	_cleanup_free_ char *text = malloc(size);
	struct spec s;

	(void)state;
	memset(text, 'x', size);
	memcpy(text, "{\"command\":[\"", 13);
	memcpy(text + 13 + SPEC_ARG_BYTES, "\"]}", 4);
	bad(text, "argument 0: longer than 131071 bytes");
	memcpy(text + 13 + SPEC_ARG_BYTES - 1, "\"]}", 4);
	good(&s, text);
	assert_int_equal(strlen(s.command.item[0]), SPEC_ARG_BYTES - 1);
	spec_done(&s);
}

/* ------------------------------------------------------------------------------------- spec_finish */

static void ready(struct spec *s, const char *fields)
{
	char text[1000];

	snprintf(text, sizeof text, "{" RUN "%s%s}", *fields ? "," : "", fields);
	good(s, text);
}

static const char *env_of(const struct spec *s, const char *name)
{
	for (size_t i = 0; i < s->env.count; i++)
		if (strncmp(s->env.item[i], name, strlen(name)) == 0 &&
		    s->env.item[i][strlen(name)] == '=')
			return s->env.item[i] + strlen(name) + 1;
	return "(not set)";
}

/* The place in memory at this path. */
static const struct spec_tmpfs *place(const struct spec *s, const char *path)
{
	for (size_t i = 0; i < s->tmpfs_count; i++)
		if (strcmp(s->tmpfs[i].path, path) == 0)
			return &s->tmpfs[i];
	fail_msg("no tmpfs at %s", path);
	return NULL;
}

static void test_finish_command(void **state)
{
	struct err e;
	struct spec s;

	(void)state;
	assert_int_equal(spec_init(&s, &e), 0);
	assert_int_equal(spec_finish(&s, &e), -1);
	assert_contains(e.text, "no command");
	spec_done(&s);
	good(&s, "{\"command\":[]}");
	assert_int_equal(spec_finish(&s, &e), -1);
	spec_done(&s);
	good(&s, "{\"command\":[\"\",\"x\"]}");
	assert_int_equal(spec_finish(&s, &e), -1);
	spec_done(&s);
}

static void test_finish_swap(void **state)
{
	struct err e;
	struct spec s;

	(void)state;
	ready(&s, "\"memory\":\"1g\"");
	assert_int_equal(spec_finish(&s, &e), 0);
	assert_int_equal(s.memory_swap_bytes, 1 << 30);
	spec_done(&s);
	ready(&s, "\"memory\":\"1g\",\"memory_swap\":\"1g\"");
	assert_int_equal(spec_finish(&s, &e), 0);
	spec_done(&s);
	ready(&s, "\"memory\":\"1g\",\"memory_swap\":\"1023m\"");
	assert_int_equal(spec_finish(&s, &e), -1);
	assert_contains(e.text, "--memory-swap");
	spec_done(&s);
}

static void test_finish_output(void **state)
{
	struct err e;
	struct spec s;

	(void)state;
	ready(&s, "");
	assert_int_equal(spec_finish(&s, &e), 0);
	assert_int_equal(s.tmpfs_count, 3);
	spec_done(&s);
	ready(&s, "\"out\":\"o\"");
	assert_int_equal(spec_finish(&s, &e), 0);
	assert_int_equal(s.tmpfs_count, 4);
	assert_int_equal(place(&s, "/output")->size_bytes, 64 << 20);
	assert_int_equal(place(&s, "/output")->inodes, 16384);
	assert_false(place(&s, "/output")->exec);
	spec_done(&s);
	ready(&s, "\"out\":\"o\",\"tmpfs\":[\"/output:size=1m\"]");
	assert_int_equal(spec_finish(&s, &e), 0);
	assert_int_equal(s.tmpfs_count, 4);
	assert_int_equal(place(&s, "/output")->size_bytes, 1 << 20);
	spec_done(&s);
}

static void test_finish_volume_takes_the_place(void **state)
{
	struct err e;
	struct spec s;

	(void)state;
	ready(&s, "\"volume\":[\"/a:/workspace\"]");
	assert_int_equal(spec_finish(&s, &e), 0);
	assert_int_equal(s.tmpfs_count, 2);
	place(&s, "/tmp");
	place(&s, "/dev/shm");
	spec_done(&s);
	ready(&s, "\"volume\":[\"/a:/b\",\"/c:/b:ro\"]");
	assert_int_equal(spec_finish(&s, &e), -1);
	assert_contains(e.text, "/b is mounted twice");
	spec_done(&s);
}

static void test_finish_too_many_tmpfs(void **state)
{
	char path[32];
	struct err e;
	struct spec s;

	(void)state;
	ready(&s, "\"out\":\"o\"");
	while (s.tmpfs_count < SPEC_MAX_TMPFS) {
		snprintf(path, sizeof path, "/m%zu", s.tmpfs_count);
		assert_int_equal(spec_set(&s, option_find("tmpfs"), path, &e), 0);
	}
	assert_int_equal(spec_finish(&s, &e), -1);
	spec_done(&s);
}

static void test_finish_runtimes_are_told(void **state)
{
	struct err e;
	struct spec s;

	(void)state;
	ready(&s, "\"memory\":\"256m\"");
	assert_int_equal(spec_finish(&s, &e), 0);
	assert_string_equal(env_of(&s, "NODE_OPTIONS"), "--max-old-space-size=192");
	assert_string_equal(env_of(&s, "JAVA_TOOL_OPTIONS"),
			    "-XX:MaxRAM=268435456 -XX:MaxRAMPercentage=75");
	spec_done(&s);
	ready(&s, "\"env\":{\"NODE_OPTIONS\":\"\",\"JAVA_TOOL_OPTIONS\":\"-ea\"}");
	assert_int_equal(spec_finish(&s, &e), 0);
	assert_string_equal(env_of(&s, "NODE_OPTIONS"), "");
	assert_string_equal(env_of(&s, "JAVA_TOOL_OPTIONS"), "-ea");
	assert_int_equal(s.env.count, 5);
	spec_done(&s);
}

static void test_finish_venv(void **state)
{
	struct err e;
	struct spec s;

	(void)state;
	ready(&s, "\"venv\":\"/v\"");
	assert_int_equal(spec_finish(&s, &e), 0);
	assert_string_equal(env_of(&s, "PATH"), "/v/bin:/usr/local/bin:/usr/bin:/bin");
	assert_string_equal(env_of(&s, "VIRTUAL_ENV"), "/v");
	spec_done(&s);
	ready(&s, "\"venv\":\"/v\",\"env\":{\"PATH\":\"/x\"}");
	assert_int_equal(spec_finish(&s, &e), 0);
	assert_string_equal(env_of(&s, "PATH"), "/v/bin:/x");
	spec_done(&s);
}

static void test_finish_totals(void **state)
{
	_cleanup_free_ char *argument = malloc(SPEC_ARG_BYTES);
	struct err e;
	struct spec s;

	(void)state;
	memset(argument, 'x', SPEC_ARG_BYTES - 1);
	argument[SPEC_ARG_BYTES - 1] = '\0';
	ready(&s, "");
	for (int i = 0; i < SPEC_ARGS_BYTES / SPEC_ARG_BYTES; i++)
		assert_int_equal(spec_add_argument(&s, argument, &e), 0);
	assert_int_equal(spec_finish(&s, &e), -1);
	assert_contains(e.text, "at most 2097152");
	spec_done(&s);
}

static void test_argument_count(void **state)
{
	struct err e;
	struct spec s;

	(void)state;
	if (getenv("CLOCHE_UNDER_VALGRIND"))
		skip_because("half a minute under valgrind");
	assert_int_equal(spec_init(&s, &e), 0);
	for (int i = 0; i < SPEC_MAX_ARGS; i++)
		assert_int_equal(spec_add_argument(&s, "", &e), 0);
	assert_int_equal(spec_add_argument(&s, "", &e), -1);
	assert_contains(e.text, "at most 65536");
	spec_done(&s);
}

static void test_language(void **state)
{
	struct err e;
	struct spec s;

	(void)state;
	assert_int_equal(spec_init(&s, &e), 0);
	assert_int_equal(spec_language(&s, LANGUAGE_NODE, CODE_STRING, "1", &e), 0);
	assert_int_equal(s.command.count, 4);
	assert_string_equal(s.command.item[1], "-e");
	assert_string_equal(s.command.item[3], "--");
	spec_done(&s);
	assert_int_equal(spec_init(&s, &e), 0);
	assert_int_equal(spec_language(&s, LANGUAGE_PYTHON, CODE_FILE, "x.py", &e), 0);
	assert_int_equal(s.command.count, 2);
	assert_string_equal(s.command.item[1], "x.py");
	spec_done(&s);
	assert_int_equal(language_find("python"), LANGUAGE_PYTHON);
	assert_int_equal(language_find(""), LANGUAGE_NONE);
	assert_int_equal(language_find("Python"), LANGUAGE_NONE);
	assert_string_equal(language_name(LANGUAGE_BASH), "bash");
}

/* Nothing of a copy is the other's. */
static void test_copy(void **state)
{
	struct spec s, copy;
	struct err e = {0};

	(void)state;
	good(&s,
	     "{\"command\":[\"a\",\"b\"],\"env\":{\"A\":\"1\"},\"memory\":\"64m\",\"volume\":[\"/usr:/data:ro\"],"
	     "\"out\":\"/tmp/o\",\"venv\":\"/opt/v\",\"artifact\":[\"*.txt\"],\"in\":[\"/etc/passwd:/workspace/p\"]}");
	assert_int_equal(spec_copy(&copy, &s, &e), 0);
	assert_int_equal(spec_add_argument(&s, "c", &e), 0);
	spec_done(&s);
	assert_int_equal(copy.command.count, 2);
	assert_string_equal(copy.command.item[1], "b");
	assert_null(copy.command.item[2]);
	assert_string_equal(copy.env.item[copy.env.count - 1], "A=1");
	assert_int_equal(copy.memory_bytes, 64 << 20);
	assert_string_equal(copy.volumes[0].host, "/usr");
	assert_string_equal(copy.inputs[0].host, "/etc/passwd");
	assert_string_equal(copy.inputs[0].box, "/workspace/p");
	assert_string_equal(copy.artifacts.item[0], "*.txt");
	assert_string_equal(copy.out_dir, "/tmp/o");
	assert_string_equal(copy.venv, "/opt/v");
	assert_int_equal(spec_add_argument(&copy, "d", &e), 0);
	assert_int_equal(spec_finish(&copy, &e), 0);
	spec_done(&copy);
}

static void test_network(void **state)
{
	static const char rules[] = "allow pypi.org\nallow *.b:443\ndeny t.b\npreset npm\n"
				    "credential k\nmax-bytes 1048576\nmax-connections 5\n";
	struct spec s, copy, limits;
	struct err e = {0};
	char *text;

	(void)state;
	good(&s, "{\"command\":[\"a\"],\"network\":\"allow\",\"allow\":[\"pypi.org\",\"*.b:443\"],"
		 "\"deny\":[\"t.b\"],\"preset\":[\"npm\"],\"credential\":[\"k\"],"
		 "\"network_bytes\":\"1m\",\"network_connections\":5}");
	assert_int_equal(spec_finish(&s, &e), 0);
	assert_int_equal(spec_copy(&copy, &s, &e), 0);
	assert_int_equal(spec_copy_limits(&limits, &s, &e), 0);
	spec_done(&s);
	text = spec_network_rules(&copy);
	assert_string_equal(text, rules);
	free(text);
	text = spec_network_rules(&limits);
	assert_string_equal(text, rules);
	free(text);
	spec_done(&limits);
	/* none, said later, takes the rules of the mode before with it */
	assert_int_equal(spec_set(&copy, option_find("network"), "none", &e), 0);
	assert_int_equal(copy.network.allow.count + copy.network.presets.count, 0);
	assert_int_equal(spec_finish(&copy, &e), 0);
	/* a rule without a network is a mistake */
	assert_int_equal(spec_set(&copy, option_find("allow"), "a.b", &e), 0);
	assert_int_equal(spec_finish(&copy, &e), -1);
	assert_contains(e.text, "--allow a.b: there is no network under --network none");
	spec_done(&copy);
}

/* An empty list under allow is a policy that allows nothing; it is taken, null is not (PX-02). */
static void test_network_lists(void **state)
{
	struct spec s;
	struct err e = {0};
	char *text;

	(void)state;
	good(&s, "{\"command\":[\"a\"],\"network\":\"allow\",\"allow\":[]}");
	assert_int_equal(spec_finish(&s, &e), 0);
	text = spec_network_rules(&s);
	assert_string_equal(text, "");
	free(text);
	assert_int_equal(s.network.mode, NETWORK_ALLOW);
	spec_done(&s);
	bad("{\"command\":[\"a\"],\"network\":\"allow\",\"allow\":null}", "allow");
	bad("{\"command\":[\"a\"],\"network\":\"allow\",\"allow\":\"a.b\"}", "allow");
	bad("{\"command\":[\"a\"],\"network\":\"allow\",\"allow\":[\"\"]}", "names no host");
	bad("{\"command\":[\"a\"],\"network\":\"allow\",\"allow\":[\"*\"]}", "--network open");
	bad("{\"command\":[\"a\"],\"network\":\"allow\",\"allow\":[\"a.b\\u0000\"]}", "allow");
	bad("{\"command\":[\"a\"],\"network\":true}", "network");
}

/* More than a policy's text may have is refused before anything starts. */
static void test_network_too_much(void **state)
{
	char rule[300];
	struct spec s;
	struct err e = {0};

	(void)state;
	good(&s, "{\"command\":[\"a\"],\"network\":\"allow\"}");
	memset(rule, 'a', sizeof rule);
	for (size_t i = 50; i < 250; i += 50)
		rule[i] = '.';
	rule[249] = '\0';
	for (size_t i = 0; i < 99; i++)
		assert_int_equal(spec_set(&s, option_find("allow"), rule, &e), 0);
	assert_int_equal(spec_finish(&s, &e), -1);
	assert_contains(e.text, "put them into a preset");
	spec_done(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_all_fields),
		cmocka_unit_test(test_numbers_are_bytes_and_seconds),
		cmocka_unit_test(test_command_string),
		cmocka_unit_test(test_code),
		cmocka_unit_test(test_empty_code),
		cmocka_unit_test(test_what_runs),
		cmocka_unit_test(test_refused_fields),
		cmocka_unit_test(test_types),
		cmocka_unit_test(test_env_is_literal),
		cmocka_unit_test(test_far_caller),
		cmocka_unit_test(test_was_set),
		cmocka_unit_test(test_too_much),
		cmocka_unit_test(test_finish_command),
		cmocka_unit_test(test_finish_swap),
		cmocka_unit_test(test_finish_output),
		cmocka_unit_test(test_finish_volume_takes_the_place),
		cmocka_unit_test(test_finish_too_many_tmpfs),
		cmocka_unit_test(test_finish_runtimes_are_told),
		cmocka_unit_test(test_finish_venv),
		cmocka_unit_test(test_finish_totals),
		cmocka_unit_test(test_argument_count),
		cmocka_unit_test(test_language),
		cmocka_unit_test(test_copy),
		cmocka_unit_test(test_network),
		cmocka_unit_test(test_network_lists),
		cmocka_unit_test(test_network_too_much),
	};

	return cmocka_run_group_tests_name("spec", tests, NULL, NULL);
}
