/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tar_make.c - a tar of a folder, made while it is sent: a walk with its own stack of open folders, and
 * one buffer that holds the headers of the entry in hand. No link is followed.
 */
#include "client/tar_make.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "tar/tar.h"

struct tar_maker {
	DIR *stack[TAR_MAX_DEPTH];
	size_t ends[TAR_MAX_DEPTH]; /* length of the path of each */
	int depth;                  /* folders that are open */
	char path[TAR_PATH_SIZE];   /* of the entry in hand */
	char target[TAR_PATH_SIZE];
	char head[TAR_HEADER_MAX]; /* blocks that wait */
	size_t head_size, head_sent;
	int file;
	uint64_t left;  /* of the file */
	size_t padding; /* behind it */
	bool ended;
	unsigned left_out;
};

/* The headers of the entry in hand wait. */
static void put_entry(struct tar_maker *m, enum tar_type type, const struct stat *st,
		      const char *target)
{
	const struct tar_entry t = {.type = type,
				    .path = m->path,
				    .target = target,
				    .size = type == TAR_FILE ? (uint64_t)st->st_size : 0,
				    .mode = st->st_mode & 0777,
				    .mtime = st->st_mtime};

	m->head_size = tar_header(m->head, &t); /* never 0: path and target have that size */
	m->head_sent = 0;
}

struct tar_maker *tar_maker_new(int folder, struct err *e)
{
	struct tar_maker *m = calloc(1, sizeof *m);
	_cleanup_close_ int fd = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (m && fd >= 0)
		m->stack[0] = fdopendir(fd);
	if (!m || !m->stack[0]) {
		err_set(e, errno, "read the folder");
		free(m);
		return NULL;
	}
	TAKE_FD(fd);
	m->depth = 1;
	m->file = -1;
	return m;
}

void tar_maker_free(struct tar_maker *m)
{
	if (!m)
		return;
	while (m->depth > 0)
		closedir(m->stack[--m->depth]);
	fd_close(&m->file);
	free(m);
}

unsigned tar_maker_left_out(const struct tar_maker *m)
{
	return m->left_out;
}

const char *tar_maker_path(const struct tar_maker *m)
{
	return m->path;
}

static int begin_file(struct tar_maker *m, int dir, const char *name)
{
	struct stat st;

	/* Looked at again through the descriptor: the name may mean something else by now. */
	m->file = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (m->file < 0 || fstat(m->file, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode)) {
		fd_close(&m->file);
		m->left_out++;
		return 0;
	}
	m->left = (uint64_t)st.st_size;
	m->padding = tar_padding(m->left);
	put_entry(m, TAR_FILE, &st, "");
	return 0;
}

static int begin_folder(struct tar_maker *m, int dir, const char *name)
{
	_cleanup_close_ int fd = -1;
	struct stat st;

	if (m->depth == TAR_MAX_DEPTH) {
		m->left_out++;
		return 0;
	}
	fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st) < 0)
		return -errno;
	m->stack[m->depth] = fdopendir(fd);
	if (!m->stack[m->depth])
		return -errno;
	TAKE_FD(fd);
	m->ends[m->depth++] = strlen(m->path);
	put_entry(m, TAR_FOLDER, &st, "");
	return 0;
}

static int begin_link(struct tar_maker *m, int dir, const char *name, const struct stat *st)
{
	ssize_t n = readlinkat(dir, name, m->target, sizeof m->target - 1);

	if (n < 0)
		return -errno;
	m->target[n] = '\0';
	put_entry(m, TAR_LINK, st, m->target);
	return 0;
}

/* The next entry of the walk: its headers wait, or nothing does when it is left out. */
static int next_entry(struct tar_maker *m)
{
	DIR *d = m->stack[m->depth - 1];
	size_t outside = m->ends[m->depth - 1], name_size;
	struct dirent *entry;
	struct stat st;

	m->path[outside] = '\0';
	errno = 0;
	entry = readdir(d);
	if (!entry) {
		if (errno)
			return -errno;
		closedir(d);
		m->ended = --m->depth == 0;
		return 0;
	}
	if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
		return 0;
	name_size = strlen(entry->d_name);
	if (outside + name_size + 2 > sizeof m->path) {
		m->left_out++;
		return 0;
	}
	if (outside)
		m->path[outside] = '/';
	memcpy(m->path + outside + (outside ? 1 : 0), entry->d_name, name_size + 1);
	if (fstatat(dirfd(d), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0 : -errno;
	if (S_ISREG(st.st_mode))
		return begin_file(m, dirfd(d), entry->d_name);
	if (S_ISDIR(st.st_mode))
		return begin_folder(m, dirfd(d), entry->d_name);
	if (S_ISLNK(st.st_mode))
		return begin_link(m, dirfd(d), entry->d_name, &st);
	m->left_out++;
	return 0;
}

/* Content of the file in hand, then zeros up to the block's end. */
static ssize_t read_file(struct tar_maker *m, char *data, size_t room)
{
	ssize_t n;

	if (m->left > 0) {
		n = read(m->file, data, room < m->left ? room : (size_t)m->left);
		if (n <= 0)
			return n < 0 ? -errno : -EIO;
		m->left -= (uint64_t)n;
		return n;
	}
	fd_close(&m->file);
	n = (ssize_t)(m->padding < room ? m->padding : room);
	memset(data, 0, (size_t)n);
	m->padding -= (size_t)n;
	return n;
}

/* Blocks that wait: headers, or the zeros of the end. */
static ssize_t read_head(struct tar_maker *m, char *data, size_t room)
{
	size_t n = m->head_size - m->head_sent;

	n = n < room ? n : room;
	memcpy(data, m->head + m->head_sent, n);
	m->head_sent += n;
	return (ssize_t)n;
}

ssize_t tar_maker_read(void *maker, char *data, size_t room)
{
	struct tar_maker *m = maker;

	for (;;) {
		ssize_t n = 0;

		if (m->head_sent < m->head_size)
			return read_head(m, data, room);
		if (m->file >= 0 || m->padding > 0) {
			n = read_file(m, data, room);
			if (n != 0)
				return n;
			continue;
		}
		if (m->ended)
			return 0;
		m->head_size = m->head_sent = 0;
		n = next_entry(m);
		if (n < 0)
			return n;
		if (m->ended) {
			m->head_size = 2 * TAR_BLOCK;
			memset(m->head, 0, m->head_size);
		}
	}
}
