/* SPDX-License-Identifier: Apache-2.0 */
/* lowers.h - how the layers below have a folder, seen as overlayfs will see it. */
#ifndef IMAGING_LOWERS_H
#define IMAGING_LOWERS_H

#include <sys/stat.h>

#include "image/record.h"

/* As overlayfs knows them: a name that hides what is below, and a folder that hides what lower layers have in it. */
bool lowers_is_whiteout(const struct stat *st);
bool lowers_is_opaque(int folder, bool rootless);

struct lowers {
	int dir;                          /* of the layers' folders */
	const struct record_layer *layer; /* lowest first */
	size_t count;
	bool rootless;
};

/* Owner, mode and time of this folder in the uppermost layer that has it; *st is untouched when none has, or when it is no
 * folder there. */
void lowers_look(const struct lowers *l, const char *path, struct stat *st);

#endif
