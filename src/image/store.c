/* SPDX-License-Identifier: Apache-2.0 */
#include "image/store.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "base/fd.h"

static const struct {
	const char *name;
	mode_t root, user;
} folders[] = {
	{"refs", 0700, 0700},  {"images", 0700, 0700}, {"layers", 0700, 0700},
	{"locks", 0700, 0700}, {"l", 0711, 0711},      {"partial", 0700, 0700},
	{"tmp", 0700, 0700},   {"mnt", 0755, 0755},
};

/* The modes are what they say, whatever the umask. */
static int make_folders(int dir, bool rootless, struct err *e)
{
	if (fchmod(dir, rootless ? 0711 : 0700) < 0)
		return err_set(e, errno, "chmod the image store");
	for (size_t i = 0; i < ARRAY_SIZE(folders); i++) {
		mode_t mode = rootless ? folders[i].user : folders[i].root;

		if (mkdirat(dir, folders[i].name, mode) < 0) {
			if (errno == EEXIST)
				continue;
			return err_set(e, errno, "make %s in the image store", folders[i].name);
		}
		if (fchmodat(dir, folders[i].name, mode, 0) < 0)
			return err_set(e, errno, "chmod %s in the image store", folders[i].name);
	}
	return 0;
}

int image_store_open(const struct places *places, bool create, struct image_store *ret,
		     struct err *e)
{
	_cleanup_close_ int dir = -1;
	int r;

	*ret = (struct image_store){.dir = -1, .rootless = places->rootless};
	snprintf(ret->path, sizeof ret->path, "%s/images", places->state);
	if (create) {
		r = make_private_dirs(ret->path);
		if (r < 0)
			return err_set(e, -r, "make %s", ret->path);
	}
	dir = open(ret->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir < 0)
		return err_set(e, errno, "open the image store %s", ret->path);
	if (create && make_folders(dir, places->rootless, e) < 0)
		return err_prefix(e, "%s", ret->path);
	ret->dir = TAKE_FD(dir);
	return 0;
}

void image_store_done(struct image_store *s)
{
	fd_close(&s->dir);
}

int image_ref_name(const struct reference *r, char ret[REF_NAME_SIZE], struct err *e)
{
	char text[REFERENCE_TEXT];

	reference_format(r, text);
	if (strlen(text) >= REF_NAME_SIZE)
		return err_set(e, ENAMETOOLONG, "%.80s...: at most %d bytes with the registry",
			       text, REF_NAME_SIZE - 1);
	for (char *p = text; *p; p++)
		if (*p == '/')
			*p = '+';
	memcpy(ret, text, strlen(text) + 1);
	return 0;
}

static bool key_is_valid(const char *key)
{
	return strlen(key) == RECORD_KEY_SIZE - 1 && strspn(key, "0123456789abcdef") == 64 &&
	       key[64] == '-' && strspn(key + 65, "0123456789abcdef") == 32;
}

int image_ref_read(const struct image_store *s, const char *ref_name, char ret_key[RECORD_KEY_SIZE],
		   struct err *e)
{
	char path[REF_NAME_SIZE + 8], text[RECORD_KEY_SIZE + 2];
	ssize_t n;

	snprintf(path, sizeof path, "refs/%s", ref_name);
	n = fd_read_file(s->dir, path, text, sizeof text);
	if (n == -ENOENT)
		return 1;
	if (n < 0)
		return err_set(e, (int)-n, "read %s/%s", s->path, path);
	text[strcspn(text, "\n")] = '\0';
	if (!key_is_valid(text))
		return err_set(e, 0, "%s/%s is damaged: remove it and import the image again",
			       s->path, path);
	memcpy(ret_key, text, RECORD_KEY_SIZE);
	return 0;
}

int image_store_list(const struct image_store *s, const char *folder,
		     int (*each)(void *context, const char *name, struct err *e), void *context,
		     struct err *e)
{
	int fd = openat(s->dir, folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *entry;
	int r = 0;

	if (!d) {
		fd_close(&fd);
		return err_set(e, errno, "list %s/%s", s->path, folder);
	}
	while (r == 0 && (errno = 0, entry = readdir(d)))
		if (entry->d_name[0] != '.')
			r = each(context, entry->d_name, e);
	if (r == 0 && errno)
		r = err_set(e, errno, "list %s/%s", s->path, folder);
	closedir(d);
	return r;
}

int image_take(const struct image_store *s, const char *key, int *ret_lease,
	       struct image_record *ret, struct err *e)
{
	_cleanup_close_ int fd = -1;
	_cleanup_free_ char *text = NULL;
	char path[RECORD_KEY_SIZE + 8];
	struct stat st;
	size_t size;
	int r;

