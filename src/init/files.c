/* SPDX-License-Identifier: Apache-2.0 */
/* files.c - one file or folder at a time, in a worker (worker.h). */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "init/worker.h"

enum { PERMISSIONS = 0777, DEPTH_MAX = 768, NO_REPLACE = 1 /* linux/fs.h: RENAME_NOREPLACE */ };

static unsigned char data[FRAME_DATA_MAX];

static int malformed(struct worker *w)
{
	return worker_failed(w, EINVAL, "malformed request");
}

/* Regular files only: nothing else ends. O_NONBLOCK, so that opening does not wait either. */
static int open_regular(struct worker *w, const char *path, int flags, unsigned mode,
			struct stat *ret_st)
{
	int fd = path_open(path, flags | O_NONBLOCK, mode);

	if (fd < 0)
		return worker_failed(w, fd == -ENXIO ? EINVAL : -fd,
				     fd == -ENXIO ? "not a regular file" : path);
	if (fstat(fd, ret_st) < 0)
		return worker_failed(w, errno, path);
	if (!S_ISREG(ret_st->st_mode))
		return worker_failed(w, S_ISDIR(ret_st->st_mode) ? EISDIR : EINVAL,
				     "not a regular file");
	return fd;
}

static const char *last_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash[1] ? slash + 1 : path;
}

int work_read(struct worker *w)
{
	size_t at = sizeof(struct read_record);
	const char *path = path_take(w, &at, true);
	struct read_record rr;
	struct stat st;
	int fd;

	memcpy(&rr, w->payload, sizeof rr);
	if (!path || rr.offset > INT64_MAX)
		return malformed(w);
	fd = open_regular(w, path, O_RDONLY, 0, &st);
	if (fd < 0)
		return fd;
	worker_send_entry(w, &st, last_name(path), "");
	while (rr.length > 0) {
		size_t most = rr.length < sizeof data ? (size_t)rr.length : sizeof data;
		ssize_t n = pread(fd, data, most, (off_t)rr.offset);

		if (n < 0)
			return worker_failed(w, errno, path);
		if (n == 0)
			break;
		worker_send(w, FRAME_DATA, 1, data, (uint32_t)n);
		rr.offset += (uint64_t)n;
		rr.length -= (uint64_t)n;
	}
	return 0;
}

static int write_all(int fd, const unsigned char *p, size_t size)
{
	while (size > 0) {
		ssize_t n = write(fd, p, size);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		p += n;
		size -= (size_t)n;
	}
	return 0;
}

/* DATA until EOF. -EPIPE: the peer went before that. */
static int take_content(struct worker *w, int fd, const char *path)
{
	struct frame f;
	int r;

	while (worker_receive(w, &f, data)) {
		if (f.type == FRAME_EOF)
			return 0;
		if (f.type != FRAME_DATA)
			return malformed(w);
		r = write_all(fd, data, f.size);
		if (r < 0)
			return worker_failed(w, -r, path);
	}
	return worker_failed(w, EPIPE, "the content was cut off");
}

static int append(struct worker *w, char *path, const struct write_record *wr)
{
	int flags = O_WRONLY | O_APPEND | O_CREAT | (wr->flags & WRITE_EXCLUSIVE ? O_EXCL : 0);
	const char *name;
	struct stat st;
	int fd;

	if (wr->flags & WRITE_PARENTS) {
		fd = path_parent(path, true, &name);
		if (fd < 0)
			return worker_failed(w, -fd, path);
		close(fd);
	}
	fd = open_regular(w, path, flags, wr->mode, &st);
	return fd < 0 ? fd : take_content(w, fd, path);
}

