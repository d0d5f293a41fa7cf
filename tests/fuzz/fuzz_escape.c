/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Output of the code on its way to a terminal and into the result: what is shown is printable text, never
 * more than four times as long, the same however it is split; and there is a result object for any bytes.
 */
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "native/stream.h"
#include "sandbox/result.h"

static void check_shown(const char *text, size_t size)
{
	CHECK(utf8_prefix(text, size, false) == (ssize_t)size);
	for (size_t i = 0; i < size; i++) {
		unsigned char c = (unsigned char)text[i];

		CHECK(c >= 0x20 || c == '\n' || c == '\t');
		CHECK(c != 0x7f);
		CHECK(c != 0xc2 || (unsigned char)text[i + 1] >= 0xa0);
	}
}

static void check_escape(const char *data, size_t size, size_t split)
{
	char *whole = malloc(4 * size + 1), *parts = malloc(8 * size + 1);
	size_t n, first, second, taken;

	CHECK(whole && parts);
	CHECK(terminal_escape(data, size, true, whole, &n) == size);
	CHECK(n <= 4 * size);
	check_shown(whole, n);
	taken = terminal_escape(data, split, false, parts, &first);
	CHECK(taken <= split && split - taken < 4 && first <= 4 * split);
	CHECK(terminal_escape(data + taken, size - taken, true, parts + first, &second) ==
	      size - taken);
	CHECK(first + second == n && memcmp(whole, parts, n) == 0);
	free(whole);
	free(parts);
}

static void check_utf8(const char *data, size_t size)
{
	ssize_t whole = utf8_prefix(data, size, false), cut = utf8_prefix(data, size, true);

	CHECK(whole == -1 || (size_t)whole == size);
	CHECK(cut == -1 ||
	      (size - (size_t)cut < 4 && utf8_prefix(data, (size_t)cut, false) == cut));
	CHECK(whole == -1 || cut == whole);
	CHECK(cut != -1 || whole == -1);
}

static void captured(struct captured *c, const char *data, size_t size, uint64_t more)
{
	c->data = malloc(size + 1);
	CHECK(c->data);
	memcpy(c->data, data, size);
	c->size = size;
	c->kept = size;
	c->bytes = size + more;
}

static struct result make_result(const char *data, size_t size, size_t split)
{
	struct result r = {.id = "run_1", .sandbox = "sbx_1"};

	r.reason = (enum reason)(size % REASON_COUNT);
	r.enforced = (struct enforced){.runtime = "",
				       .memory = "",
				       .swap = "",
				       .cpu = "",
				       .pids = "",
				       .network = "",
				       .network_denials = "",
				       .rootfs = "",
				       .disk = "",
				       .capabilities = ""};
	captured(&r.out, data, split, size & 1);
	captured(&r.err, data + split, size - split, size & 2);
	memcpy(r.message, data, size < sizeof r.message ? size : sizeof r.message - 1);
	r.artifacts = calloc(1, sizeof *r.artifacts);
	CHECK(r.artifacts);
	r.artifact_count = 1;
	r.artifacts[0].path = strndup(data, size);
	CHECK(r.artifacts[0].path);
	return r;
}

static void check_result(const char *data, size_t size, size_t split)
{
	struct result r = make_result(data, size, split);
	json_t *j = result_to_json(&r), *again;
	char *text;

	CHECK(j);
	text = json_dumps(j, JSON_COMPACT);
	CHECK(text);
	again = json_loads(text, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL);
	CHECK(again && json_equal(j, again));
	json_decref(again);
	json_decref(j);
	free(text);
	result_done(&r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	size_t split;

	if (size < 1)
		return 0;
	split = data[0] % size;
	check_escape((const char *)data + 1, size - 1, split < size - 1 ? split : size - 1);
	check_utf8((const char *)data + 1, size - 1);
	check_result((const char *)data + 1, size - 1, split < size - 1 ? split : size - 1);
	return 0;
}
