/* SPDX-License-Identifier: Apache-2.0 */
/* mounts.h - the few mount calls the rootfs, dev, tmpfs and volume steps share. */
#ifndef NATIVE_MOUNTS_H
#define NATIVE_MOUNTS_H

#include <stdbool.h>
#include <stdint.h>

#include "native/isolate/isolate.h"

/* Paths are relative to the working directory, the image directory: "mnt" is an empty folder in it. */
#define STAGE    "mnt"
#define NEW_ROOT STAGE "/new"

/* Where an authority and what to trust are inside (trust.c). */
#define TRUST_FOLDER "/etc/cloche"

/* Mount a tmpfs with a size and a number of inodes, always; -errno. */
int mount_tmpfs(const char *path, unsigned long flags, uint64_t size_bytes, uint64_t inodes,
		unsigned mode, unsigned uid, unsigned gid);

/* Make every missing folder of path (absolute inside the new root) in the folder `below`, owned so. */
int make_directories(const char *below, const char *path, unsigned owner);

/* Is this path below one of the writable places? Then its mount point has to be made there; those on
 * the read-only root are made beforehand, in the sandbox's own layer. */
bool is_in_writable_place(const struct plan *p, const char *path);

/* Is it below a volume? Nothing is ever made there: it is the caller's folder, and code that ran with it
 * before may have put links anywhere. A mount point in it has to exist. */
bool is_in_volume(const struct plan *p, const char *path);

/* Make the folder or empty file a volume is mounted on, in the folder `below`. */
int make_mount_point(const char *below, const struct plan_volume *v, unsigned owner);

/* A detached copy of the mount at path. idmap >= 0: with the ids of that user namespace, if this file
 * system can; *ret_mapped says whether. A descriptor or -errno. */
int clone_mount(const char *path, int idmap, bool *ret_mapped);

/* Make a detached mount read-only, without programs or devices. 0 or -errno. */
int lock_mount(int mount_fd);

/* Attach a detached mount over what this descriptor (O_PATH) is of. 0 or -errno. */
int attach_mount_at(int mount_fd, int target);

/* Attach a detached mount at path, in which no component may be a link. */
int attach_mount(int mount_fd, const char *path);

#endif