	snprintf(path, sizeof path, "images/%s", key);
	fd = openat(s->dir, path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return err_set(e, errno, "open %s/%s", s->path, path);
	while (flock(fd, LOCK_SH) < 0)
		if (errno != EINTR)
			return err_set(e, errno, "lock %s/%s", s->path, path);
	/* Whoever removed it held the lock that we waited for. */
	if (fstat(fd, &st) < 0 || st.st_nlink == 0)
		return err_set(e, ENOENT, "open %s/%s", s->path, path);
	if (ret) {
		r = fd_slurp(fd, RECORD_MAX_BYTES, &text, &size);
		if (r < 0)
			return err_set(e, -r, "read %s/%s", s->path, path);
		if (image_record_read(text, size, ret, e) < 0)
			return err_prefix(e, "%s/%s", s->path, path);
	}
	*ret_lease = TAKE_FD(fd);
	return 0;
}

/* ---- names, digests, ids */

struct search {
	const struct image_store *store;
	const char *wanted; /* beginning of an id, or a manifest's digest */
	char repository
		[REF_NAME_SIZE]; /* with a digest: beginning of the file names of its references */
	char *key;
	unsigned found;
};

static int match_id(void *context, const char *name, struct err *e)
{
	struct search *f = context;

	(void)e;
	if (key_is_valid(name) && strncmp(name, f->wanted, strlen(f->wanted)) == 0) {
		memcpy(f->key, name, RECORD_KEY_SIZE);
		f->found++;
	}
	return 0;
}

/* By its names, not by all images: a digest under another repository is another image to the operator's policy. */
static int match_digest(void *context, const char *name, struct err *e)
{
	_cleanup_image_record_ struct image_record record = {0};
	_cleanup_close_ int lease = -1;
	struct search *f = context;
	size_t n = strlen(f->repository);
	char key[RECORD_KEY_SIZE];
	int r;

	if (strncmp(name, f->repository, n) != 0 || (name[n] != ':' && name[n] != '@'))
		return 0;
	r = image_ref_read(f->store, name, key, e);
	if (r != 0)
		return r < 0 ? -1 : 0;
	if (image_take(f->store, key, &lease, &record, e) < 0)
		return e->errnum == ENOENT ? 0 : -1;
	if (strcmp(record.manifest, f->wanted) == 0 || strcmp(record.index, f->wanted) == 0) {
		memcpy(f->key, key, RECORD_KEY_SIZE);
		f->found++;
	}
	return 0;
}

static int find_digest(struct search *f, struct reference r, struct err *e)
{
	char digest[DIGEST_TEXT + 1];
	size_t n;

	snprintf(r.tag, sizeof r.tag, "x");
	memcpy(digest, r.digest, sizeof digest);
	f->wanted = digest;
	*r.digest = '\0';
	if (image_ref_name(&r, f->repository, e) < 0)
		return -1;
	n = strlen(f->repository);
	f->repository[n - 2] = '\0'; /* ":x" */
	return image_store_list(f->store, "refs", match_digest, f, e);
}

static bool looks_like_id(const char *name)
{
	size_t n = strlen(name);

	return n >= IMAGE_ID_MIN && n <= 64 && strspn(name, "0123456789abcdef") == n;
}

int image_is_missing(const char *name, struct err *e)
{
	char full[REFERENCE_TEXT] = "";
	struct reference r;
	struct err ignored;
	bool is_short = false;

	if (reference_parse(name, &r, &ignored) == 0) {
		reference_format(&r, full);
		is_short = strcmp(full, name) != 0;
	}
	err_set(e, 0,
		"no such image: %.200s%s%.200s%s (`cloche image ls` lists what is there; get it with `cloche image pull` or "
		"`cloche image import`)",
		name, is_short ? " (" : "", is_short ? full : "", is_short ? ")" : "");
	return err_code(e, CODE_SANDBOX_IMAGE_MISSING);
}

int image_find(const struct image_store *s, const char *name, char ret_key[RECORD_KEY_SIZE],
	       struct err *e)
{
	const char *id = strncmp(name, "sha256:", 7) == 0 ? name + 7 : name;
	struct search search = {.store = s, .wanted = id, .key = ret_key};
	char file[REF_NAME_SIZE];
	struct reference r;
	int found = 1;

	if (id == name && !(strlen(id) == 64 && looks_like_id(id))) {
		if (reference_parse(name, &r, e) < 0 || image_ref_name(&r, file, e) < 0)
			return err_code(e, CODE_SANDBOX_IMAGE_MISSING);
		found = image_ref_read(s, file, ret_key, e);
		if (found <= 0)
			return found;
		if (*r.digest) {
			if (find_digest(&search, r, e) < 0)
				return -1;
			return search.found ? 0 : image_is_missing(name, e);
		}
	}
	if (!looks_like_id(id))
		return image_is_missing(name, e);
	if (image_store_list(s, "images", match_id, &search, e) < 0)
		return -1;
	if (search.found > 1) {
		err_set(e, 0, "%.80s: several images begin so: give more of the id", name);
		return err_code(e, CODE_SANDBOX_IMAGE_MISSING);
	}
	return search.found ? 0 : image_is_missing(name, e);
}
