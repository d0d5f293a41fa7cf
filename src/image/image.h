/* SPDX-License-Identifier: Apache-2.0 */
/*
 * image.h - what a sandbox sees as its system: the host image ("host"), or one of the store.
 *
 * Both are a folder that holds an empty "mnt" and the layers, which are named in the sandbox's plan by their short
 * names. An image of the store cannot be removed while its lease, or a copy of it, is open: the supervisor has one,
 * and so has the sandbox's init, which may outlive it.
 */
#ifndef IMAGE_IMAGE_H
#define IMAGE_IMAGE_H

#include "image/record.h"
#include "sandbox/places.h"

enum { IMAGE_LOWERS_SIZE = CONFIG_MAX_LAYERS * LAYER_NAME_SIZE };

struct image {
	int dir;           /* -1: not open */
	int lease;         /* -1: the host image */
	char template[64]; /* of the host image: name of the prepared root */
	char lowers
		[IMAGE_LOWERS_SIZE]; /* of others: the layers, uppermost first, ":" between them */
};

/* Find an image by its name; the host image is made when missing. */
int image_open(const struct places *places, const char *name, struct image *ret,
	       struct err *e) must_check;
void image_done(struct image *image);

/* What an image of the store wants: its environment, command and so on. For the host image *ret is empty. */
int image_look(const struct places *places, const char *name, struct image_config *ret,
	       struct err *e) must_check;

bool image_is_host(const char *name);

#endif
