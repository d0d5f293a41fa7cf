/* SPDX-License-Identifier: Apache-2.0 */
#include "native/feed.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/tree.h"
#include "protocol/protocol.h"

/* ---- what the caller names, whole ---- */

static int walk_any(const struct feed_sink *to, int dir, const char *name, const char *box,
		    int depth, struct err *e);

static int walk_folder(const struct feed_sink *to, int dir, const char *name, const char *box,
		       int depth, struct err *e)
{
	int fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	struct dirent *entry;
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	int r = 0;

	if (!d) {
		err_set(e, errno, "--in: open %.200s", name);
		fd_close(&fd);
		return -1;
	}
	while (r == 0 && (entry = readdir(d))) {
		char below[SPEC_PATH_SIZE];

		if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
			continue;
		if ((size_t)snprintf(below, sizeof below, "%s/%s", box, entry->d_name) >=
		    sizeof below)
			r = err_set(e, 0, "--in: the path %.60s.../%.60s is too long", box,
				    entry->d_name);
		else
			r = walk_any(to, dirfd(d), entry->d_name, below, depth + 1, e);
	}
	closedir(d);
	return r;
}

static int walk_file(const struct feed_sink *to, int dir, const char *name, const char *box,
		     struct err *e)
{
	_cleanup_close_ int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0)
		return err_set(e, errno, "--in: open %.200s", name);
	if (!S_ISREG(st.st_mode))
		return err_set(e, 0, "--in: %.200s is no regular file", name);
	return to->file(to->context, fd, &st, name, box, e);
}

/* Links go in as links: they mean nothing of the host's inside. What is no file, folder or link stays
 * out. */
static int walk_any(const struct feed_sink *to, int dir, const char *name, const char *box,
		    int depth, struct err *e)
{
	struct stat st;

	if (depth > TREE_MAX_DEPTH)
		return err_set(e, 0, "--in: %.200s: folders are nested too deep", name);
	if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return err_set(e, errno, "--in: %.200s", name);
	if (S_ISREG(st.st_mode))
		return walk_file(to, dir, name, box, e);
	if (S_ISDIR(st.st_mode)) {
		if (to->folder(to->context, box, (st.st_mode & 0777) | 0700, e) < 0)
			return -1;
		return walk_folder(to, dir, name, box, depth, e);
	}
	if (S_ISLNK(st.st_mode)) {
		char target[PATH_MAX];
		ssize_t n = readlinkat(dir, name, target, sizeof target - 1);

		if (n < 0)
			return err_set(e, errno, "--in: %.200s", name);
		target[n] = '\0';
		return to->link(to->context, box, target, e);
	}
	return 0;
}

int feed_walk(const struct spec *s, const struct feed_sink *to, struct err *e)
{
	for (size_t i = 0; i < s->input_count; i++) {
		struct stat st;
		char real[PATH_MAX]; /* what the caller names may be reached through links */

		if (!realpath(s->inputs[i].host, real))
			return err_set(e, errno, "--in: %.200s", s->inputs[i].host);
		if (stat(real, &st) < 0 || (!S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode)))
			return err_set(e, 0, "--in: %.200s is neither a file nor a folder", real);
		if (walk_any(to, AT_FDCWD, real, s->inputs[i].box, 0, e) < 0)
			return -1;
	}
	return 0;
}

/* ---- as frames ---- */

struct feed {
	int control;
	int cancel_fd;
	const struct spec *spec;
};

static int send_put(const struct feed *f, const char *box, uint32_t mode, uint64_t size,
		    const char *target, struct err *e)
{
	char payload[sizeof(struct put_record) + SPEC_PATH_SIZE + PATH_MAX];
	struct put_record put = {size, mode, f->spec->uid, f->spec->gid, 0};
	size_t n = sizeof put, path = strlen(box) + 1;
	int r;

	if (path > SPEC_PATH_SIZE)
		return err_set(e, 0, "--in: the path %.60s... is too long inside the sandbox", box);
	memcpy(payload, &put, sizeof put);
	memcpy(payload + n, box, path);
	n += path;
	if (target) {
		memcpy(payload + n, target, strlen(target) + 1);
		n += strlen(target) + 1;
	}
	r = frame_send(f->control, FRAME_PUT, 0, payload, (uint32_t)n, NULL, 0);
	return r < 0 ? err_set(e, -r, "send %.100s into the sandbox", box) : 0;
}

static int send_folder(void *context, const char *box, mode_t mode, struct err *e)
{
	return send_put(context, box, S_IFDIR | mode, 0, NULL, e);
}

static int send_link(void *context, const char *box, const char *target, struct err *e)
{
	return send_put(context, box, S_IFLNK | 0777, 0, target, e);
}

static int send_file(void *context, int fd, const struct stat *st, const char *name,
		     const char *box, struct err *e)
{
	static __thread char data[FRAME_DATA_MAX];
	const struct feed *f = context;
	uint64_t left = (uint64_t)st->st_size;

	if (send_put(f, box, S_IFREG | (st->st_mode & 0777), left, NULL, e) < 0)
		return -1;
	while (left > 0) {
		struct pollfd cancel = {.fd = f->cancel_fd, .events = POLLIN};
		ssize_t n = fd_read_all(fd, data, left < sizeof data ? (size_t)left : sizeof data);
		int r;

		if (cancel.fd >= 0 && poll(&cancel, 1, 0) > 0)
			return err_set(e, ECANCELED, "--in");
		if (n <= 0)
			return err_set(e, n < 0 ? (int)-n : EIO, "--in: read %.200s", name);
		r = frame_send(f->control, FRAME_DATA, 0, data, (uint32_t)n, NULL, 0);
		if (r < 0)
			return err_set(e, -r, "send %.200s into the sandbox", name);
		left -= (uint64_t)n;
	}
	return 0;
}

int feed_inputs(int control, const struct spec *s, int cancel_fd, struct err *e)
{
	struct feed f = {control, cancel_fd, s};
	const struct feed_sink to = {send_folder, send_link, send_file, &f};

	return feed_walk(s, &to, e);
}
