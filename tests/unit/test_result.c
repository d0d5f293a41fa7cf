/* SPDX-License-Identifier: Apache-2.0 */
/* The result object against CONTRACT "Result": every key, always, and nothing invented. */
#include "unit.h"

#include "base/json.h"
#include "sandbox/result.h"

static struct result fresh(void)
{
	return (struct result){
		.id = "run_1",
		.sandbox = "sbx_1",
		.reason = REASON_EXITED,
		.has_exit_code = true,
		.cpu_us = RESULT_UNKNOWN,
		.memory_peak_bytes = RESULT_UNKNOWN,
		.pids_peak = RESULT_UNKNOWN,
		.enforced = {"native", false, true, 65534, "cgroup-v1", "cgroup-v1", "cgroup-v1",
			     "cgroup-v1", "netns", "not observed", "read-only overlay",
			     "tmpfs size+inodes", "none", true, "sha256:00", 7},
	};
}

static void captured(struct captured *c, const char *data, size_t size, uint64_t bytes)
{
	*c = (struct captured){bytes, size, malloc(size + 1), size};
	assert_non_null(c->data);
	memcpy(c->data, data, size);
}

/* The JSON of r as one sorted line, compared with a text in which ' stands for ". */
static void is(const struct result *r, const char *wanted)
{
	_cleanup_json_ json_t *j = result_to_json(r);
	_cleanup_free_ char *got = j ? json_dumps(j, JSON_SORT_KEYS | JSON_COMPACT) : NULL;
	_cleanup_free_ char *text = strdup(wanted);

	assert_non_null(j);
	for (char *p = text; *p; p++)
		if (*p == '\'')
			*p = '"';
	assert_string_equal(got, text);
}

#define ENFORCED                                                                                       \
	"'enforced':{'capabilities':'none','cpu':'cgroup-v1','disk':'tmpfs size+inodes','landlock':7," \
	"'memory':'cgroup-v1','network':'netns','network_denials':'not observed','no_new_privs':true," \
	"'pids':'cgroup-v1','rootfs':'read-only overlay','rootless':false,'runtime':'native',"         \
	"'seccomp':'sha256:00','swap':'cgroup-v1','uid':65534,'user_namespace':true}"

static void test_success(void **state)
{
	struct result r = fresh();

	(void)state;
	captured(&r.out, "hi\n", 3, 3);
	r.wall_ms = 1.5;
	r.cpu_us = 2500;
	r.memory_peak_bytes = 9437184;
	r.pids_peak = 1;
	is(&r,
	   "{'artifacts':[],'encoding':'utf-8'," ENFORCED
	   ",'error_code':null,'exit_code':0,'id':'run_1',"
	   "'limits_hit':[],'message':'the command succeeded','model_message':'The command succeeded.',"
	   "'network':{'allowed':0,'bytes_received':0,'bytes_sent':0,'capture':null,'denied':[]},'ok':true,'oom_kills':0,"
	   "'output':{'stderr':{'bytes':0,'dropped':0,'kept':0},'stdout':{'bytes':3,'dropped':0,'kept':3}},"
	   "'reason':'exited','retryable':false,'sandbox':'sbx_1','signal':null,'stage':null,'stderr':'',"
	   "'stdout':'hi\\n','timed_out':false,"
	   "'usage':{'cpu_ms':2.5,'memory_peak_bytes':9437184,'pids_peak':1,'wall_ms':1.5}}");
	result_done(&r);
}

