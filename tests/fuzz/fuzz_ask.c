/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a provider may answer: any bytes, in pieces of any size, as a stream or whole, to each family.
 *
 * The first byte chooses family, type and pieces. Whatever comes: what is kept has an end, what is text is UTF-8, a call has
 * a name, the answer and what its calls came to can be said back, and the same bytes in one piece are the same answer.
 */
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "ask/reading.h"
#include "base/json.h"
#include "sandbox/result.h"

static const struct provider *const families[] = {&provider_anthropic, &provider_openai,
						  &provider_gemini};

struct heard {
	size_t size;
};

static void on_text(void *context, const char *data, size_t size)
{
	struct heard *h = context;

	CHECK(data && size > 0);
	h->size += size;
}

/* 0: an answer; a new text of all that it is. */
static char *read_all(const struct provider *p, const char *type, size_t piece, const char *data,
		      size_t size, bool *ret_failed)
{
	struct heard h = {0};
	struct answer a = {.on_text = on_text, .context = &h};
	struct reading r = {.provider = p, .answer = &a};
	struct outcome outcomes[ANSWER_CALLS];
	struct err e = {0};
	json_t *messages = json_array(), *said;
	char *text;
	int failed = 0;

	for (size_t i = 0; i < size && !failed; i += piece)
		failed = reading_take(&r, type, data + i, size - i < piece ? size - i : piece, &e);
	if (!failed)
		failed = reading_end(&r, &e);
	*ret_failed = failed < 0;
	CHECK(!failed == !*e.text);
	CHECK(h.size == a.text.size && a.text.size <= ANSWER_BYTES);
	CHECK(utf8_prefix(a.text.data ? a.text.data : "", a.text.size, false) ==
	      (ssize_t)a.text.size);
	CHECK(a.part_count <= ANSWER_PARTS && a.call_count <= ANSWER_CALLS);
	for (size_t i = 0; i < a.call_count; i++) {
		json_t *arguments = call_arguments(&a.calls[i], &e);

		CHECK(a.calls[i].id && a.calls[i].name);
		CHECK(!arguments || json_is_object(arguments));
		json_decref(arguments);
		outcomes[i] = (struct outcome){&a.calls[i], "told", i % 2};
	}
	said = p->said(&a);
	CHECK(json_is_object(said));
	CHECK(json_array_append_new(messages, said) == 0);
	if (a.call_count > 0)
		CHECK(p->told(messages, outcomes, a.call_count) == 0);
	text = json_dumps(messages, JSON_COMPACT);
	CHECK(text);
	json_decref(messages);
	reading_done(&r);
	answer_done(&a);
	return text;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t how = size > 0 ? data[0] : 0;
	const struct provider *p = families[how % 3];
	const char *type = how & 4 ? "application/json" : "text/event-stream";
	const char *bytes = (const char *)data + 1;
	bool failed[2];
	char *pieces, *once;

	if (size < 2)
		return 0;
	pieces = read_all(p, type, (size_t)(how >> 3) + 1, bytes, size - 1, &failed[0]);
	once = read_all(p, type, size, bytes, size - 1, &failed[1]);
	CHECK(failed[0] == failed[1] && strcmp(pieces, once) == 0);
	free(pieces);
	free(once);
	return 0;
}
