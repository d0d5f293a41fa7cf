/* SPDX-License-Identifier: Apache-2.0 */
/* What a model is told and what it sends: texts, arguments, lines, ids. Whole conversations: tests/service/test_mcp.py. */
#include "unit.h"

#include "agent/mcp.h"
#include "agent/text.h"
#include "base/json.h"

static json_t *result_of(const char *out, const char *err, const char *more)
{
	json_t *r = json_pack("{ss ss ss sb ss}", "stdout", out, "stderr", err, "encoding", "utf-8",
			      "ok", 1, "reason", "exited"),
	       *given = json_loads(more, 0, NULL);

	assert_non_null(given);
	json_object_update(r, given);
	json_decref(given);
	return r;
}

#define FAILED \
	"\"ok\":false,\"error_code\":\"COMMAND_FAILED\",\"model_message\":\"It ended with 3.\""
#define TIMEOUT                                                                            \
	"{\"ok\":false,\"reason\":\"timeout\",\"error_code\":\"SANDBOX_COMMAND_TIMEOUT\"," \
	"\"model_message\":\"Too late.\"}"

static void test_texts(void **state)
{
	static const struct {
		enum text_form form;
		size_t max;
		const char *out, *err, *more, *text;
	} rows[] = {
		{TEXT_EXIT, 9, "a\n", "b", "{\"exit_code\":0}", "exit=0\nstdout:\na\nstderr:\nb"},
		{TEXT_EXIT, 9, "", "", "{\"exit_code\":3," FAILED "}", "exit=3\nstdout:\nstderr:"},
		{TEXT_EXIT, 2, "äöü", "", "{\"exit_code\":0}",
		 "exit=0\nstdout:\näö\n[cut: the first 2 of 3 characters]\nstderr:"},
		{TEXT_EXIT, 9, "", "", TIMEOUT, "exit=124\nstdout:\nstderr:\n[Too late.]"},
		{TEXT_EXIT, 9, "", "", "{\"ok\":false,\"reason\":\"signaled\",\"signal\":9}",
		 "exit=137\nstdout:\nstderr:"},
		{TEXT_EXIT, 9, "x", "",
		 "{\"exit_code\":0,\"output\":{\"stdout\":{\"bytes\":7,\"kept\":1}}}",
		 "exit=0\nstdout:\nx\nstderr:\n[stdout: the first 1 of 7 bytes were kept]"},
		{TEXT_EXIT, 9, "", "", "{\"reason\":\"no such\"}", "exit=125\nstdout:\nstderr:"},
		{TEXT_EXIT, 9, "", "",
		 "{\"exit_code\":0,\"artifacts\":[{\"path\":\"p\",\"bytes\":5,\"skipped\":null},"
		 "{\"path\":\"q\",\"bytes\":null,\"skipped\":\"too large\"},{\"bytes\":1}]}",
		 "exit=0\nstdout:\nstderr:\n[file p, 5 bytes]\n[file q was left behind: too large]\n"
		 "[and 1 more files]"},
		{TEXT_PLAIN, 9, " \n a b\t", "", "{}", "a b"},
		{TEXT_PLAIN, 9, "a\n", "b\n", "{}", "a\nb"},
		{TEXT_PLAIN, 9, " \n", "", "{}", "(no output)"},
		{TEXT_PLAIN, 3, "abcdef", "", "{}", "abc\n[cut: the first 3 of 6 characters]"},
		{TEXT_PLAIN, 9, "x", "", "{\"exit_code\":3," FAILED "}", "x\n[It ended with 3.]"},
		{TEXT_PLAIN, 9, "", "", TIMEOUT, "(no output)\n[Too late.]"},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		_cleanup_json_ json_t *r = result_of(rows[i].out, rows[i].err, rows[i].more);
		_cleanup_free_ char *text = text_of_result(r, rows[i].form, rows[i].max);

		assert_string_equal(text, rows[i].text);
	}
}

