/* SPDX-License-Identifier: Apache-2.0 */
/*
 * layout.h - images as tools write them to disk: OCI's layout (index.json and blobs/sha256) and `docker save`
 * (manifest.json), in a folder or taken out of an archive. Both are read strictly; nothing in them is trusted.
 */
#ifndef IMAGING_LAYOUT_H
#define IMAGING_LAYOUT_H

#include "imaging/install.h"

/* Names that an import gives; also what it told on the way. */
struct naming {
	const struct reference *wanted; /* the caller's, or NULL: those of the archive */
	void (*added)(const struct reference *r, const char *key); /* r NULL: it got no name */
};

/* index.json: one image. Of several it is the one whose name in the layout is wanted's tag or whole name. */
int layout_import(struct installer *in, const struct blobs *blobs, const struct naming *names,
		  struct err *e) must_check;

/* manifest.json: all its images, each under its own names; with names->wanted only one may be there. */
int saved_import(struct installer *in, const struct blobs *blobs, const struct naming *names,
		 struct err *e) must_check;

/* The manifest of this digest and what it refers to. Of an index in between the one for this machine. */
int manifest_import(struct installer *in, const struct blobs *blobs, const char *digest,
		    const char *media_type, char ret_key[RECORD_KEY_SIZE],
		    struct err *e) must_check;

#endif
