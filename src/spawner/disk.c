/* SPDX-License-Identifier: Apache-2.0 */
#include "spawner/disk.h"

#include <fcntl.h>
#include <linux/loop.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sandbox/places.h"

/* Where mkfs finds the file, and how often another may take the free loop device before us. */
enum { IMAGE_FD = 9, LOOP_TRIES = 64, LOOP_MAJOR = 7 };

static const char *const mkfs_paths[] = {"/sbin/mkfs.ext4", "/usr/sbin/mkfs.ext4",
					 "/usr/bin/mkfs.ext4"};

/* A file without a name; one that had a name for a moment where the file system knows no others. */
static int open_nameless(const char *folder, int *ret_fd, struct err *e)
{
	char path[1100];

	*ret_fd = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	if (*ret_fd >= 0)
		return 0;
	if (errno != EOPNOTSUPP && errno != EISDIR)
		return err_set(e, errno, "make a file in %s", folder);
	snprintf(path, sizeof path, "%s/XXXXXX", folder);
	*ret_fd = mkostemp(path, O_CLOEXEC);
	if (*ret_fd < 0 || unlink(path) < 0)
		return err_set(e, errno, "make %s", path);
	return 0;
}

static int open_image(const char *folder, uint64_t size_bytes, int *ret_fd, struct err *e)
{
	_cleanup_close_ int fd = -1;
	struct statvfs v;
	int r;

	r = make_private_dirs(folder);
	if (r < 0)
		return err_set(e, -r, "make %s", folder);
	if (statvfs(folder, &v) < 0)
		return err_set(e, errno, "look at %s", folder);
	if ((uint64_t)v.f_bavail * v.f_frsize < size_bytes)
		return err_set(e, ENOSPC, "a disk of %llu bytes in %s",
			       (unsigned long long)size_bytes, folder);
	if (open_nameless(folder, &fd, e) < 0)
		return -1;
	if (ftruncate(fd, (off_t)size_bytes) < 0)
		return err_set(e, errno, "a disk of %llu bytes in %s",
			       (unsigned long long)size_bytes, folder);
	*ret_fd = TAKE_FD(fd);
	return 0;
}

/* Nothing is zeroed or discarded: the file is new and reads as zeros. No journal: the disk does not
 * outlive its mount. */
static int make_file_system(int image, uint32_t uid, uint32_t gid, struct err *e)
{
	char extended[96], path[32];
	char *const argv[] = {(char *)(uintptr_t) "mkfs.ext4",
			      (char *)(uintptr_t) "-qF",
			      (char *)(uintptr_t) "-m0",
			      (char *)(uintptr_t) "-b4096",
			      (char *)(uintptr_t) "-I256",
			      (char *)(uintptr_t) "-i16384",
			      (char *)(uintptr_t) "-O^has_journal,^resize_inode",
			      (char *)(uintptr_t) "-E",
			      extended,
			      path,
			      NULL};
	char *const environment[] = {NULL};
	posix_spawn_file_actions_t actions;
	const char *program = NULL;
	int status = -1, r;
	pid_t pid;

	for (size_t i = 0; i < ARRAY_SIZE(mkfs_paths) && !program; i++)
		program = access(mkfs_paths[i], X_OK) == 0 ? mkfs_paths[i] : NULL;
	if (!program)
		return err_set(e, ENOENT, "mkfs.ext4 (install e2fsprogs)");
	snprintf(extended, sizeof extended, "lazy_itable_init=1,nodiscard,root_owner=%u:%u", uid,
		 gid);
	snprintf(path, sizeof path, "/proc/self/fd/%d", IMAGE_FD);
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, image, IMAGE_FD);
	r = posix_spawn(&pid, program, &actions, NULL, argv, environment);
	posix_spawn_file_actions_destroy(&actions);
	if (r != 0)
		return err_set(e, r, "run %s", program);
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return err_set(e, errno, "wait for %s", program);
	if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
		return err_set(e, 0, "%s could not make a file system", program);
	return 0;
}