static int make_temporary(int dir, char name[TEMPORARY_SIZE])
{
	for (int tries = 0; tries < 16; tries++) {
		uint64_t number;
		int fd;

		if (getrandom(&number, sizeof number, 0) != sizeof number)
			return -EIO;
		snprintf(name, TEMPORARY_SIZE, TEMPORARY "%016llx", (unsigned long long)number);
		fd = openat(dir, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
		if (fd >= 0 || errno != EEXIST)
			return fd < 0 ? -errno : fd;
	}
	return -EEXIST;
}

static int put_in_place(int dir, const char *temporary, const char *name, bool exclusive)
{
	int r = (int)syscall(SYS_renameat2, dir, temporary, dir, name, exclusive ? NO_REPLACE : 0);

	if (r == 0)
		return 0;
	r = -errno;
	if (exclusive && (r == -EINVAL || r == -ENOSYS)) { /* a file system that cannot */
		r = linkat(dir, temporary, dir, name, 0) < 0 ? -errno : 0;
		if (r == 0)
			unlinkat(dir, temporary, 0);
	}
	return r;
}

/* A link of this name is replaced, never followed: content lands in the folder that was named. */
static int replace(struct worker *w, char *path, const struct write_record *wr)
{
	char temporary[TEMPORARY_SIZE];
	const char *name;
	struct stat st;
	int dir, fd, r;

	if (path[strlen(path) - 1] == '/')
		return worker_failed(w, EISDIR, path);
	dir = path_parent(path, wr->flags & WRITE_PARENTS, &name);
	if (dir < 0)
		return worker_failed(w, -dir, path);
	if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0) {
		if (wr->flags & WRITE_EXCLUSIVE)
			return worker_failed(w, EEXIST, path);
		if (S_ISDIR(st.st_mode))
			return worker_failed(w, EISDIR, path);
	}
	fd = make_temporary(dir, temporary);
	if (fd < 0)
		return worker_failed(w, -fd, path);
	r = take_content(w, fd, path);
	if (r == 0 && fchmod(fd, wr->mode) < 0)
		r = worker_failed(w, errno, path);
	close(fd);
	if (r == 0) {
		r = put_in_place(dir, temporary, name, wr->flags & WRITE_EXCLUSIVE);
		if (r < 0)
			worker_failed(w, -r, path);
	}
	if (r < 0)
		unlinkat(dir, temporary, 0);
	return r;
}

static char *take_write(struct worker *w, struct write_record *ret, unsigned usual_mode,
			unsigned allowed)
{
	size_t at = sizeof *ret;
	char *path = path_take(w, &at, true);

	memcpy(ret, w->payload, sizeof *ret);
	if (!path || ret->flags & ~allowed || ret->mode & ~07777u)
		return NULL;
	ret->mode = ret->mode ? ret->mode & PERMISSIONS : usual_mode;
	umask(0);
	return path;
}

int work_write(struct worker *w)
{
	struct write_record wr;
	char *path = take_write(w, &wr, 0644, WRITE_PARENTS | WRITE_APPEND | WRITE_EXCLUSIVE);

	if (!path)
		return malformed(w);
	return wr.flags & WRITE_APPEND ? append(w, path, &wr) : replace(w, path, &wr);
}

int work_mkdir(struct worker *w)
{
	struct write_record wr;
	char *path = take_write(w, &wr, 0755, WRITE_PARENTS);
	const char *name;
	struct stat st;
	int dir;

	if (!path)
		return malformed(w);
	dir = path_parent(path, wr.flags & WRITE_PARENTS, &name);
	if (dir < 0)
		return worker_failed(w, -dir, path);
	if (mkdirat(dir, name, wr.mode) == 0)
		return 0;
	if (errno == EEXIST) {
		if (wr.flags & WRITE_PARENTS && fstatat(dir, name, &st, 0) == 0 &&
		    S_ISDIR(st.st_mode))
			return 0;
		errno = EEXIST;
	}
	return worker_failed(w, errno, path);
}

/* A link's target, else "". False: it is gone. */
static bool describe(int dir, const char *name, struct stat *st, char target[PATH_MAX + 1])
{
	ssize_t n = 0;

	if (fstatat(dir, name, st, AT_SYMLINK_NOFOLLOW) < 0)
		return false;
	if (S_ISLNK(st->st_mode))
		n = readlinkat(dir, name, target, PATH_MAX);
	target[n > 0 ? n : 0] = '\0';
	return n >= 0;
}

