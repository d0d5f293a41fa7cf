/* SPDX-License-Identifier: Apache-2.0 */
#include "imaging/writer.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/xattr.h>

#include "base/tree.h"
#include "imaging/folders.h"
#include "imaging/lowers.h"

#define WHITEOUT  ".wh."
#define OPAQUE    ".wh..wh..opq"
#define RESERVED  ".wh..wh."
#define IMPLICIT  0755
#define KEPT_MODE 01777u /* no set-id bits */

struct tree_writer {
	int dir;
	bool rootless, has_gaps;
	struct tree_limits limits;
	struct lowers lowers;
	struct tree_notes notes;
	uint64_t bytes, entries;
	struct folder_list folders; /* whose times, and rootless modes, are set at the end */
	/* the folder of the last entry */
	int parent;
	char parent_path[ENTRY_PATH_MAX + 1];
	/* the file that is being written */
	int file;
	uint64_t written, size;
	struct timespec mtime;
	char path[ENTRY_PATH_MAX + 1];
};

int tree_path_clean(const char *path, char ret[ENTRY_PATH_MAX + 1], struct err *e)
{
	size_t n = 0;
	int levels = 0;

	if (*path == '/')
		return err_set(e, 0, "%.200s: an absolute name", path);
	for (const char *p = path; *p;) {
		size_t part = strcspn(p, "/");

		if (part == 2 && memcmp(p, "..", 2) == 0)
			return err_set(e, 0, "%.200s: a name with \"..\"", path);
		if (part > 255)
			return err_set(e, 0, "%.100s...: a part of %zu bytes", path, part);
		if (part > 0 && !(part == 1 && *p == '.')) {
			if (++levels > TREE_MAX_LEVELS)
				return err_set(e, 0, "%.100s...: more than %d levels deep", path,
					       TREE_MAX_LEVELS);
			if (n > 0)
				ret[n++] = '/';
			memcpy(ret + n, p, part);
			n += part;
		}
		p += part + (p[part] == '/');
	}
	ret[n] = '\0';
	return 0;
}

static int open_by(int dir, const char *path, int flags, uint64_t resolve)
{
	struct open_how how = {
		.flags = (uint64_t)(flags | O_CLOEXEC),
		.resolve = resolve | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_XDEV,
	};
	int fd;

	do
		fd = (int)syscall(SYS_openat2, dir, *path ? path : ".", &how, sizeof how);
	while (fd < 0 && (errno == EINTR || errno == EAGAIN));
	return fd;
}

static int open_inside(int dir, const char *path, int flags)
{
	return open_by(dir, path, flags, RESOLVE_IN_ROOT);
}

static int set_opaque(struct tree_writer *w, int folder, const char *path, struct err *e)
{
	if (fsetxattr(folder, w->rootless ? "user.overlay.opaque" : "trusted.overlay.opaque", "y",
		      1, 0) < 0)
		return err_set(e, errno, "%s: mark it as opaque (an attribute of overlayfs)", path);
	return 0;
}

/* ---- folders on the way */

/* A folder that the archive only implies: as the layers below have it. */
static int make_implied(struct tree_writer *w, int parent, const char *name, const char *path,
			bool opaque, struct err *e)
{
	_cleanup_close_ int fd = -1;
	struct stat st = {.st_mode = S_IFDIR | IMPLICIT, .st_mtim = w->mtime};

	w->has_gaps = true;
	if (mkdirat(parent, name, 0700) < 0)
		return err_set(e, errno, "make the folder %s", path);
	fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return err_set(e, errno, "open the folder %s", path);
	if (!opaque)
		lowers_look(&w->lowers, path, &st);
	if ((!w->rootless && fchown(fd, st.st_uid, st.st_gid) < 0) ||
	    fchmod(fd, (st.st_mode & KEPT_MODE) | (w->rootless ? 0700 : 0)) < 0)
		return err_set(e, errno, "set owner and mode of %s", path);
	if (opaque && set_opaque(w, fd, path, e) < 0)
		return -1;
	return folder_list_add(&w->folders, path, st.st_mode & KEPT_MODE, st.st_mtim, e);
}

