/* SPDX-License-Identifier: Apache-2.0 */
/* What the command line believes of an answer: HTTP strictly, NDJSON line by line. */
#include "unit.h"

#include <jansson.h>

#include "client/call.h"
#include "client/lines.h"
#include "client/response.h"

struct body {
	char data[256];
	size_t size;
};

static int keep(void *context, const char *data, size_t size, struct err *e)
{
	struct body *b = context;

	if (size > sizeof b->data - b->size - 1)
		return err_set(e, 0, "too much");
	memcpy(b->data + b->size, data, size);
	b->size += size;
	b->data[b->size] = '\0';
	return 0;
}

/* Feed in pieces of `step` bytes. 0 complete, 1 not complete, -1. */
static int read_answer(struct response *r, const char *text, size_t size, size_t step,
		       struct body *b, struct err *e)
{
	*b = (struct body){0};
	response_init(r);
	for (size_t i = 0; i < size; i += step)
		if (response_feed(r, text + i, size - i < step ? size - i : step, keep, b, e) < 0)
			return -1;
	return r->state == RESPONSE_DONE ? 0 : 1;
}

/* Whatever the pieces, the same. */
static int read_both(struct response *r, const char *text, struct body *b, struct err *e)
{
	int whole = read_answer(r, text, strlen(text), SIZE_MAX / 2, b, e);

	assert_int_equal(read_answer(r, text, strlen(text), 1, b, e), whole);
	assert_int_equal(read_answer(r, text, strlen(text), 3, b, e), whole);
	return whole;
}

static void test_answers(void **state)
{
	static const struct {
		const char *text, *body, *type;
		int status;
		bool closes;
	} cases[] = {
		{"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", "hello", "", 200, false},
		{"HTTP/1.1 200\r\ncontent-length:0\r\n\r\n", "", "", 200, false},
		{"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n", "", "", 204, true},
		{"HTTP/1.1 404 Not Found\r\nContent-Type: Application/Problem+JSON; charset=utf-8\r\n"
		 "Content-Length: 2\r\n\r\n{}",
		 "{}", "application/problem+json", 404, false},
		{"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n00A\r\n0123456789\r\n0\r\n"
		 "\r\n",
		 "hello0123456789", "", 200, false},
		{"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 201 Created\r\nContent-Length: 1\r\n\r\nx",
		 "x", "", 201, false},
	};
	struct response *r = malloc(sizeof *r);
	struct err e = {0};
	struct body b;

	(void)state;
	assert_non_null(r);
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		assert_int_equal(read_both(r, cases[i].text, &b, &e), 0);
		assert_int_equal(r->status, cases[i].status);
		assert_string_equal(b.data, cases[i].body);
		assert_string_equal(r->content_type, cases[i].type);
		assert_int_equal(r->closes, cases[i].closes);
		/* Nothing may stand behind it, and every shorter one is not complete. */
		assert_int_equal(response_feed(r, "H", 1, keep, &b, &e), -1);
		assert_string_equal(e.text,
				    "the service's answer is not understood: more than one answer");
		for (size_t n = 0; n < strlen(cases[i].text); n++) {
			assert_int_equal(read_answer(r, cases[i].text, n, 64, &b, &e), 1);
			assert_int_equal(response_eof(r, &e), -1);
			assert_contains(e.text, "the service hung up");
		}
	}
	free(r);
}

#define OK "HTTP/1.1 200 OK\r\n"