/* devtmpfs makes the node; a /dev without it gets one. */
static int open_loop(int number, char path[32])
{
	int fd;

	snprintf(path, 32, "/dev/loop%d", number);
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0 && errno == ENOENT &&
	    mknod(path, S_IFBLK | 0600, makedev(LOOP_MAJOR, (unsigned)number)) == 0)
		fd = open(path, O_RDWR | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

static int attach_loop(int image, char path[32], int *ret_fd, struct err *e)
{
	_cleanup_close_ int control = open("/dev/loop-control", O_RDWR | O_CLOEXEC);
	struct loop_config config = {
		.fd = (uint32_t)image,
		.info = {.lo_flags = LO_FLAGS_AUTOCLEAR | LO_FLAGS_DIRECT_IO},
	};

	if (control < 0)
		return err_set(e, errno, "open /dev/loop-control");
	for (int tries = 0; tries < LOOP_TRIES; tries++) {
		int number = ioctl(control, LOOP_CTL_GET_FREE), fd;

		if (number < 0)
			return err_set(e, errno, "find a free loop device");
		fd = open_loop(number, path);
		if (fd < 0)
			return err_set(e, -fd, "open %s", path);
		if (ioctl(fd, LOOP_CONFIGURE, &config) == 0) {
			*ret_fd = fd;
			return 0;
		}
		close(fd);
		/* EBUSY: somebody else was faster. EINVAL: no direct I/O on this file system. */
		if (errno == EINVAL && config.info.lo_flags & LO_FLAGS_DIRECT_IO)
			config.info.lo_flags = LO_FLAGS_AUTOCLEAR;
		else if (errno != EBUSY)
			return err_set(e, errno, "set up %s", path);
	}
	return err_set(e, EBUSY, "find a free loop device");
}

static int mount_device(const char *device, int *ret_mount, struct err *e)
{
	static const struct {
		const char *key, *value;
	} options[] = {
		{"nobarrier", NULL},     /* it need not outlive a power cut */
		{"noinit_itable", NULL}, /* nothing is written behind its back */
		{"discard", NULL},       /* what is deleted inside is free outside */
		{"errors", "remount-ro"},
	};
	_cleanup_close_ int fs = fsopen("ext4", FSOPEN_CLOEXEC);
	int r;

	if (fs < 0)
		return err_set(e, errno, "open the file system type ext4");
	r = fsconfig(fs, FSCONFIG_SET_STRING, "source", device, 0);
	for (size_t i = 0; r == 0 && i < ARRAY_SIZE(options); i++)
		r = fsconfig(fs, options[i].value ? FSCONFIG_SET_STRING : FSCONFIG_SET_FLAG,
			     options[i].key, options[i].value, 0);
	if (r == 0)
		r = fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0);
	if (r < 0)
		return err_set(e, errno, "mount %s", device);
	*ret_mount = fsmount(fs, FSMOUNT_CLOEXEC, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV);
	return *ret_mount < 0 ? err_set(e, errno, "mount %s", device) : 0;
}

int disk_make(const char *folder, uint64_t size_bytes, uint32_t uid, uint32_t gid, int *ret_mount,
	      struct err *e)
{
	_cleanup_close_ int image = -1, loop = -1, mount_fd = -1;
	char device[32];

	if (open_image(folder, size_bytes, &image, e) < 0 ||
	    make_file_system(image, uid, gid, e) < 0 || attach_loop(image, device, &loop, e) < 0 ||
	    mount_device(device, &mount_fd, e) < 0)
		return -1;
	/* The sandbox's user has an empty folder. */
	if (unlinkat(mount_fd, "lost+found", AT_REMOVEDIR) < 0 && errno != ENOENT)
		return err_set(e, errno, "empty a new disk");
	*ret_mount = TAKE_FD(mount_fd);
	return 0;
}
