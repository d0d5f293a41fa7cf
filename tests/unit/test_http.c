/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of the HTTP server that need no socket: targets, headers, framing. */
#include "unit.h"

#include "http/connection.h"
#include "http/framing.h"
#include "http/head.h"
#include "http/target.h"

static const struct http_limits limits = {.header_bytes = 4096, .fields = 8, .path_bytes = 512};

/* In a block of exactly its size, so that a sanitizer sees a byte too many. */
static int parse_target(const char *text, struct target *t, const char **why)
{
	size_t size = strlen(text);
	_cleanup_free_ char *exact = malloc(size ? size : 1);

	memcpy(exact, text, size);
	return target_parse(exact, size, t, why);
}

static void target_decodes(void **state)
{
	static const struct {
		const char *text, *path, *query;
	} cases[] = {
		{"/", "/", ""},
		{"/a/b", "/a/b", ""},
		{"/a/", "/a/", ""},
		{"/a%20b/%41", "/a b/A", ""},
		{"/%e2%82%ac/%F0%9F%98%80", "/\xe2\x82\xac/\xf0\x9f\x98\x80", ""},
		{"/...?", "/...", ""},
		{"/.a/a./..b?x", "/.a/a./..b", "x"},
		{"/a+b?c+d", "/a+b", "c+d"},
		{"/%25%32%46", "/%2F", ""},
		{"/a?b?c=/../", "/a", "b?c=/../"},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct target t;
		const char *why;

		assert_int_equal(parse_target(cases[i].text, &t, &why), 0);
		assert_string_equal(t.path, cases[i].path);
		assert_string_equal(t.raw_query, cases[i].query);
		assert_memory_equal(t.raw_path, cases[i].text, strlen(t.raw_path));
		target_done(&t);
	}
}

static void target_refuses(void **state)
{
	static const char *const cases[] = {
		"",
		"a",
		"*",
		"http://x/",
		"/%",
		"/%4",
		"/%g0",
		"/%0g",
		"/%00",
		"/%2f",
		"/%2F",
		"/a%2fb",
		"/.",
		"/..",
		"/a/../b",
		"/%2e",
		"/%2E.",
		"/./",
		"//",
		"//a",
		"/a//b",
		"/%0a",
		"/%7f",
		"/%80",
		"/%c0%80",
		"/%e0%80%80",
		"/%ed%a0%80",
		"/%f4%90%80%80",
		"/%f8%88%80%80%80",
		"/%e2%82",
		"/a#",
		"/a?b#c",
		"/a b",
		"/\x7f",
		"/\xc3\xa4",
		"/?%",
		"/?a=%0",
		"/?%00=1",
		"/?a=%00",
		"?a",
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct target t;
		const char *why = NULL;

		assert_int_equal(parse_target(cases[i], &t, &why), -EINVAL);
		assert_non_null(why);
	}
}

static void query_values(void **state)
{
	static const char *const both[] = {"a", "b", "c", "", NULL}, *const one[] = {"a", NULL};
	const char *why, *bad = NULL;
	struct target t;

	(void)state;
	assert_int_equal(parse_target("/?a=1+2%2B&b&&c==%ff&=x", &t, &why), 0);
	assert_string_equal(target_param(&t, "a"), "1 2+");
	assert_string_equal(target_param(&t, "b"), "");
	assert_string_equal(target_param(&t, "c"), "=\xff");
	assert_string_equal(target_param(&t, ""), "x");
	assert_null(target_param(&t, "d"));
	assert_int_equal(target_check(&t, both, &bad), 0);
	assert_int_equal(target_check(&t, one, &bad), -1);
	assert_string_equal(bad, "b");
	target_done(&t);
	assert_int_equal(parse_target("/?a=1&%61=2", &t, &why), 0);
	assert_int_equal(target_check(&t, both, &bad), -1);
	assert_string_equal(bad, "a");
	target_done(&t);
}

static void query_has_a_limit(void **state)
{
	char text[2 * TARGET_MAX_PARAMS + 8] = "/?";
	const char *why;
	struct target t;

	(void)state;
	for (int i = 0; i < TARGET_MAX_PARAMS; i++)
		memcpy(text + 2 + 2 * i, "a&", 3);
	assert_int_equal(parse_target(text, &t, &why), 0);
	assert_int_equal(t.param_count, TARGET_MAX_PARAMS);
	target_done(&t);
	memcpy(text + 2 + 2 * TARGET_MAX_PARAMS, "b", 2);
	assert_int_equal(parse_target(text, &t, &why), -EINVAL);
}