/* The contract's own example, as far as it is one result. */
static void test_timeout(void **state)
{
	struct result r = fresh();
	char *flood = malloc(65536);

	(void)state;
	memset(flood, 'x', 65536);
	r.reason = REASON_TIMEOUT;
	r.has_exit_code = false;
	r.wall_ms = 3001.25;
	r.timeout_us = 3000000;
	r.limits_hit = HIT_OUTPUT | HIT_MEMORY | HIT_NETWORK_DENIED;
	r.oom_kills = 2;
	r.out = (struct captured){100001, 65536, flood, 65536};
	snprintf(r.message, sizeof r.message, "stopped after 3 s of wall time");
	memset(flood, 'x', 65536);
	r.out.size = 4; /* a short text for the comparison; the counts follow what is there */
	is(&r,
	   "{'artifacts':[],'encoding':'utf-8'," ENFORCED ",'error_code':'SANDBOX_COMMAND_TIMEOUT',"
	   "'exit_code':null,'id':'run_1','limits_hit':['memory','output','network_denied'],"
	   "'message':'stopped after 3 s of wall time',"
	   "'model_message':'The code did not finish within 3 seconds.',"
	   "'network':{'allowed':0,'bytes_received':0,'bytes_sent':0,'capture':null,'denied':[]},'ok':false,'oom_kills':2,"
	   "'output':{'stderr':{'bytes':0,'dropped':0,'kept':0},"
	   "'stdout':{'bytes':100001,'dropped':99997,'kept':4}},"
	   "'reason':'timeout','retryable':false,'sandbox':'sbx_1','signal':null,'stage':null,'stderr':'',"
	   "'stdout':'xxxx','timed_out':true,"
	   "'usage':{'cpu_ms':null,'memory_peak_bytes':null,'pids_peak':null,'wall_ms':3001.25}}");
	result_done(&r);
}

static void test_create_failed(void **state)
{
	struct result r = fresh();

	(void)state;
	r.reason = REASON_CREATE_FAILED;
	r.has_exit_code = false;
	snprintf(r.stage, sizeof r.stage, "exec");
	snprintf(r.message, sizeof r.message, "nonesuch: No such file or directory");
	r.errnum = ENOENT;
	is(&r,
	   "{'artifacts':[],'encoding':'utf-8'," ENFORCED ",'error_code':'SANDBOX_CREATE_FAILED',"
	   "'exit_code':null,'id':'run_1','limits_hit':[],'message':'nonesuch: No such file or directory',"
	   "'model_message':'The command could not be found or is not executable.',"
	   "'network':{'allowed':0,'bytes_received':0,'bytes_sent':0,'capture':null,'denied':[]},'ok':false,'oom_kills':0,"
	   "'output':{'stderr':{'bytes':0,'dropped':0,'kept':0},'stdout':{'bytes':0,'dropped':0,'kept':0}},"
	   "'reason':'create_failed','retryable':false,'sandbox':'sbx_1','signal':null,'stage':'exec','stderr':'',"
	   "'stdout':'','timed_out':false,"
	   "'usage':{'cpu_ms':null,'memory_peak_bytes':null,'pids_peak':null,'wall_ms':0.0}}");
	result_done(&r);
}

/* Each reason: the keys are the same set, and the object is made. */
static void test_every_reason_has_every_key(void **state)
{
	static const char *const keys[] = {
		"id",        "sandbox",    "ok",        "reason",        "error_code",
		"retryable", "stage",      "message",   "model_message", "exit_code",
		"signal",    "timed_out",  "stdout",    "stderr",        "encoding",
		"output",    "limits_hit", "oom_kills", "artifacts",     "network",
		"usage",     "enforced",
	};

	(void)state;
	for (int i = 0; i < REASON_COUNT; i++) {
		struct result r = fresh();
		_cleanup_json_ json_t *j = NULL;

		r.reason = (enum reason)i;
		r.has_exit_code = i == REASON_EXITED;
		r.signal = i == REASON_SIGNALED ? 11 : 0;
		j = result_to_json(&r);
		assert_non_null(j);
		assert_int_equal(json_object_size(j), ARRAY_SIZE(keys));
		for (size_t k = 0; k < ARRAY_SIZE(keys); k++)
			if (!json_object_get(j, keys[k]))
				fail_msg("%s: no key %s", reasons[i].name, keys[k]);
		assert_string_equal(json_string_value(json_object_get(j, "reason")),
				    reasons[i].name);
		assert_true(json_string_length(json_object_get(j, "message")) > 0);
		assert_true(json_string_length(json_object_get(j, "model_message")) > 0);
		assert_int_equal(json_is_true(json_object_get(j, "timed_out")),
				 i == REASON_TIMEOUT);
	}
}

