/* SPDX-License-Identifier: Apache-2.0 */
/*
 * manifest.h - image indexes and manifests, OCI's and Docker's schema 2: read strictly, from anybody.
 *
 * What comes out is plain data in which every digest is well formed, every size within limits and every media
 * type one that can be unpacked; what cannot be used is an error that says why. A document that could be read
 * as both index and manifest is refused, and so is one whose own media type is not what it was sent as
 * (CVE-2021-41190). Unknown members are ignored, as both specifications ask. No I/O; used by the registry client
 * and for layouts on disk.
 */
#ifndef IMAGE_MANIFEST_H
#define IMAGE_MANIFEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "image/reference.h"

enum {
	MANIFEST_MAX_BYTES =
		4 << 20, /* what the OCI distribution specification says a client must take */
	MANIFEST_MAX_LAYERS = 500,   /* what one overlay may have */
	MANIFEST_MAX_ENTRIES = 1000, /* of an index */
	MANIFEST_MAX_CONFIG = 8 << 20,
	PLATFORM_MAX = 32,
	MEDIA_TYPE_MAX = 128,
};

/* Largest blob, and all blobs of one image: above any real image, below what overflows. */
#define MANIFEST_MAX_BLOB  (UINT64_C(64) << 30)
#define MANIFEST_MAX_TOTAL (UINT64_C(256) << 30)

struct platform {
	char os[PLATFORM_MAX + 1];
	char architecture[PLATFORM_MAX + 1]; /* Go's names: amd64, arm64, arm */
	char variant[PLATFORM_MAX + 1];      /* "v7", or "" */
};

enum compression { COMPRESSION_NONE, COMPRESSION_GZIP, COMPRESSION_ZSTD };

struct descriptor {
	char digest[DIGEST_TEXT + 1];
	uint64_t size;
	enum compression compression; /* of a layer: what its media type says */
};

enum manifest_kind { MANIFEST_INDEX, MANIFEST_IMAGE };

/* manifest_done() empties it; all zero is fine. */
struct manifest {
	enum manifest_kind kind;
	struct descriptor config;  /* of an image */
	struct descriptor *layers; /* of an image, lowest first; the same digest may come twice */
	size_t layer_count;
	uint64_t total; /* bytes of config and layers, each digest counted as often as it comes */
	struct descriptor chosen; /* of an index: the manifest for the platform */
};

/* This machine's: linux/amd64. */
extern const struct platform platform_native;

/* "linux/arm/v7", "linux/amd64", or an architecture alone. */
int platform_parse(const char *text, struct platform *ret, struct err *e) must_check;
void platform_format(const struct platform *p, char ret[static 3 * PLATFORM_MAX + 3]);

/* May an image for `has` run where `wanted` is wanted? 0: no; else the higher the better. arm v7 runs v6. */
int platform_rank(const struct platform *wanted, const struct platform *has);

/* Is this one of the media types of an index or manifest that manifest_read() takes? */
bool manifest_type_is_known(const char *media_type);

/* What to send as Accept. */
extern const char manifest_accept[];

/* Read a document. media_type: what it was sent or described as, without parameters; NULL when nothing was said
 * (then its own counts). Of an index the entry for `wanted` is chosen; that there is none is an error that lists
 * what there is, with *ret_no_platform (may be NULL) set. e->errnum is EFBIG for what is beyond a limit, ENOTSUP for
 * an image of a kind that cannot be unpacked. */
int manifest_read(const char *text, size_t size, const char *media_type,
		  const struct platform *wanted, struct manifest *ret, bool *ret_no_platform,
		  struct err *e) must_check;

void manifest_done(struct manifest *m);
#define _cleanup_manifest_ _cleanup_(manifest_done)

#endif
