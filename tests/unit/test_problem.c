/* SPDX-License-Identifier: Apache-2.0 */
/* Problem documents and JSON answers, as they would go out: the exchange here keeps what it is told to send. */
#include "unit.h"

#include <jansson.h>

#include "sandbox/result.h"
#include "service/problem.h"
#include "service/reply.h"

struct exchange {
	int status, replies;
	char type[64], fields[256];
	char data[4096];
	size_t size;
};

void exchange_reply(struct exchange *x, int status, const char *type, const char *fields,
		    const void *data, size_t size)
{
	x->replies++;
	x->status = status;
	snprintf(x->type, sizeof x->type, "%s", type);
	snprintf(x->fields, sizeof x->fields, "%s", fields ? fields : "");
	assert_true(size < sizeof x->data);
	memcpy(x->data, data, size);
	x->data[x->size = size] = '\0';
}

void exchange_begin(struct exchange *x, int status, const char *type, const char *fields,
		    uint64_t size)
{
	assert_true(size == UINT64_MAX);
	exchange_reply(x, status, type, fields, "", 0);
}

bool exchange_write(struct exchange *x, const void *data, size_t size)
{
	assert_true(size < sizeof x->data - x->size);
	memcpy(x->data + x->size, data, size);
	x->data[x->size += size] = '\0';
	return true;
}

/* The document, checked to be one; a new reference. */
static json_t *reply(struct exchange *x, const struct err *e, unsigned retry_after)
{
	json_t *j;

	*x = (struct exchange){0};
	problem_reply(x, e, retry_after);
	assert_int_equal(x->replies, 1);
	assert_string_equal(x->type, "application/problem+json");
	j = json_loads(x->data, 0, NULL);
	if (!j)
		fail_msg("no JSON: %s", x->data);
	assert_int_equal(json_integer_value(json_object_get(j, "status")), x->status);
	assert_int_equal(problem_status(e), x->status);
	assert_int_equal(json_object_size(j), 6);
	assert_string_equal(json_string_value(json_object_get(j, "type")), "about:blank");
	return j;
}

static const char *text_of(const json_t *j, const char *key)
{
	return json_string_value(json_object_get(j, key));
}

static void test_every_problem(void **state)
{
	static const struct {
		enum problem problem;
		const char *name;
		int status;
		bool retryable;
		const char *title;
	} all[] = {
#define PROBLEM(name, status, retryable, title) {PROBLEM_##name, #name, status, retryable, title},
#include "service/problem.def"
#undef PROBLEM
	};
	struct exchange x;
	struct err e;
	json_t *j;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(all); i++) {
		e = (struct err){0};
		assert_int_equal(problem_set(&e, all[i].problem, "about %s", "it"), -1);
		j = reply(&x, &e, 0);
		assert_int_equal(x.status, all[i].status);
		assert_string_equal(text_of(j, "code"), all[i].name);
		assert_string_equal(text_of(j, "title"), all[i].title);
		assert_string_equal(text_of(j, "detail"), "about it");
		assert_int_equal(json_is_true(json_object_get(j, "retryable")), all[i].retryable);
		assert_string_equal(x.fields,
				    all[i].status == 401 ? "WWW-Authenticate: Bearer\r\n" : "");
		json_decref(j);
		e.text[0] = '\0'; /* nothing more is known: its title */
		j = reply(&x, &e, 7);
		assert_string_equal(text_of(j, "detail"), all[i].title);
		if (all[i].status != 401)
			assert_string_equal(x.fields, "Retry-After: 7\r\n");
		json_decref(j);
	}
}

static void test_codes_of_runs(void **state)
{
	struct exchange x;
	json_t *j;

	(void)state;
	for (int i = 1; i < CODE_COUNT; i++) {
		struct err e = {.code = i};

		j = reply(&x, &e, 0);
		assert_string_equal(text_of(j, "code"), codes[i].name);
		assert_string_equal(text_of(j, "title"), codes[i].people);
		/* what is no error of HTTP in a result is one here */
		assert_int_equal(x.status,
				 codes[i].http_status == 200 ? 500 : codes[i].http_status);
		assert_true(x.status >= 400 && x.status < 600);
		json_decref(j);
	}
}

static void test_what_a_client_said(void **state)
{
	struct err e = {0};
	struct exchange x;
	json_t *j;

	(void)state;
	err_set(&e, 0, "name: bad \xff\xc3 (\"quoted\" \n\x01");
	j = reply(&x, &e, 0);
	assert_int_equal(x.status, 400);
	assert_string_equal(text_of(j, "code"), "INVALID_REQUEST");
	assert_string_equal(text_of(j, "detail"), "name: bad ?? (\"quoted\" \n\x01");
	json_decref(j);
	/* a text that was cut inside a character */
	memset(e.text, 'a', sizeof e.text);
	memcpy(e.text + sizeof e.text - 3, "\xe2\x82", 3);
	j = reply(&x, &e, 0);
	assert_int_equal(strlen(text_of(j, "detail")), sizeof e.text - 1);
	assert_contains(text_of(j, "detail"), "a??");
	json_decref(j);
	/* longer than there is room: marked, whole */
	problem_set(&e, PROBLEM_CONFLICT, "%0900d", 0);
	assert_int_equal(e.code, PROBLEM_CONFLICT);
	json_decref(reply(&x, &e, 0));
}

static void test_answers(void **state)
{
	struct exchange x = {0};

	(void)state;
	reply_json(&x, 201, json_pack("{sf}", "a", 0.1));
	assert_int_equal(x.status, 201);
	assert_string_equal(x.type, "application/json");
	assert_string_equal(x.data, "{\"a\":0.1}");
	reply_json(&x, 200, NULL); /* no memory */
	assert_int_equal(x.status, 500);
	assert_contains(x.data, "\"code\":\"INTERNAL\"");
	reply_lines_begin(&x);
	assert_string_equal(x.type, "application/x-ndjson");
	assert_true(reply_line(&x, json_pack("{ss}", "a", "b\nc")));
	assert_true(reply_line(&x, NULL));
	assert_true(reply_line(&x, json_array()));
	assert_string_equal(x.data, "{\"a\":\"b\\nc\"}\n[]\n");
}

static void bytes_are(const void *data, size_t size, const char *encoding, const char *text,
		      size_t text_size)
{
	json_t *j = json_object();

	assert_int_equal(json_set_bytes(j, data, size), 0);
	assert_string_equal(text_of(j, "encoding"), encoding);
	assert_int_equal(json_string_length(json_object_get(j, "data")), text_size);
	assert_memory_equal(text_of(j, "data"), text, text_size);
	json_decref(j);
}

static void test_bytes(void **state)
{
	(void)state;
	bytes_are("", 0, "utf-8", "", 0);
	bytes_are("a\0\xc3\xa4", 4, "utf-8", "a\0\xc3\xa4", 4);
	bytes_are("\xff", 1, "base64", "/w==", 4);
	bytes_are("a\xc3", 2, "base64", "YcM=", 4); /* half a character */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_every_problem),
		cmocka_unit_test(test_codes_of_runs),
		cmocka_unit_test(test_what_a_client_said),
		cmocka_unit_test(test_answers),
		cmocka_unit_test(test_bytes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