static void test_refused(void **state)
{
	static const struct {
		const char *text, *why;
	} cases[] = {
		{"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n", "not HTTP/1.1"},
		{"HTTP/2 200\r\nContent-Length: 0\r\n\r\n", "not HTTP/1.1"},
		{"garbage\r\n\r\n", "not HTTP/1.1"},
		{"\r\n\r\n", "not HTTP/1.1"},
		{"HTTP/1.1 2x0 OK\r\nContent-Length: 0\r\n\r\n", "its status"},
		{"HTTP/1.1 2000 OK\r\nContent-Length: 0\r\n\r\n", "its status"},
		{"HTTP/1.1 099 OK\r\nContent-Length: 0\r\n\r\n", "its status"},
		{"HTTP/1.1 600 OK\r\nContent-Length: 0\r\n\r\n", "its status"},
		{"HTTP/1.1 101 Switching\r\n\r\n", "its status"},
		{"HTTP/1.1 200 \033[2J\r\nContent-Length: 0\r\n\r\n",
		 "control character in its status"},
		{OK "\r\nhello", "no length"},
		{OK "Content-Length: 1\r\nContent-Length: 1\r\n\r\nx", "two lengths"},
		{OK "Content-Length: 1, 1\r\n\r\nx", "its length"},
		{OK "Content-Length: +1\r\n\r\nx", "its length"},
		{OK "Content-Length: -1\r\n\r\nx", "its length"},
		{OK "Content-Length:\r\n\r\nx", "its length"},
		{OK "Content-Length: 9999999999999999999\r\n\r\nx", "its length"},
		{OK "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
		 "two kinds of length"},
		{OK "Transfer-Encoding: gzip, chunked\r\n\r\n", "transfer encoding"},
		{OK "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
		 "transfer encoding"},
		{OK "Content-Length : 1\r\n\r\nx", "a field's name"},
		{OK ": 1\r\n\r\nx", "a field's name"},
		{OK "A: 1\r\n folded\r\n\r\n", "a field's name"},
		{OK "nothing\r\n\r\n", "a field's name"},
		{OK "A: \001\r\n\r\n", "a control character"},
		{OK "A: 1\nB: 2\r\n\r\n", "CR LF"},
		{OK "A: 1\rB: 2\r\n\r\n", "CR LF"},
		{OK "Transfer-Encoding: chunked\r\n\r\n5;x=y\r\nhello\r\n", "a chunk's size"},
		{OK "Transfer-Encoding: chunked\r\n\r\n\r\n", "a chunk's size"},
		{OK "Transfer-Encoding: chunked\r\n\r\n-1\r\n", "a chunk's size"},
		{OK "Transfer-Encoding: chunked\r\n\r\n1\nx", "a chunk's size"},
		{OK "Transfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n", "a chunk's size"},
		{OK "Transfer-Encoding: chunked\r\n\r\n1\r\nxy\r\n", "the end of a chunk"},
		{OK "Transfer-Encoding: chunked\r\n\r\n0\r\nA: 1\r\n\r\n",
		 "fields behind its body"},
		{"HTTP/1.1 204 No\r\nContent-Length: 1\r\n\r\nx", "a body where there can be none"},
		{"HTTP/1.1 100 C\r\n\r\nHTTP/1.1 100 C\r\n\r\nHTTP/1.1 100 C\r\n\r\nHTTP/1.1 100 C\r\n\r\n"
		 "HTTP/1.1 100 C\r\n\r\n",
		 "too many"},
	};
	struct response *r = malloc(sizeof *r);
	struct body b;

	(void)state;
	assert_non_null(r);
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct err e = {0};

		if (read_both(r, cases[i].text, &b, &e) != -1)
			fail_msg("taken: %s", cases[i].text);
		assert_contains(e.text, cases[i].why);
	}
	free(r);
}

static void test_endless_header(void **state)
{
	struct response *r = malloc(sizeof *r);
	struct err e = {0};
	struct body b = {0};
	int last = 0;

	(void)state;
	assert_non_null(r);
	response_init(r);
	last = response_feed(r, OK, strlen(OK), keep, &b, &e);
	for (int i = 0; last == 0 && i < 10000; i++)
		last = response_feed(r, "AAAA: bbbbbbbb\r\n", 16, keep, &b, &e);
	assert_int_equal(last, -1);
	assert_contains(e.text, "its header is too long");
	/* Many short fields are refused by their number once the header is complete. */
	response_init(r);
	last = response_feed(r, OK, strlen(OK), keep, &b, &e);
	for (int i = 0; last == 0 && i <= RESPONSE_FIELDS; i++)
		last = response_feed(r, "A: b\r\n", 6, keep, &b, &e);
	assert_int_equal(response_feed(r, "\r\n", 2, keep, &b, &e), -1);
	assert_contains(e.text, "too many fields");
	free(r);
}

