/* SPDX-License-Identifier: Apache-2.0 */
#include "native/isolate/mounts.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <linux/openat2.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "native/mount_api.h"

int mount_tmpfs(const char *path, unsigned long flags, uint64_t size_bytes, uint64_t inodes,
		unsigned mode, unsigned uid, unsigned gid)
{
	char text[128];

	snprintf(text, sizeof text, "size=%llu,nr_inodes=%llu,mode=%o,uid=%u,gid=%u",
		 (unsigned long long)size_bytes, (unsigned long long)inodes, mode, uid, gid);
	return mount("tmpfs", path, "tmpfs", flags | MS_NOSUID | MS_NODEV, text) < 0 ? -errno : 0;
}

int make_directories(const char *below, const char *path, unsigned owner)
{
	char full[PLAN_PATH + 64];
	size_t base = strlen(below);

	if (snprintf(full, sizeof full, "%s%s", below, path) >= (int)sizeof full)
		return -ENAMETOOLONG;
	for (char *p = full + base + 1;; p++) {
		char c = *p;

		if (c != '/' && c != '\0')
			continue;
		*p = '\0';
		if (mkdir(full, 0755) == 0) {
			if (chown(full, owner, owner) < 0)
				return -errno;
		} else if (errno != EEXIST) {
			return -errno;
		}
		*p = c;
		if (c == '\0')
			return 0;
	}
}

bool is_in_volume(const struct plan *p, const char *path)
{
	for (uint32_t i = 0; i < p->volume_count; i++) {
		size_t n = strlen(p->volumes[i].box);

		if (strncmp(path, p->volumes[i].box, n) == 0 && path[n] == '/')
			return true;
	}
	return false;
}

bool is_in_writable_place(const struct plan *p, const char *path)
{
	for (uint32_t i = 0; i < p->tmpfs_count; i++) {
		size_t n = strlen(p->tmpfs[i].path);

		if (strncmp(path, p->tmpfs[i].path, n) == 0 && path[n] == '/')
			return true;
	}
	return false;
}

int make_mount_point(const char *below, const struct plan_volume *v, unsigned owner)
{
	char path[PLAN_PATH + 64], parent[PLAN_PATH];
	char *slash;
	int fd, r = 0;

	if (!v->is_file)
		return make_directories(below, v->box, owner);
	snprintf(parent, sizeof parent, "%s", v->box);
	slash = strrchr(parent, '/');
	if (slash != parent) {
		*slash = '\0';
		r = make_directories(below, parent, owner);
	}
	if (r < 0)
		return r;
	snprintf(path, sizeof path, "%s%s", below, v->box);
	fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
	if (fd < 0)
		return -errno;
	r = fchown(fd, owner, owner) < 0 ? -errno : 0;
	close(fd);
	return r;
}

int clone_mount(const char *path, int idmap, bool *ret_mapped)
{
	int fd = (int)syscall(SYS_open_tree, AT_FDCWD, path,
			      OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_RECURSIVE);

	*ret_mapped = false;
	if (fd < 0)
		return -errno;
	if (idmap >= 0) {
		struct mount_attr attr = {.attr_set = MOUNT_ATTR_IDMAP,
					  .userns_fd = (uint64_t)idmap};

		*ret_mapped =
			syscall(SYS_mount_setattr, fd, "", AT_EMPTY_PATH, &attr, sizeof attr) == 0;
	}
	return fd;
}

int lock_mount(int mount_fd)
{
	struct mount_attr attr = {.attr_set = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID |
					      MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC};

	return syscall(SYS_mount_setattr, mount_fd, "", AT_EMPTY_PATH, &attr, sizeof attr) < 0
		       ? -errno
		       : 0;
}

int attach_mount_at(int mount_fd, int target)
{
	return syscall(SYS_move_mount, mount_fd, "", target, "",
		       MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH) < 0
		       ? -errno
		       : 0;
}

int attach_mount(int mount_fd, const char *path)
{
	struct open_how how = {.flags = O_PATH | O_CLOEXEC,
			       .resolve = RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS};
	int target = (int)syscall(SYS_openat2, AT_FDCWD, path, &how, sizeof how);
	int r;

	if (target < 0)
		return -errno;
	r = attach_mount_at(mount_fd, target);
	close(target);
	return r;
}
