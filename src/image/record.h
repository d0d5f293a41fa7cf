/* SPDX-License-Identifier: Apache-2.0 */
/*
 * record.h - what the store knows of one unpacked image: everything that a run needs, in one small file.
 *
 * Written once, whole, by the program that unpacked the image; its name ("key") follows from what is in it,
 * so it never changes. A run reads it and nothing else, and keeps a shared lock on it for as long as the sandbox
 * lives: whoever removes images takes the exclusive lock first.
 */
#ifndef IMAGE_RECORD_H
#define IMAGE_RECORD_H

#include "image/config.h"

enum {
	RECORD_FORMAT = 1,
	RECORD_KEY_SIZE =
		64 + 1 + 32 + 1, /* hex of the configuration's digest, "-", hex over the layers */
	LAYER_NAME_SIZE = 8,
	IMAGE_ID_MIN = 6, /* digits of an id that may stand for it */
	RECORD_MAX_BYTES = 16 << 20,
};

struct record_layer {
	char digest[DIGEST_TEXT + 1]; /* of the layer as it came */
	char name[LAYER_NAME_SIZE];   /* folder below l/ */
	uint64_t bytes;               /* unpacked */
};

/* image_record_done() empties it; all zero is fine. */
struct image_record {
	char id[DIGEST_TEXT + 1];       /* digest of the configuration: Docker's image id */
	char manifest[DIGEST_TEXT + 1]; /* or "": none came with it */
	char index[DIGEST_TEXT + 1];    /* of the document its name stood for, if another; or "" */
	int64_t imported;               /* seconds of the epoch */
	struct record_layer *layers;    /* lowest first */
	size_t layer_count;
	char merged
		[LAYER_NAME_SIZE]; /* all of them as one folder below l/, or "" (imaging/merge.h) */
	struct image_config config; /* without diff_ids */
};

/* The file's text, to be freed; NULL with e. */
char *image_record_write(const struct image_record *r, struct err *e) must_check;
/* Files of the store are our own, yet read strictly: a broken disk must not become a strange sandbox. */
int image_record_read(const char *text, size_t size, struct image_record *ret,
		      struct err *e) must_check;
void image_record_done(struct image_record *r);
#define _cleanup_image_record_ _cleanup_(image_record_done)

uint64_t image_record_bytes(const struct image_record *r);

/* "abcd": a name of a layer's folder; letters and digits. */
bool layer_name_is_valid(const char *name);

#endif
