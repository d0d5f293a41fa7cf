/* SPDX-License-Identifier: Apache-2.0 */
/* A run from JSON, then finished: whatever the text, an error with a sentence or a spec in its limits. */
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "sandbox/spec.h"

static void check_strings(const struct strings *list, size_t max)
{
	CHECK(list->count <= max);
	for (size_t i = 0; i < list->count; i++)
		CHECK(strlen(list->item[i]) < SPEC_ARG_BYTES);
	CHECK(list->count == 0 || list->item[list->count] == NULL);
}

static void check_paths(const struct spec *s)
{
	struct err e;

	CHECK(s->tmpfs_count <= SPEC_MAX_TMPFS && s->volume_count <= SPEC_MAX_VOLUMES);
	CHECK(s->input_count <= SPEC_MAX_INPUTS);
	for (size_t i = 0; i < s->tmpfs_count; i++) {
		CHECK(box_path_check("x", s->tmpfs[i].path, &e) == 0);
		CHECK(s->tmpfs[i].size_bytes > 0 && s->tmpfs[i].inodes > 0);
	}
	for (size_t i = 0; i < s->volume_count; i++)
		CHECK(box_path_check("x", s->volumes[i].box, &e) == 0 && s->volumes[i].host[0]);
	for (size_t i = 0; i < s->input_count; i++)
		CHECK(box_path_check("x", s->inputs[i].box, &e) == 0 && s->inputs[i].host[0]);
	CHECK(box_path_check("x", s->workdir, &e) == 0);
}

static void check_finished(const struct spec *s)
{
	CHECK(s->command.count > 0 && s->command.item[0][0]);
	CHECK(s->memory_bytes >= 6 << 20 && s->memory_swap_bytes >= s->memory_bytes);
	CHECK(s->cpus_millis >= 10 && s->cpus_millis <= 1024000);
	CHECK(s->pids_limit >= 1 && s->timeout_us > 0 && s->cpu_time_us > 0 &&
	      s->idle_timeout_us > 0);
	CHECK(s->max_output_bytes > 0);
	CHECK(s->uid != 0 && s->gid != 0 && s->uid != UINT32_MAX && s->gid != UINT32_MAX);
	CHECK(strcmp(s->image, "host") == 0 && strcmp(s->runtime, "native") == 0);
	check_strings(&s->command, SPEC_MAX_ARGS);
	check_strings(&s->env, SPEC_MAX_ENV);
	check_strings(&s->artifacts, SPEC_MAX_ARTIFACTS);
	check_paths(s);
}

/* near: a caller on this machine, who may name its paths. */
static void read_one(const char *data, size_t size, bool near)
{
	char *input = NULL;
	size_t input_size = 0;
	struct err e = {0};
	struct spec s;

	CHECK(spec_init(&s, &e) == 0);
	if (spec_from_json(&s, data, size, near, NULL, &input, &input_size, &e) < 0) {
		CHECK(e.text[0] && !input);
	} else {
		CHECK(!input || input[input_size] == '\0');
		CHECK(near || (!s.volume_count && !s.input_count && !s.out_dir && !s.venv &&
			       !s.best_effort));
		if (spec_finish(&s, &e) == 0)
			check_finished(&s);
		else
			CHECK(e.text[0]);
	}
	free(input);
	spec_done(&s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	read_one((const char *)data, size, true);
	read_one((const char *)data, size, false);
	return 0;
}
