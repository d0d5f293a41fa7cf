/* SPDX-License-Identifier: Apache-2.0 */
#include "imaging/archive.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>

#include "base/fd.h"
#include "base/tree.h"

enum { MAX_FILES = 10000, MAX_HOPS = 5, NAME_SIZE = 256 };

struct archive_file {
	char name[NAME_SIZE];
	char *target; /* of a link, from the archive's root; NULL: it is file number `number` */
	unsigned number;
};

/* ---- what such an archive has */

static bool is_hex(const char *text, size_t n)
{
	return n == 64 && strspn(text, "0123456789abcdef") >= 64;
}

static bool belongs(const char *name)
{
	static const char *const exact[] = {"manifest.json", "index.json", "oci-layout",
					    "repositories",  "blobs",      "blobs/sha256",
					    "VERSION"};
	static const char *const behind_id[] = {"",         ".json",      ".tar",
						"/VERSION", "/layer.tar", "/json"};

	for (size_t i = 0; i < ARRAY_SIZE(exact); i++)
		if (strcmp(name, exact[i]) == 0)
			return true;
	if (strncmp(name, "blobs/sha256/", 13) == 0)
		return strlen(name + 13) == 64 && is_hex(name + 13, 64);
	if (strlen(name) < 64 || !is_hex(name, 64))
		return false;
	for (size_t i = 0; i < ARRAY_SIZE(behind_id); i++)
		if (strcmp(name + 64, behind_id[i]) == 0)
			return true;
	return false;
}

/* "ab/layer.tar" and "../cd/layer.tar": "cd/layer.tar". By text: a link names another entry, no file of ours. */
static char *link_target(const char *name, const char *target)
{
	size_t room = strlen(name) + strlen(target) + 2, n;
	char *out = malloc(room);

	if (!out)
		return NULL;
	n = (size_t)(strrchr(name, '/') ? strrchr(name, '/') - name : 0);
	memcpy(out, name, n);
	for (const char *p = target; *p;) {
		size_t part = strcspn(p, "/");

		if (part == 2 && memcmp(p, "..", 2) == 0) {
			while (n > 0 && out[--n] != '/')
				;
		} else if (part > 0 && !(part == 1 && *p == '.')) {
			if (n > 0)
				out[n++] = '/';
			memcpy(out + n, p, part);
			n += part;
		}
		p += part + (p[part] == '/');
	}
	out[n] = '\0';
	return out;
}

/* ---- taking it */

static struct archive_file *add_file(struct archive *a, const char *name, struct err *e)
{
	struct archive_file *f;

	if (a->count == MAX_FILES) {
		err_set(e, EFBIG, "an archive of images with more than %d files", MAX_FILES);
		return NULL;
	}
	if (a->count == a->room) {
		size_t room = a->room ? 2 * a->room : 64;
		void *more = realloc(a->files, room * sizeof *a->files);

		if (!more) {
			err_set(e, ENOMEM, "read an archive");
			return NULL;
		}
		a->files = more;
		a->room = room;
	}
	f = &a->files[a->count];
	*f = (struct archive_file){.number = (unsigned)a->count};
	memcpy(f->name, name, strlen(name) + 1);
	a->count++;
	return f;
}

static int take_head(struct archive *a, const struct entry_frame *entry, const char *name,
		     struct err *e)
{
	struct archive_file *f;
	char number[16];