static void streams_are(struct result *r, const char *encoding, const char *out, const char *err,
			json_int_t kept)
{
	_cleanup_json_ json_t *j = result_to_json(r);
	json_t *counts;

	assert_non_null(j);
	assert_string_equal(json_string_value(json_object_get(j, "encoding")), encoding);
	assert_string_equal(json_string_value(json_object_get(j, "stdout")), out);
	assert_string_equal(json_string_value(json_object_get(j, "stderr")), err);
	counts = json_object_get(json_object_get(j, "output"), "stdout");
	assert_int_equal(json_integer_value(json_object_get(counts, "kept")), kept);
	assert_int_equal(json_integer_value(json_object_get(counts, "kept")) +
				 json_integer_value(json_object_get(counts, "dropped")),
			 json_integer_value(json_object_get(counts, "bytes")));
	result_done(r);
}

static void test_encodings(void **state)
{
	struct result r = fresh();

	(void)state;
	captured(&r.out, "\xff", 1, 1);
	streams_are(&r, "base64", "/w==", "", 1);
	r = fresh();
	captured(&r.out, "ab", 2, 2);
	captured(&r.err, "\x80", 1, 1);
	streams_are(&r, "base64", "YWI=", "gA==", 2);
	r = fresh();
	captured(&r.out, "\xff\xfe\xfd", 3, 3);
	streams_are(&r, "base64", "//79", "", 3);
	/* the program itself ended in half a character: those are its bytes */
	r = fresh();
	captured(&r.out, "a\xc3", 2, 2);
	streams_are(&r, "base64", "YcM=", "", 2);
	/* the cap cut it: cut at the character, keep the text */
	r = fresh();
	captured(&r.out, "a\xc3", 2, 3);
	streams_are(&r, "utf-8", "a", "", 1);
	r = fresh();
	captured(&r.out, "a\xf0\x9f\x98", 4, 100);
	streams_are(&r, "utf-8", "a", "", 1);
	r = fresh();
	captured(&r.out, "\xf0\x9f\x98", 3, 4);
	streams_are(&r, "utf-8", "", "", 0);
	/* cut, but no text anyway: every kept byte is there */
	r = fresh();
	captured(&r.out, "\xff\xc3", 2, 3);
	streams_are(&r, "base64", "/8M=", "", 2);
	r = fresh();
	captured(&r.out, "a\xc3", 2, 3);
	captured(&r.err, "\xff", 1, 1);
	streams_are(&r, "base64", "YcM=", "/w==", 2);
}

static void test_nul_and_controls_in_output(void **state)
{
	struct result r = fresh();
	_cleanup_json_ json_t *j = NULL;

	(void)state;
	captured(&r.out, "a\0b\x1b[2J\x7f", 8, 8);
	j = result_to_json(&r);
	assert_non_null(j);
	assert_int_equal(json_string_length(json_object_get(j, "stdout")), 8);
	assert_memory_equal(json_string_value(json_object_get(j, "stdout")), "a\0b\x1b[2J\x7f", 8);
	result_done(&r);
}

/* Messages hold paths, and paths are bytes: whatever they are, there is an object. */
static void test_message_of_any_bytes(void **state)
{
	static const char *const messages[] = {
		"open /\xff/x: no such file",
		"cut in the middle \xc3",
		"\x80",
		"\xed\xa0\x80",
		"caf\xc3\xa9",
		"\x1b[2J",
		"a\nb",
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(messages); i++) {
		struct result r = fresh();
		json_t *j;

		r.reason = REASON_CREATE_FAILED;
		snprintf(r.message, sizeof r.message, "%s", messages[i]);
		j = result_to_json(&r);
		if (!j)
			fail_msg("no object for message %zu", i);
		json_decref(j);
	}
}

static void test_artifacts(void **state)
{
	struct result r = fresh();
	_cleanup_json_ json_t *j = NULL;
	_cleanup_free_ char *text = NULL;

	(void)state;
	r.artifacts = calloc(4, sizeof *r.artifacts);
	r.artifact_count = 4;
	r.artifacts[0] = (struct artifact){strdup("a/b.png"), 12, NULL};
	r.artifacts[1] = (struct artifact){strdup("l"), RESULT_UNKNOWN, "symbolic link"};
	r.artifacts[2] = (struct artifact){strdup("x\xff\\y"), 0, NULL};
	r.artifacts[3] = (struct artifact){strdup("\xc3\xa9\\"), 0, NULL};
	j = result_to_json(&r);
	assert_non_null(j);
	text = json_dumps(json_object_get(j, "artifacts"), JSON_SORT_KEYS | JSON_COMPACT);
	assert_string_equal(text, "[{\"bytes\":12,\"path\":\"a/b.png\",\"skipped\":null},"
				  "{\"bytes\":null,\"path\":\"l\",\"skipped\":\"symbolic link\"},"
				  "{\"bytes\":0,\"path\":\"x\\\\xff\\\\x5cy\",\"skipped\":null},"
				  "{\"bytes\":0,\"path\":\"\xc3\xa9\\\\\",\"skipped\":null}]");
	result_done(&r);
}

