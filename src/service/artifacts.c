/* SPDX-License-Identifier: Apache-2.0 */
#include "service/artifacts.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd.h"
#include "native/collect.h"
#include "service/kept.h"
#include "service/problem.h"

/* What the command left behind may stop the worker that packs, or give it files without end: neither keeps
 * the sandbox alive beyond these. */
enum { MOST_LOOKED_AT = 200000, SILENCE_LIMIT_S = 10, LIMIT_S = 60 };
#define BAD_NAME    "control character in its name"
#define MOST_THROWN (4ull << 30)

/* The two places, in the order they are collected. */
static const char *const places[] = {"/output", "/workspace"};

struct collection {
	int dir;  /* the run's folder, -1 until something is kept */
	int file; /* the one being received, -1: its bytes are thrown away */
	size_t place;
	uint64_t left, file_left;
	size_t looked_at, names; /* names: bytes of all that were told */
	bool is_full;
	uint64_t thrown; /* bytes of what is not kept */
	uint64_t until_us;
	struct artifact *row; /* of the file being received */
};

static void next_place(struct run *r);

void artifacts_close(struct run *r)
{
	struct collection *c = r->collection;
	_cleanup_close_ int root = c && r->kept_bytes == 0 ? kept_open_root(r->service, false) : -1;

	if (!c)
		return;
	if (root >= 0)
		(void)unlinkat(root, r->result.id, AT_REMOVEDIR);
	fd_close(&c->dir);
	fd_close(&c->file);
	free(TAKE_PTR(r->collection));
}

static void done(struct run *r)
{
	if (r->talk)
		box_hang_up(r->box, TAKE_PTR(r->talk));
	artifacts_close(r);
	run_artifacts_done(r);
}

static int open_beneath(int dir, const char *path, int flags)
{
	struct open_how how = {
		.flags = (uint64_t)flags | O_CLOEXEC | O_NOFOLLOW,
		.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS,
	};

	return (int)syscall(SYS_openat2, dir, path, &how, sizeof how);
}

