/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <linux/openat2.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "base/fd.h"
#include "imaging/archive.h"
#include "imaging/imaging.h"
#include "imaging/install.h"
#include "imaging/layout.h"
#include "imaging/rootfs.h"

#define PIECE (256u << 10)

/* What was added: one line each on stdout, the name or the id. */
static void added(const struct reference *r, const char *key)
{
	char name[REFERENCE_TEXT];

	if (r) {
		reference_familiar(r, name);
		printf("%s\n", name);
	} else {
		printf("sha256:%.64s\n", key);
	}
}

static int tag_or_not(struct installer *in, const struct naming *names, const char *key,
		      struct err *e)
{
	if (names->wanted && keeper_tag(in->store, names->wanted, key, e) < 0)
		return -1;
	names->added(names->wanted, key);
	return 0;
}

/* ---- root file systems */

static int hash_file(int fd, uint64_t size, char ret[DIGEST_TEXT + 1], struct meter *meter,
		     struct err *e)
{
	_cleanup_free_ char *piece = malloc(PIECE);
	EVP_MD_CTX *hash = EVP_MD_CTX_new();
	unsigned char digest[32];
	char hex[LAYER_HEX];
	uint64_t done = 0;
	ssize_t n = 1;
	bool ok = piece && hash && EVP_DigestInit_ex2(hash, EVP_sha256(), NULL) == 1;

	while (ok && done < size && n > 0 && !is_cancelled()) {
		n = pread(fd, piece, PIECE, (off_t)done);
		if (n > 0) {
			ok = EVP_DigestUpdate(hash, piece, (size_t)n) == 1;
			done += (uint64_t)n;
			meter_step(meter, done, size);
		}
	}
	ok = ok && EVP_DigestFinal_ex(hash, digest, NULL) == 1;
	EVP_MD_CTX_free(hash);
	if (!ok)
		return err_set(e, ENOMEM, "hash the archive");
	if (n < 0 || is_cancelled())
		return err_set(e, n < 0 ? errno : ECANCELED, "read the archive");
	hash_to_hex(digest, hex);
	snprintf(ret, DIGEST_TEXT + 1, "sha256:%.64s", hex);
	return 0;
}

static int import_rootfs_archive(struct installer *in, int fd, uint64_t size,
				 const struct naming *names, struct err *e)
{
	char digest[DIGEST_TEXT + 1], key[RECORD_KEY_SIZE];
	struct layer_source from = {.fd = fd, .size = size, .digest = digest};
	struct record_layer layer;

	meter_begin(&in->meter, "reading the archive");
	if (hash_file(fd, size, digest, &in->meter, e) < 0)
		return -1;
	meter_begin(&in->meter, "unpacking");
	if (layer_have(in->store, &from, NULL, 0, &in->meter, &in->notes, &layer, e) < 0 ||
	    install_rootfs(in, &layer, key, e) < 0)
		return -1;
	return tag_or_not(in, names, key, e);
}

static int import_rootfs_folder(struct installer *in, int folder, const struct naming *names,
				struct err *e)
{
	struct record_layer layer;
	char key[RECORD_KEY_SIZE];

	meter_begin(&in->meter, "copying");
	if (rootfs_have(in->store, folder, &in->meter, &in->notes, &layer, e) < 0 ||
	    install_rootfs(in, &layer, key, e) < 0)
		return -1;
	return tag_or_not(in, names, key, e);
}

/* ---- layouts in a folder */

static int open_in_folder(void *context, const char *name, uint64_t *ret_size, struct err *e)
{
	struct open_how how = {
		.flags = O_RDONLY | O_NONBLOCK | O_CLOEXEC,
		.resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS,
	};
	char path[DIGEST_TEXT + 32];
	_cleanup_close_ int fd = -1;
	struct stat st;

	if (digest_is_valid(name)) {
		snprintf(path, sizeof path, "blobs/sha256/%s", name + strlen("sha256:"));
		name = path;
	}
	fd = (int)syscall(SYS_openat2, *(int *)context, name, &how, sizeof how);
	if (fd < 0 || fstat(fd, &st) < 0)
		return err_set(e, errno, "%.100s of the layout", name);
	if (!S_ISREG(st.st_mode))
		return err_set(e, 0, "%.100s of the layout is no file", name);
	*ret_size = (uint64_t)st.st_size;
	return TAKE_FD(fd);
}

static int import_folder(struct installer *in, int fd, const struct naming *names, struct err *e)
{
	const struct blobs blobs = {open_in_folder, &fd};

	if (faccessat(fd, "index.json", F_OK, AT_SYMLINK_NOFOLLOW) == 0 &&
	    faccessat(fd, "oci-layout", F_OK, AT_SYMLINK_NOFOLLOW) == 0)
		return layout_import(in, &blobs, names, e);
	if (faccessat(fd, "manifest.json", F_OK, AT_SYMLINK_NOFOLLOW) == 0 &&
	    faccessat(fd, "usr", F_OK, AT_SYMLINK_NOFOLLOW) < 0)
		return saved_import(in, &blobs, names, e);
	return import_rootfs_folder(in, fd, names, e);
}

