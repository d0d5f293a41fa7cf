/* SPDX-License-Identifier: Apache-2.0 */
/*
 * disk.h - a workspace on disk: an ext4 of the asked size in a sparse file that has no name.
 *
 * The file is nameless from its birth, its loop device lets go of it with the last user (autoclear),
 * and that is the mount, which lives and dies with the sandbox: whatever crashes, nothing is left.
 */
#ifndef SPAWNER_DISK_H
#define SPAWNER_DISK_H

#include <stdint.h>

#include "base/err.h"

/* A detached mount, nosuid and nodev, its root owned by these ids. folder: of root's, made if
 * missing. Refused when the file system there has less room than the size now. */
int disk_make(const char *folder, uint64_t size_bytes, uint32_t uid, uint32_t gid, int *ret_mount,
	      struct err *e) must_check;

#endif
