/* SPDX-License-Identifier: Apache-2.0 */
#include "imaging/rootfs.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <openssl/evp.h>
#include <search.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#include "base/fd.h"
#include "base/tree.h"

#define PIECE (128u << 10)

/* Where a file with several names was met first. */
struct first_name {
	ino_t inode;
	char path[];
};

struct walk {
	struct tree_writer *writer;
	struct meter *meter;
	EVP_MD_CTX *hash;
	void *names; /* tree of struct first_name */
	dev_t device;
	char path[ENTRY_PATH_MAX + 1];
	char target[ENTRY_PATH_MAX + 1];
	char xattrs[ENTRY_XATTRS_MAX];
	char piece[PIECE];
};

static int by_inode(const void *a, const void *b)
{
	const struct first_name *x = a, *y = b;

	return (x->inode > y->inode) - (x->inode < y->inode);
}

/* Hash a frame's parts and hand it on. */
static int give(struct walk *k, const struct entry_frame *entry, struct err *e)
{
	if (entry->type == ENTRY_FRAME_HEAD) {
		EVP_DigestUpdate(k->hash, &entry->head, sizeof entry->head);
		EVP_DigestUpdate(k->hash, entry->path, entry->head.path_size);
		EVP_DigestUpdate(k->hash, entry->target, entry->head.target_size);
		EVP_DigestUpdate(k->hash, entry->xattrs, entry->head.xattrs_size);
	} else {
		EVP_DigestUpdate(k->hash, &entry->offset, sizeof entry->offset);
		EVP_DigestUpdate(k->hash, entry->data, entry->data_size);
	}
	meter_step(k->meter, tree_writer_bytes(k->writer), 0);
	if (is_cancelled())
		return err_set(e, ECANCELED, "interrupted");
	return tree_writer_take(k->writer, entry, e);
}

static int read_xattrs(struct walk *k, int fd, struct entry_wire *w, struct err *e)
{
	char names[4096];
	ssize_t n = flistxattr(fd, names, sizeof names);

	for (char *name = names; n > 0 && name < names + n; name += strlen(name) + 1) {
		char *at = k->xattrs + w->xattrs_size;
		size_t head = strlen(name) + 1 + sizeof(uint32_t);
		uint32_t length;
		ssize_t size;

		if (strncmp(name, "user.", 5) != 0)
			continue; /* the writer would leave it out */
		if (w->xattrs_size + head > sizeof k->xattrs)
			return err_set(e, EFBIG, "%s: its extended attributes", k->path);
		size = fgetxattr(fd, name, at + head, sizeof k->xattrs - w->xattrs_size - head);
		if (size < 0)
			return err_set(e, errno, "%s: read the attribute %.100s", k->path, name);
		length = (uint32_t)size;
		memcpy(at, name, strlen(name) + 1);
		memcpy(at + strlen(name) + 1, &length, sizeof length);
		w->xattrs_size += (uint32_t)head + length;
	}
	return 0;
}

static int give_content(struct walk *k, int fd, uint64_t size, struct err *e)
{
	uint64_t offset = 0;

	while (offset < size) {
		size_t want = size - offset < PIECE ? (size_t)(size - offset) : PIECE;
		ssize_t n = pread(fd, k->piece, want, (off_t)offset);
		struct entry_frame data = {.type = ENTRY_FRAME_DATA,
					   .offset = offset,
					   .data = k->piece,
					   .data_size = n > 0 ? (size_t)n : 0};

		if (n < 0)
			return err_set(e, errno, "read %s", k->path);
		if (n == 0)
			return err_set(e, 0, "%s became shorter while it was read", k->path);
		/* Zeros stay a hole where they fill a piece. */
		if ((*k->piece || memcmp(k->piece, k->piece + 1, (size_t)n - 1) != 0) &&
		    give(k, &data, e) < 0)
			return -1;
		offset += (uint64_t)n;
	}
	return 0;
}

