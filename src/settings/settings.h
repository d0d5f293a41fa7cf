/* SPDX-License-Identifier: Apache-2.0 */
/*
 * settings.h - where a setting's value comes from. Lowest first: the documented default, the operator's
 * file, the user's file, CLOCHE_NAME, the flag; and above all the operator's policy, which a value may
 * not exceed.
 */
#ifndef SETTINGS_SETTINGS_H
#define SETTINGS_SETTINGS_H

#include <jansson.h>

#include "image/config.h"
#include "sandbox/places.h"
#include "sandbox/spec.h"
#include "settings/network.h"

enum { SETTINGS_MAX_OPTIONS = 64 };

struct settings {
	enum origin origins[SETTINGS_MAX_OPTIONS]; /* by option row */
	char *uid_range;                           /* or NULL: the built-in block */
	json_t *policy;                            /* maxima by option name, or NULL */
	json_t *volume_roots; /* array of folders that paths of the caller's must lie below, or NULL */
	json_t *images;       /* array of patterns that names of images must match, or NULL */
	bool image_user;      /* an image's own User counts */
	bool no_best_effort;
	bool no_prepared_python; /* no zygote: every interpreter is a new one */
	json_t *python_modules;  /* array of names that a zygote imports, or NULL */
	struct network_settings network;
	bool has_file;
};

/* Apply the files' defaults to s, and CLOCHE_* variables if environment; keep the policy for later. */
int settings_load(struct settings *settings, const struct places *places, bool environment,
		  struct spec *s, struct err *e) must_check;

/* The same from what settings_read_file() gave, for a program that applies it many times. binding: it may hold
 * what binds everyone. The key "service" is left to the service. t must be zero or hold an earlier file's. */
int settings_from_json(struct settings *t, struct spec *s, json_t *root, const char *file,
		       bool binding, struct err *e) must_check;

/* The file as JSON, every scalar a string; 0 and *ret NULL when there is none. */
int settings_read_file(const char *file, json_t **ret, struct err *e) must_check;

/* Values nobody chose are lowered to the policy's maximum; chosen ones above it are an error. Call when
 * the spec is complete, before spec_finish(). */
int settings_apply_policy(struct settings *settings, struct spec *s, struct err *e) must_check;

/* Is this spec's image one that the policy allows? settings_apply_policy() asks. Patterns are compared with the whole name
 * and with the short one; an id only with itself and "*". */
int settings_check_image(const struct settings *settings, const struct spec *s,
			 struct err *e) must_check;

/* Let the spec's image say what nobody chose (image/apply.h); after the policy, before spec_finish(). is_language: the
 * command is an interpreter with code. */
int settings_apply_image(const struct settings *settings, const struct places *places,
			 bool is_language, struct spec *s, struct err *e) must_check;
int settings_apply_image_config(const struct settings *settings, const struct image_config *config,
				bool is_language, struct spec *s, struct err *e) must_check;

void settings_done(struct settings *settings);

#endif
