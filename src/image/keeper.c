/* SPDX-License-Identifier: Apache-2.0 */
#include "image/keeper.h"

#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <openssl/evp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/hex.h"
#include "base/tree.h"

#define PARTIAL_AGE_S (24 * 3600)

void hash_to_hex(const unsigned char hash[32], char ret[LAYER_HEX])
{
	hex_encode(hash, 32, ret);
}

void hash_text(const char *text, size_t size, char ret[LAYER_HEX])
{
	unsigned char hash[32];

	if (EVP_Digest(text, size, hash, NULL, EVP_sha256(), NULL) != 1)
		abort(); /* a broken library: no answer, not a wrong one */
	hash_to_hex(hash, ret);
}

static int lock_file(const struct image_store *s, const char *path, int how, struct err *e)
{
	_cleanup_close_ int fd =
		openat(s->dir, path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);

	if (fd < 0)
		return err_set(e, errno, "open %s/%s", s->path, path);
	while (flock(fd, how) < 0)
		if (errno != EINTR)
			return err_set(e, errno, "lock %s/%s", s->path, path);
	return TAKE_FD(fd);
}

int keeper_enter(const struct image_store *s, struct err *e)
{
	return lock_file(s, "lock", LOCK_SH, e);
}

/* Written under a name of our own in tmp/, then put into place: a reader sees all of it or nothing. */
static int write_whole(const struct image_store *s, const char *path, const char *text,
		       bool durable, struct err *e)
{
	_cleanup_close_ int fd = -1;
	char own[40];
	uint64_t random;
	int r;

	if (getrandom(&random, sizeof random, 0) != sizeof random)
		return err_set(e, errno, "get random bytes");
	snprintf(own, sizeof own, "tmp/file-%016" PRIx64, random);
	fd = openat(s->dir, own, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0)
		return err_set(e, errno, "create %s/%s", s->path, own);
	r = fd_write_all(fd, text, strlen(text));
	if (r == 0 && durable && fsync(fd) < 0)
		r = -errno;
	if (r == 0 && renameat(s->dir, own, s->dir, path) < 0)
		r = -errno;
	if (r == 0)
		return 0;
	unlinkat(s->dir, own, 0);
	return err_set(e, -r, "write %s/%s", s->path, path);
}

/* ---- layers */

int keeper_layer_find(const struct image_store *s, const char hex[LAYER_HEX],
		      struct kept_layer *ret, struct err *e)
{
	char path[LAYER_HEX + 8], text[128], *end;
	ssize_t n;

	snprintf(path, sizeof path, "layers/%s", hex);
	n = fd_read_file(s->dir, path, text, sizeof text);
	if (n == -ENOENT)
		return 1;
	if (n < 0)
		return err_set(e, (int)-n, "read %s/%s", s->path, path);
	end = text + strcspn(text, " ");
	if (*end == ' ')
		*end++ = '\0';
	if (!layer_name_is_valid(text) ||
	    sscanf(end, "%" SCNu64 " %" SCNu64, &ret->bytes, &ret->entries) != 2)
		return err_set(e, 0, "%s/%s is damaged: remove it", s->path, path);
	memcpy(ret->name, text, strlen(text) + 1);
	return 0;
}

int keeper_layer_lock(const struct image_store *s, const char hex[LAYER_HEX],
		      void (*busy)(void *context), void *context, struct err *e)
{
	char path[LAYER_HEX + 8];
	int fd;

	snprintf(path, sizeof path, "locks/%s", hex);
	fd = lock_file(s, path, LOCK_EX | LOCK_NB, e);
	if (fd >= 0 || e->errnum != EWOULDBLOCK)
		return fd;
	if (busy)
		busy(context);
	return lock_file(s, path, LOCK_EX, e);
}

/* Four letters: short, since the names of all layers of an image have to fit in one page of mount options, and
 * never used twice while one is there. */
static int give_name(const struct image_store *s, const char *folder, char name[LAYER_NAME_SIZE],
		     struct err *e)
{
	static const char digits[] = "0123456789abcdefghijklmnopqrstuvwxyz";
	char from[PATH_MAX], to[16];

	snprintf(from, sizeof from, "tmp/%s", folder);
	for (int tries = 0; tries < 1000; tries++) {
		unsigned char random[4];

		if (getrandom(random, sizeof random, 0) != sizeof random)
			return err_set(e, errno, "get random bytes");
		for (size_t i = 0; i < sizeof random; i++)
			name[i] = digits[random[i] % 36];
		name[sizeof random] = '\0';
		snprintf(to, sizeof to, "l/%s", name);
		if (renameat2(s->dir, from, s->dir, to, RENAME_NOREPLACE) == 0)
			return 0;
		if (errno != EEXIST)
			return err_set(e, errno, "rename %s/%s", s->path, from);
	}
	return err_set(e, EEXIST, "no name is left for a layer in %s/l", s->path);
}

int keeper_layer_commit(const struct image_store *s, const char *folder, const char hex[LAYER_HEX],
			struct kept_layer *l, struct err *e)
{
	char path[LAYER_HEX + 8], text[64];