static int read_with_trailers(struct response *r, const char *fields, size_t piece, struct err *e)
{
	static const char head[] = OK "Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n";
	struct body b = {0};

	response_init(r);
	r->takes_trailers = true;
	assert_int_equal(response_feed(r, head, sizeof head - 1, keep, &b, e), 0);
	for (size_t done = 0, n, size = strlen(fields); done < size; done += n) {
		n = size - done < piece ? size - done : piece;
		if (response_feed(r, fields + done, n, keep, &b, e) < 0)
			return -1;
	}
	return 0;
}

static void test_trailers(void **state)
{
	static const char *const bad[] = {"A\r\n\r\n", "A: b\n\r\n", ": b\r\n\r\n",
					  "A: \033\r\n\r\n", "A: b\r\n\r\nx"};
	struct response *r = malloc(sizeof *r);
	struct err e = {0};
	size_t size = 0;

	(void)state;
	assert_non_null(r);
	for (size_t piece = 1; piece < 40; piece += 7) {
		assert_int_equal(read_with_trailers(r, "\r\n", piece, &e), 0);
		assert_int_equal(response_eof(r, &e), 0);
		assert_null(response_trailer(r, "a", &size));
		assert_int_equal(read_with_trailers(r, "B: 1\r\nCloche-Skipped:  2, d \r\n\r\n",
						    piece, &e),
				 0);
		assert_memory_equal(response_trailer(r, "cloche-skipped", &size), "2, d", 4);
		assert_int_equal(size, 4);
		assert_int_equal(read_with_trailers(r, "B: 1\r\n", piece, &e), 0);
		assert_int_equal(response_eof(r, &e), -1);
		assert_null(response_trailer(r, "b", &size));
		for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
			assert_int_equal(read_with_trailers(r, bad[i], piece, &e), -1);
	}
	assert_int_equal(read_with_trailers(r, "A: b\r\n", 6, &e), 0);
	for (int i = 0, last = 0; last == 0; i++) {
		assert_true(i < RESPONSE_HEADER_BYTES);
		last = response_feed(r, "A: b\r\n", 6, NULL, NULL, &e);
	}
	assert_contains(e.text, "too long");
	free(r);
}

static void test_sink_ends_it(void **state)
{
	static const char text[] = OK "Content-Length: 300\r\n\r\n";
	struct response *r = malloc(sizeof *r);
	struct err e = {0};
	struct body b;
	char more[300];

	(void)state;
	assert_non_null(r);
	memset(more, 'x', sizeof more);
	assert_int_equal(read_answer(r, text, strlen(text), 100, &b, &e), 1);
	assert_int_equal(response_feed(r, more, sizeof more, keep, &b, &e), -1);
	assert_string_equal(e.text, "too much");
	free(r);
}

struct seen {
	unsigned count;
	json_int_t sum;
};

static int count_line(void *context, json_t *object, struct err *e)
{
	struct seen *s = context;

	s->count++;
	s->sum += json_integer_value(json_object_get(object, "n"));
	return s->count > 3 ? err_set(e, 0, "enough") : 0;
}

static void test_lines(void **state)
{
	static const char text[] = "{\"n\":1}\n{\"n\":20, \"a\":[]}\n{\"n\":300}\n{";

	(void)state;
	for (size_t step = 1; step < sizeof text; step++) {
		struct lines l = {0};
		struct seen s = {0};
		struct err e = {0};

		for (size_t i = 0; i < sizeof text - 1; i += step) {
			size_t n = sizeof text - 1 - i;

			assert_int_equal(lines_feed(&l, text + i, n < step ? n : step, count_line,
						    &s, &e),
					 0);
		}
		assert_int_equal(s.count, 3);
		assert_int_equal(s.sum, 321);
		assert_int_equal(l.splitter.left.size, 1);
		lines_done(&l);
	}
}

