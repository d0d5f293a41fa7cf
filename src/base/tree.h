/* SPDX-License-Identifier: Apache-2.0 */
/* tree.h - copy and remove folders by descriptor; no link is followed. Return 0 or -errno. */
#ifndef BASE_TREE_H
#define BASE_TREE_H

#include "base/cleanup.h"

/* Of what is copied; and of what is removed, where each level costs a descriptor: layers of images have 64 levels
 * below folders of ours. */
enum { TREE_MAX_DEPTH = 64, TREE_MAX_REMOVED = 100 };

/* Copy `name` (file, link or folder) from one folder to another of the same name. Only what everybody
 * may read is copied, as 0644 files (0755 if executable) and 0755 folders; files keep
 * their time; sockets, devices and names
 * in the NULL-terminated list left_out are skipped. */
int tree_copy_public(int from, int to, const char *name, const char *const *left_out) must_check;

/* rm -rf of `name` in dir, whatever modes its folders have. A missing one is fine. Nobody else may be writing there:
 * modes are changed on the way. */
int tree_remove(int dir, const char *name);

#endif
