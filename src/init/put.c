/* SPDX-License-Identifier: Apache-2.0 */
/*
 * put.c - files on their way in: made inside, as the sandbox user, charged to the sandbox.
 *
 * Before the command starts nothing hostile is in the tree except a volume's content, so no link is
 * followed on the way to a file.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "init/guest.h"

/* linux/openat2.h */
struct how {
	uint64_t flags, mode, resolve;
};
enum { NO_MAGICLINKS = 2, NO_SYMLINKS = 4, BENEATH = 8 };

static int open_inside(const char *path, int flags, unsigned mode)
{
	struct how how = {(uint64_t)flags | O_CLOEXEC, mode, NO_MAGICLINKS | NO_SYMLINKS};

	return (int)syscall(SYS_openat2, AT_FDCWD, path, &how, sizeof how);
}

/* The folder that shall hold path, made if missing. */
static int open_parent(char *path, const char **ret_name)
{
	char *slash = strrchr(path, '/');
	int dir, made = 0;

	*ret_name = slash + 1;
	for (char *p = path + 1; p <= slash; p++) {
		if (*p != '/')
			continue;
		*p = '\0';
		made = mkdir(path, 0755) == 0;
		*p = '/';
	}
	(void)made;
	*slash = '\0';
	dir = open_inside(*path ? path : "/", O_PATH | O_DIRECTORY, 0);
	*slash = '/';
	return dir < 0 ? -errno : dir;
}

/* The content follows as DATA frames; it is taken from the stream even when writing failed, so that
 * the stream stays in step. */
static int put_content(struct guest *g, int fd, uint64_t size)
{
	static unsigned char data[FRAME_DATA_MAX];
	int failed = 0;

	while (size > 0) {
		struct frame f;
		int r = frame_receive(g->control, FROM_HOST, &f, data, sizeof data, NULL, NULL);

		if (r < 0 || f.type != FRAME_DATA || f.size > size)
			_exit(1);
		size -= f.size;
		for (uint32_t done = 0; failed == 0 && done < f.size;) {
			ssize_t n = write(fd, data + done, f.size - done);

			if (n < 0)
				failed = -errno;
			else
				done += (uint32_t)n;
		}
	}
	return failed;
}

static int put_one(struct guest *g, const struct put_record *put, char *path, const char *target)
{
	const char *name;
	int dir = open_parent(path, &name), fd, r = 0;

	if (dir < 0) {
		put_content(g, -1, S_ISREG(put->mode) ? put->size_bytes : 0);
		return dir;
	}
	if (S_ISDIR(put->mode)) {
		if (mkdirat(dir, name, put->mode & 0777) < 0 && errno != EEXIST)
			r = -errno;
	} else if (S_ISLNK(put->mode)) {
		if (symlinkat(target, dir, name) < 0)
			r = -errno;
	} else {
		fd = openat(dir, name, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC,
			    put->mode & 0777);
		r = fd < 0 ? -errno : 0;
		if (r == 0)
			fchmod(fd, put->mode & 0777);
		if (put_content(g, fd, put->size_bytes) < 0 && r == 0)
			r = -ENOSPC;
		if (fd >= 0)
			close(fd);
	}
	close(dir);
	return r;
}

int guest_put(struct guest *g, const unsigned char *payload, uint32_t size)
{
	struct put_record put;
	char *path, *target;
	int r;

	memcpy(&put, payload, sizeof put);
	path = (char *)(uintptr_t)payload + sizeof put;
	if (path[0] != '/' || payload[size - 1] != '\0')
		return -EPROTO;
	target = path + strlen(path) + 1;
	if (S_ISLNK(put.mode) ? target >= (char *)(uintptr_t)payload + size
			      : !S_ISDIR(put.mode) && !S_ISREG(put.mode))
		return -EPROTO;
	if (guest_as_user(put.uid, put.gid) < 0)
		return -EPERM;
	r = put_one(g, &put, path, target);
	if (guest_as_root() < 0)
		return -EPERM;
	if (r < 0)
		guest_report_failure(g, "files", -r, path);
	return r;
}
