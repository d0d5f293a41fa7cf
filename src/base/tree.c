/* SPDX-License-Identifier: Apache-2.0 */
#include "base/tree.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>

static int copy_file(int from, int to, const char *name, const struct stat *st)
{
	_cleanup_close_ int in = openat(from, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	_cleanup_close_ int out = -1;

	if (in < 0)
		return -errno;
	out = openat(to, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
		     st->st_mode & 0111 ? 0755 : 0644);
	if (out < 0 || fchmod(out, st->st_mode & 0111 ? 0755 : 0644) < 0)
		return -errno;
	for (;;) {
		ssize_t n = sendfile(out, in, NULL, 1 << 20);

		if (n < 0)
			return -errno;
		if (n == 0)
			break;
	}
	/* Compiled Python is valid for a source of this time only. */
	return futimens(out, (const struct timespec[]){st->st_atim, st->st_mtim}) < 0 ? -errno : 0;
}

static int copy_link(int from, int to, const char *name)
{
	char target[PATH_MAX];
	ssize_t n = readlinkat(from, name, target, sizeof target - 1);

	if (n < 0)
		return -errno;
	target[n] = '\0';
	return symlinkat(target, to, name) < 0 ? -errno : 0;
}

static bool listed(const char *const *list, const char *name)
{
	for (; *list; list++)
		if (strcmp(*list, name) == 0)
			return true;
	return false;
}

static int copy_public(int from, int to, const char *name, const char *const *left_out, int depth);

static int copy_folder(int from, int to, const char *name, const char *const *left_out, int depth)
{
	_cleanup_close_ int in =
		openat(from, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	_cleanup_close_ int out = -1;
	struct dirent *entry;
	DIR *d;
	int r = 0;

	if (in < 0)
		return -errno;
	if (mkdirat(to, name, 0755) < 0)
		return -errno;
	out = openat(to, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (out < 0 || fchmod(out, 0755) < 0)
		return -errno;
	d = fdopendir(in);
	if (!d)
		return -errno;
	in = -1; /* the stream owns it */
	while (r == 0 && (entry = readdir(d)))
		if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
			r = copy_public(dirfd(d), out, entry->d_name, left_out, depth + 1);
	closedir(d);
	return r;
}

static int copy_public(int from, int to, const char *name, const char *const *left_out, int depth)
{
	struct stat st;

	if (depth > TREE_MAX_DEPTH)
		return -ELOOP;
	if (listed(left_out, name))
		return 0;
	if (fstatat(from, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	if (S_ISLNK(st.st_mode))
		return copy_link(from, to, name);
	if (S_ISREG(st.st_mode) && st.st_mode & 0004)
		return copy_file(from, to, name, &st);
	if (S_ISDIR(st.st_mode) && (st.st_mode & 0005) == 0005)
		return copy_folder(from, to, name, left_out, depth);
	return 0;
}

int tree_copy_public(int from, int to, const char *name, const char *const *left_out)
{
	return copy_public(from, to, name, left_out, 0);
}

/* Without CAP_DAC_OVERRIDE a folder of ours without r, w or x has to be given them first. */
static int open_to_empty(int dir, const char *name)
{
	struct stat st;
	int fd;

	if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	if (S_ISDIR(st.st_mode) && (st.st_mode & 0700) != 0700 && fchmodat(dir, name, 0700, 0) < 0)
		return -errno;
	fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

static int remove_at(int dir, const char *name, int depth)
{
	struct dirent *entry;
	DIR *d;
	int fd, r = 0;

	if (unlinkat(dir, name, 0) == 0 || errno == ENOENT)
		return 0;
	if (errno != EISDIR && errno != EPERM)
		return -errno;
	if (depth > TREE_MAX_REMOVED)
		return -ELOOP;
	fd = open_to_empty(dir, name);
	if (fd < 0)
		return fd;
	d = fdopendir(fd);
	if (!d) {
		r = -errno;
		close(fd);
		return r;
	}
	while (r == 0 && (entry = readdir(d)))
		if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
			r = remove_at(dirfd(d), entry->d_name, depth + 1);
	closedir(d);
	if (r == 0 && unlinkat(dir, name, AT_REMOVEDIR) < 0)
		r = -errno;
	return r;
}

int tree_remove(int dir, const char *name)
{
	return remove_at(dir, name, 0);
}
