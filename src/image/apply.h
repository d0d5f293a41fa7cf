/* SPDX-License-Identifier: Apache-2.0 */
/*
 * apply.h - what an image wants, as far as it may have it.
 *
 *	Env		under what the caller said, over cloche's defaults; HOME stays /tmp, which can be written to
 *	WorkingDir	for a command, unless the caller gave a directory; code of a language starts in /workspace
 *	Entrypoint, Cmd	when there is no command; a command that is given is executed as it is
 *	User		only if the operator allows it (policy: image_user), by number, never root
 */
#ifndef IMAGE_APPLY_H
#define IMAGE_APPLY_H

#include "image/config.h"

struct image_choices {
	bool workdir, user; /* the caller has chosen */
	bool is_language;   /* the command is an interpreter with code, or comes later */
	bool user_allowed;  /* by the operator */
};

/* Only the environment: entries of the image that nobody has chosen otherwise. */
int image_apply_env(const struct strings *env, struct spec *s, struct err *e) must_check;

/* Before spec_finish(). name is the image's, for errors. */
int image_apply(const struct image_config *c, const struct image_choices *choices, const char *name,
		struct spec *s, struct err *e) must_check;

#endif
