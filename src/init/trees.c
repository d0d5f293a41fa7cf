/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trees.c - whole folders out (WALK) and in (UNPACK), entry by entry, in a worker (worker.h).
 *
 * Out: no link is followed and no other file system entered; a file that changes meanwhile comes with
 * exactly the size that was announced, cut off or filled with zeros; what cannot be read is told of and left
 * out, only what says that we cannot go on (no memory, no descriptors) ends it. In: every name is resolved beneath
 * the base through folders only, so a member that is a link leads no later one anywhere.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "init/worker.h"

enum { WALK_DEPTH_MAX = 512, DEPTH_MAX = 128, MEMBERS_MAX = 1000000 };

static unsigned char data[FRAME_DATA_MAX];
static char path[PATH_MAX]; /* below the folder */

/* ---------------------------------------------------------------------------------------------- WALK */

static bool is_ours(int errnum)
{
	return errnum == ENOMEM || errnum == EMFILE || errnum == ENFILE;
}

/* path cannot be read: the rest of the walk can. */
static int skip(struct worker *w, int errnum)
{
	static char payload[sizeof(uint32_t) + PATH_MAX];
	uint32_t number = (uint32_t)errnum;

	if (is_ours(errnum))
		return worker_failed(w, errnum, path);
	memcpy(payload, &number, sizeof number);
	memcpy(payload + sizeof number, path, strlen(path) + 1);
	worker_send(w, FRAME_SKIPPED, 0, payload, (uint32_t)(sizeof number + strlen(path) + 1));
	return 0;
}

static int send_content(struct worker *w, int fd, uint64_t size)
{
	bool ended = false;

	while (size > 0) {
		size_t most = size < sizeof data ? (size_t)size : sizeof data;
		ssize_t n = ended ? 0 : read(fd, data, most);

		if (n < 0)
			return worker_failed(w, errno, path);
		if (n == 0) {
			ended = true;
			n = (ssize_t)most;
			memset(data, 0, most);
		}
		worker_send(w, FRAME_DATA, 1, data, (uint32_t)n);
		size -= (uint64_t)n;
	}
	return 0;
}

/* What was a regular file when looked at may be something else now; then it is left out. */
static int send_file(struct worker *w, int dir, const char *name)
{
	int fd = path_openat(dir, name, O_RDONLY | O_NONBLOCK | O_NOFOLLOW, 0,
			     RESOLVE_LINKS_NO | RESOLVE_XDEV_NO);
	struct stat st;
	int r = 0;

	if (fd == -ENOENT || fd == -ELOOP || fd == -EXDEV || fd == -ENXIO)
		return 0;
	if (fd < 0)
		return skip(w, -fd);
	if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode)) {
		worker_send_entry(w, &st, path, "");
		r = send_content(w, fd, (uint64_t)st.st_size);
	}
	close(fd);
	return r;
}

static void send_link(struct worker *w, int dir, const char *name, const struct stat *st)
{
	char target[PATH_MAX + 1];
	ssize_t n = readlinkat(dir, name, target, PATH_MAX);

	if (n <= 0)
		return;
	target[n] = '\0';
	worker_send_entry(w, st, path, target);
}

static int walk(struct worker *w, int fd, size_t length, int depth);

static int walk_folder(struct worker *w, int dir, const char *name, const struct stat *seen,
		       size_t length, int depth)
{
	int fd = path_openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0,
			     RESOLVE_LINKS_NO | RESOLVE_XDEV_NO);
	struct stat st;

	if (fd == -ENOENT || fd == -ELOOP || fd == -ENOTDIR || fd == -EXDEV)
		return 0;
	if (fd >= 0 && depth >= WALK_DEPTH_MAX) {
		close(fd);
		fd = -ENAMETOOLONG;
	}
	if (fd < 0) {
		worker_send_entry(w, seen, path, "");
		return skip(w, -fd);
	}
	if (fstat(fd, &st) < 0) {
		int errnum = errno;

		close(fd);
		return worker_failed(w, errnum, path);
	}
	worker_send_entry(w, &st, path, "");
	return walk(w, fd, length, depth + 1);
}

static int walk_entry(struct worker *w, int dir, const char *name, size_t length, int depth)
{
	size_t n = strlen(name);
	struct stat st;

	if (length + n + 2 > sizeof path)
		return skip(w, ENAMETOOLONG); /* of the folder: it is not all of it */
	if (length > 0)
		path[length++] = '/';
	memcpy(path + length, name, n + 1);
	if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return 0;
	if (S_ISREG(st.st_mode))
		return send_file(w, dir, name);
	if (S_ISDIR(st.st_mode))
		return walk_folder(w, dir, name, &st, length + n, depth);
	if (S_ISLNK(st.st_mode))
		send_link(w, dir, name, &st);
	return 0;
}

/* Takes fd. length: of the path so far. */
static int walk(struct worker *w, int fd, size_t length, int depth)
{
	DIR *dir = fdopendir(fd);
	struct dirent *e;
	int r = 0;

	if (!dir) {
		close(fd);
		return worker_failed(w, ENOMEM, path);
	}
	while (r == 0 && (errno = 0, e = readdir(dir))) {
		if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
			continue;
		r = walk_entry(w, fd, e->d_name, length, depth);
		if (r == 0)
			path[length] = '\0';
	}
	if (r == 0 && errno) /* of the folder that was asked for: it is the answer */
		r = length > 0 ? skip(w, errno) : worker_failed(w, errno, path);
	closedir(dir);
	return r;
}

