/* SPDX-License-Identifier: Apache-2.0 */
/* What cloche-ask makes of bytes: event streams, answers, .env files, names of models. Conversations: tests/integration/test_ask.py. */
#include "unit.h"

#include "ask/envfile.h"
#include "ask/model.h"
#include "ask/reading.h"
#include "base/json.h"

/* ---- streams ---- */

struct events {
	char text[512];
};

static int take_event(void *context, const char *data, size_t size, struct err *e)
{
	struct events *got = context;
	size_t n = strlen(got->text);

	if (size == 4 && memcmp(data, "stop", 4) == 0)
		return err_set(e, 0, "stopped");
	snprintf(got->text + n, sizeof got->text - n, "<%.*s>", (int)size, data);
	return 0;
}

static void test_events(void **state)
{
	static const struct {
		const char *bytes, *events;
	} rows[] = {
		{"data: a\n\ndata: b\n\n", "<a><b>"},
		{"data:a\r\n\r\ndata:  b\r\n\r\n", "<a>< b>"},
		{"data: a\ndata: b\ndata:\n\n", "<a\nb\n>"},
		{"data\n\n", "<>"},
		{"event: x\nid: 1\nretry: 3\n: comment\ndata: a\n\n\n\n", "<a>"},
		{"\xef\xbb\xbf"
		 "data: a\n\n",
		 "<a>"},
		{"data: a\n\n\xef\xbb\xbf"
		 "data: b\n\n",
		 "<a>"},
		{"datax: a\n\ndat: b\n\nDATA: c\n\n", ""},
		{"data: cut", ""},
		{"data: cut\n", ""},
		{"data: {\"a\": \"b: c\"}\n\n", "<{\"a\": \"b: c\"}>"},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		for (size_t piece = 1; piece < 9; piece++) {
			size_t size = strlen(rows[i].bytes);
			struct events got = {""};
			struct sse s = {0};
			struct err e = {0};

			for (size_t at = 0; at < size; at += piece)
				assert_int_equal(sse_feed(&s, rows[i].bytes + at,
							  size - at < piece ? size - at : piece,
							  take_event, &got, &e),
						 0);
			assert_string_equal(got.text, rows[i].events);
			sse_done(&s);
		}
}

static void test_stream_ends(void **state)
{
	static const char stop[] = "data: a\n\ndata: stop\n\ndata: b\n\n";
	struct events got = {""};
	char *piece = malloc(1 << 20);
	struct sse s = {0};
	struct err e = {0};
	int r = 0;

	(void)state;
	assert_int_equal(sse_feed(&s, stop, strlen(stop), take_event, &got, &e), -1);
	assert_string_equal(got.text, "<a>");
	sse_done(&s);
	assert_non_null(piece);
	memset(piece, 'x', 1 << 20);
	for (int i = 0; i < 6 && r == 0; i++) /* a line that never ends */
		r = sse_feed(&s, piece, 1 << 20, take_event, &got, &e);
	assert_int_equal(r, -1);
	assert_contains(e.text, "line of the stream");
	sse_done(&s);
	memcpy(piece, "data: ", 6);
	piece[(1 << 20) - 1] = '\n';
	for (int i = r = 0; i < 6 && r == 0; i++) /* an event that never ends */
		r = sse_feed(&s, piece, 1 << 20, take_event, &got, &e);
	assert_int_equal(r, -1);
	assert_contains(e.text, "event of the stream");
	assert_true(s.data.room <= 2 * SSE_BYTES);
	sse_done(&s);
	free(piece);
}

/* ---- answers ---- */

static int read_as(const struct provider *p, const char *type, const char *bytes, struct answer *a,
		   struct err *e)
{
	struct reading r = {.provider = p, .answer = a};
	int failed = reading_take(&r, type, bytes, strlen(bytes), e);

	if (!failed)
		failed = reading_end(&r, e);
	reading_done(&r);
	return failed;
}

#define STREAM "text/event-stream"
#define WHOLE  "application/json"
#define CHUNK(delta, finish) \
	"data: {\"choices\":[{\"delta\":" delta ",\"finish_reason\":" finish "}]}\n\n"
#define BLOCK(i, block) \
	"data: {\"type\":\"content_block_start\",\"index\":" i ",\"content_block\":" block "}\n\n"
#define DELTA(i, delta) \
	"data: {\"type\":\"content_block_delta\",\"index\":" i ",\"delta\":" delta "}\n\n"

/* What is no answer, and why. */
static void test_no_answers(void **state)
{
	static const struct {
		const struct provider *p;
		const char *type, *bytes, *why;
		bool temporary;
	} rows[] = {
		{&provider_openai, "text/html", "<html>", "of type", false},
		{&provider_openai, WHOLE, "", "empty", false},
		{&provider_openai, WHOLE, "{", "not understood", false},
		{&provider_openai, WHOLE, "[]", "no object", false},
		{&provider_openai, WHOLE, "{\"choices\":[]}", "broke off", false},
		{&provider_openai, STREAM, "data: {\n\n", "not understood", false},
		{&provider_openai, STREAM, "data: [DONE]\n\n", "broke off", false},
		{&provider_openai, STREAM, CHUNK("{\"content\":\"a\"}", "null"), "broke off",
		 false},
		{&provider_openai, STREAM,
		 CHUNK("{\"tool_calls\":[{\"index\":3,\"function\":{\"arguments\":\"{\"}}]}",
		       "null"),
		 "did not begin", false},
		{&provider_openai, STREAM, "data: {\"error\":{\"message\":\"m\"}}\n\n", "m", false},
		{&provider_openai, STREAM,
		 "data: {\"error\":{\"type\":\"server_error\",\"message\":\"m\"}}\n\n",
		 "server_error: m", true},
		{&provider_anthropic, STREAM, BLOCK("1", "{\"type\":\"text\"}"), "order", false},
		{&provider_anthropic, STREAM, BLOCK("0", "7"), "no object", false},
		{&provider_anthropic, STREAM, DELTA("0", "{\"type\":\"text_delta\"}"),
		 "did not begin", false},
		{&provider_anthropic, STREAM, DELTA("-1", "{}"), "did not begin", false},
		{&provider_anthropic, STREAM,
		 "data: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":"
		 "\"m\"}}\n\n",
		 "overloaded_error: m", true},
		{&provider_anthropic, WHOLE, "{}", "broke off", false},
		{&provider_gemini, STREAM, "data: {\"candidates\":[]}\n\n", "broke off", false},
		{&provider_gemini, WHOLE,
		 "[{\"error\":{\"code\":503,\"status\":\"UNAVAILABLE\",\"message\":\"m\"}}]",
		 "UNAVAILABLE: m", true},
		{&provider_gemini, STREAM,
		 "data: {\"candidates\":[{\"content\":{\"parts\":[7]}}]}\n\n", "no object", false},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct answer a = {0};
		struct err e = {0};

		assert_int_equal(read_as(rows[i].p, rows[i].type, rows[i].bytes, &a, &e), -1);
		assert_contains(e.text, rows[i].why);
		assert_int_equal(a.temporary, rows[i].temporary);
		answer_done(&a);
	}
}

static void assert_said(const struct provider *p, const char *type, const char *bytes,
			const char *text, size_t calls, enum stop stop, const char *said)
{
	struct answer a = {0};
	struct err e = {0};
	_cleanup_free_ char *back = NULL;
	json_t *message;

	if (read_as(p, type, bytes, &a, &e) < 0)
		fail_msg("%s", e.text);
	assert_string_equal(a.text.data ? a.text.data : "", text);
	assert_int_equal(a.call_count, calls);
	assert_int_equal(a.stop, stop);
	message = p->said(&a);
	back = json_dumps(message, JSON_COMPACT | JSON_SORT_KEYS);
	assert_string_equal(back, said);
	json_decref(message);
	answer_done(&a);
}

static void test_answers(void **state)
{
	(void)state;
	assert_said(&provider_openai, STREAM,
		    CHUNK("{\"content\":\"a\"}", "null")
			    CHUNK("{\"content\":[\"b\",{\"text\":\"c\"}]}",
				  "\"length\"") "data: [DONE]\n\n",
		    "abc", 0, STOP_LENGTH, "{\"content\":\"abc\",\"role\":\"assistant\"}");
	/* a call without an index, then its rest without an id */
	assert_said(
		&provider_openai, STREAM,
		CHUNK("{\"tool_calls\":[{\"id\":\"i\",\"function\":{\"name\":\"n\",\"arguments\":\"{\\\"a\\\"\"}}]}",
		      "null") CHUNK("{\"tool_calls\":[{\"function\":{\"arguments\":\":1}\"}}]}",
				    "\"tool_calls\""),
		"", 1, STOP_TOOLS,
		"{\"content\":null,\"role\":\"assistant\",\"tool_calls\":[{\"function\":{\"arguments\":"
		"\"{\\\"a\\\":1}\",\"name\":\"n\"},\"id\":\"i\",\"type\":\"function\"}]}");
	/* arguments as an object */
	assert_said(
		&provider_openai, WHOLE,
		"{\"choices\":[{\"finish_reason\":\"tool_calls\",\"message\":{\"content\":null,"
		"\"tool_calls\":[{\"id\":\"i\",\"function\":{\"name\":\"n\",\"arguments\":{\"a\":1}}}]}}]}",
		"", 1, STOP_TOOLS,
		"{\"content\":null,\"role\":\"assistant\",\"tool_calls\":[{\"function\":{\"arguments\":"
		"\"{\\\"a\\\":1}\",\"name\":\"n\"},\"id\":\"i\",\"type\":\"function\"}]}");
	/* kinds that are not known go back, deltas that are not known do not count, an empty text stays away */
	assert_said(
		&provider_anthropic, STREAM,
		BLOCK("0", "{\"type\":\"redacted_thinking\",\"data\":\"x\"}") BLOCK(
			"1", "{\"type\":\"text\",\"text\":\"\"}")
			DELTA("1", "{\"type\":\"new_delta\",\"text\":\"x\"}") BLOCK(
				"2",
				"{\"type\":\"tool_use\",\"id\":\"i\",\"name\":\"n\",\"input\":{}}") "data: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"tool_use\"}}\n\n"
												    "data: {\"type\":\"message_stop\"}\n\n",
		"", 1, STOP_TOOLS,
		"{\"content\":[{\"data\":\"x\",\"type\":\"redacted_thinking\"},"
		"{\"id\":\"i\",\"input\":{},\"name\":\"n\",\"type\":\"tool_use\"}],\"role\":\"assistant\"}");
	/* thoughts are not the answer */
	assert_said(
		&provider_gemini, STREAM,
		"data: {\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"t\",\"thought\":true},{\"text\":\"a\"}]}}]}\n\n"
		"data: {\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"b\"}]},\"finishReason\":\"NEW\"}]}\n\n",
		"ab", 0, STOP_OTHER,
		"{\"parts\":[{\"text\":\"t\",\"thought\":true},{\"text\":\"ab\"}],\"role\":\"model\"}");
	assert_said(&provider_gemini, WHOLE, "{\"promptFeedback\":{\"blockReason\":\"OTHER\"}}", "",
		    0, STOP_REFUSED, "{\"parts\":[],\"role\":\"model\"}");
}

static void test_bounds(void **state)
{
	struct answer a = {0};
	struct err e = {0};
	char piece[4096];
	int r = 0, n;

	(void)state;
	memset(piece, 'x', sizeof piece);
	for (n = 0; r == 0 && n < 5000; n++)
		r = answer_say(&a, piece, sizeof piece, &e);
	assert_int_equal(r, -1);
	assert_true(a.text.size <= ANSWER_BYTES && a.text.room <= 2 * ANSWER_BYTES);
	assert_contains(e.text, "kept");
	answer_done(&a);
	for (n = 0; answer_call(&a, NULL, NULL, &e) >= 0; n++)
		assert_true(n < ANSWER_CALLS);
	assert_int_equal(n, ANSWER_CALLS);
	answer_done(&a);
	for (n = 0; answer_part(&a, json_null(), 1, &e); n++)
		assert_true(n < ANSWER_PARTS);
	assert_int_equal(n, ANSWER_PARTS);
	answer_done(&a);
}

/* ---- settings ---- */

static int take_line(void *context, const char *name, const char *value, struct err *e)
{
	struct events *got = context;
	size_t n = strlen(got->text);

	(void)e;
	snprintf(got->text + n, sizeof got->text - n, "<%s|%s>", name, value);
	return 0;
}

static void test_envfile(void **state)
{
	static const struct {
		const char *text, *lines, *why;
	} rows[] = {
		{"A=b\nC_1=\n\n# x\n#\nD='e f'\nG=\"h # i\"\nK=a=b\nL=#x\r\n",
		 "<A|b><C_1|><D|e f><G|h # i><K|a=b><L|#x>", NULL},
		{"A=b", "<A|b>", NULL},
		{"", "", NULL},
		{"A=1\nexport B=2\n", "", "line 2: it has to be NAME=VALUE"},
		{" A=1", "", "line 1"},
		{"A=\"b", "", "not closed"},
		{"A='b'c", "", "not closed"},
		{"A=\"b\"c\"", "", "inside of quotes"},
		{"A=\"$B\"", "", "inside of quotes"},
		{"A=b # c", "", "needs quotes"},
		{"A=b ", "", "blanks"},
		{"A=1\nB=2\nA=3\n", "", "line 3: the name stands there twice"},
		{"A=\x01\x0b", "", "control"},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		_cleanup_free_ char *text = strdup(rows[i].text);
		struct events got = {""};
		struct err e = {0};
		int r = envfile_read(text, strlen(rows[i].text), take_line, &got, &e);

		assert_int_equal(r, rows[i].why ? -1 : 0);
		if (rows[i].why)
			assert_contains(e.text, rows[i].why);
		else
			assert_string_equal(got.text, rows[i].lines);
	}
}

static void test_models(void **state)
{
	static const struct {
		const char *model;
		bool has_url;
		const struct provider *p;
		const char *name;
	} rows[] = {
		{"claude-opus-4-8", false, &provider_anthropic, "claude-opus-4-8"},
		{"anthropic/x", false, &provider_anthropic, "x"},
		{"o1", false, &provider_openai, "o1"},
		{"gpt-5", true, &provider_openai, "gpt-5"},
		{"google_genai:gemini-3", false, &provider_gemini, "gemini-3"},
		{"openai/openai/gpt-oss-20b", true, &provider_openai, "openai/gpt-oss-20b"},
		{"qwen3:4b", true, &provider_openai, "qwen3:4b"},
		{"org/model", true, &provider_openai, "org/model"},
		{"openai/", true, &provider_openai, "openai/"},
		{"olmo", false, NULL, NULL},
		{"qwen3", false, NULL, NULL},
		{"", true, NULL, NULL},
		{"a\nb", true, NULL, NULL},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		const struct provider *p = NULL;
		const char *name = NULL;
		struct err e = {0};
		int r = model_choose(rows[i].model, rows[i].has_url, &p, &name, &e);

		assert_int_equal(r, rows[i].p ? 0 : -1);
		assert_ptr_equal(p, rows[i].p);
		if (rows[i].p)
			assert_string_equal(name, rows[i].name);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_events),     cmocka_unit_test(test_stream_ends),
		cmocka_unit_test(test_no_answers), cmocka_unit_test(test_answers),
		cmocka_unit_test(test_bounds),     cmocka_unit_test(test_envfile),
		cmocka_unit_test(test_models),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
