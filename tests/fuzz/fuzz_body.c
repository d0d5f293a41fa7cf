/* SPDX-License-Identifier: Apache-2.0 */
/* A client's JSON body of each kind, under an operator's policy: an error with a sentence, or a body within its
 * bounds. The first byte says which kind, and whether there is a sandbox whose defaults apply. */
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "base/json.h"
#include "service/body.h"
#include "service/path.h"

enum { MEMORY_MAX = 256 << 20, PIDS_MAX = 200, LIFE_MAX_S = 7200 };

static struct service service;

static void check_files(const json_t *files)
{
	const char *path;
	json_t *row;
	size_t i;

	CHECK(!files || (json_is_array(files) && json_array_size(files) <= MAX_FILES));
	json_array_foreach((json_t *)(uintptr_t)files, i, row) {
		path = json_string_value(json_object_get(row, "path"));
		CHECK(path && *path && strlen(path) < SPEC_PATH_SIZE && !strstr(path, "/../"));
		CHECK(path[0] != '/' || !is_kernel_path(path));
		CHECK(!json_object_get(row, "content") != !json_object_get(row, "content_base64"));
		CHECK((json_integer_value(json_object_get(row, "mode")) & ~0777) == 0);
	}
}

static void check_taken(const struct body *b)
{
	const struct spec *s = &b->spec;

	CHECK(!b->input || b->input[b->input_size] == '\0');
	check_files(b->files);
	CHECK(json_object_size(b->labels) <= MAX_LABELS &&
	      json_object_size(b->metadata) <= MAX_LABELS);
	CHECK(json_array_size(b->volume_fds) <= SPEC_MAX_VOLUMES);
	CHECK(b->rows >= 1 && b->rows <= 4096 && b->columns >= 1 && b->columns <= 4096);
	CHECK(s->uid != 0 && s->gid != 0 && s->max_output_bytes > 0 && !s->best_effort);
	CHECK(!s->input_count && !s->venv);
	CHECK(b->kind == BODY_SANDBOX ? s->command.count == 0
				      : s->command.count > 0 && b->input_sha256[63]);
	if (b->kind != BODY_PROCESS)
		CHECK(s->memory_bytes <= MEMORY_MAX && s->pids_limit <= PIDS_MAX);
	if (b->kind == BODY_SANDBOX)
		CHECK(b->life_us > 0 && b->life_us <= LIFE_MAX_S * 1000000ull);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct spec base = {0};
	struct err e = {0};
	struct body b;
	json_t *j;

	if (!service.file) {
		service.file =
			json_pack("{s{ss ss}}", "policy", "memory", "256m", "pids_limit", "200");
		service.file_name = "cloche.yaml";
		service.config.max_timeout_us = LIFE_MAX_S * 1000000ull;
	}
	j = size > 0 ? json_read((const char *)data + 1, size - 1, &e) : NULL;
	if (!j)
		return 0;
	CHECK(spec_init(&base, &e) == 0);
	base.memory_bytes = 64 << 20;
	e = (struct err){0};
	if (body_read(&b, 1u << (data[0] & 3), &service, data[0] & 4 ? &base : NULL, j, &e) < 0)
		CHECK(e.text[0]);
	else
		check_taken(&b);
	body_done(&b);
	spec_done(&base);
	json_decref(j);
	return 0;
}