static void test_lines_refused(void **state)
{
	static const struct {
		const char *text, *why;
	} cases[] = {
		{"\n", "a line of the service's answer"},
		{"[1]\n", "no JSON object"},
		{"nonsense\n", "a line of the service's answer"},
		{"{\"a\":1,\"a\":2}\n", "duplicate"},
		{"{} {}\n", "a line of the service's answer"},
		{"{}\n{}\n{}\n{}\n", "enough"},
		{"{\"a\":\"\xff\"}\n", "decode byte"},
	};
	char *long_line = malloc(LINE_MAX_BYTES + 2);

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct lines l = {0};
		struct seen s = {0};
		struct err e = {0};

		assert_int_equal(lines_feed(&l, cases[i].text, strlen(cases[i].text), count_line,
					    &s, &e),
				 -1);
		assert_contains(e.text, cases[i].why);
		lines_done(&l);
	}
	assert_non_null(long_line);
	memset(long_line, ' ', LINE_MAX_BYTES + 2);
	for (int more = 0; more < 3; more += 2) /* one may still be the "\r" of its end */ {
		struct lines l = {0};
		struct seen s = {0};
		struct err e = {0};
		int r = lines_feed(&l, long_line, (size_t)(LINE_MAX_BYTES + more), count_line, &s,
				   &e);

		assert_int_equal(r, more ? -1 : 0);
		if (more)
			assert_contains(e.text, "longer than");
		assert_true(l.splitter.left.room <= 2u * LINE_MAX_BYTES);
		lines_done(&l);
	}
	free(long_line);
}

static void check_data(const char *text, const char *want, size_t want_size)
{
	json_t *event = json_loads(text, JSON_ALLOW_NUL, NULL);
	struct err e = {0};
	char *data = NULL;
	size_t size = 0;
	int r;

	assert_non_null(event);
	r = event_data(event, &data, &size, &e);
	assert_int_equal(r, want ? 0 : -1);
	if (want) {
		assert_int_equal(size, want_size);
		assert_memory_equal(data, want, size);
	}
	free(data);
	json_decref(event);
}

static void test_event_data(void **state)
{
	(void)state;
	check_data("{\"data\":\"a\\u0000b\",\"encoding\":\"utf-8\"}", "a\0b", 3);
	check_data("{\"data\":\"x\"}", "x", 1);
	check_data("{\"data\":\"/w==\",\"encoding\":\"base64\"}", "\xff", 1);
	check_data("{\"data\":\"/w=\",\"encoding\":\"base64\"}", NULL, 0);
	check_data("{\"data\":\"x\",\"encoding\":\"latin-1\"}", NULL, 0);
	check_data("{\"data\":\"x\",\"encoding\":7}", NULL, 0);
	check_data("{\"data\":7}", NULL, 0);
	check_data("{}", NULL, 0);
}

static void test_url_encode(void **state)
{
	char out[64], small[5];

	(void)state;
	assert_int_equal(url_encode("/a b?c&d=%\xff~", out, sizeof out), 0);
	assert_string_equal(out, "/a%20b%3Fc%26d%3D%25%FF~");
	assert_int_equal(url_encode("ab", small, sizeof small), 0);
	assert_int_equal(url_encode("abc", small, sizeof small), -ENAMETOOLONG);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_answers),        cmocka_unit_test(test_refused),
		cmocka_unit_test(test_endless_header), cmocka_unit_test(test_trailers),
		cmocka_unit_test(test_sink_ends_it),   cmocka_unit_test(test_lines),
		cmocka_unit_test(test_lines_refused),  cmocka_unit_test(test_event_data),
		cmocka_unit_test(test_url_encode),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
