/* SPDX-License-Identifier: Apache-2.0 */
#include "client/untar.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "base/fd.h"
#include "sandbox/result.h"

static int open_beneath(int dir, const char *path, int flags)
{
	const struct open_how how = {.flags = (uint64_t)(flags | O_CLOEXEC),
				     .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS |
						RESOLVE_NO_MAGICLINKS};

	return (int)syscall(SYS_openat2, dir, path, &how, sizeof how);
}

/* One folder of a path: opened, or made and opened. */
static int enter(int dir, const char *name, unsigned mode)
{
	int fd = open_beneath(dir, name, O_RDONLY | O_DIRECTORY);

	if (fd >= 0 || errno != ENOENT)
		return fd;
	if (mkdirat(dir, name, mode | 0700) < 0 && errno != EEXIST)
		return -1;
	return open_beneath(dir, name, O_RDONLY | O_DIRECTORY);
}

/* The folder at path below root, made where it is missing; -1 with errno. path is chopped up. */
static int enter_path(int root, char *path, unsigned mode)
{
	_cleanup_close_ int dir = fcntl(root, F_DUPFD_CLOEXEC, 0);
	char *save = NULL;
	int depth = 0;

	for (char *name = strtok_r(path, "/", &save); name && dir >= 0;
	     name = strtok_r(NULL, "/", &save)) {
		int next = -1;

		if (++depth > UNTAR_MAX_DEPTH)
			errno = ELOOP;
		else
			next = enter(dir, name, *save ? 0755 : mode);
		fd_close(&dir);
		dir = next;
	}
	return TAKE_FD(dir);
}

/* Text that shows as what it is. */
static bool is_plain(const char *text)
{
	size_t size = strlen(text);

	if (utf8_prefix(text, size, false) != (ssize_t)size)
		return false;
	for (const unsigned char *p = (const unsigned char *)text; *p; p++)
		if (*p < 0x20 || *p == 0x7f || (*p == 0xc2 && p[1] < 0xa0))
			return false;
	return true;
}

static int leave_out(struct untar *u, const char *path, const char *why)
{
	u->left_out_count++;
	if (u->left_out)
		u->left_out(path, why);
	return 0;
}

static int failed(const struct tar_entry *t, struct err *e)
{
	if (errno == ELOOP || errno == EXDEV)
		return err_set(e, 0, "write %.300s: a link is in the way, or it is nested too deep",
			       t->path);
	return err_set(e, errno, "write %.300s", t->path);
}

/* The parent of t, as u->parent, and the last component, as u->name. */
static int open_parent(struct untar *u, const struct tar_entry *t, struct err *e)
{
	char path[TAR_PATH_SIZE];
	char *slash;
	const char *name;

	memcpy(path, t->path, strlen(t->path) + 1);
	slash = strrchr(path, '/');
	name = slash ? slash + 1 : path;
	if (strlen(name) >= sizeof u->name)
		return err_set(e, ENAMETOOLONG, "write %.300s", t->path);
	memcpy(u->name, name, strlen(name) + 1);
	if (slash)
		*slash = '\0';
	else
		path[0] = '\0';
	fd_close(&u->parent);
	u->parent = enter_path(u->root, path, 0755);
	return u->parent < 0 ? failed(t, e) : 0;
}

/* Something of that name goes, unless it is a folder. */
static int make_way(const struct untar *u)
{
	return unlinkat(u->parent, u->name, 0) < 0 && errno != ENOENT ? -1 : 0;
}

static int make_file(struct untar *u, const struct tar_entry *t, struct err *e)
{
	if (open_parent(u, t, e) < 0)
		return -1;
	if (make_way(u) < 0)
		return failed(t, e);
	u->file = openat(u->parent, u->name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
			 t->mode | 0600);
	return u->file < 0 ? failed(t, e) : 0;
}

static int make_link(struct untar *u, const struct tar_entry *t, struct err *e)
{
	if (!is_plain(t->target))
		return leave_out(u, t->path, "its target has control characters");
	if (open_parent(u, t, e) < 0)
		return -1;
	return make_way(u) < 0 || symlinkat(t->target, u->parent, u->name) < 0 ? failed(t, e) : 0;
}

static int make_folder(struct untar *u, const struct tar_entry *t, struct err *e)
{
	char path[TAR_PATH_SIZE];
	_cleanup_close_ int fd = -1;

	memcpy(path, t->path, strlen(t->path) + 1);
	fd = enter_path(u->root, path, t->mode);
	return fd < 0 ? failed(t, e) : 0;
}

static int take_entry(void *context, const struct tar_entry *t, struct err *e)
{
	struct untar *u = context;

	if (t->size > u->max_bytes - u->bytes)
		return err_set(e, 0, "%.200s: with it there are more than %llu bytes (--max-size)",
			       t->path, (unsigned long long)u->max_bytes);
	u->bytes += t->size;
	if (!is_plain(t->path))
		return leave_out(u, t->path, "its name has control characters or is no UTF-8");
	switch (t->type) {
	case TAR_FILE:
		return make_file(u, t, e);
	case TAR_FOLDER:
		return make_folder(u, t, e);
	case TAR_LINK:
		return u->links ? make_link(u, t, e) : leave_out(u, t->path, "a link (--links)");
	}
	return 0;
}

static int take_data(void *context, const char *data, size_t size, struct err *e)
{
	struct untar *u = context;
	int r = u->file < 0 ? 0 : fd_write_all(u->file, data, size);

	return r < 0 ? err_set(e, -r, "write %.200s", u->name) : 0;
}

static int take_end(void *context, struct err *e)
{
	struct untar *u = context;
	int fd = TAKE_FD(u->file);

	return fd >= 0 && close(fd) < 0 ? err_set(e, errno, "write %.200s", u->name) : 0;
}

void untar_init(struct untar *u, int root, bool links, uint64_t max_bytes)
{
	const struct tar_sink sink = {take_entry, take_data, take_end, u};

	tar_reader_init(&u->reader, &sink);
	u->root = root;
	u->links = links;
	u->max_bytes = max_bytes;
	u->left_out = NULL;
	u->left_out_count = 0;
	u->bytes = 0;
	u->parent = u->file = -1;
	u->name[0] = '\0';
}

int untar_feed(void *untar, const char *data, size_t size, struct err *e)
{
	struct untar *u = untar;

	return tar_feed(&u->reader, data, size, e);
}

int untar_end(struct untar *u, struct err *e)
{
	return tar_eof(&u->reader, e);
}

void untar_done(struct untar *u)
{
	if (u->file >= 0)
		unlinkat(u->parent, u->name, 0);
	fd_close(&u->file);
	fd_close(&u->parent);
}