static void test_model_message_has_no_host_path(void **state)
{
	(void)state;
	for (int i = 0; i < REASON_COUNT; i++) {
		struct result r = fresh();
		_cleanup_json_ json_t *j = NULL;

		r.reason = (enum reason)i;
		snprintf(r.message, sizeof r.message, "open /secret/path: no");
		j = result_to_json(&r);
		assert_non_null(j);
		assert_null(
			strstr(json_string_value(json_object_get(j, "model_message")), "secret"));
	}
}

static void test_exit_status(void **state)
{
	static const struct {
		struct result r;
		int status;
		enum code code;
		bool retryable, ok;
	} rows[] = {
		{{.reason = REASON_EXITED, .has_exit_code = true}, 0, CODE_NONE, false, true},
		{{.reason = REASON_EXITED, .has_exit_code = true, .exit_code = 7},
		 7,
		 CODE_COMMAND_FAILED,
		 false,
		 false},
		{{.reason = REASON_EXITED, .has_exit_code = true, .exit_code = 137},
		 137,
		 CODE_COMMAND_FAILED,
		 false,
		 false},
		{{.reason = REASON_EXITED, .has_exit_code = true, .exit_code = 255},
		 255,
		 CODE_COMMAND_FAILED,
		 false,
		 false},
		{{.reason = REASON_SIGNALED, .signal = 9}, 137, CODE_COMMAND_FAILED, false, false},
		{{.reason = REASON_SIGNALED, .signal = 64}, 192, CODE_COMMAND_FAILED, false, false},
		{{.reason = REASON_CREATE_FAILED, .stage = "exec", .errnum = ENOENT},
		 127,
		 CODE_SANDBOX_CREATE_FAILED,
		 false,
		 false},
		{{.reason = REASON_CREATE_FAILED, .stage = "exec", .errnum = ENOTDIR},
		 127,
		 CODE_SANDBOX_CREATE_FAILED,
		 false,
		 false},
		{{.reason = REASON_CREATE_FAILED, .stage = "exec", .errnum = EACCES},
		 126,
		 CODE_SANDBOX_CREATE_FAILED,
		 false,
		 false},
		{{.reason = REASON_CREATE_FAILED, .stage = "exec", .errnum = ENOEXEC},
		 126,
		 CODE_SANDBOX_CREATE_FAILED,
		 false,
		 false},
		{{.reason = REASON_CREATE_FAILED, .stage = "cgroup", .errnum = ENOENT},
		 125,
		 CODE_SANDBOX_CREATE_FAILED,
		 true,
		 false},
		{{.reason = REASON_CREATE_FAILED}, 125, CODE_SANDBOX_CREATE_FAILED, true, false},
		{{.reason = REASON_EXITED, .has_exit_code = true, .artifacts_failed = true},
		 125,
		 CODE_SANDBOX_ARTIFACT_EXPORT_FAILED,
		 false,
		 false},
		{{.reason = REASON_EXITED,
		  .has_exit_code = true,
		  .exit_code = 3,
		  .artifacts_failed = true},
		 3,
		 CODE_COMMAND_FAILED,
		 false,
		 false},
		{{.reason = REASON_TIMEOUT, .artifacts_failed = true},
		 124,
		 CODE_SANDBOX_COMMAND_TIMEOUT,
		 false,
		 false},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		assert_int_equal(result_exit_status(&rows[i].r), rows[i].status);
		assert_int_equal(result_code(&rows[i].r), rows[i].code);
		assert_int_equal(result_retryable(&rows[i].r), rows[i].retryable);
		assert_int_equal(result_ok(&rows[i].r), rows[i].ok);
	}
}