int work_stat(struct worker *w)
{
	char target[PATH_MAX + 1] = "";
	size_t at = 0;
	char *path = path_take(w, &at, true);
	struct stat st;
	int fd;

	if (!path)
		return malformed(w);
	for (size_t n = strlen(path); n > 1 && path[n - 1] == '/';)
		path[--n] = '\0';
	fd = path_open(path, O_PATH | O_NOFOLLOW, 0);
	if (fd < 0 || fstat(fd, &st) < 0)
		return worker_failed(w, fd < 0 ? -fd : errno, path);
	if (S_ISLNK(st.st_mode)) {
		ssize_t n = readlinkat(fd, "", target, PATH_MAX);

		target[n > 0 ? n : 0] = '\0';
	}
	worker_send_entry(w, &st, last_name(path), target);
	return 0;
}

int work_readdir(struct worker *w)
{
	size_t at = sizeof(uint32_t);
	const char *path = path_take(w, &at, true);
	struct dirent *e;
	uint32_t most;
	DIR *dir;
	int fd;

	memcpy(&most, w->payload, sizeof most);
	if (!path)
		return malformed(w);
	fd = path_open(path, O_RDONLY | O_DIRECTORY | O_NONBLOCK, 0);
	if (fd < 0 || !(dir = fdopendir(fd)))
		return worker_failed(w, fd < 0 ? -fd : errno, path);
	while (most > 0 && (errno = 0, e = readdir(dir))) {
		char target[PATH_MAX + 1];
		struct stat st;

		if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0 ||
		    !describe(fd, e->d_name, &st, target))
			continue;
		worker_send_entry(w, &st, e->d_name, target);
		most--;
	}
	return most > 0 && errno ? worker_failed(w, errno, path) : 0;
}

/* -------------------------------------------------------------------------------------------- REMOVE */

static int remove_below(int parent, const char *name, int depth);

static int remove_one(int dir, const char *name, int depth)
{
	struct stat st;

	if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0 : -errno;
	if (S_ISDIR(st.st_mode)) {
		int r = remove_below(dir, name, depth);

		if (r < 0)
			return r;
	}
	if (unlinkat(dir, name, S_ISDIR(st.st_mode) ? AT_REMOVEDIR : 0) < 0 && errno != ENOENT)
		return -errno;
	return 0;
}

/* Another file system below is not entered. */
static int remove_below(int parent, const char *name, int depth)
{
	int fd = path_openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0,
			     RESOLVE_LINKS_NO | RESOLVE_XDEV_NO);
	struct dirent *e;
	int r = 0;
	DIR *dir;

	if (fd < 0)
		return fd;
	if (depth >= DEPTH_MAX || !(dir = fdopendir(fd))) {
		close(fd);
		return depth >= DEPTH_MAX ? -ENAMETOOLONG : -ENOMEM;
	}
	while (r == 0 && (e = readdir(dir)))
		if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
			r = remove_one(fd, e->d_name, depth + 1);
	closedir(dir);
	return r;
}

int work_remove(struct worker *w)
{
	size_t at = sizeof(uint32_t);
	char *path = path_take(w, &at, true);
	const char *name;
	struct stat st;
	uint32_t all;
	int dir, r;

	memcpy(&all, w->payload, sizeof all);
	if (!path || all > 1)
		return malformed(w);
	dir = path_parent(path, false, &name);
	if (dir < 0)
		return worker_failed(w, -dir, path);
	if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return worker_failed(w, errno, path);
	if (all)
		r = remove_one(dir, name, 0);
	else
		r = unlinkat(dir, name, S_ISDIR(st.st_mode) ? AT_REMOVEDIR : 0) < 0 ? -errno : 0;
	return r < 0 ? worker_failed(w, -r, path) : 0;
}

int work_move(struct worker *w)
{
	size_t at = sizeof(uint32_t);
	char *from = path_take(w, &at, false), *to = from ? path_take(w, &at, true) : NULL;
	const char *from_name, *to_name;
	int from_dir, to_dir;
	uint32_t over;

	memcpy(&over, w->payload, sizeof over);
	if (!to || over > 1)
		return malformed(w);
	from_dir = path_parent(from, false, &from_name);
	if (from_dir < 0)
		return worker_failed(w, -from_dir, from);
	to_dir = path_parent(to, false, &to_name);
	if (to_dir < 0)
		return worker_failed(w, -to_dir, to);
	if (syscall(SYS_renameat2, from_dir, from_name, to_dir, to_name, over ? 0 : NO_REPLACE) < 0)
		return worker_failed(w, errno, errno == ENOENT ? from : to);
	return 0;
}