static void test_repair(void **state)
{
	static const char in[] = "a\0\xff\xc3\xa4\xed\xa0\x80\xf0\x9f\x98\x80\xc3";
	size_t size;
	_cleanup_free_ char *text = text_repair(in, sizeof in - 1, &size);

	(void)state;
	assert_string_equal(text, "a\ufffd\ufffdä\ufffd\ufffd\ufffd\U0001f600\ufffd");
	assert_true(text_is_text(text, size));
	assert_false(text_is_text(in, sizeof in - 1));
	assert_true(text_is_text("", 0));
}

static const struct tool_view kept = {.kept = true, .timeout_s = 30};

static int read_call(struct tool_call *c, const char *name, const char *json,
		     const struct tool_view *view, struct err *e, json_t **ret)
{
	*ret = json_loads(json, JSON_ALLOW_NUL, NULL);
	assert_non_null(*ret);
	return tool_read(c, tool_find(name), *ret, view, e);
}

static void test_arguments(void **state)
{
	static const struct {
		const char *name, *json, *words; /* NULL: it is taken */
	} rows[] = {
		{"run_python", "{\"code\":\"1\"}", NULL},
		{"run_python", "{\"code\":\"1\",\"timeout\":null,\"sandbox\":null}", NULL},
		{"run_python", "{}", "needs the argument \"code\""},
		{"run_python", "{\"code\":null}", "needs the argument \"code\""},
		{"run_python", "{\"code\":1}", "must be a string"},
		{"run_python", "{\"code\":\"a\\u0000\"}", "NUL"},
		{"run_python", "{\"code\":\"1\",\"path\":\"x\"}", "no argument \"path\""},
		{"run_python", "{\"code\":\"1\",\"timeout\":0}", "more than 0"},
		{"run_python", "{\"code\":\"1\",\"timeout\":\"1\"}", "must be a number"},
		{"write_file", "{\"path\":\"x\",\"content\":\"a\\u0000\"}", NULL},
		{"write_file", "{\"path\":\"\",\"content\":\"\"}", "empty"},
		{"write_file", "{\"path\":\"x\",\"content\":\"\",\"encoding\":\"hex\"}",
		 "utf-8 or base64"},
		{"read_file", "{\"path\":\"x\",\"offset\":-1}", "whole number"},
		{"list_sandboxes", "{\"x\":1}", "no argument"},
		{"install_packages", "{\"packages\":[\"six\"]}", NULL},
		{"install_packages", "{\"packages\":[\"@a/b\"],\"manager\":\"npm\"}", NULL},
		{"install_packages", "{\"packages\":[\"@a/b\"]}", "no package of pip"},
		{"install_packages", "{\"packages\":[\"a\\u0000b\"]}", "no package of pip"},
		{"install_packages", "{\"packages\":[\"six\"],\"manager\":\"apt\"}", "pip or npm"},
		{"install_packages", "{\"packages\":{}}", "list of strings"},
		{"install_packages", "{\"packages\":[]}", "1 to 32"},
		{"install_packages", "{}", "needs the argument \"packages\""},
		{"reset", "{}", NULL},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		_cleanup_json_ json_t *j = NULL;
		struct tool_call c;
		struct err e = {0};
		int r = read_call(&c, rows[i].name, rows[i].json, &kept, &e, &j);

		assert_int_equal(r, rows[i].words ? -1 : 0);
		if (rows[i].words)
			assert_contains(e.text, rows[i].words);
	}
	assert_int_equal(tool_find("no_such_tool"), TOOL_COUNT);
}

