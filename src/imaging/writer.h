/* SPDX-License-Identifier: Apache-2.0 */
/*
 * writer.h - entries of an archive become a layer's tree, as overlayfs wants it.
 *
 * Runs with the rights of whoever keeps the store, on what a hostile archive says; so nothing is resolved by string.
 * Folders on the way are found with openat2 inside the layer (a link in the layer is followed there, as in the image,
 * and cannot lead out), the last component never. Rules, told in docs/images.md:
 *
 *	names		absolute, with "..", deeper than 64 or with a part of more than 255 bytes: refused
 *	owners		as they are (root's store); a user's store has one owner and keeps only modes
 *	set-id bits	taken away
 *	devices, sockets left out
 *	attributes	user.* is kept, but for user.overlay.*; all else (capabilities, ACLs, trusted.*) left out
 *	.wh.NAME	a whiteout; .wh..wh..opq: the folder hides what lower layers have in it
 *	hard links	to what the same layer has
 *	missing parents	made as the lower layers have them, else 0755 root
 *	the root itself	0755 root, whatever the archive says
 */
#ifndef IMAGING_WRITER_H
#define IMAGING_WRITER_H

#include <sys/stat.h>

#include "image/entry.h"
#include "image/record.h"

enum { TREE_MAX_LEVELS = 64 };

struct tree_limits {
	uint64_t bytes; /* sum of the sizes of all files, holes included */
	uint64_t entries;
};

/* What was left out or changed by rule. */
struct tree_notes {
	uint64_t devices, set_ids, attributes;
};

struct tree_writer;

/* Write into the folder dir, which is empty; it stays the caller's. lowers: folders of this image's lower layers
 * below lower_dir, lowest first (may be none). */
struct tree_writer *tree_writer_new(int dir, bool rootless, const struct tree_limits *limits,
				    int lower_dir, const struct record_layer *lowers,
				    size_t lower_count, struct err *e) must_check;
void tree_writer_free(struct tree_writer *w);
static inline void cleanup_tree_writer(struct tree_writer **w)
{
	tree_writer_free(*w);
}

/* A frame of type HEAD or DATA. */
int tree_writer_take(struct tree_writer *w, const struct entry_frame *entry,
		     struct err *e) must_check;
/* No more will come: finish the last file and the folders' times. */
int tree_writer_finish(struct tree_writer *w, struct err *e) must_check;

uint64_t tree_writer_bytes(const struct tree_writer *w);
uint64_t tree_writer_entries(const struct tree_writer *w);
struct tree_notes tree_writer_notes(const struct tree_writer *w);
/* Did the tree need folders that are not in it? Then it is this image's lower layers that say how they are. */
bool tree_writer_has_gaps(const struct tree_writer *w);

/* Of an image's extended attributes, those that a layer keeps. */
bool tree_keeps_attribute(const char *name);

/* "./a//b/" becomes "a/b", the folder itself "". */
int tree_path_clean(const char *path, char ret[ENTRY_PATH_MAX + 1], struct err *e) must_check;

#endif
