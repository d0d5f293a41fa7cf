/* SPDX-License-Identifier: Apache-2.0 */
/*
 * config.h - the configuration of an image (OCI and Docker: one format), read strictly, from anybody.
 *
 * What comes out is plain data within limits: environment entries are NAME=VALUE, no string holds a NUL, the
 * working directory is a clean absolute path or "", every diff id is a digest. The user is text as the image has
 * it: whoever uses it decides. Members that are not understood are ignored, as the specification asks. No I/O.
 */
#ifndef IMAGE_CONFIG_H
#define IMAGE_CONFIG_H

#include "image/reference.h"
#include "sandbox/spec.h"

enum {
	CONFIG_MAX_LABELS = 1024,
	CONFIG_MAX_LAYERS = 499, /* what one overlay may have below the sandbox's own */
	CONFIG_USER_SIZE = 128,
	CONFIG_DATE_SIZE = 40,
};

/* image_config_done() empties it; all zero is fine. */
struct image_config {
	char os[32], architecture[32]; /* Go's names */
	char created[CONFIG_DATE_SIZE];
	struct strings env; /* NAME=VALUE */
	struct strings entrypoint, cmd;
	struct strings labels;   /* NAME=VALUE */
	struct strings diff_ids; /* lowest first */
	char workdir[SPEC_PATH_SIZE];
	char user[CONFIG_USER_SIZE];
};

int image_config_read(const char *text, size_t size, struct image_config *ret,
		      struct err *e) must_check;
void image_config_done(struct image_config *c);
#define _cleanup_image_config_ _cleanup_(image_config_done)

/* The members env, entrypoint, cmd, labels, workdir and user, which an image's own record has as well. */
int image_config_read_process(json_t *object, struct image_config *ret, struct err *e) must_check;

/* What the image wants to run as: true and two numbers, if it says so by numbers only and not as root.
 * A name would have to be looked up in a file of the image. */
bool image_config_user(const char *user, uint32_t *ret_uid, uint32_t *ret_gid);

#endif
