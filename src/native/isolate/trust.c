/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trust.c - the authority by which this sandbox's TLS is opened, beside all that its image trusts.
 *
 *	/etc/cloche/authority.pem	the authority alone
 *	/etc/cloche/ca-bundle.pem	the image's bundle (this machine's, where an image has none) and the authority
 *	/etc/cloche/cacerts		the same for Java (keystore.h), where the image has such a store
 *
 * The last two are also mounted over the image's own, wherever distributions have it, for programs that ask nobody.
 * All are in a tmpfs of this sandbox, read-only for it and gone with it; the authority's key is in none.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "native/isolate/keystore.h"
#include "native/isolate/mounts.h"
#include "protocol/protocol.h"

#define PLACE STAGE "/trust"

/* Of the bundles that there are: Mozilla's list is 220 KiB. */
enum { BUNDLE_MAX = 1 << 20, AUTHORITY_MAX = 8192, OVERLAY = 0x794c7630 /* linux/magic.h */ };

#define BUNDLE PLACE "/ca-bundle.pem"
#define STORE  PLACE "/cacerts"

static const char *const stores[] = {
	"/etc/ssl/certs/java/cacerts",              /* Debian, Alpine */
	"/etc/pki/ca-trust/extracted/java/cacerts", /* Red Hat */
	"/var/lib/ca-certificates/java-cacerts",    /* SUSE */
	"/opt/java/openjdk/lib/security/cacerts",   /* Eclipse Temurin's images */
	"/opt/java/openjdk/jre/lib/security/cacerts",
	"/usr/lib/jvm/default-jvm/lib/security/cacerts", /* Alpine, without ca-certificates' */
	"/usr/lib/jvm/default-java/lib/security/cacerts",
	"/usr/java/default/lib/security/cacerts", /* Oracle's */
};
enum { STORES = sizeof stores / sizeof *stores };

static const char *const bundles[] = {
	"/etc/ssl/certs/ca-certificates.crt",                /* Debian, Alpine */
	"/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem", /* Red Hat, and what its older names lead to */
	"/etc/pki/tls/certs/ca-bundle.crt",
	"/etc/ssl/cert.pem", /* Alpine: a link, or not */
	"/etc/ssl/ca-bundle.pem",
	"/var/lib/ca-certificates/ca-bundle.pem", /* SUSE */
};
enum { BUNDLES = sizeof bundles / sizeof *bundles };

/* Links lead as they would inside, but to files of the image only: this is real root, and an image could have a link to
 * /proc/kallsyms. -1: no such file. */
static int open_inside(int root, const char *path, int flags)
{
	struct open_how how = {.flags = (uint64_t)flags | O_CLOEXEC,
			       .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS};
	int fd = (int)syscall(SYS_openat2, root, path, &how, sizeof how);
	struct statfs fs;
	struct stat st;

	if (fd < 0 || (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && fstatfs(fd, &fs) == 0 &&
		       (unsigned long)fs.f_type == OVERLAY))
		return fd;
	close(fd);
	return -1;
}

static int find_bundle(int root)
{
	int fd = -1;

	for (size_t i = 0; fd < 0 && i < BUNDLES; i++)
		fd = open_inside(root, bundles[i], O_RDONLY | O_NONBLOCK);
	for (size_t i = 0; fd < 0 && i < BUNDLES; i++)
		fd = open(bundles[i], O_RDONLY | O_CLOEXEC); /* this machine's */
	return fd;
}

static int write_file(struct isolation *s, const char *path, const char *data, size_t size)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0444), r = 0;

	if (fd < 0)
		return step_failed(s, errno, "create %s", path);
	while (size > 0) {
		ssize_t n = write(fd, data, size);

		if (n < 0) {
			r = step_failed(s, errno, "write %s", path);
			break;
		}
		data += n;
		size -= (size_t)n;
	}
	if (r == 0 && fchown(fd, s->plan->root_mount_id, s->plan->root_mount_id) < 0)
		r = step_failed(s, errno, "give %s to root inside", path);
	close(fd);
	return r;
}

