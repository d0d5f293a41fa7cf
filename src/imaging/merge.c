/* SPDX-License-Identifier: Apache-2.0 */
#include "imaging/merge.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#include "base/fd.h"
#include "base/tree.h"
#include "imaging/lowers.h"
#include "imaging/meter.h"
#include "imaging/writer.h"

/* One folder, in the layers that have it: uppermost first, down to one that hides what is below it. */
struct stack {
	int *fds; /* owned */
	size_t count;
};

struct merging {
	bool rootless;
};

static void stack_done(struct stack *s)
{
	for (size_t i = 0; i < s->count; i++)
		fd_close(&s->fds[i]);
	free(TAKE_PTR(s->fds));
	s->count = 0;
}
#define _cleanup_stack_ _cleanup_(stack_done)

static int stack_new(size_t room, struct stack *ret)
{
	*ret = (struct stack){.fds = calloc(room, sizeof *ret->fds)};
	return ret->fds ? 0 : -ENOMEM;
}

/* 1: what is below `fd` counts no more. */
static int stack_push(const struct merging *m, struct stack *s, int fd)
{
	s->fds[s->count++] = fd;
	return lowers_is_opaque(fd, m->rootless);
}

/* The folder `name` in layer `first` of a stack and in those below. */
static int stack_below(const struct merging *m, const struct stack *from, size_t first,
		       const char *name, struct stack *ret)
{
	int r = stack_new(from->count - first, ret);

	for (size_t i = first; r == 0 && i < from->count; i++) {
		int fd =
			openat(from->fds[i], name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

		if (fd >= 0)
			r = stack_push(m, ret, fd);
		else if (errno == ENOTDIR || errno == ELOOP)
			break; /* a file, or a whiteout: it hides what is below */
		else if (errno != ENOENT)
			r = -errno;
	}
	return r < 0 ? r : 0;
}

static int copy_attributes(int from, int to)
{
	_cleanup_free_ char *names = NULL, *value = NULL;
	ssize_t size = flistxattr(from, NULL, 0), n;

	if (size <= 0)
		return size == 0 || errno == EOPNOTSUPP ? 0 : -errno;
	names = malloc(XATTR_LIST_MAX);
	value = malloc(XATTR_SIZE_MAX);
	if (!names || !value)
		return -ENOMEM;
	size = flistxattr(from, names, XATTR_LIST_MAX);
	if (size < 0)
		return -errno;
	for (const char *name = names; name < names + size; name += strlen(name) + 1) {
		if (!tree_keeps_attribute(name))
			continue;
		n = fgetxattr(from, name, value, XATTR_SIZE_MAX);
		if (n < 0 || fsetxattr(to, name, value, (size_t)n, 0) < 0)
			return -errno;
	}
	return 0;
}

/* Last: each entry changed the time, and a mode may keep us out. */
static int copy_folder(const struct merging *m, int from, int to)
{
	struct timespec times[2];
	struct stat st;
	int r;

	if (fstat(from, &st) < 0 || (!m->rootless && fchown(to, st.st_uid, st.st_gid) < 0))
		return -errno;
	r = copy_attributes(from, to);
	times[0] = times[1] = st.st_mtim;
	if (r == 0 && (fchmod(to, st.st_mode & 01777) < 0 || futimens(to, times) < 0))
		r = -errno;
	return r;
}

static int merge(const struct merging *m, const struct stack *from, int to);

static int merge_folder(const struct merging *m, const struct stack *from, size_t first, int to,
			const char *name)
{
	_cleanup_stack_ struct stack below = {0};
	_cleanup_close_ int fd = -1;
	int r;

	if (mkdirat(to, name, 0700) < 0)
		return errno == EEXIST ? 0 : -errno; /* of an upper layer */
	r = stack_below(m, from, first, name, &below);
	if (r < 0)
		return r;
	fd = openat(to, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	r = merge(m, &below, fd);
	return r < 0 ? r : copy_folder(m, below.fds[0], fd);
}

/* Whiteouts are made like all else, so that what they hide finds its name taken; afterwards they go. */
static int merge_entry(const struct merging *m, const struct stack *from, size_t i, int to,
		       const char *name, size_t *whiteouts)
{
	struct stat st;

	if (fstatat(from->fds[i], name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	if (S_ISDIR(st.st_mode))
		return merge_folder(m, from, i, to, name);
	if (lowers_is_whiteout(&st)) {
		if (mknodat(to, name, S_IFCHR, 0) == 0)
			(*whiteouts)++;
		else if (errno != EEXIST)
			return -errno;
		return 0;
	}
	if (linkat(from->fds[i], name, to, name, 0) < 0 && errno != EEXIST)
		return -errno;
	return 0;
}

/* A folder's entries, one after the other; what each() says other than 0 ends it. The descriptor stays the caller's. */
static int for_entries(int folder, int (*each)(void *context, const char *name), void *context)
{
	int fd = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), r = 0;
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *entry;

	if (!d) {
		r = -errno;
		fd_close(&fd);
		return r;
	}
	while (r == 0 && (errno = 0, entry = readdir(d)))
		if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
			r = each(context, entry->d_name);
	if (r == 0)
		r = -errno;
	closedir(d);
	return r;
}

struct step {
	const struct merging *m;
	const struct stack *from;
	size_t layer, whiteouts;
	int to;
};

static int merge_one(void *context, const char *name)
{
	struct step *s = context;

	if (is_cancelled())
		return -ECANCELED;
	return merge_entry(s->m, s->from, s->layer, s->to, name, &s->whiteouts);
}

static int drop_whiteout(void *context, const char *name)
{
	struct step *s = context;
	struct stat st;

	if (fstatat(s->to, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	if (lowers_is_whiteout(&st) && unlinkat(s->to, name, 0) < 0)
		return -errno;
	return 0;
}

/* As deep as the layers are: TREE_MAX_LEVELS. */
static int merge(const struct merging *m, const struct stack *from, int to)
{
	struct step s = {.m = m, .from = from, .to = to};
	int r = 0;

	for (s.layer = 0; r == 0 && s.layer < from->count; s.layer++)
		r = for_entries(from->fds[s.layer], merge_one, &s);
	if (r == 0 && s.whiteouts > 0)
		r = for_entries(to, drop_whiteout, &s);
	return r;
}

static int merge_all(const struct image_store *s, const struct image_record *record, int to)
{
	const struct merging m = {s->rootless};
	_cleanup_close_ int all = openat(s->dir, "l", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	_cleanup_stack_ struct stack layers = {0};
	int r = all < 0 ? -errno : stack_new(record->layer_count, &layers);

	for (size_t i = record->layer_count; r == 0 && i-- > 0;) {
		int fd = openat(all, record->layers[i].name,
				O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

		if (fd < 0)
			return -errno;
		if (stack_push(&m, &layers, fd))
			break;
	}
	if (r == 0)
		r = merge(&m, &layers, to);
	return r < 0 ? r : fchmod(to, 0755) < 0 ? -errno : 0;
}

/* A layer that hides all below it. Overlayfs does not look at the roots of its layers for that: the folder leaves them out. */
static bool hides_all_below(const struct image_store *s, const struct image_record *record)
{
	_cleanup_close_ int all = openat(s->dir, "l", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	for (size_t i = 1; i < record->layer_count; i++) {
		_cleanup_close_ int fd = openat(all, record->layers[i].name,
						O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

		if (fd >= 0 && lowers_is_opaque(fd, s->rootless))
			return true;
	}
	return false;
}

/* What it is kept under: no layer's digest. */
static int name_merged(const struct image_record *record, char hex[LAYER_HEX], struct err *e)
{
	char text[LAYER_HEX + 8];
	int n;

	if (keeper_layers_hash(record, hex, e) < 0)
		return -1;
	n = snprintf(text, sizeof text, "merged %s", hex);
	hash_text(text, (size_t)n, hex);
	return 0;
}

/* Too many links to one file, or open folders; a file system without links; links that may not be made. */
static bool cannot_be(int r)
{
	return r == -EMLINK || r == -EMFILE || r == -ENFILE || r == -EXDEV || r == -EPERM ||
	       r == -EACCES || r == -EOPNOTSUPP;
}

static int make(const struct image_store *s, const struct image_record *record, const char *hex,
		struct kept_layer *kept, struct err *e)
{
	char folder[LAYER_HEX + 8];
	_cleanup_close_ int to = -1;
	int r;

	snprintf(folder, sizeof folder, "tmp/%s", hex);
	r = tree_remove(s->dir, folder); /* of somebody who was killed */
	if (r == 0 && mkdirat(s->dir, folder, 0700) < 0)
		r = -errno;
	if (r == 0) {
		to = openat(s->dir, folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		r = to < 0 ? -errno : merge_all(s, record, to);
	}
	if (r == 0 && keeper_layer_commit(s, strchr(folder, '/') + 1, hex, kept, e) == 0)
		return 0;
	tree_remove(s->dir, folder);
	if (cannot_be(r))
		return 1;
	if (r == -ECANCELED)
		return err_set(e, ECANCELED, "interrupted");
	return r < 0 ? err_set(e, -r, "make one folder of %zu layers in %s/%s", record->layer_count,
			       s->path, folder)
		     : -1;
}

int merge_layers(const struct image_store *s, struct image_record *record,
		 void (*busy)(void *context), void *context, struct err *e)
{
	_cleanup_close_ int lock = -1;
	struct kept_layer kept = {0};
	char hex[LAYER_HEX];
	bool needed = hides_all_below(s, record);
	int r;

	if (record->layer_count < MERGE_LAYERS_MIN && !needed)
		return 0;
	if (name_merged(record, hex, e) < 0)
		return -1;
	lock = keeper_layer_lock(s, hex, busy, context, e);
	if (lock < 0)
		return -1;
	r = keeper_layer_find(s, hex, &kept, e);
	if (r == 1)
		r = make(s, record, hex, &kept, e);
	if (r == 0)
		memcpy(record->merged, kept.name, sizeof record->merged);
	if (r > 0 && needed)
		return err_set(
			e, 0,
			"a layer hides all below it, and the layers cannot be made one folder in %s: "
			"keep images on a file system with hard links",
			s->path);
	return r < 0 ? -1 : 0;
}
