/* SPDX-License-Identifier: Apache-2.0 */
/*
 * layer.h - one layer, from the bytes it came as to a folder of the store; once, whoever asks at the same time.
 *
 *	source ──(a thread of ours: SHA-256)──▶ cloche-decode ──(frames)──▶ tree_writer, in tmp/HEX
 *
 * The layer is kept under the digest of the bytes that went in, computed here: what the decoder says is only ever
 * the content of that layer. Nothing is findable before that digest was right and the tree complete.
 */
#ifndef IMAGING_LAYER_H
#define IMAGING_LAYER_H

#include "image/keeper.h"
#include "imaging/meter.h"
#include "imaging/writer.h"

/* Above any real image. */
#define LAYER_MAX_BYTES   (UINT64_C(64) << 30)
#define LAYER_MAX_ENTRIES UINT64_C(800000)
/* What may come out of so many bytes: a gigabyte, or a hundred times as much. gzip can do 1,032. */
#define LAYER_FREE_BYTES (UINT64_C(1) << 30)
#define LAYER_RATIO      100

/* How much may come out of an archive of this size. */
uint64_t layer_bytes_for(uint64_t size);

struct layer_source {
	int fd; /* a file, read from its beginning; stays the caller's */
	uint64_t size;
	const char *digest;  /* of its bytes */
	const char *diff_id; /* of the archive in it, or NULL: nobody said */
};

/* Have the layer in the store. lowers: the layers of this image below it. *ret is its line in the image's record. */
int layer_have(const struct image_store *s, const struct layer_source *from,
	       const struct record_layer *lowers, size_t lower_count, struct meter *meter,
	       struct tree_notes *notes, struct record_layer *ret, struct err *e) must_check;

/* The same if it is there already: 1 when not. */
int layer_look_up(const struct image_store *s, const char *digest,
		  const struct record_layer *lowers, size_t lower_count, struct record_layer *ret,
		  struct err *e) must_check;

/* An archive that holds an image's files: give each frame to take(), which may end everything by -1, or by 1 without
 * an error. The digest of its bytes comes out in hex, when hex is not NULL and the archive was read to its end. checked: somebody
 * knows the archive's digest; else a checksum that its compression has is looked at. */
int archive_read_frames(int fd, uint64_t size, uint64_t bytes_max, bool checked,
			struct meter *meter,
			int (*take)(void *context, const struct entry_frame *entry, struct err *e),
			void *context, char *hex, struct err *e) must_check;

#endif