/* Scan in two pieces, cut at every place: the same result. Then parse. */
static int parse_head(const char *text, struct head *h, struct refusal *why)
{
	size_t size = strlen(text);
	llhttp_t parser;
	enum head_state whole = HEAD_MORE;
	struct head_scan s;

	for (size_t cut = 0; cut <= size; cut++) {
		enum head_state state;

		s = (struct head_scan){0};
		state = head_scan(&s, text, cut, &limits, why);
		if (state == HEAD_MORE)
			state = head_scan(&s, text, size, &limits, why);
		assert_true(cut == 0 || state == whole);
		whole = state;
	}
	if (whole != HEAD_COMPLETE)
		return whole == HEAD_BAD ? -1 : -2;
	return head_parse(text, s.seen, HEAD_SERVER, &limits, &parser, h, why);
}

static void head_is_parsed(void **state)
{
	struct refusal why;
	struct head h;

	(void)state;
	assert_int_equal(
		parse_head("POST /a?b HTTP/1.1\r\nHost: x:80\r\nX-Y:\t a  b \t\r\nEmpty:\r\n"
			   "Content-Length: 007\r\nConnection: keep-alive, CLOSE\r\n"
			   "Expect: 100-Continue\r\nL: \xe4\r\n\r\nrest",
			   &h, &why),
		0);
	assert_string_equal(h.method, "POST");
	assert_string_equal(h.target.path, "/a");
	assert_int_equal(h.field_count, 7);
	assert_string_equal(h.fields[1].name, "x-y");
	assert_string_equal(h.fields[1].value, "a  b");
	assert_string_equal(h.fields[2].value, "");
	assert_string_equal(h.fields[6].value, "\xe4");
	assert_int_equal(h.body_size, 7);
	assert_true(h.close && h.expects && !h.http10);
	head_done(&h);
	assert_int_equal(parse_head("GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\n"
				    "Connection: Upgrade\r\n\r\n",
				    &h, &why),
			 0);
	assert_true(!h.close && h.body_size == 0);
	head_done(&h);
	assert_int_equal(
		parse_head("PUT / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: Chunked\r\n\r\n", &h,
			   &why),
		0);
	assert_true(h.body_size == UINT64_MAX);
	head_done(&h);
}

static void head_is_refused(void **state)
{
	static const struct {
		const char *text;
		int status;
	} cases[] = {
		{"x", 400},
		{"\r\n\r\n", 400},
		{"GET / HTTP/1.1\n", 400},
		{"GET / HTTP/1.1\r\r", 400},
		{"GET / HTTP/1.1\r\n Host: x", 400},
		{"GET / HTTP/1.1\r\nHost: x\r\n: y\r\n\r\n", 400},
		{"GET / HTTP/1.1\r\n\r\n", 400},
		{"GET / RTSP/1.1\r\nHost: x\r\n\r\n", 400},
		{"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
		 400},
		{"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000000000000000\r\n\r\n", 413},
		{"TRACE / HTTP/1.1\r\nHost: x\r\n\r\n", 405},
		{"GET / HTTP/1.1\r\na:\r\na:\r\na:\r\na:\r\na:\r\na:\r\na:\r\na:\r\na:\r\n\r\n",
		 431},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct refusal why = {0};
		struct head h;

		assert_int_equal(parse_head(cases[i].text, &h, &why), -1);
		assert_int_equal(why.status, cases[i].status);
		assert_non_null(why.detail);
	}
}

static void head_sizes(void **state)
{
	static char text[8192];
	struct refusal why = {0};
	struct head h;

	(void)state;
	memset(text, 'a', sizeof text - 1);
	memcpy(text, "GET /", 5);
	assert_int_equal(parse_head(text, &h, &why), -1);
	assert_int_equal(why.status, 414);
	memcpy(text, "GET / HTTP/1.1\r\nX: ", 19);
	assert_int_equal(parse_head(text, &h, &why), -1);
	assert_int_equal(why.status, 431);
	text[3000] = '\0';
	assert_int_equal(parse_head(text, &h, &why), -2);
}

/* All of data through the framing: the body into out; the state at the end. */
static enum framing_state frame(const char *data, uint64_t size, char *out, size_t *ret_used)
{
	static const char head[] =
		"PUT / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n";
	enum framing_state state;
	struct framing f;
	struct refusal why;
	struct head h;
	llhttp_t parser;
	size_t n;

	*ret_used = 0;
	assert_int_equal(head_parse(head, sizeof head - 1, HEAD_SERVER, &limits, &parser, &h, &why),
			 0);
	head_done(&h);
	framing_begin(&f, size);
	do {
		const char *piece;
		size_t used, left = strlen(data) - *ret_used;

		state = framing_step(&f, &parser, data + *ret_used, left, &used, &piece, &n);
		*ret_used += used;
		if (state == FRAMING_PIECE) {
			memcpy(out, piece, n);
			out += n;
		}
	} while (state == FRAMING_ON || state == FRAMING_PIECE);
	*out = '\0';
	return state;
}

