/* SPDX-License-Identifier: Apache-2.0 */
/* image.c - the operator's and the caller's word on images: which may be used, and what they may want. */
#include <fnmatch.h>
#include <string.h>

#include "image/apply.h"
#include "image/image.h"
#include "settings/settings.h"

/* A beginning of an id, which image_find() also takes for a name: no pattern can have meant that. */
static bool may_be_id(const char *name)
{
	return strncmp(name, "sha256:", 7) == 0 ||
	       (strlen(name) >= IMAGE_ID_MIN && strspn(name, "0123456789abcdef") == strlen(name));
}

static bool matches(const json_t *patterns, const char *name, bool wildcards)
{
	const json_t *item;
	size_t i;

	json_array_foreach(patterns, i, item) {
		const char *pattern = json_string_value(item);

		if (strcmp(pattern, "*") == 0 || strcmp(pattern, name) == 0 ||
		    (wildcards && fnmatch(pattern, name, 0) == 0))
			return true;
	}
	return false;
}

int settings_check_image(const struct settings *t, const struct spec *s, struct err *e)
{
	char full[REFERENCE_TEXT], familiar[REFERENCE_TEXT];
	struct reference r;
	struct err ignored;

	if (!t->images || matches(t->images, s->image, false))
		return 0;
	if (!image_is_host(s->image) && !may_be_id(s->image) &&
	    reference_parse(s->image, &r, &ignored) == 0) {
		reference_format(&r, full);
		reference_familiar(&r, familiar);
		if (matches(t->images, full, true) || matches(t->images, familiar, true))
			return 0;
	}
	return err_set(e, EPERM, "--image %.200s: the operator's policy does not allow this image",
		       s->image);
}

static bool is_chosen(const struct settings *t, const char *option)
{
	enum origin o = t->origins[option_find(option) - options];

	return o != ORIGIN_DEFAULT && o != ORIGIN_POLICY;
}

int settings_apply_image_config(const struct settings *t, const struct image_config *config,
				bool is_language, struct spec *s, struct err *e)
{
	const struct image_choices choices = {
		.workdir = is_chosen(t, "workdir"),
		.user = is_chosen(t, "user"),
		.is_language = is_language,
		.user_allowed = t->image_user,
	};

	return image_apply(config, &choices, s->image, s, e);
}

int settings_apply_image(const struct settings *t, const struct places *places, bool is_language,
			 struct spec *s, struct err *e)
{
	_cleanup_image_config_ struct image_config config = {0};

	if (image_is_host(s->image))
		return 0;
	if (image_look(places, s->image, &config, e) < 0)
		return -1;
	return settings_apply_image_config(t, &config, is_language, s, e);
}
