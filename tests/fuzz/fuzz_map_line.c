/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A line of --map, of any bytes: a request that a run can be made of, or a sentence; and one line of JSON as its answer.
 *
 * The first byte chooses the verb.
 */
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "base/json.h"
#include "cli/map.h"

/* What is given to either way is a command, and its input is a string. */
static void check_request(const struct map_line *l)
{
	_cleanup_free_ char *code = NULL;
	struct spec s;
	struct err e = {0};
	size_t size;

	CHECK(json_is_object(l->request) && !json_object_get(l->request, "tag"));
	CHECK(!l->tag || (json_is_string(l->tag) && json_string_length(l->tag) <= 256));
	CHECK(spec_init(&s, &e) == 0);
	CHECK(spec_command_from_json(&s, l->request, &code, &size, &e) == 0);
	CHECK(!code || !json_object_get(l->request, "stdin"));
	spec_done(&s);
}

static void check_answer(const struct map_line *l)
{
	_cleanup_json_ json_t *j = NULL;
	struct err e = {0};

	CHECK(l->answer_size > 1 && l->answer[l->answer_size - 1] == '\n');
	CHECK(!memchr(l->answer, '\n', l->answer_size - 1));
	j = json_read(l->answer, l->answer_size, &e);
	CHECK(j && json_object_size(j) == 3 && json_object_get(j, "error"));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct map_line l = {.index = 7};
	struct err why = {0}, e = {0};

	if (size < 1)
		return 0;
	if (map_line_read(&l, (const char *)data + 1, size - 1,
			  (enum language)(data[0] % LANGUAGE_COUNT), &why) == 0) {
		check_request(&l);
	} else {
		CHECK(why.text[0] && !l.request);
		CHECK(map_line_problem(&l, MAP_INVALID, &why, &e) == 0);
		check_answer(&l);
	}
	json_decref(l.request);
	json_decref(l.tag);
	free(l.answer);
	return 0;
}
