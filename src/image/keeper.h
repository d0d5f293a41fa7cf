/* SPDX-License-Identifier: Apache-2.0 */
/*
 * keeper.h - the writing side of the image store (store.h): layers, records and names appear and go here.
 *
 * Whoever adds holds the store's lock shared from the first byte to the name. Whoever removes takes a record's own
 * lock exclusively, without waiting: a sandbox that runs it holds that lock shared. Files and folders go in
 * keeper_collect(), under the store's lock exclusively, and only if nobody adds at the time: else the next one does it.
 * Linked into programs that are not started once per run.
 */
#ifndef IMAGE_KEEPER_H
#define IMAGE_KEEPER_H

#include "image/store.h"

enum { LAYER_HEX = 64 + 1 };

/* Hash text into 64 hexadecimal digits. */
void hash_text(const char *text, size_t size, char ret[LAYER_HEX]);
void hash_to_hex(const unsigned char hash[32], char ret[LAYER_HEX]);

/* Shared: to add. A descriptor to close, or -1. */
int keeper_enter(const struct image_store *s, struct err *e) must_check;

struct kept_layer {
	char name[LAYER_NAME_SIZE];
	uint64_t bytes, entries;
};

/* 0: it is there, whole. 1: it is not. */
int keeper_layer_find(const struct image_store *s, const char hex[LAYER_HEX],
		      struct kept_layer *ret, struct err *e) must_check;

/* Be the only one that unpacks it. busy() is called once before waiting for another, and may be NULL. Ask
 * keeper_layer_find() again afterwards. A descriptor to close, or -1. */
int keeper_layer_lock(const struct image_store *s, const char hex[LAYER_HEX],
		      void (*busy)(void *context), void *context, struct err *e) must_check;

/* tmp/FOLDER is complete: give it a name (l->name) and make it findable. Under both locks. */
int keeper_layer_commit(const struct image_store *s, const char *folder, const char hex[LAYER_HEX],
			struct kept_layer *l, struct err *e) must_check;

/* Hash which layers these are, by digests and folders. */
int keeper_layers_hash(const struct image_record *r, char ret[LAYER_HEX], struct err *e) must_check;

/* Store a record, durable with all it refers to. */
int keeper_add(const struct image_store *s, const struct image_record *r,
	       char ret_key[RECORD_KEY_SIZE], struct err *e) must_check;

/* Let a name stand for it; the name may have stood for another. */
int keeper_tag(const struct image_store *s, const struct reference *r, const char *key,
	       struct err *e) must_check;
/* 1: there was no such name. */
int keeper_untag(const struct image_store *s, const char *ref_name, struct err *e) must_check;

/* Is any name left for it? */
int keeper_is_named(const struct image_store *s, const char *key, bool *ret,
		    struct err *e) must_check;

/* Remove a record. 1: a sandbox runs it, or another process is at it. A service that has prepared sandboxes of it is told
 * so, and waited for, seconds at most (0: neither); SIGALRM and alarm() are used for that. */
enum { KEEPER_PATIENCE_S = 3 };
int keeper_remove(const struct image_store *s, const char *key, unsigned seconds,
		  struct err *e) must_check;

/* Remove what nothing refers to: layers, what is left over in tmp/, downloads that were begun more than a day ago (all
 * of them with every_partial). *ret_freed: unpacked bytes of the layers. 1: somebody adds just now, nothing was done. */
int keeper_collect(const struct image_store *s, bool every_partial, uint64_t *ret_freed,
		   struct err *e) must_check;

#endif