static int open_run(struct run *r)
{
	_cleanup_close_ int root = kept_open_root(r->service, true);

	if (root < 0)
		return -1;
	(void)mkdirat(root, r->result.id, 0700);
	return openat(root, r->result.id, O_PATH | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
}

/* Folders on the way are made, and counted; everything below dir is ours alone. */
static int create_beneath(int dir, const char *path, unsigned *ret_folders)
{
	char copy[4200];
	int fd = dup(dir);

	snprintf(copy, sizeof copy, "%s", path);
	for (char *p = copy, *slash; fd >= 0 && (slash = strchr(p, '/')); p = slash + 1) {
		int next;

		*slash = '\0';
		if (mkdirat(fd, p, 0700) == 0)
			++*ret_folders;
		next = openat(fd, p, O_PATH | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
		close(fd);
		fd = next;
		*slash = '/';
	}
	if (fd >= 0) {
		const char *slash = strrchr(copy, '/');
		int file = openat(fd, slash ? slash + 1 : copy,
				  O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);

		close(fd);
		return file;
	}
	return -1;
}

static struct artifact *add_row(struct run *r, const char *path, uint64_t size, const char *skipped)
{
	struct result *result = &r->result;
	struct artifact *more, *row;

	more = realloc(result->artifacts, (result->artifact_count + 1) * sizeof *more);
	if (!more)
		return NULL;
	result->artifacts = more;
	row = &more[result->artifact_count];
	*row = (struct artifact){strdup(path), skipped ? RESULT_UNKNOWN : size, skipped};
	if (!row->path)
		return NULL;
	result->artifact_count++;
	return row;
}

/* A file that there is no row for any more is not kept either: empty ones cost an inode each. */
static const char *why_not(const struct collection *c, const struct entry_record *entry,
			   const char *name)
{
	if (!artifact_name_is_safe(name))
		return BAD_NAME;
	if (S_ISLNK(entry->mode))
		return "symbolic link";
	if (!S_ISREG(entry->mode))
		return "not a regular file";
	if (entry->size_bytes > c->left)
		return "too large";
	return NULL;
}

static uint64_t blocks(uint64_t bytes)
{
	return (bytes + KEPT_BLOCK - 1) / KEPT_BLOCK * KEPT_BLOCK;
}

/* Taken from the quota first, with all folders that may have to be made. NULL, or why it is not kept. */
static const char *create(struct run *r, uint64_t size, const char *name)
{
	struct collection *c = r->collection;
	uint64_t folders = 0, cost, unused;
	const char *skipped = NULL;
	unsigned made = 0;

	for (const char *p = name; *p; p++)
		folders += *p == '/';
	cost = blocks(size ? size : 1) + folders * KEPT_BLOCK;
	if (!kept_take(r->service, r->owner, cost))
		return "no room for it in the quota of what is kept";
	c->file = create_beneath(c->dir, name, &made);
	if (c->file < 0)
		skipped = errno == EEXIST ? "another artifact has this name"
					  : "cannot be written to the output folder";
	unused = skipped ? cost - made * (uint64_t)KEPT_BLOCK : (folders - made) * KEPT_BLOCK;
	quota_keep_end(r->service->quotas, r->owner, unused);
	r->kept_bytes += cost - unused;
	r->keeping += cost - unused;
	return skipped;
}

/* A row for it, and its file unless it is skipped already; why it is skipped in the end, or NULL. */
static const char *tell(struct run *r, const char *name, uint64_t size, const char *skipped)
{
	struct collection *c = r->collection;

	c->row = NULL;
	if (c->is_full)
		return skipped;
	c->names += strlen(name) + 1;
	c->is_full =
		c->names > COLLECT_MAX_NAMES || r->result.artifact_count == COLLECT_MAX_TOLD - 1;
	if (c->is_full) /* the last word says that there was more */
		skipped = "too much: this and the rest was left out";
	if (!skipped)
		skipped = create(r, size, name);
	c->row = add_row(r, name, size, skipped);
	return skipped;
}

static void on_entry(struct run *r, const struct entry_record *entry, const char *name)
{
	struct collection *c = r->collection;
	const char *skipped;

	fd_close(&c->file);
	c->row = NULL;
	if (S_ISDIR(entry->mode) ||
	    !artifact_is_wanted(c->place == 0 ? NULL : &r->spec.artifacts, name))
		return;
	if (c->is_full)
		return;
	skipped = tell(r, name, entry->size_bytes, why_not(c, entry, name));
	if (c->row)
		c->row->executable = entry->mode & 0111;
	c->file_left = skipped ? 0 : entry->size_bytes;
	/* The worker sends it all the same: one that is larger than all that may be thrown away is the end. */
	if (skipped && S_ISREG(entry->mode) && entry->size_bytes > MOST_THROWN)
		c->thrown = UINT64_MAX;
	if (!skipped)
		c->left -= entry->size_bytes;
}

static bool on_skipped(struct run *r, const struct frame *f, const unsigned char *payload)
{
	const struct strings *globs = r->collection->place == 0 ? NULL : &r->spec.artifacts;
	const char *name;
	int errnum;

	if (skipped_decode(payload, f->size, &errnum, &name) < 0)
		return false;
	if (artifact_is_wanted(globs, name))
		(void)tell(r, name, 0, artifact_name_is_safe(name) ? "cannot be read" : BAD_NAME);
	return true;
}

static void on_bytes(struct run *r, const void *data, size_t size)
{
	struct collection *c = r->collection;

	if (c->file < 0) {
		c->thrown += size;
		return;
	}
	if (size > c->file_left || fd_write_all(c->file, data, size) < 0) {
		fd_close(&c->file);
		if (c->row) {
			c->row->skipped = "cannot be written to the output folder";
			c->row->size_bytes = RESULT_UNKNOWN;
		}
		r->result.artifacts_failed = true;
		return;
	}
	c->file_left -= size;
}

static bool is_too_much(const struct collection *c)
{
	return c->thrown > MOST_THROWN || now_us() >= c->until_us;
}

static void on_frame(struct talk *t, const struct frame *f, const unsigned char *payload)
{
	struct run *r = talk_data(t);
	struct entry_record entry;
	const char *name, *target;

	if (is_too_much(r->collection)) {
		r->result.artifacts_failed = true;
		done(r);
	} else if (f->type == FRAME_ENTRY && ++r->collection->looked_at <= MOST_LOOKED_AT &&
		   entry_record_decode(payload, f->size, ENTRY_BELOW, &entry, &name, &target) ==
			   0) {
		on_entry(r, &entry, name);
	} else if (f->type == FRAME_SKIPPED && ++r->collection->looked_at <= MOST_LOOKED_AT &&
		   on_skipped(r, f, payload)) {
		/* told */
	} else if (f->type == FRAME_DATA) {
		on_bytes(r, payload, f->size);
	} else if (f->type == FRAME_DONE) {
		box_hang_up(r->box, TAKE_PTR(r->talk));
		r->collection->place++;
		next_place(r);
	} else if (f->type != FRAME_EOF) {
		r->result.artifacts_failed = true;
		done(r);
	}
}

static void on_end(struct talk *t, int error)
{
	struct run *r = talk_data(t);

	(void)error;
	r->result.artifacts_failed = true;
	done(r);
}

static const struct talk_ops ops = {.on_frame = on_frame, .on_end = on_end};

static bool is_asked_for(const struct run *r, size_t place)
{
	return place == 0 ? r->output_folder : r->spec.artifacts.count > 0;
}

static void next_place(struct run *r)
{
	struct collection *c = r->collection;
	struct err e = {0};

	fd_close(&c->file);
	while (c->place < ARRAY_SIZE(places) && !is_asked_for(r, c->place))
		c->place++;
	if (c->place == ARRAY_SIZE(places)) {
		done(r);
		return;
	}
	r->talk = box_talk(r->box, &ops, r, &e);
	if (!r->talk) {
		r->result.artifacts_failed = true;
		done(r);
		return;
	}
	talk_limit(r->talk, SILENCE_LIMIT_S);
	talk_send(r->talk, FRAME_WALK, places[c->place], strlen(places[c->place]) + 1, NULL, 0);
}

void artifacts_begin(struct run *r)
{
	struct collection *c = calloc(1, sizeof *c);

	if (c) {
		*c = (struct collection){.dir = open_run(r),
					 .file = -1,
					 .left = r->service->config.artifact_bytes,
					 .until_us = now_us() + LIMIT_S * 1000000ull};
		r->collection = c;
	}
	if (!c || c->dir < 0) {
		r->result.artifacts_failed = true;
		done(r);
		return;
	}
	next_place(r);
}

int artifact_open(struct service *v, const char *run_id, const char *path, uint64_t *ret_size,
		  struct err *e)
{
	_cleanup_close_ int root = kept_open_root(v, false);
	_cleanup_close_ int dir = root < 0 ? -1 : open_beneath(root, run_id, O_PATH | O_DIRECTORY);
	_cleanup_close_ int fd = dir < 0 ? -1 : open_beneath(dir, path, O_RDONLY | O_NONBLOCK);
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
		return problem_set(e, PROBLEM_NOT_FOUND, "run %s has no artifact %.200s", run_id,
				   path);
	*ret_size = (uint64_t)st.st_size;
	return TAKE_FD(fd);
}