/* 1: it was met before, under the name now in k->target. */
static int met_before(struct walk *k, const struct stat *st, struct err *e)
{
	size_t n = strlen(k->path) + 1;
	struct first_name *name = malloc(sizeof *name + n);
	struct first_name **found;

	if (!name)
		return err_set(e, ENOMEM, "remember %s", k->path);
	name->inode = st->st_ino;
	memcpy(name->path, k->path, n);
	found = tsearch(name, &k->names, by_inode);
	if (found && *found == name)
		return 0;
	free(name);
	if (!found)
		return err_set(e, ENOMEM, "remember %s", k->path);
	memcpy(k->target, (*found)->path, strlen((*found)->path) + 1);
	return 1;
}

static int give_file(struct walk *k, int dir, const char *name, struct entry_frame *head,
		     struct err *e)
{
	_cleanup_close_ int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
		return err_set(e, errno, "open %s", k->path);
	head->head.kind = ENTRY_FILE;
	head->head.size = (uint64_t)st.st_size;
	if (read_xattrs(k, fd, &head->head, e) < 0 || give(k, head, e) < 0)
		return -1;
	return give_content(k, fd, head->head.size, e);
}

static int walk_folder(struct walk *k, int dir, int depth, struct err *e);

static int give_folder(struct walk *k, int dir, const char *name, struct entry_frame *head,
		       const struct stat *st, int depth, struct err *e)
{
	_cleanup_close_ int fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	if (fd < 0)
		return err_set(e, errno, "open %s", k->path);
	head->head.kind = ENTRY_FOLDER;
	if (read_xattrs(k, fd, &head->head, e) < 0 || give(k, head, e) < 0)
		return -1;
	return st->st_dev == k->device ? walk_folder(k, fd, depth + 1, e) : 0;
}

static int give_entry(struct walk *k, int dir, const char *name, int depth, struct err *e)
{
	struct entry_frame head = {.type = ENTRY_FRAME_HEAD,
				   .path = k->path,
				   .target = k->target,
				   .xattrs = k->xattrs};
	struct entry_wire *w = &head.head;
	struct stat st;
	int r = 0;

	*k->target = '\0';
	if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return err_set(e, errno, "look at %s", k->path);
	*w = (struct entry_wire){.mode = st.st_mode & 07777,
				 .uid = st.st_uid,
				 .gid = st.st_gid,
				 .mtime = st.st_mtim.tv_sec,
				 .mtime_ns = (uint32_t)st.st_mtim.tv_nsec,
				 .path_size = (uint32_t)strlen(k->path)};
	if (S_ISDIR(st.st_mode))
		return give_folder(k, dir, name, &head, &st, depth, e);
	if (st.st_nlink > 1)
		r = met_before(k, &st, e);
	if (r < 0)
		return -1;
	if (r == 0 && S_ISREG(st.st_mode))
		return give_file(k, dir, name, &head, e);
	if (r == 1) {
		w->kind = ENTRY_HARDLINK;
	} else if (S_ISLNK(st.st_mode)) {
		ssize_t n = readlinkat(dir, name, k->target, sizeof k->target - 1);

		if (n < 0)
			return err_set(e, errno, "read the link %s", k->path);
		k->target[n] = '\0';
		w->kind = ENTRY_SYMLINK;
	} else {
		w->kind = S_ISFIFO(st.st_mode)   ? ENTRY_FIFO
			  : S_ISSOCK(st.st_mode) ? ENTRY_OTHER
						 : ENTRY_DEVICE;
	}
	w->target_size = (uint32_t)strlen(k->target);
	return give(k, &head, e);
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
	return strcmp((*a)->d_name, (*b)->d_name);
}

