/* SPDX-License-Identifier: Apache-2.0 */
/*
 * install.h - an image whose parts are at hand becomes one of the store: layers, then its record, then its names.
 *
 * Where the parts come from (a folder, an archive, a registry) is behind struct blobs. What they are is checked here
 * against their digests; whoever opens them need not be trusted.
 */
#ifndef IMAGING_INSTALL_H
#define IMAGING_INSTALL_H

#include "image/manifest.h"
#include "imaging/layer.h"

struct blobs {
	/* Open what has this name (a digest, or what an archive calls it) as a file: a descriptor, or -1. */
	int (*open)(void *context, const char *name, uint64_t *ret_size, struct err *e);
	void *context;
};

/* One image, and what it came with. */
struct parts {
	const char *config; /* text */
	size_t config_size;
	const char *manifest_digest, *index_digest; /* or NULL */
	struct layer_part {
		char name[256];               /* for blobs->open() */
		char digest[DIGEST_TEXT + 1]; /* of its bytes; "": not said, it is its diff id */
		uint64_t size;                /* 0: not said */
	} * layers;
	size_t layer_count;
};

struct installer {
	const struct image_store *store;
	struct meter meter;
	struct tree_notes notes;
	size_t unpacked, shared; /* layers */
};

int install_image(struct installer *in, const struct parts *parts, const struct blobs *blobs,
		  char ret_key[RECORD_KEY_SIZE], struct err *e) must_check;

/* A layer that is all there is: a root file system. digest: of the bytes that it was made from. */
int install_rootfs(struct installer *in, const struct record_layer *layer,
		   char ret_key[RECORD_KEY_SIZE], struct err *e) must_check;

/* A whole blob in memory, its digest checked when one is given. To be freed. */
char *blob_slurp(const struct blobs *blobs, const char *name, const char *digest, size_t limit,
		 size_t *ret_size, struct err *e) must_check;

#endif
