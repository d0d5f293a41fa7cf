/* SPDX-License-Identifier: Apache-2.0 */
/*
 * merge.h - an image of many layers as one folder, made once: its folders anew, its files as hard links to the layers'.
 *
 * A mount of overlayfs takes 25 us for each layer, and so does, in parts, each look-up of a name: 46 layers made every
 * start 1.2 ms longer. What is merged here is what overlayfs would have shown; the folder is one more layer of the
 * store to all others, under a digest that says of which layers it was made.
 */
#ifndef IMAGING_MERGE_H
#define IMAGING_MERGE_H

#include "image/keeper.h"

/* From so many layers on; below, it would save a start less than 0.2 ms. */
enum { MERGE_LAYERS_MIN = 8 };

/* Have the record's layers as one, and note its name in it. An image of few layers, or a file system that cannot link
 * (any more): nothing is noted, and that is no error. */
int merge_layers(const struct image_store *s, struct image_record *record,
		 void (*busy)(void *context), void *context, struct err *e) must_check;

#endif