	if (give_name(s, folder, l->name, e) < 0)
		return -1;
	snprintf(path, sizeof path, "layers/%s", hex);
	snprintf(text, sizeof text, "%s %" PRIu64 " %" PRIu64 "\n", l->name, l->bytes, l->entries);
	return write_whole(s, path, text, false, e);
}

/* ---- records and names */

int keeper_layers_hash(const struct image_record *r, char ret[LAYER_HEX], struct err *e)
{
	size_t size = r->layer_count * (DIGEST_TEXT + LAYER_NAME_SIZE + 2) + 1, n = 0;
	_cleanup_free_ char *text = malloc(size);

	if (!text)
		return err_set(e, ENOMEM, "name an image");
	for (size_t i = 0; i < r->layer_count; i++)
		n += (size_t)snprintf(text + n, size - n, "%s %s\n", r->layers[i].digest,
				      r->layers[i].name);
	hash_text(text, n, ret);
	return 0;
}

static int make_key(const struct image_record *r, char key[RECORD_KEY_SIZE], struct err *e)
{
	char hex[LAYER_HEX];

	if (keeper_layers_hash(r, hex, e) < 0)
		return -1;
	snprintf(key, RECORD_KEY_SIZE, "%.64s-%.32s", r->id + strlen("sha256:"), hex);
	return 0;
}

int keeper_add(const struct image_store *s, const struct image_record *r,
	       char ret_key[RECORD_KEY_SIZE], struct err *e)
{
	_cleanup_free_ char *text = image_record_write(r, e);
	char path[RECORD_KEY_SIZE + 8];

	if (!text || make_key(r, ret_key, e) < 0)
		return -1;
	/* What a power cut leaves must not be a record whose layers have holes. */
	if (syncfs(s->dir) < 0)
		return err_set(e, errno, "write the layers to disk");
	snprintf(path, sizeof path, "images/%s", ret_key);
	/* The one that is there may be locked: it stays the file that it is. */
	if (faccessat(s->dir, path, F_OK, 0) == 0)
		return 0;
	return write_whole(s, path, text, true, e);
}

int keeper_tag(const struct image_store *s, const struct reference *r, const char *key,
	       struct err *e)
{
	char name[REF_NAME_SIZE], path[REF_NAME_SIZE + 8], text[RECORD_KEY_SIZE + 1];

	if (image_ref_name(r, name, e) < 0)
		return -1;
	snprintf(path, sizeof path, "refs/%s", name);
	snprintf(text, sizeof text, "%s\n", key);
	return write_whole(s, path, text, true, e);
}

int keeper_untag(const struct image_store *s, const char *ref_name, struct err *e)
{
	char path[REF_NAME_SIZE + 8];

	snprintf(path, sizeof path, "refs/%s", ref_name);
	if (unlinkat(s->dir, path, 0) == 0)
		return 0;
	return errno == ENOENT ? 1 : err_set(e, errno, "remove %s/%s", s->path, path);
}

struct naming {
	const struct image_store *store;
	const char *key;
	bool found;
};

static int look_at_name(void *context, const char *name, struct err *e)
{
	struct naming *n = context;
	char key[RECORD_KEY_SIZE];
	int r = image_ref_read(n->store, name, key, e);

	if (r == 0 && strcmp(key, n->key) == 0)
		n->found = true;
	return r < 0 ? -1 : 0;
}

int keeper_is_named(const struct image_store *s, const char *key, bool *ret, struct err *e)
{
	struct naming n = {.store = s, .key = key};

	if (image_store_list(s, "refs", look_at_name, &n, e) < 0)
		return -1;
	*ret = n.found;
	return 0;
}

static void wake(int signal_number)
{
	(void)signal_number;
}

/* Whoever prepares sandboxes sees a change of the store within a second (service/pool.c), and lets go of them. */
static int wait_for_lock(const struct image_store *s, int fd, unsigned seconds)
{
	struct sigaction before, now = {.sa_handler = wake};
	int r;

	if (utimensat(s->dir, "refs", NULL, 0) < 0)
		return -errno;
	sigaction(SIGALRM, &now, &before);
	alarm(seconds);
	r = flock(fd, LOCK_EX) < 0 ? -errno : 0;
	alarm(0);
	sigaction(SIGALRM, &before, NULL);
	return r == -EINTR ? -EWOULDBLOCK : r;
}

