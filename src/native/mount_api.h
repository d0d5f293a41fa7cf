/* SPDX-License-Identifier: Apache-2.0 */
/* mount_api.h - the new mount calls' numbers and flags, for C libraries that lack them. linux/mount.h
 * cannot be included beside musl's sys/mount.h. Values: include/uapi/linux/{mount,fcntl}.h. */
#ifndef NATIVE_MOUNT_API_H
#define NATIVE_MOUNT_API_H

#include <stdint.h>
#include <sys/mount.h>
#include <sys/syscall.h>

#ifndef SYS_open_tree
#define SYS_open_tree  428
#define SYS_move_mount 429
#endif
#ifndef SYS_mount_setattr
#define SYS_mount_setattr 442
#endif
#ifndef OPEN_TREE_CLONE
#define OPEN_TREE_CLONE 1
#endif
#ifndef OPEN_TREE_CLOEXEC
#define OPEN_TREE_CLOEXEC 02000000
#endif
#ifndef AT_RECURSIVE
#define AT_RECURSIVE 0x8000
#endif
#ifndef MOVE_MOUNT_F_EMPTY_PATH
#define MOVE_MOUNT_F_EMPTY_PATH 4
#endif
#ifndef MOVE_MOUNT_T_EMPTY_PATH
#define MOVE_MOUNT_T_EMPTY_PATH 0x40
#endif
#ifndef MOUNT_ATTR_RDONLY
#define MOUNT_ATTR_RDONLY 1
#define MOUNT_ATTR_NOSUID 2
#define MOUNT_ATTR_NODEV  4
#define MOUNT_ATTR_NOEXEC 8
#define MOUNT_ATTR_IDMAP  0x100000
struct mount_attr {
	uint64_t attr_set, attr_clr, propagation, userns_fd;
};
#endif

#endif
