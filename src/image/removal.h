/* SPDX-License-Identifier: Apache-2.0 */
/* removal.h - remove a tree that came from an image: any modes, no link followed, as deep as a path can be. */
#ifndef IMAGE_REMOVAL_H
#define IMAGE_REMOVAL_H

/* rm -rf of `name` in dir; a missing one is fine. 0 or -errno. Nobody else may be writing there: modes are changed
 * on the way. */
int layer_tree_remove(int dir, const char *name);

#endif