static void test_argument_values(void **state)
{
	static const struct tool_view by_id = {.kept = true, .by_id = true, .timeout_s = 30},
				      single = {.timeout_s = 30};
	_cleanup_json_ json_t *a = NULL, *b = NULL, *c = NULL, *d = NULL;
	struct tool_call call;
	struct err e = {0};

	(void)state;
	assert_int_equal(read_call(&call, "run_python", "{\"code\":\"x\",\"timeout\":99}", &kept,
				   &e, &a),
			 0);
	assert_true(call.timeout_s == 30);
	assert_int_equal(read_call(&call, "read_file", "{\"path\":\"x\",\"limit\":9999999}", &kept,
				   &e, &b),
			 0);
	assert_int_equal(call.limit, TOOL_READ_BYTES);
	assert_int_equal(read_call(&call, "read_file", "{\"path\":\"x\"}", &by_id, &e, &c), -1);
	assert_contains(e.text, "\"sandbox\"");
	assert_int_equal(read_call(&call, "run_python", "{\"code\":\"1\",\"sandbox\":\"x\"}",
				   &single, &e, &d),
			 -1);
}

/* What managers would read as an option, a file, a URL, or more than one package is no name. */
static void test_packages(void **state)
{
	static const struct {
		bool taken;
		const char *pip, *npm; /* NULL: the same is of no interest to it */
	} rows[] = {
		{true, "six", "lodash"},
		{true, "Six_6.x-y", "JSONStream"},
		{true, "requests[socks,security]", "@types/node"},
		{true, "requests[socks, security] >= 2.8, == 2.8.*", "@types/node@^20"},
		{true, "a==1!2.0+local-1", "a@1.2.3-rc.1+5"},
		{true, "a~=1.0", "a@~1.0"},
		{true, "a!=1,<2,>0.1", "a@>=1 <2 || ^3.1"},
		{true, "a===1", "a@1 - 2"},
		{true, "a <3", "a@latest"},
		{true, "a==*", "a@*"},
		{true, "0", "a@x"},
		{false, "", ""},
		{false, " six", " lodash"},
		{false, "six ", "lodash "},
		{false, "six\n", "lodash\n"},
		{false, "six lodash", "six lodash"},
		{false, "-r", "-g"},
		{false, "--index-url=http://x", "--registry=http://x"},
		{false, "six --pre", "lodash --global"},
		{false, "six==1 --pre", "lodash@1\t--global"},
		{false, ".", "."},
		{false, "..", ".."},
		{false, "./six", "./six"},
		{false, "/etc", "/etc"},
		{false, "~/six", "~/six"},
		{false, "a/b", "user/repository"},
		{false, "a\\b", "a\\b"},
		{false, "https://x/a", "https://x/a"},
		{false, "git+https://x/a", "git+ssh://x/a"},
		{false, "a @ https://x/a", "a@https://x/a"},
		{false, "a@b", "a@file:b"},
		{false, "a;os_name=='x'", "a@npm:b"},
		{false, "a==", "a@"},
		{false, "a==1,", "a@1||"},
		{false, "a=1", "a@@1"},
		{false, "a==1 2", "a==1"},
		{false, "a>", "a@>"},
		{false, "a==.", "a@."},
		{false, "a==../b", "a@../b"},
		{false, "a-", "_a"},
		{false, "a[", "@a"},
		{false, "a[]", "@a/"},
		{false, "a[b", "@/a"},
		{false, "a[b]]", "@a/b/c"},
		{false, "a[-b]", "@-a/b"},
		{false, "a[b/c]", "@a/.b"},
		{false, "six.whl", "six.tgz"},
		{false, "six-1.0.tar.gz", "six-1.0.tar.gz"},
		{false, "six==1.ZIP", "six@1.TAR"},
		{false, "$(id)", "$(id)"},
		{false, "a`id`", "a`id`"},
		{false, "a|id", "a@1|id"},
		{false, "a&id", "a@1&id"},
		{false, "a>id;", "a@1>id;"},
		{false, "ä", "ä"},
		{false, "a%2e", "a%2e"},
		{false, "a==1#x", "a#x"},
		{false, "a:b", "a:b"},
		{false, "a*", "a*"},
		{false, "{a,b}", "{a,b}"},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		const struct package_manager *pip = package_manager_find("pip"),
					     *npm = package_manager_find("npm");

		if (package_is_name(pip, rows[i].pip) != rows[i].taken)
			fail_msg("pip: %s", rows[i].pip);
		if (package_is_name(npm, rows[i].npm) != rows[i].taken)
			fail_msg("npm: %s", rows[i].npm);
	}
	assert_null(package_manager_find("sh"));
}

