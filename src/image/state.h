/* SPDX-License-Identifier: Apache-2.0 */
/*
 * state.h - whether the store is as it was, for a process that may not read it.
 *
 * Every name and every record appears, changes and goes by rename or unlink (store.h), so the folders that hold them
 * tell of each change by their times. Who has O_PATH descriptors of the folders can look at these and, having no
 * rights over folders of mode 0700, do nothing else. What a name stood for, it stands for as long as the state is the
 * same, if the name was looked up after a look that was settled: a change in the same tick of the file system's clock
 * leaves the times as they are.
 */
#ifndef IMAGE_STATE_H
#define IMAGE_STATE_H

#include <time.h>

#include "sandbox/places.h"

enum { STORE_FOLDERS = 3 }; /* the store, refs, images */

struct store_state {
	struct timespec changed[STORE_FOLDERS];
};

/* Its folders, made when missing; the caller's. On error there are none (-1). */
int store_state_open(const struct places *places, int ret[STORE_FOLDERS], struct err *e) must_check;

/* false: it cannot be told (no descriptors, or the store was removed and what is there now is another). */
bool store_state_now(const int folders[STORE_FOLDERS], struct store_state *ret);

/* The last change is so long ago that the next one will be seen. */
bool store_state_is_settled(const struct store_state *s);

#endif