static int copy_bundle(struct isolation *s, int from)
{
	static char data[65536];
	size_t total = 0;
	ssize_t n;
	int r = 0;

	while (r == 0 && (n = read(from, data, sizeof data)) > 0) {
		total += (size_t)n;
		if (total > BUNDLE_MAX)
			return step_failed(s, EFBIG, "the image's certificates: more than %d bytes",
					   BUNDLE_MAX);
		r = write_file(s, BUNDLE, data, (size_t)n);
	}
	/* A file that ends within a line would spoil what follows. */
	return r < 0 ? r : write_file(s, BUNDLE, "\n", 1);
}

static int mount_over(struct isolation *s, const char *from, int target, const char *name)
{
	bool mapped;
	int fd = clone_mount(from, -1, &mapped), r;

	if (fd < 0)
		return step_failed(s, -fd, "copy the mount of %s", from);
	r = lock_mount(fd);
	if (r == 0)
		r = attach_mount_at(fd, target);
	close(fd);
	return r < 0 ? step_failed(s, -r, "mount %s", name) : 0;
}

/* Over those of the image that are there. */
static int mount_all(struct isolation *s, int root, const char *from, const char *const *paths,
		     size_t count)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < count; i++) {
		int target = open_inside(root, paths[i], O_PATH);

		if (target < 0)
			continue;
		r = mount_over(s, from, target, paths[i]);
		close(target);
	}
	return r;
}

static bool has_java(int root)
{
	int fd = -1;

	for (size_t i = 0; fd < 0 && i < STORES; i++)
		fd = open_inside(root, stores[i], O_PATH);
	if (fd >= 0)
		close(fd);
	return fd >= 0;
}

static int make_store(struct isolation *s)
{
	int fd = open(BUNDLE, O_RDONLY | O_CLOEXEC), r;
	unsigned char *store = NULL;
	struct stat st;
	size_t size;
	void *pem;

	if (fd < 0 || fstat(fd, &st) < 0) {
		r = step_failed(s, errno, "open %s", BUNDLE);
		if (fd >= 0)
			close(fd);
		return r;
	}
	pem = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	close(fd);
	if (pem == MAP_FAILED)
		return step_failed(s, errno, "read %s", BUNDLE);
	r = keystore_make(pem, (size_t)st.st_size, &store, &size);
	munmap(pem, (size_t)st.st_size);
	r = r < 0 ? step_failed(s, -r, "make %s", STORE)
		  : write_file(s, STORE, (const char *)store, size);
	free(store);
	return r;
}

static int fill(struct isolation *s, int root, const char *authority, size_t size)
{
	int bundle = find_bundle(root), r = 0;

	if (mkdir(PLACE, 0755) < 0 ||
	    chown(PLACE, s->plan->root_mount_id, s->plan->root_mount_id) < 0)
		r = step_failed(s, errno, "make %s", PLACE);
	if (r == 0 && bundle >= 0)
		r = copy_bundle(s, bundle);
	if (bundle >= 0)
		close(bundle);
	if (r == 0)
		r = write_file(s, BUNDLE, authority, size);
	return r == 0 ? write_file(s, PLACE "/authority.pem", authority, size) : r;
}

int isolate_trust(struct isolation *s)
{
	char authority[AUTHORITY_MAX];
	struct frame f;
	int root, r, folder;

	if (!s->plan->trust)
		return 0;
	r = frame_receive(s->control, FROM_HOST, &f, authority, sizeof authority, NULL, NULL);
	if (r < 0 || f.type != FRAME_TRUST)
		return step_failed(s, r < 0 ? -r : EPROTO, "receive an authority");
	root = open(NEW_ROOT, O_PATH | O_DIRECTORY | O_CLOEXEC);
	folder = open(NEW_ROOT TRUST_FOLDER, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (root < 0 || folder < 0)
		r = step_failed(s, errno, "open %s", TRUST_FOLDER);
	if (r == 0)
		r = fill(s, root, authority, f.size);
	if (r == 0)
		r = mount_all(s, root, BUNDLE, bundles, BUNDLES);
	if (r == 0 && has_java(root)) {
		r = make_store(s);
		if (r == 0)
			r = mount_all(s, root, STORE, stores, STORES);
	}
	if (r == 0)
		r = mount_over(s, PLACE, folder, TRUST_FOLDER);
	if (root >= 0)
		close(root);
	if (folder >= 0)
		close(folder);
	return r;
}