/* Each provider is told what it needs to know to send a list. */
static void test_packages_in_every_format(void **state)
{
	static const char *const where[][4] = {{"function", "parameters", "array", "string"},
					       {NULL, "parameters", "array", "string"},
					       {NULL, "input_schema", "array", "string"},
					       {NULL, "parameters", "ARRAY", "STRING"},
					       {NULL, "inputSchema", "array", "string"}};
	static const enum tool_id id = TOOL_INSTALL_PACKAGES;

	(void)state;
	assert_int_equal(tool_format_count, ARRAY_SIZE(where));
	for (size_t i = 0; i < ARRAY_SIZE(where); i++) {
		_cleanup_json_ json_t *all = tool_formats[i].list(&id, 1, &kept);
		const json_t *t = json_is_array(all)
					  ? json_array_get(all, 0)
					  : json_array_get(json_object_get(all, "tools"), 0);
		const json_t *packages, *schema;

		if (json_object_get(t, "functionDeclarations"))
			t = json_array_get(json_object_get(t, "functionDeclarations"), 0);
		t = where[i][0] ? json_object_get(t, where[i][0]) : t;
		assert_string_equal(json_string_value(json_object_get(t, "name")),
				    "install_packages");
		assert_contains(json_string_value(json_object_get(t, "description")),
				"\"session\"");
		schema = json_object_get(t, where[i][1]);
		packages = json_object_get(json_object_get(schema, "properties"), "packages");
		assert_string_equal(json_string_value(json_object_get(packages, "type")),
				    where[i][2]);
		assert_string_equal(json_string_value(json_object_get(
					    json_object_get(packages, "items"), "type")),
				    where[i][3]);
		assert_int_equal(json_integer_value(json_object_get(packages, "maxItems")),
				 PACKAGES_MAX);
	}
}

struct seen {
	unsigned lines, long_ones;
	size_t last;
};

static void on_line(void *context, const char *line, size_t size)
{
	struct seen *s = context;

	s->lines += line != NULL;
	s->long_ones += line == NULL;
	s->last = size;
}

/* A line that is too long is told once and skipped; memory goes back. */
static void test_lines(void **state)
{
	static char piece[1 << 20];
	struct rpc_lines l = {0};
	struct seen s = {0};

	(void)state;
	memset(piece, 'x', sizeof piece);
	rpc_feed(&l, "{}\n\n \r\n{", 8, on_line, &s);
	rpc_feed(&l, "}\n", 2, on_line, &s);
	assert_int_equal(s.lines, 2);
	assert_int_equal(s.last, 2);
	for (size_t i = 0; i < 2 * RPC_LINE_BYTES; i += sizeof piece)
		rpc_feed(&l, piece, sizeof piece, on_line, &s);
	assert_int_equal(s.long_ones, 1);
	assert_int_equal(l.room, 0);
	rpc_feed(&l, "end\n{}\n", 7, on_line, &s);
	assert_int_equal(s.lines, 3);
	assert_int_equal(s.long_ones, 1);
	for (size_t i = 0; i < RPC_LINE_BYTES; i += sizeof piece)
		rpc_feed(&l, piece, sizeof piece, on_line, &s);
	rpc_feed(&l, "\n", 1, on_line, &s);
	assert_int_equal(s.lines, 4);
	assert_int_equal(s.last, RPC_LINE_BYTES);
	rpc_done(&l);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_texts),
		cmocka_unit_test(test_repair),
		cmocka_unit_test(test_arguments),
		cmocka_unit_test(test_argument_values),
		cmocka_unit_test(test_lines),
		cmocka_unit_test(test_packages),
		cmocka_unit_test(test_packages_in_every_format),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
