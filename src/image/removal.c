/* SPDX-License-Identifier: Apache-2.0 */
#include "image/removal.h"

#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "base/cleanup.h"

/* Deeper than any tree of ours: layers are unpacked to 64 levels. Each costs a descriptor. */
enum { MAX_DEPTH = 100 };

static int remove_at(int dir, const char *name, int depth);

static int empty(int fd, int depth)
{
	DIR *d = fdopendir(fd);
	struct dirent *entry;
	int r = 0;

	if (!d) {
		r = -errno;
		close(fd);
		return r;
	}
	while (r == 0 && (entry = readdir(d)))
		if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
			r = remove_at(dirfd(d), entry->d_name, depth + 1);
	closedir(d);
	return r;
}

/* Without CAP_DAC_OVERRIDE a folder of ours without r, w or x has to be given them first. */
static int open_folder(int dir, const char *name)
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
	int fd, r;

	if (unlinkat(dir, name, 0) == 0 || errno == ENOENT)
		return 0;
	if (errno != EISDIR && errno != EPERM)
		return -errno;
	if (depth > MAX_DEPTH)
		return -ELOOP;
	fd = open_folder(dir, name);
	if (fd < 0)
		return fd;
	r = empty(fd, depth);
	return r == 0 && unlinkat(dir, name, AT_REMOVEDIR) < 0 ? -errno : r;
}

int layer_tree_remove(int dir, const char *name)
{
	return remove_at(dir, name, 0);
}