static int walk_folder(struct walk *k, int dir, int depth, struct err *e)
{
	size_t before = strlen(k->path);
	struct dirent **list = NULL;
	int n, r = 0;

	if (depth > TREE_MAX_LEVELS)
		return err_set(e, ELOOP, "%.100s...: more than %d levels deep", k->path,
			       TREE_MAX_LEVELS);
	n = scandirat(dir, ".", &list, NULL, by_name);
	if (n < 0)
		return err_set(e, errno, "list %s", k->path);
	for (int i = 0; i < n; i++) {
		const char *name = list[i]->d_name;

		if (r == 0 && strcmp(name, ".") != 0 && strcmp(name, "..") != 0) {
			if (before + strlen(name) + 2 > sizeof k->path)
				r = err_set(e, ENAMETOOLONG, "%.100s", k->path);
			else
				snprintf(k->path + before, sizeof k->path - before, "%s%s",
					 before ? "/" : "", name);
			if (r == 0)
				r = give_entry(k, dir, name, depth, e);
			k->path[before] = '\0';
		}
		free(list[i]);
	}
	free(list);
	return r;
}

static int walk(int folder, int dir, bool rootless, struct meter *meter, struct tree_notes *notes,
		struct kept_layer *kept, char hex[LAYER_HEX], struct err *e)
{
	const struct tree_limits limits = {LAYER_MAX_BYTES, LAYER_MAX_ENTRIES};
	_cleanup_(cleanup_tree_writer) struct tree_writer *writer =
		tree_writer_new(dir, rootless, &limits, -1, NULL, 0, e);
	struct walk *k = calloc(1, sizeof *k);
	unsigned char hash[32];
	struct stat st;
	int r = -1;

	if (!k)
		err_set(e, ENOMEM, "read a folder");
	if (!k || !writer || fstat(folder, &st) < 0) {
		free(k);
		return -1;
	}
	k->writer = writer;
	k->meter = meter;
	k->device = st.st_dev;
	k->hash = EVP_MD_CTX_new();
	if (!k->hash || EVP_DigestInit_ex2(k->hash, EVP_sha256(), NULL) != 1)
		err_set(e, ENOMEM, "SHA-256");
	else
		r = walk_folder(k, folder, 1, e);
	if (r == 0)
		r = tree_writer_finish(writer, e);
	if (r == 0 && EVP_DigestFinal_ex(k->hash, hash, NULL) != 1)
		r = err_set(e, 0, "SHA-256");
	if (r == 0)
		hash_to_hex(hash, hex);
	EVP_MD_CTX_free(k->hash);
	tdestroy(k->names, free);
	free(k);
	kept->bytes = tree_writer_bytes(writer);
	kept->entries = tree_writer_entries(writer);
	*notes = tree_writer_notes(writer);
	return r;
}

int rootfs_have(const struct image_store *s, int folder, struct meter *meter,
		struct tree_notes *notes, struct record_layer *ret, struct err *e)
{
	_cleanup_close_ int dir = -1, lock = -1;
	char own[40], hex[LAYER_HEX] = "";
	struct kept_layer kept = {0};
	uint64_t random;
	int r;

	if (getrandom(&random, sizeof random, 0) != sizeof random)
		return err_set(e, errno, "get random bytes");
	snprintf(own, sizeof own, "tmp/dir-%016" PRIx64, random);
	if (mkdirat(s->dir, own, 0700) < 0)
		return err_set(e, errno, "make %s/%s", s->path, own);
	dir = openat(s->dir, own, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	r = dir < 0 ? err_set(e, errno, "open %s/%s", s->path, own)
		    : walk(folder, dir, s->rootless, meter, notes, &kept, hex, e);
	meter_end(meter);
	if (r == 0) {
		lock = keeper_layer_lock(s, hex, NULL, NULL, e);
		snprintf(ret->digest, sizeof ret->digest, "sha256:%.64s", hex);
		r = lock < 0 ? -1 : layer_look_up(s, ret->digest, NULL, 0, ret, e);
		if (r == 1)
			r = keeper_layer_commit(s, own + strlen("tmp/"), hex, &kept, e);
	}
	tree_remove(s->dir, own); /* there only if something failed, or it was known */
	if (r == 0)
		r = layer_look_up(s, ret->digest, NULL, 0, ret, e);
	return r == 1 ? err_set(e, 0, "layer %.19s has vanished", ret->digest) : r;
}