int work_walk(struct worker *w)
{
	size_t at = 0;
	const char *base = path_take(w, &at, true);
	int fd;

	if (!base)
		return worker_failed(w, EINVAL, "malformed request");
	fd = path_open(base, O_RDONLY | O_DIRECTORY | O_NONBLOCK, 0);
	if (fd < 0)
		return worker_failed(w, -fd, base);
	return walk(w, fd, 0, 0);
}

/* -------------------------------------------------------------------------------------------- UNPACK */

static int open_below(int dir, const char *name)
{
	return path_openat(dir, name, O_PATH | O_DIRECTORY, 0, RESOLVE_BELOW | RESOLVE_LINKS_NO);
}

/* The folder below base that holds the member; its parents are made. name: the last component. */
static int member_parent(int base, char *member, char **ret_name)
{
	int dir = open_below(base, "."), depth = 0;
	char *name = member, *slash;

	while (dir >= 0 && (slash = strchr(name, '/'))) {
		int next;

		*slash = '\0';
		next = open_below(dir, name);
		if (next == -ENOENT && mkdirat(dir, name, 0755) == 0)
			next = open_below(dir, name);
		*slash = '/';
		close(dir);
		dir = next;
		name = slash + 1;
		if (++depth > DEPTH_MAX && dir >= 0) {
			close(dir);
			return -ENAMETOOLONG;
		}
	}
	*ret_name = name;
	return dir;
}

/* Exactly size bytes of DATA. */
static int take_exactly(struct worker *w, int fd, uint64_t size)
{
	while (size > 0) {
		struct frame f;

		if (!worker_receive(w, &f, data))
			return -EPIPE;
		if (f.type != FRAME_DATA || f.size > size)
			return -EPROTO;
		size -= f.size;
		for (uint32_t done = 0; done < f.size;) {
			ssize_t n = write(fd, data + done, f.size - done);

			if (n < 0)
				return -errno;
			done += (uint32_t)n;
		}
	}
	return 0;
}

/* What tar says may be anything: before the epoch or beyond the year 2500 is now. */
static void set_time(int fd, int64_t mtime)
{
	struct timespec t[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = (time_t)mtime}};

	if (mtime >= 0 && mtime < 16725225600)
		futimens(fd, t);
}

static int unpack_file(struct worker *w, int dir, const char *name, const struct entry_record *e)
{
	int fd = openat(dir, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	int r;

	if (fd < 0)
		return -errno;
	r = take_exactly(w, fd, e->size_bytes);
	if (r == 0 && fchmod(fd, e->mode & 0777) < 0)
		r = -errno;
	if (r == 0)
		set_time(fd, e->mtime);
	close(fd);
	if (r < 0)
		unlinkat(dir, name, 0);
	return r;
}

/* A folder that was there keeps its mode; a new one stays its owner's to write, for what follows. */
static int unpack_folder(int dir, const char *name, const struct entry_record *e)
{
	struct stat st;

	if (mkdirat(dir, name, (e->mode & 0777) | 0700) == 0)
		return 0;
	if (errno != EEXIST)
		return -errno;
	if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	return S_ISDIR(st.st_mode) ? 0 : -EEXIST;
}

static int unpack_member(struct worker *w, int base, const struct entry_record *e, char *member,
			 const char *target)
{
	char *name;
	int dir = member_parent(base, member, &name), r;

	if (dir < 0)
		return dir;
	if (S_ISDIR(e->mode)) {
		r = unpack_folder(dir, name, e);
	} else {
		if (unlinkat(dir, name, 0) < 0 && errno != ENOENT)
			r = -errno;
		else if (S_ISLNK(e->mode))
			r = symlinkat(target, dir, name) < 0 ? -errno : 0;
		else
			r = unpack_file(w, dir, name, e);
	}
	close(dir);
	return r;
}

int work_unpack(struct worker *w)
{
	static unsigned char payload[FRAME_DATA_MAX];
	size_t at = 0;
	const char *base_path = path_take(w, &at, true);
	struct frame f;
	int base;

	if (!base_path)
		return worker_failed(w, EINVAL, "malformed request");
	base = path_open(base_path, O_PATH | O_DIRECTORY, 0);
	if (base < 0)
		return worker_failed(w, -base, base_path);
	umask(0);
	for (unsigned count = 0; worker_receive(w, &f, payload); count++) {
		const char *name, *target;
		struct entry_record e;
		int r;

		if (f.type == FRAME_FINISH)
			return 0;
		if (f.type != FRAME_MEMBER ||
		    entry_record_decode(payload, f.size, ENTRY_BELOW, &e, &name, &target) < 0)
			return worker_failed(w, EINVAL, "malformed member");
		if (count >= MEMBERS_MAX)
			return worker_failed(w, E2BIG, "too many members");
		snprintf(path, sizeof path, "%s", name);
		r = unpack_member(w, base, &e, path, target);
		if (r < 0)
			return worker_failed(w, -r, path);
	}
	return worker_failed(w, EPIPE, "the archive was cut off");
}