	if (entry->head.kind == ENTRY_FOLDER)
		return 0;
	f = add_file(a, name, e);
	if (!f)
		return -1;
	if (entry->head.kind == ENTRY_SYMLINK || entry->head.kind == ENTRY_HARDLINK) {
		bool hard = entry->head.kind == ENTRY_HARDLINK;

		f->target = link_target(hard ? "" : name, entry->target);
		return f->target ? 0 : err_set(e, ENOMEM, "read an archive");
	}
	if (entry->head.kind != ENTRY_FILE)
		return err_set(e, 0, "%s: neither a file nor a link", name);
	snprintf(number, sizeof number, "%u", f->number);
	a->writing = openat(a->dir, number, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	a->written = 0;
	return a->writing < 0 ? err_set(e, errno, "create a file in %s", a->folder) : 0;
}

static int take(void *context, const struct entry_frame *entry, struct err *e)
{
	char name[ENTRY_PATH_MAX + 1];
	struct archive *a = context;
	int r;

	if (entry->type == ENTRY_FRAME_END)
		return 0;
	if (entry->type == ENTRY_FRAME_DATA) {
		if (a->writing < 0 || entry->offset != a->written)
			return err_set(e, 0, "an archive of images with holes");
		r = fd_write_all(a->writing, entry->data, entry->data_size);
		a->written += entry->data_size;
		return r < 0 ? err_set(e, -r, "unpack the archive") : 0;
	}
	fd_close(&a->writing);
	if (tree_path_clean(entry->path, name, e) < 0)
		return -1;
	if (!*name && entry->head.kind == ENTRY_FOLDER)
		return 0;
	return belongs(name) ? take_head(a, entry, name, e) : 1;
}

static bool has(const struct archive *a, const char *name)
{
	for (size_t i = 0; i < a->count; i++)
		if (strcmp(a->files[i].name, name) == 0)
			return true;
	return false;
}

static int make_folder(struct archive *a, struct err *e)
{
	uint64_t random;

	if (getrandom(&random, sizeof random, 0) != sizeof random)
		return err_set(e, errno, "get random bytes");
	snprintf(a->folder, sizeof a->folder, "tmp/in-%016" PRIx64, random);
	if (mkdirat(a->store->dir, a->folder, 0700) < 0)
		return err_set(e, errno, "make %s/%s", a->store->path, a->folder);
	a->dir = openat(a->store->dir, a->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return a->dir < 0 ? err_set(e, errno, "open %s/%s", a->store->path, a->folder) : 0;
}

int archive_scan(struct archive *a, const struct image_store *s, int fd, uint64_t size,
		 struct meter *meter, enum archive_kind *ret, struct err *e)
{
	int r;

	*a = (struct archive){.store = s, .dir = -1, .writing = -1};
	if (make_folder(a, e) < 0)
		return -1;
	meter_begin(meter, "reading the archive");
	r = archive_read_frames(fd, size, layer_bytes_for(size), false, meter, take, a, NULL, e);
	meter_end(meter);
	fd_close(&a->writing);
	if (r < 0)
		return -1;
	if (r == 0 && has(a, "manifest.json"))
		*ret = ARCHIVE_SAVED;
	else
		*ret = r == 0 && has(a, "index.json") ? ARCHIVE_LAYOUT : ARCHIVE_ROOTFS;
	return 0;
}

/* ---- giving it */

static int open_blob(void *context, const char *name, uint64_t *ret_size, struct err *e)
{
	char wanted[ENTRY_PATH_MAX + 1], number[16];
	struct archive *a = context;
	struct stat st;

	if (digest_is_valid(name))
		snprintf(wanted, sizeof wanted, "blobs/sha256/%s", name + strlen("sha256:"));
	else if (tree_path_clean(name, wanted, e) < 0)
		return -1;
	for (int hops = 0; hops < MAX_HOPS; hops++) {
		const struct archive_file *f = NULL;

		/* The last of a name counts, as when it is unpacked. */
		for (size_t i = 0; i < a->count; i++)
			if (strcmp(a->files[i].name, wanted) == 0)
				f = &a->files[i];
		if (!f)
			return err_set(e, ENOENT, "the archive has no %.100s", wanted);
		if (f->target) {
			snprintf(wanted, sizeof wanted, "%s", f->target);
			continue;
		}
		snprintf(number, sizeof number, "%u", f->number);
		_cleanup_close_ int fd = openat(a->dir, number, O_RDONLY | O_CLOEXEC);

		if (fd < 0 || fstat(fd, &st) < 0)
			return err_set(e, errno, "open %.100s of the archive", wanted);
		*ret_size = (uint64_t)st.st_size;
		return TAKE_FD(fd);
	}
	return err_set(e, ELOOP, "%.100s in the archive", name);
}

struct blobs archive_blobs(struct archive *a)
{
	return (struct blobs){open_blob, a};
}

void archive_done(struct archive *a)
{
	fd_close(&a->dir);
	fd_close(&a->writing);
	if (*a->folder)
		tree_remove(a->store->dir, a->folder);
	for (size_t i = 0; i < a->count; i++)
		free(a->files[i].target);
	free(a->files);
	*a = (struct archive){.dir = -1, .writing = -1};
}