int keeper_remove(const struct image_store *s, const char *key, unsigned seconds, struct err *e)
{
	char path[RECORD_KEY_SIZE + 8];
	_cleanup_close_ int fd = -1;
	int r;

	snprintf(path, sizeof path, "images/%s", key);
	fd = openat(s->dir, path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return errno == ENOENT ? 0 : err_set(e, errno, "open %s/%s", s->path, path);
	r = flock(fd, LOCK_EX | LOCK_NB) < 0 ? -errno : 0;
	if (r == -EWOULDBLOCK && seconds)
		r = wait_for_lock(s, fd, seconds);
	if (r < 0)
		return r == -EWOULDBLOCK ? 1 : err_set(e, -r, "lock %s/%s", s->path, path);
	if (unlinkat(s->dir, path, 0) < 0 && errno != ENOENT)
		return err_set(e, errno, "remove %s/%s", s->path, path);
	return 0;
}

/* ---- what nothing refers to */

struct sweep {
	const struct image_store *store;
	char (*names)[LAYER_NAME_SIZE]; /* of layers that records use */
	size_t count, room;
	uint64_t freed;
	bool every_partial;
};

static int note(struct sweep *w, const char *name, struct err *e)
{
	if (w->count == w->room) {
		size_t room = w->room ? 2 * w->room : 64;
		void *more = realloc(w->names, room * sizeof *w->names);

		if (!more)
			return err_set(e, ENOMEM, "look for unused layers");
		w->names = more;
		w->room = room;
	}
	memcpy(w->names[w->count++], name, LAYER_NAME_SIZE);
	return 0;
}

static int note_layers(void *context, const char *key, struct err *e)
{
	_cleanup_image_record_ struct image_record record = {0};
	_cleanup_close_ int lease = -1;
	struct sweep *w = context;

	if (image_take(w->store, key, &lease, &record, e) < 0)
		return e->errnum == ENOENT ? 0 : -1;
	for (size_t i = 0; i < record.layer_count; i++)
		if (note(w, record.layers[i].name, e) < 0)
			return -1;
	return *record.merged ? note(w, record.merged, e) : 0;
}

static bool is_used(const struct sweep *w, const char *name)
{
	for (size_t i = 0; i < w->count; i++)
		if (strcmp(w->names[i], name) == 0)
			return true;
	return false;
}

static int remove_file(const struct image_store *s, const char *folder, const char *name,
		       struct err *e)
{
	char path[NAME_MAX + 16];

	snprintf(path, sizeof path, "%s/%s", folder, name);
	if (unlinkat(s->dir, path, 0) < 0 && errno != ENOENT)
		return err_set(e, errno, "remove %s/%s", s->path, path);
	return 0;
}

static int remove_line(void *context, const char *hex, struct err *e)
{
	struct sweep *w = context;
	struct kept_layer l;
	int r = strlen(hex) == LAYER_HEX - 1 ? keeper_layer_find(w->store, hex, &l, e) : 1;

	if (r < 0)
		return -1;
	if (r == 0 && is_used(w, l.name))
		return 0;
	if (r == 0)
		w->freed += l.bytes;
	return remove_file(w->store, "layers", hex, e);
}

/* Out of sight first: what is removed only in part is seen to be rubbish. */
static int remove_folder(void *context, const char *name, struct err *e)
{
	char from[NAME_MAX + 8], to[NAME_MAX + 16];
	struct sweep *w = context;

	if (is_used(w, name))
		return 0;
	snprintf(from, sizeof from, "l/%s", name);
	snprintf(to, sizeof to, "tmp/gone-%s", name);
	if (renameat(w->store->dir, from, w->store->dir, to) < 0)
		return err_set(e, errno, "remove %s/%s", w->store->path, from);
	return 0;
}

static int remove_rubbish(void *context, const char *name, struct err *e)
{
	char path[NAME_MAX + 8];
	struct sweep *w = context;
	int r;

	snprintf(path, sizeof path, "tmp/%s", name);
	r = tree_remove(w->store->dir, path);
	return r < 0 ? err_set(e, -r, "remove %s/%s", w->store->path, path) : 0;
}

static int remove_lock(void *context, const char *name, struct err *e)
{
	struct sweep *w = context;

	return remove_file(w->store, "locks", name, e);
}

static int remove_partial(void *context, const char *name, struct err *e)
{
	char path[NAME_MAX + 16];
	struct sweep *w = context;
	struct stat st;

	snprintf(path, sizeof path, "partial/%s", name);
	if (fstatat(w->store->dir, path, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0
				       : err_set(e, errno, "look at %s/%s", w->store->path, path);
	if (!w->every_partial && time(NULL) - st.st_mtime < PARTIAL_AGE_S)
		return 0;
	return remove_file(w->store, "partial", name, e);
}

int keeper_collect(const struct image_store *s, bool every_partial, uint64_t *ret_freed,
		   struct err *e)
{
	struct sweep w = {.store = s, .every_partial = every_partial};
	const struct {
		const char *folder;
		int (*each)(void *context, const char *name, struct err *e);
	} steps[] = {
		{"images", note_layers}, {"layers", remove_line},     {"l", remove_folder},
		{"locks", remove_lock},  {"partial", remove_partial}, {"tmp", remove_rubbish},
	};
	_cleanup_close_ int lock = lock_file(s, "lock", LOCK_EX | LOCK_NB, e);
	int r = 0;

	if (lock < 0)
		return e->errnum == EWOULDBLOCK ? 1 : -1;
	for (size_t i = 0; r == 0 && i < ARRAY_SIZE(steps); i++)
		r = image_store_list(s, steps[i].folder, steps[i].each, &w, e);
	free(w.names);
	*ret_freed = w.freed;
	return r;
}
