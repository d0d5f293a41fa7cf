/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lines of NAME=VALUE, set one after the other: each is taken, or refused with an error that names the
 * option and changes nothing. Options that read files or the environment of the host are left out.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "sandbox/spec.h"

static void set_one(struct spec *s, const char *name, const char *value)
{
	const struct option *o = option_find(name);
	struct spec before = *s;
	struct err e = {0};
	char prefix[64];

	if (!o || strcmp(o->name, "env-file") == 0 ||
	    (strcmp(o->name, "env") == 0 && !strchr(value, '=')))
		return;
	snprintf(prefix, sizeof prefix, "--%s: ", o->name);
	if (spec_set(s, o, value, &e) == 0)
		return;
	CHECK(strncmp(e.text, prefix, strlen(prefix)) == 0 && e.text[strlen(prefix)]);
	CHECK(s->memory_bytes == before.memory_bytes && s->cpus_millis == before.cpus_millis);
	CHECK(s->uid == before.uid && s->gid == before.gid && s->best_effort == before.best_effort);
	CHECK(s->tmpfs_count == before.tmpfs_count && s->volume_count == before.volume_count);
	CHECK(s->input_count == before.input_count && s->env.count == before.env.count);
	CHECK(memcmp(s->tmpfs, before.tmpfs, sizeof s->tmpfs) == 0);
	CHECK(strcmp(s->workdir, before.workdir) == 0 && strcmp(s->hostname, before.hostname) == 0);
}

static void check_places(const struct spec *s)
{
	struct err e;

	CHECK(s->uid != 0 && s->gid != 0);
	for (size_t i = 0; i < s->tmpfs_count; i++)
		for (size_t j = 0; j < i; j++)
			CHECK(strcmp(s->tmpfs[i].path, s->tmpfs[j].path) != 0);
	for (size_t i = 0; i < s->tmpfs_count; i++)
		CHECK(box_path_check("x", s->tmpfs[i].path, &e) == 0);
	for (size_t i = 0; i < s->volume_count; i++)
		CHECK(box_path_check("x", s->volumes[i].box, &e) == 0);
	for (size_t i = 0; i < s->input_count; i++)
		CHECK(box_path_check("x", s->inputs[i].box, &e) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = malloc(size + 1), *save = NULL;
	struct err e;
	struct spec s;

	CHECK(text && spec_init(&s, &e) == 0);
	memcpy(text, data, size);
	text[size] = '\0';
	for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		char *value = strchr(line, '=');

		if (!value)
			continue;
		*value++ = '\0';
		set_one(&s, line, value);
	}
	check_places(&s);
	CHECK(spec_add_argument(&s, "true", &e) == 0);
	if (spec_finish(&s, &e) == 0)
		check_places(&s);
	spec_done(&s);
	free(text);
	return 0;
}