static void framing_ends_where_it_should(void **state)
{
	static const struct {
		const char *data, *body;
		uint64_t size;
		enum framing_state end;
		size_t used;
	} cases[] = {
		{"hello", "hel", 3, FRAMING_END, 3},
		{"he", "he", 3, FRAMING_MORE, 2},
		{"5\r\nhello\r\n0\r\n\r\nGET", "hello", UINT64_MAX, FRAMING_END, 15},
		{"005;x=\"y\"\r\nhello\r\n1\r\n!\r\n00\r\n\r\n", "hello!", UINT64_MAX, FRAMING_END,
		 30},
		{"A\r\n0123456789\r\n", "0123456789", UINT64_MAX, FRAMING_MORE, 15},
		{"5\r\nhel", "hel", UINT64_MAX, FRAMING_MORE, 6},
		{"5\r", "", UINT64_MAX, FRAMING_MORE, 0},
		{"5\n", "", UINT64_MAX, FRAMING_BAD, 0},
		{"5\rx", "", UINT64_MAX, FRAMING_BAD, 0},
		{"5 \r\n", "", UINT64_MAX, FRAMING_BAD, 0},
		{"-5\r\n", "", UINT64_MAX, FRAMING_BAD, 0},
		{"\r\n", "", UINT64_MAX, FRAMING_BAD, 0},
		{"fffffffffffffffff\r\n", "", UINT64_MAX, FRAMING_BAD, 0},
		{"5;\x01\r\n", "", UINT64_MAX, FRAMING_BAD, 0},
		{"1\r\nxx\r\n", "x", UINT64_MAX, FRAMING_BAD, 4},
		{"0\r\nA: b\r\n\r\n", "", UINT64_MAX, FRAMING_BAD, 3},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		char out[64];
		size_t used;

		assert_int_equal(frame(cases[i].data, cases[i].size, out, &used), cases[i].end);
		assert_string_equal(out, cases[i].body);
		assert_int_equal(used, cases[i].used);
	}
}

static void answer_fields(void **state)
{
	static const char *const good[] = {"", "A: b\r\n", "A:\r\n", "A: b\r\nC-D: e\tf\r\n"};
	static const char *const bad[] = {"A",         "A: b",      "A: b\n",      "A: b\r\n\r\n",
					  ": b\r\n",   "A : b\r\n", "A: b\rc\r\n", "A: \x01\r\n",
					  "A: b\r\nC", "\r\n",      "A: b\n\r\n"};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(good); i++)
		assert_true(answer_fields_ok(good[i]));
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		assert_false(answer_fields_ok(bad[i]));
}

static void tokens(void **state)
{
	(void)state;
	assert_true(list_has_token("close", "close"));
	assert_true(list_has_token("a,b , Close", "close"));
	assert_false(list_has_token("closed, unclose", "close"));
	assert_false(list_has_token("", "close"));
	assert_false(list_has_token(" , ,", "close"));
}

static unsigned expired_count;
static void expired(struct deadline *d)
{
	assert_null(d->next);
	expired_count++;
}

static void deadlines_in_order(void **state)
{
	struct deadline a = {0}, b = {0}, c = {0};
	struct deadlines ds = {0};
	uv_loop_t loop;

	(void)state;
	assert_int_equal(uv_loop_init(&loop), 0);
	deadlines_init(&ds, &loop, expired);
	ds.length_ms[DEADLINE_IDLE] = 20;
	ds.length_ms[DEADLINE_BODY] = 5;
	deadline_arm(&ds, &a, DEADLINE_IDLE);
	deadline_arm(&ds, &b, DEADLINE_BODY);
	deadline_arm(&ds, &c, DEADLINE_BODY);
	assert_true(deadline_armed(&a, DEADLINE_IDLE) && !deadline_armed(&a, DEADLINE_BODY));
	deadline_disarm(&c);
	deadline_disarm(&c);
	uv_run(&loop, UV_RUN_DEFAULT); /* ends when nothing is armed */
	assert_int_equal(expired_count, 2);
	uv_close((uv_handle_t *)&ds.timer, NULL);
	uv_run(&loop, UV_RUN_DEFAULT);
	assert_int_equal(uv_loop_close(&loop), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(target_decodes),
		cmocka_unit_test(target_refuses),
		cmocka_unit_test(query_values),
		cmocka_unit_test(query_has_a_limit),
		cmocka_unit_test(head_is_parsed),
		cmocka_unit_test(head_is_refused),
		cmocka_unit_test(head_sizes),
		cmocka_unit_test(framing_ends_where_it_should),
		cmocka_unit_test(answer_fields),
		cmocka_unit_test(tokens),
		cmocka_unit_test(deadlines_in_order),
	};

	return cmocka_run_group_tests_name("http", tests, NULL, NULL);
}
