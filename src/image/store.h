/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store.h - the images of this machine (or of this user), on disk. Reading side: what a run needs; no library but
 * jansson. The writing side is keeper.h.
 *
 *	images/			root's: 0700. A user's: 0711, sandboxes enter it by an id of their own
 *	  lock			shared by whoever adds, exclusive by whoever removes what nothing refers to
 *	  refs/NAME		the key of the image of that name; NAME with + for /
 *	  images/KEY		the image's record (record.h); locked shared by whoever runs it
 *	  layers/HEX		name, size and counts of the unpacked layer of that digest: there when it is complete
 *	  locks/HEX		locked by whoever unpacks it
 *	  l/NAME/		unpacked layers, as they are mounted
 *	  partial/HEX		downloads that can be taken up again
 *	  tmp/			in the making; what is there while nobody holds `lock` is left over
 *	  mnt/			an empty mount point
 *
 * Files appear whole, by rename. In this order: the layer's folder, its line in layers/, the record, the name. Each
 * refers only to what was there before, so whatever is killed when, what can be found is complete, and what cannot
 * be found is garbage that the next one with the exclusive lock removes.
 */
#ifndef IMAGE_STORE_H
#define IMAGE_STORE_H

#include "image/record.h"
#include "sandbox/places.h"

struct image_store {
	int dir; /* O_PATH would not do: it is listed and locked below */
	bool rootless;
	char path[1100];
};

/* With create it is made when missing; else a missing one is an error with errnum ENOENT. */
int image_store_open(const struct places *places, bool create, struct image_store *ret,
		     struct err *e) must_check;
void image_store_done(struct image_store *s);
#define _cleanup_image_store_ _cleanup_(image_store_done)

/* The file name of a reference in refs/; -1 when it would be too long. */
enum { REF_NAME_SIZE = 256 };
int image_ref_name(const struct reference *r, char ret[REF_NAME_SIZE], struct err *e) must_check;

/* Fill e with code SANDBOX_IMAGE_MISSING; -1. */
int image_is_missing(const char *name, struct err *e);

/* The key of the image that a name, a digest or the beginning of an id (IMAGE_ID_MIN digits on) stands for. With a
 * digest the image must have been got under that repository. An error has code
 * SANDBOX_IMAGE_MISSING when there is none. */
int image_find(const struct image_store *s, const char *name, char ret_key[RECORD_KEY_SIZE],
	       struct err *e) must_check;

/* Open a record and keep it from being removed, as long as *ret_lease or a copy of it is open. ret may be NULL.
 * errnum is ENOENT when it is gone. */
int image_take(const struct image_store *s, const char *key, int *ret_lease,
	       struct image_record *ret, struct err *e) must_check;

/* Call for each file name in a folder of the store ("refs", "images", …); stops when each() does not return 0. */
int image_store_list(const struct image_store *s, const char *folder,
		     int (*each)(void *context, const char *name, struct err *e), void *context,
		     struct err *e) must_check;

/* Read a reference's file. 1: there is none. */
int image_ref_read(const struct image_store *s, const char *ref_name, char ret_key[RECORD_KEY_SIZE],
		   struct err *e) must_check;

#endif