static void test_utf8_prefix(void **state)
{
	static const struct {
		const char *data;
		ssize_t size, whole, cut; /* results when not cut and when cut */
	} rows[] = {
		{"", 0, 0, 0},
		{"a", 1, 1, 1},
		{"\0", 1, 1, 1},
		{"\x7f", 1, 1, 1},
		{"\xc2\x80", 2, 2, 2},
		{"\xdf\xbf", 2, 2, 2},
		{"\xe0\xa0\x80", 3, 3, 3},
		{"\xef\xbf\xbf", 3, 3, 3},
		{"\xf0\x90\x80\x80", 4, 4, 4},
		{"\xf4\x8f\xbf\xbf", 4, 4, 4},
		{"\x80", 1, -1, -1},
		{"\xbf", 1, -1, -1},
		{"\xc0\x80", 2, -1, -1},
		{"\xc1\xbf", 2, -1, -1},
		{"\xc1", 1, -1, -1},
		{"\xe0\x80\x80", 3, -1, -1},
		{"\xe0\x9f", 2, -1, -1},
		{"\xed\xa0\x80", 3, -1, -1},
		{"\xed\xa0", 2, -1, -1},
		{"\xf0\x8f\x80\x80", 4, -1, -1},
		{"\xf4\x90\x80\x80", 4, -1, -1},
		{"\xf4\x90", 2, -1, -1},
		{"\xf5\x80\x80\x80", 4, -1, -1},
		{"\xf8", 1, -1, -1},
		{"\xff", 1, -1, -1},
		{"\xfe", 1, -1, -1},
		{"a\xc3", 2, -1, 1},
		{"a\xe2\x82", 3, -1, 1},
		{"a\xe2", 2, -1, 1},
		{"ab\xf0\x9f\x98", 5, -1, 2},
		{"\xf0\x9f", 2, -1, 0},
		{"\xc3"
		 "a",
		 2, -1, -1},
		{"\xe2\x82"
		 "a",
		 3, -1, -1},
		{"\xff\xc3", 2, -1, -1},
		{"\xc3\xa9\xc3", 3, -1, 2},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		assert_int_equal(utf8_prefix(rows[i].data, (size_t)rows[i].size, false),
				 rows[i].whole);
		assert_int_equal(utf8_prefix(rows[i].data, (size_t)rows[i].size, true),
				 rows[i].cut);
	}
	assert_int_equal(utf8_prefix(NULL, 0, true), 0);
}

/* All code points, encoded by hand: valid ones pass whole, surrogates never do. */
static void test_utf8_every_code_point(void **state)
{
	unsigned step = getenv("CLOCHE_UNDER_VALGRIND") ? 97 : 1;

	(void)state;
	for (unsigned c = 0x80; c < 0x110000; c += step) {
		char t[4];
		int n = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
		bool surrogate = c >= 0xd800 && c < 0xe000;
		static const unsigned lead[] = {0, 0, 0xc0, 0xe0, 0xf0};

		for (int i = 0; i < n; i++)
			t[i] = (char)(i ? 0x80 | (c >> 6 * (n - 1 - i) & 0x3f)
					: lead[n] | c >> 6 * (n - 1));
		if (utf8_prefix(t, (size_t)n, false) != (surrogate ? -1 : n))
			fail_msg("U+%04X", c);
		for (int i = 1; i < n; i++)
			if (!surrogate && utf8_prefix(t, (size_t)i, true) != 0)
				fail_msg("U+%04X cut after %d", c, i);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_success),
		cmocka_unit_test(test_timeout),
		cmocka_unit_test(test_create_failed),
		cmocka_unit_test(test_every_reason_has_every_key),
		cmocka_unit_test(test_encodings),
		cmocka_unit_test(test_nul_and_controls_in_output),
		cmocka_unit_test(test_message_of_any_bytes),
		cmocka_unit_test(test_artifacts),
		cmocka_unit_test(test_model_message_has_no_host_path),
		cmocka_unit_test(test_exit_status),
		cmocka_unit_test(test_utf8_prefix),
		cmocka_unit_test(test_utf8_every_code_point),
	};

	return cmocka_run_group_tests_name("result", tests, NULL, NULL);
}