/* Every folder of path, one after the other. */
static int make_parents(struct tree_writer *w, char *path, struct err *e)
{
	_cleanup_close_ int at = open_inside(w->dir, "", O_PATH | O_DIRECTORY);

	for (char *p = path; at >= 0 && *p;) {
		size_t part = strcspn(p, "/");
		char kept = p[part];
		struct stat st;
		bool opaque = false;
		int next, r = 0;

		p[part] = '\0';
		next = open_inside(w->dir, path, O_PATH | O_DIRECTORY);
		if (next < 0 && errno == ENOTDIR && fstatat(at, p, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
		    lowers_is_whiteout(&st)) {
			opaque = unlinkat(at, p, 0) == 0;
			errno = ENOENT;
		}
		if (next < 0 && errno == ENOENT) {
			r = make_implied(w, at, p, path, opaque, e);
			if (r == 0)
				next = open_inside(w->dir, path, O_PATH | O_DIRECTORY);
		}
		if (r == 0 && next < 0)
			r = err_set(e, errno, "open the folder %s", path);
		p[part] = kept;
		p += part + (kept == '/');
		fd_close(&at);
		at = next;
		if (r < 0)
			return -1;
	}
	return at < 0 ? err_set(e, errno, "open the layer") : 0;
}

/* The folder that path's last component is in; *ret_name is that component. */
static int open_parent(struct tree_writer *w, const char *path, const char **ret_name,
		       struct err *e)
{
	const char *slash = strrchr(path, '/');
	size_t n = slash ? (size_t)(slash - path) : 0;
	char parent[ENTRY_PATH_MAX + 1];

	*ret_name = slash ? slash + 1 : path;
	if (w->parent >= 0 && strlen(w->parent_path) == n && memcmp(w->parent_path, path, n) == 0)
		return 0;
	fd_close(&w->parent);
	memcpy(parent, path, n);
	parent[n] = '\0';
	w->parent = open_inside(w->dir, parent, O_PATH | O_DIRECTORY);
	if (w->parent < 0 && (errno == ENOENT || errno == ENOTDIR)) {
		if (make_parents(w, parent, e) < 0)
			return -1;
		w->parent = open_inside(w->dir, parent, O_PATH | O_DIRECTORY);
	}
	if (w->parent < 0)
		return err_set(e, errno, "open the folder %s", parent);
	memcpy(w->parent_path, parent, n + 1);
	return 0;
}

/* What is there gives way. */
static int clear(struct tree_writer *w, const char *name, const char *path, struct err *e)
{
	int r = tree_remove(w->parent, name);

	return r < 0 ? err_set(e, -r, "replace %s", path) : 0;
}

/* ---- attributes */

bool tree_keeps_attribute(const char *name)
{
	return strncmp(name, "user.", 5) == 0 && strncmp(name, "user.overlay.", 13) != 0;
}

static int set_attributes(struct tree_writer *w, int fd, const struct entry_frame *entry,
			  struct err *e)
{
	size_t position = 0;
	const char *name;
	const void *value;
	uint32_t size;

	while (entry_next_xattr(entry, &position, &name, &value, &size)) {
		if (!tree_keeps_attribute(name)) {
			w->notes.attributes++;
			continue;
		}
		if (fsetxattr(fd, name, value, size, 0) == 0)
			continue;
		if (errno != EOPNOTSUPP)
			return err_set(e, errno, "%s: set the attribute %.100s", w->path, name);
		w->notes.attributes++; /* a file system without them */
	}
	return 0;
}

/* chown takes set-id bits away and so comes first. */
static int set_owner(struct tree_writer *w, int fd, const struct entry_wire *h, unsigned mode,
		     struct err *e)
{
	if (!w->rootless && fchown(fd, (uid_t)h->uid, (gid_t)h->gid) < 0)
		return err_set(e, errno, "%s: set the owner", w->path);
	if (fchmod(fd, mode) < 0)
		return err_set(e, errno, "%s: set the mode", w->path);
	return 0;
}

/* ---- kinds of entries */

static int add_folder(struct tree_writer *w, const char *name, const struct entry_frame *entry,
		      struct err *e)
{
	const struct entry_wire *h = &entry->head;
	unsigned mode = h->mode & KEPT_MODE;
	_cleanup_close_ int fd = -1;
	bool opaque = false;
	struct stat st;

	if (mkdirat(w->parent, name, 0700) < 0) {
		if (errno != EEXIST || fstatat(w->parent, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
			return err_set(e, errno, "make the folder %s", w->path);
		if (!S_ISDIR(st.st_mode)) {
			opaque = true; /* what it replaces hides what is below */
			if (clear(w, name, w->path, e) < 0)
				return -1;
			if (mkdirat(w->parent, name, 0700) < 0)
				return err_set(e, errno, "make the folder %s", w->path);
		}
	}
	fd = openat(w->parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return err_set(e, errno, "open the folder %s", w->path);
	if (set_owner(w, fd, h, w->rootless ? mode | 0700 : mode, e) < 0 ||
	    set_attributes(w, fd, entry, e) < 0 || (opaque && set_opaque(w, fd, w->path, e) < 0))
		return -1;
	return folder_list_add(&w->folders, w->path, mode, w->mtime, e);
}

static int add_file(struct tree_writer *w, const char *name, const struct entry_frame *entry,
		    struct err *e)
{
	const int flags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;

	w->file = openat(w->parent, name, flags, 0600);
	if (w->file < 0 && errno == EEXIST) {
		if (clear(w, name, w->path, e) < 0)
			return -1;
		w->file = openat(w->parent, name, flags, 0600);
	}
	if (w->file < 0)
		return err_set(e, errno, "create %s", w->path);
	w->size = entry->head.size;
	w->written = 0;
	if (set_attributes(w, w->file, entry, e) < 0)
		return -1;
	return set_owner(w, w->file, &entry->head, entry->head.mode & KEPT_MODE, e);
}

/* Links, pipes and whiteouts: made by name, with what is there out of the way. */
static int add_node(struct tree_writer *w, const char *name, const struct entry_frame *entry,
		    struct err *e)
{
	const struct entry_wire *h = &entry->head;
	const struct timespec times[2] = {w->mtime, w->mtime};
	int r = -1;

	for (int tries = 0; tries < 2 && r < 0; tries++) {
		if (tries > 0 && clear(w, name, w->path, e) < 0)
			return -1;
		r = h->kind == ENTRY_SYMLINK ? symlinkat(entry->target, w->parent, name)
					     : mkfifoat(w->parent, name, 0600);
		if (r < 0 && errno != EEXIST)
			break;
	}
	if (r < 0)
		return err_set(e, errno, "make %s", w->path);
	if (!w->rootless &&
	    fchownat(w->parent, name, (uid_t)h->uid, (gid_t)h->gid, AT_SYMLINK_NOFOLLOW) < 0)
		return err_set(e, errno, "%s: set the owner", w->path);
	if (h->kind == ENTRY_FIFO && fchmodat(w->parent, name, h->mode & KEPT_MODE, 0) < 0)
		return err_set(e, errno, "%s: set the mode", w->path);
	if (utimensat(w->parent, name, times, AT_SYMLINK_NOFOLLOW) < 0)
		return err_set(e, errno, "%s: set the time", w->path);
	return 0;
}

static int add_hardlink(struct tree_writer *w, const char *name, const struct entry_frame *entry,
			struct err *e)
{
	char target[ENTRY_PATH_MAX + 1], *slash;
	_cleanup_close_ int folder = -1;
	const char *last;
	struct stat st;

	if (tree_path_clean(entry->target, target, e) < 0)
		return err_prefix(e, "%s: a hard link", w->path);
	slash = strrchr(target, '/');
	if (slash)
		*slash = '\0';
	last = slash ? slash + 1 : target;
	folder = open_inside(w->dir, slash ? target : "", O_PATH | O_DIRECTORY);
	if (folder < 0 || !*last || fstatat(folder, last, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
	    S_ISDIR(st.st_mode) || lowers_is_whiteout(&st))
		return err_set(e, 0, "%s: a hard link to %.200s, which this layer does not have",
			       w->path, entry->target);
	if (linkat(folder, last, w->parent, name, 0) == 0)
		return 0;
	if (errno == EEXIST) {
		struct stat there;

		/* to itself, or what is there already */
		if (fstatat(w->parent, name, &there, AT_SYMLINK_NOFOLLOW) == 0 &&
		    there.st_ino == st.st_ino)
			return 0;
		if (clear(w, name, w->path, e) < 0)
			return -1;
		if (linkat(folder, last, w->parent, name, 0) == 0)
			return 0;
	}
	return err_set(e, errno, "link %s to %.200s", w->path, entry->target);
}

/* A whiteout is for what lower layers have: what this one has under that name stays, and is all there is. */
static int add_whiteout(struct tree_writer *w, const char *name, struct err *e)
{
	const char *hidden = name + strlen(WHITEOUT);
	_cleanup_close_ int fd = -1;

	if (strcmp(name, OPAQUE) == 0) {
		fd = openat(w->parent, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		if (fd < 0)
			return err_set(e, errno, "open the folder of %s", w->path);
		return set_opaque(w, fd, w->path, e);
	}
	if (strncmp(name, RESERVED, strlen(RESERVED)) == 0)
		return 0; /* of aufs */
	if (!*hidden || strcmp(hidden, ".") == 0 || strcmp(hidden, "..") == 0)
		return err_set(e, 0, "%s: a whiteout of nothing", w->path);
	if (mknodat(w->parent, hidden, S_IFCHR, 0) == 0)
		return 0;
	if (errno != EEXIST)
		return err_set(e, errno, "make a whiteout for %s", w->path);
	fd = openat(w->parent, hidden, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	return fd < 0 ? 0 : set_opaque(w, fd, w->path, e);
}

/* Layers that umoci makes have whiteouts for all that was in a folder that they replace by a link or a file. */
static bool is_below_no_folder(const struct tree_writer *w)
{
	const char *slash = strrchr(w->path, '/');
	char folder[ENTRY_PATH_MAX + 1];
	_cleanup_close_ int fd = -1;

	if (!slash)
		return false;
	memcpy(folder, w->path, (size_t)(slash - w->path));
	folder[slash - w->path] = '\0';
	fd = open_by(w->dir, folder, O_PATH | O_DIRECTORY | O_NOFOLLOW,
		     RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS);
	return fd < 0 && (errno == ENOTDIR || errno == ELOOP);
}

/* ---- from outside */

static int end_file(struct tree_writer *w, struct err *e)
{
	const struct timespec times[2] = {w->mtime, w->mtime};

	if (w->file < 0)
		return 0;
	/* A hole at its end, or nothing but a hole. */
	if (w->written < w->size && ftruncate(w->file, (off_t)w->size) < 0)
		return err_set(e, errno, "%s: make it %llu bytes long", w->path,
			       (unsigned long long)w->size);
	if (futimens(w->file, times) < 0)
		return err_set(e, errno, "%s: set the time", w->path);
	fd_close(&w->file);
	return 0;
}

static int take_data(struct tree_writer *w, const struct entry_frame *entry, struct err *e)
{
	uint64_t offset = entry->offset;
	const char *data = entry->data;
	size_t left = entry->data_size;

	if (w->file < 0 || offset < w->written || offset > w->size || left > w->size - offset)
		return err_set(e, 0, "%s: content that is not where it belongs", w->path);
	while (left > 0) {
		ssize_t n = pwrite(w->file, data, left, (off_t)offset);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return err_set(e, errno, "write %s", w->path);
		data += n;
		offset += (uint64_t)n;
		left -= (size_t)n;
	}
	w->written = offset;
	return 0;
}

static int count(struct tree_writer *w, const struct entry_wire *h, struct err *e)
{
	if (++w->entries > w->limits.entries)
		return err_set(e, EFBIG, "more than %llu files and folders in one layer",
			       (unsigned long long)w->limits.entries);
	if (h->size > w->limits.bytes - w->bytes)
		return err_set(e, EFBIG,
			       "%s: more than %llu bytes come out of this layer: a bomb, or larger "
			       "than allowed",
			       w->path, (unsigned long long)w->limits.bytes);
	w->bytes += h->size;
	if (h->uid >= UINT32_MAX || h->gid >= UINT32_MAX)
		return err_set(e, 0, "%s: an owner that no system has: %llu:%llu", w->path,
			       (unsigned long long)h->uid, (unsigned long long)h->gid);
	return 0;
}

static int add(struct tree_writer *w, const struct entry_frame *entry, struct err *e)
{
	const struct entry_wire *h = &entry->head;
	const char *slash = strrchr(w->path, '/'), *name = slash ? slash + 1 : w->path;
	bool hides = strncmp(name, WHITEOUT, strlen(WHITEOUT)) == 0;

	if (hides && is_below_no_folder(w))
		return 0; /* what is there instead hides it */
	if (open_parent(w, w->path, &name, e) < 0)
		return -1;
	if (hides)
		return add_whiteout(w, name, e);
	if (h->mode & ~KEPT_MODE && h->kind != ENTRY_SYMLINK)
		w->notes.set_ids++;
	switch (h->kind) {
	case ENTRY_FOLDER:
		return add_folder(w, name, entry, e);
	case ENTRY_FILE:
		return add_file(w, name, entry, e);
	case ENTRY_SYMLINK:
	case ENTRY_FIFO:
		return add_node(w, name, entry, e);
	case ENTRY_HARDLINK:
		return add_hardlink(w, name, entry, e);
	default:
		w->notes.devices++;
		return 0;
	}
}

int tree_writer_take(struct tree_writer *w, const struct entry_frame *entry, struct err *e)
{
	const struct entry_wire *h = &entry->head;

	if (entry->type == ENTRY_FRAME_DATA)
		return take_data(w, entry, e);
	if (end_file(w, e) < 0 || tree_path_clean(entry->path, w->path, e) < 0)
		return -1;
	w->mtime = (struct timespec){.tv_sec = h->mtime, .tv_nsec = h->mtime_ns};
	if (count(w, h, e) < 0)
		return -1;
	if (!*w->path) {
		if (h->kind != ENTRY_FOLDER)
			return err_set(e, 0, "an entry without a name");
		return 0; /* the folder itself */
	}
	return add(w, entry, e);
}

int tree_writer_finish(struct tree_writer *w, struct err *e)
{
	if (end_file(w, e) < 0)
		return -1;
	if (fchmod(w->dir, 0755) < 0)
		return err_set(e, errno, "set the mode of the layer");
	return folder_list_apply(&w->folders, w->dir, w->rootless, e);
}

struct tree_writer *tree_writer_new(int dir, bool rootless, const struct tree_limits *limits,
				    int lower_dir, const struct record_layer *lowers,
				    size_t lower_count, struct err *e)
{
	struct tree_writer *w = calloc(1, sizeof *w);

	if (!w) {
		err_set(e, ENOMEM, "unpack a layer");
		return NULL;
	}
	w->dir = dir;
	w->rootless = rootless;
	w->limits = *limits;
	w->lowers = (struct lowers){lower_dir, lowers, lower_count, rootless};
	w->parent = w->file = -1;
	return w;
}

void tree_writer_free(struct tree_writer *w)
{
	if (!w)
		return;
	fd_close(&w->parent);
	fd_close(&w->file);
	folder_list_done(&w->folders);
	free(w);
}

uint64_t tree_writer_bytes(const struct tree_writer *w)
{
	return w->bytes;
}

uint64_t tree_writer_entries(const struct tree_writer *w)
{
	return w->entries;
}

struct tree_notes tree_writer_notes(const struct tree_writer *w)
{
	return w->notes;
}

bool tree_writer_has_gaps(const struct tree_writer *w)
{
	return w->has_gaps;
}
