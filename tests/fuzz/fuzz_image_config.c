/* SPDX-License-Identifier: Apache-2.0 */
/* An image's configuration, from anybody: what is taken is within the limits that its header states. */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "image/config.h"
#include "image/record.h"

static void check(const struct image_config *c)
{
	for (size_t i = 0; i < c->env.count; i++)
		if (c->env.item[i][0] == '=' || !strchr(c->env.item[i], '='))
			abort();
	for (size_t i = 0; i < c->diff_ids.count; i++)
		if (!digest_is_valid(c->diff_ids.item[i]))
			abort();
	if (*c->workdir && *c->workdir != '/')
		abort();
	if (c->diff_ids.count > CONFIG_MAX_LAYERS || strlen(c->user) >= CONFIG_USER_SIZE)
		abort();
}

/* What was taken can be written to a record and read again. */
static void check_record(struct image_config *c)
{
	struct record_layer layer = {.name = "abcd"};
	struct image_record r = {.layers = &layer, .layer_count = 1}, again = {0};
	struct err e;
	char *text;

	memset(layer.digest, 'a', DIGEST_TEXT);
	memcpy(layer.digest, "sha256:", 7);
	r.config = *c;
	text = image_record_write(&r, &e);
	if (!text || image_record_read(text, strlen(text), &again, &e) < 0)
		abort();
	if (strcmp(again.config.workdir, c->workdir) != 0 || again.config.env.count != c->env.count)
		abort();
	image_record_done(&again);
	free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct image_config c = {0};
	struct image_record r = {0};
	struct err e = {0};

	if (image_config_read((const char *)data, size, &c, &e) == 0) {
		check(&c);
		check_record(&c);
	} else if (!*e.text) {
		abort();
	}
	image_config_done(&c);
	if (image_record_read((const char *)data, size, &r, &e) == 0)
		image_record_done(&r);
	return 0;
}