/* ---- files and stdin */

/* What cannot be read twice is kept in a file without a name. */
static int spool(struct installer *in, int from, int *ret_fd, uint64_t *ret_size, struct err *e)
{
	_cleanup_close_ int fd =
		openat(in->store->dir, "tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	_cleanup_free_ char *piece = malloc(PIECE);
	uint64_t size = 0;

	if (fd < 0 || !piece)
		return err_set(e, errno, "create a file in %s/tmp", in->store->path);
	meter_begin(&in->meter, "reading");
	for (;;) {
		ssize_t n = read(from, piece, PIECE);
		int r;

		if (is_cancelled())
			return err_set(e, ECANCELED, "interrupted");
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return err_set(e, errno, "read the archive");
		if (n == 0)
			break;
		size += (uint64_t)n;
		if (size > LAYER_MAX_BYTES)
			return err_set(e, EFBIG, "the archive has more than %llu bytes",
				       (unsigned long long)LAYER_MAX_BYTES);
		r = fd_write_all(fd, piece, (size_t)n);
		if (r < 0)
			return err_set(e, -r, "keep the archive in %s/tmp", in->store->path);
		meter_step(&in->meter, size, 0);
	}
	*ret_fd = TAKE_FD(fd);
	*ret_size = size;
	return 0;
}

static int import_file(struct installer *in, int fd, uint64_t size, const struct naming *names,
		       struct err *e)
{
	enum archive_kind kind;
	struct archive a;
	struct blobs blobs;
	int r = archive_scan(&a, in->store, fd, size, &in->meter, &kind, e);

	blobs = archive_blobs(&a);
	if (r == 0 && kind == ARCHIVE_SAVED)
		r = saved_import(in, &blobs, names, e);
	else if (r == 0 && kind == ARCHIVE_LAYOUT)
		r = layout_import(in, &blobs, names, e);
	archive_done(&a);
	return r == 0 && kind == ARCHIVE_ROOTFS ? import_rootfs_archive(in, fd, size, names, e) : r;
}

static int import_from(struct installer *in, const char *path, const struct naming *names,
		       struct err *e)
{
	bool is_stdin = strcmp(path, "-") == 0;
	_cleanup_close_ int fd = is_stdin ? dup(0) : open(path, O_RDONLY | O_CLOEXEC);
	_cleanup_close_ int spooled = -1;
	uint64_t size = 0;
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0)
		return err_set(e, errno, "%s", path);
	if (is_stdin && isatty(0))
		return err_set(e, 0, "nothing on stdin: give a FILE, or pipe an archive in");
	if (S_ISDIR(st.st_mode))
		return import_folder(in, fd, names, e);
	/* A regular stdin may have been read in part by somebody before. */
	if (S_ISREG(st.st_mode) && (!is_stdin || lseek(fd, 0, SEEK_CUR) == 0))
		return import_file(in, fd, (uint64_t)st.st_size, names, e);
	if (spool(in, fd, &spooled, &size, e) < 0)
		return -1;
	return import_file(in, spooled, size, names, e);
}

void tell_notes(const struct request *q, const struct tree_notes *n)
{
	if (q->quiet)
		return;
	if (n->devices)
		fprintf(stderr, "cloche: left out: %llu device nodes and sockets\n",
			(unsigned long long)n->devices);
	if (n->set_ids)
		fprintf(stderr,
			"cloche: taken away: set-user-id and set-group-id bits of %llu files\n",
			(unsigned long long)n->set_ids);
	if (n->attributes)
		fprintf(stderr, "cloche: left out: %llu extended attributes\n",
			(unsigned long long)n->attributes);
}

int verb_import(struct request *q, struct err *e)
{
	_cleanup_image_store_ struct image_store store = {.dir = -1};
	_cleanup_close_ int inside = -1;
	struct installer in = {.store = &store};
	struct naming names = {.added = added};
	struct reference name;
	uint64_t freed;
	struct err ignored;
	int r;

	if (q->count == 2) {
		if (reference_parse(q->operands[1], &name, e) < 0)
			return -1;
		if (*name.digest)
			return err_set(e, 0, "%s: a name with a digest cannot be given",
				       q->operands[1]);
		names.wanted = &name;
	}
	if (image_store_open(&q->places, true, &store, e) < 0)
		return -1;
	meter_init(&in.meter, q->quiet);
	inside = keeper_enter(&store, e);
	if (inside < 0)
		return -1;
	r = import_from(&in, q->operands[0], &names, e);
	meter_end(&in.meter);
	if (r == 0)
		tell_notes(q, &in.notes);
	/* An image that had this name before may have none now; and what was killed is swept up. */
	fd_close(&inside);
	if (tidy(&store, &freed, r == 0 ? e : &ignored) < 0)
		r = -1;
	return r < 0 ? err_prefix(e, "import %.200s", q->operands[0]) : 0;
}
