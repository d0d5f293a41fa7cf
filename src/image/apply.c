/* SPDX-License-Identifier: Apache-2.0 */
#include "image/apply.h"

#include <stdio.h>
#include <string.h>

/* Is there an entry of this name that somebody chose? */
static bool is_chosen(const struct spec *s, const char *entry)
{
	size_t n = strcspn(entry, "=") + 1;

	for (size_t i = 0; i < s->env.count; i++)
		if (strncmp(s->env.item[i], entry, n) == 0)
			return i >= 32 || !(s->default_env & 1u << i);
	return false;
}

int image_apply_env(const struct strings *env, struct spec *s, struct err *e)
{
	for (size_t i = 0; i < env->count; i++) {
		const char *entry = env->item[i];

		if (strncmp(entry, "HOME=", 5) == 0 || is_chosen(s, entry))
			continue;
		if (spec_add_env(s, entry, e) < 0)
			return -1;
	}
	return 0;
}

static int apply_command(const struct image_config *c, const char *name, struct spec *s,
			 struct err *e)
{
	const struct strings *lists[] = {&c->entrypoint, &c->cmd};

	for (size_t l = 0; l < ARRAY_SIZE(lists); l++)
		for (size_t i = 0; i < lists[l]->count; i++)
			if (spec_add_argument(s, lists[l]->item[i], e) < 0)
				return -1;
	if (s->command.count == 0)
		return err_set(e, 0, "no command: the image %.200s has none of its own", name);
	return 0;
}

static int apply_user(const struct image_config *c, const char *name, struct spec *s, struct err *e)
{
	if (!*c->user)
		return 0;
	if (image_config_user(c->user, &s->uid, &s->gid))
		return 0;
	return err_set(
		e, 0,
		"the image %.200s wants the user %.60s: only numbers other than 0 are taken from "
		"an image; choose with --user",
		name, c->user);
}

int image_apply(const struct image_config *c, const struct image_choices *choices, const char *name,
		struct spec *s, struct err *e)
{
	if (image_apply_env(&c->env, s, e) < 0)
		return err_prefix(e, "image %.200s", name);
	if (*c->workdir && strcmp(c->workdir, "/") != 0 && !choices->workdir &&
	    !choices->is_language && spec_set(s, option_find("workdir"), c->workdir, e) < 0)
		return err_prefix(e, "image %.200s", name);
	if (s->command.count == 0 && !choices->is_language && apply_command(c, name, s, e) < 0)
		return -1;
	return choices->user_allowed && !choices->user ? apply_user(c, name, s, e) : 0;
}
