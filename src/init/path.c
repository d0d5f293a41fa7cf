/* SPDX-License-Identifier: Apache-2.0 */
/*
 * path.c - names of files that a client gave, resolved inside the sandbox, as its user.
 *
 * Links lead where they lead for the commands, which is never outside. /proc, /sys and /dev are told by
 * what was opened, not by the string: a link into them, or a folder that is exchanged meanwhile, makes no
 * difference.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "init/worker.h"

struct how { /* linux/openat2.h */
	uint64_t flags, mode, resolve;
};

int path_openat(int dir, const char *path, int flags, unsigned mode, unsigned resolve)
{
	struct how how = {(uint64_t)flags | O_CLOEXEC, mode, RESOLVE_MAGIC_NO | resolve};
	long fd = syscall(SYS_openat2, dir, path, &how, sizeof how);

	return fd < 0 ? -errno : (int)fd;
}

/* Kernel-made file systems, by linux/magic.h; /dev, a tmpfs, by its device number. */
static bool is_forbidden(int fd)
{
	static const unsigned long magic[] = {
		0x9fa0,     /* proc */
		0x62656572, /* sysfs */
		0x1cd1,     /* devpts */
		0x64626720, /* debugfs */
		0x74726163, /* tracefs */
		0x73636673, /* securityfs */
		0x27e0eb,   /* cgroup */
		0x63677270, /* cgroup2 */
		0xcafe4a11, /* bpf */
		0x6e736673, /* nsfs */
		0x19800202, /* mqueue */
	};
	struct stat st, dev, root;
	struct statfs fs;

	if (fstatfs(fd, &fs) < 0 || fstat(fd, &st) < 0)
		return true;
	for (size_t i = 0; i < sizeof magic / sizeof *magic; i++)
		if ((unsigned long)fs.f_type == magic[i])
			return true;
	return stat("/dev", &dev) == 0 && stat("/", &root) == 0 && dev.st_dev != root.st_dev &&
	       st.st_dev == dev.st_dev;
}

static int check(int fd)
{
	if (fd < 0 || !is_forbidden(fd))
		return fd;
	close(fd);
	return -EACCES;
}

/* Opened without effect first: a device or a pipe in a forbidden place is not even touched. */
int path_open(const char *path, int flags, unsigned mode)
{
	int same = O_PATH | (flags & (O_NOFOLLOW | O_DIRECTORY));
	int probe = check(path_openat(AT_FDCWD, path, same, 0, 0));

	if (flags & O_PATH)
		return probe;
	if (probe < 0 && (probe != -ENOENT || !(flags & O_CREAT)))
		return probe;
	if (probe >= 0)
		close(probe);
	return check(path_openat(AT_FDCWD, path, flags | O_NOCTTY, mode, 0));
}

/* One folder further, which is made if it is not there. */
static int step(int dir, const char *name, bool make)
{
	int next = path_openat(dir, name, O_PATH | O_DIRECTORY, 0, 0);

	if (next == -ENOENT && make) {
		if (is_forbidden(dir))
			return -EACCES;
		if (mkdirat(dir, name, 0755) < 0 && errno != EEXIST)
			return -errno;
		next = path_openat(dir, name, O_PATH | O_DIRECTORY, 0, 0);
	}
	return next;
}

static int walk_folders(char *path, bool make)
{
	int dir = path_openat(AT_FDCWD, "/", O_PATH | O_DIRECTORY, 0, 0);
	char *name = path, *end;

	while (dir >= 0 && *(name += strspn(name, "/"))) {
		int next;
		char saved;

		end = name + strcspn(name, "/");
		saved = *end;
		*end = '\0';
		next = step(dir, name, make);
		*end = saved;
		name = end;
		close(dir);
		dir = next;
	}
	return dir;
}

int path_parent(char *path, bool make, const char **ret_name)
{
	size_t size = strlen(path);
	char *slash;
	int dir;

	while (size > 1 && path[size - 1] == '/')
		path[--size] = '\0';
	slash = strrchr(path, '/');
	*ret_name = slash + 1;
	if (!slash[1] || strcmp(slash + 1, ".") == 0 || strcmp(slash + 1, "..") == 0)
		return -EINVAL;
	*slash = '\0';
	dir = check(make ? walk_folders(path, true)
			 : path_openat(AT_FDCWD, slash == path ? "/" : path, O_PATH | O_DIRECTORY,
				       0, 0));
	*slash = '/';
	return dir;
}

char *path_take(struct worker *w, size_t *at, bool last)
{
	char *path = (char *)w->payload + *at, *end;

	if (*at >= w->size || *path != '/')
		return NULL;
	end = memchr(path, '\0', w->size - *at);
	if (!end || (last && end + 1 != (char *)w->payload + w->size))
		return NULL;
	*at = (size_t)(end + 1 - (char *)w->payload);
	return path;
}
