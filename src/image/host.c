/* SPDX-License-Identifier: Apache-2.0 */
#include "image/host.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/tree.h"
#include "image/host_marks.h"

/* Raise when what is made below changes. */
#define FORMAT 4

/* What of the machine's /etc goes in: configuration that programs in /usr need, nothing that names the
 * machine, its users or its secrets. Folders are copied with what is world-readable in them. */
static const char *const etc_copied[] = {
	"ld.so.cache",
	"ld.so.conf",
	"ld.so.conf.d",
	"alternatives",
	"ssl",
	"ca-certificates.conf",
	"services",
	"protocols",
	"mime.types",
	"magic",
	"magic.mime",
	"debian_version",
	"os-release",
	"python3",
	"python3.9",
	"python3.10",
	"python3.11",
	"python3.12",
	"python3.13",
	"perl",
	"java",
	"java-11-openjdk",
	"java-17-openjdk",
	"java-21-openjdk",
	"fonts",
	"terminfo",
	"inputrc",
	"gai.conf",
	"rpc",
	"ethertypes",
	"bash_completion.d",
};

/* Folders inside those, in which packages change files: part of the digest too. */
static const char *const also_watched[] = {"ssl/certs", "ssl/certs/ca-certificates.crt"};

static const char *const etc_left_out[] = {"private", NULL};

static const struct {
	const char *path;
	const char *text;
} made_up[] = {
	{"etc/passwd", "root:x:0:0:root:/root:/usr/sbin/nologin\n"
		       "nobody:x:65534:65534:nobody:/tmp:/bin/bash\n"},
	{"etc/group", "root:x:0:\nnogroup:x:65534:\n"},
	{"etc/nsswitch.conf", "passwd: files\ngroup: files\nshadow: files\nhosts: files dns\n"
			      "networks: files\nprotocols: files\nservices: files\n"},
	{"etc/host.conf", "multi on\n"},
	{"etc/resolv.conf", ""},
	{"etc/hostname", ""},
	{"etc/shells", "/bin/sh\n/bin/bash\n"},
	{"etc/profile", "PS1='$ '\n"},
};

static const struct {
	const char *path, *target;
} links[] = {
	{"etc/localtime", "/usr/share/zoneinfo/Etc/UTC"},
	{"etc/mtab", "/proc/self/mounts"},
	{"var/tmp", "/tmp"},
	{"var/run", "/run"},
};

static const char *const folders[] = {"dev",  "etc",  "home",    "mnt",       "opt",
				      "proc", "root", "run",     "srv",       "tmp",
				      "usr",  "var",  "var/lib", "var/cache", "var/log"};

/* Top-level links into /usr (merged-usr), as the machine has them. */
static const char *const merged[] = {"bin", "sbin", "lib", "lib32", "lib64", "libx32"};

static uint64_t mix(uint64_t h, const void *data, size_t size)
{
	const unsigned char *p = data;

	while (size--)
		h = (h ^ *p++) * 0x100000001b3u; /* FNV-1a */
	return h;
}

/* A digest of names, times and sizes of the sources. */
static uint64_t digest(void)
{
	uint64_t h = mix(0xcbf29ce484222325u, &(int){FORMAT}, sizeof(int));
	char path[64];

	for (size_t i = 0; i < ARRAY_SIZE(etc_copied) + ARRAY_SIZE(also_watched); i++) {
		struct stat st;

		snprintf(path, sizeof path, "/etc/%s",
			 i < ARRAY_SIZE(etc_copied) ? etc_copied[i]
						    : also_watched[i - ARRAY_SIZE(etc_copied)]);
		if (stat(path, &st) < 0)
			continue;
		h = mix(h, path, strlen(path));
		h = mix(h, &st.st_mtim, sizeof st.st_mtim);
		h = mix(h, &st.st_size, sizeof st.st_size);
		h = mix(h, &st.st_ino, sizeof st.st_ino);
	}
	return h;
}

/* The mode is what it says, whatever the caller's umask (which belongs to all its threads). */
static int make_folder(int dir, const char *name, mode_t mode)
{
	return mkdirat(dir, name, mode) < 0 || fchmodat(dir, name, mode, 0) < 0 ? -1 : 0;
}

static int write_made_up(int root, struct err *e)
{
	for (size_t i = 0; i < ARRAY_SIZE(made_up); i++) {
		_cleanup_close_ int fd = openat(root, made_up[i].path,
						O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
		int r = fd < 0 ? -errno
			       : fd_write_all(fd, made_up[i].text, strlen(made_up[i].text));

		if (r < 0)
			return err_set(e, -r, "write %s of the host image", made_up[i].path);
	}
	for (size_t i = 0; i < ARRAY_SIZE(links); i++)
		if (symlinkat(links[i].target, root, links[i].path) < 0)
			return err_set(e, errno, "link %s of the host image", links[i].path);
	return 0;
}

static int link_merged(int root, struct err *e)
{
	for (size_t i = 0; i < ARRAY_SIZE(merged); i++) {
		char path[16], target[64];
		ssize_t n;

		snprintf(path, sizeof path, "/%s", merged[i]);
		n = readlink(path, target, sizeof target - 1);
		if (n < 0 && errno == ENOENT)
			continue;
		if (n < 0)
			return err_set(
				e, errno,
				"%s is not a link into /usr: this machine has no merged /usr",
				path);
		target[n] = '\0';
		if (symlinkat(target, root, merged[i]) < 0)
			return err_set(e, errno, "link %s of the host image", merged[i]);
	}
	return 0;
}

static int fill(int root, struct err *e)
{
	_cleanup_close_ int host_etc = open("/etc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	_cleanup_close_ int etc = -1;

	if (host_etc < 0)
		return err_set(e, errno, "open /etc");
	for (size_t i = 0; i < ARRAY_SIZE(folders); i++)
		if (make_folder(root, folders[i], strcmp(folders[i], "root") ? 0755 : 0700) < 0)
			return err_set(e, errno, "make %s of the host image", folders[i]);
	etc = openat(root, "etc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (etc < 0)
		return err_set(e, errno, "open etc of the host image");
	for (size_t i = 0; i < ARRAY_SIZE(etc_copied); i++) {
		int r = tree_copy_public(host_etc, etc, etc_copied[i], etc_left_out);

		if (r < 0 && r != -ENOENT)
			return err_set(e, -r, "copy /etc/%s into the host image", etc_copied[i]);
	}
	if (write_made_up(root, e) < 0)
		return -1;
	return link_merged(root, e);
}

/* Make the root under a name of our own, then rename it: a reader sees all of it or nothing. */
static int build(int dir, const char *name, struct err *e)
{
	char own[80];
	unsigned random;
	_cleanup_close_ int root = -1;
	int r = -1;

	if (getrandom(&random, sizeof random, 0) != sizeof random)
		return err_set(e, errno, "get random bytes");
	snprintf(own, sizeof own, ".making-%08x-%.40s", random, name);
	if (make_folder(dir, own, 0755) < 0)
		return err_set(e, errno, "make the host image");
	root = openat(dir, own, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (root < 0)
		err_set(e, errno, "open the host image");
	else
		r = fill(root, e);
	if (r == 0 && renameat(dir, own, dir, name) < 0 && errno != EEXIST && errno != ENOTEMPTY)
		r = err_set(e, errno, "rename the host image");
	tree_remove(dir, own); /* only there if something failed, or another was first */
	return r;
}

static int make_missing(int dir, const char *template, const char *path, struct err *e)
{
	if (faccessat(dir, template, F_OK, 0) == 0)
		return 0;
	if (make_folder(dir, "mnt", 0755) < 0 && errno != EEXIST)
		return err_set(e, errno, "make %s/mnt", path);
	return build(dir, template, e) < 0 ? err_prefix(e, "%s", path) : 0;
}

/* The root is there, and marked: nobody removes it while this machine runs. The first one to use it looks after
 * the others, too. */
static int prepare(int dir, const char *template, const char *path, struct err *e)
{
	_cleanup_close_ int lock =
		-1; /* of its own: dir may go on to children, and a lock with it */
	char boot[BOOT_ID_SIZE];
	bool known = boot_id(boot);

	if (known && host_is_marked(dir, boot, template))
		return 0;
	lock = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	/* A file system without locks is none to remove anything from. */
	known = known && lock >= 0 && flock(lock, LOCK_EX) == 0;
	if (make_missing(dir, template, path, e) < 0)
		return -1;
	if (known) {
		host_mark(dir, boot, template);
		host_sweep(dir, boot);
	}
	return 0;
}

int host_image_open(const struct places *places, struct host_image *ret, struct err *e)
{
	char path[sizeof places->state + 16];
	_cleanup_close_ int dir = -1;
	int r;

	snprintf(ret->template, sizeof ret->template, "root-%016" PRIx64, digest());
	snprintf(path, sizeof path, "%s/host", places->state);
	dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir < 0) {
		r = make_private_dirs(path);
		if (r < 0)
			return err_set(e, -r, "make %s", path);
		/* Rootless, it is entered by an id of the sandbox, which is not its owner. */
		if (chmod(path, 0755) < 0)
			return err_set(e, errno, "chmod %s", path);
		dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		if (dir < 0)
			return err_set(e, errno, "open %s", path);
	}
	if (prepare(dir, ret->template, path, e) < 0)
		return -1;
	ret->dir = TAKE_FD(dir);
	return 0;
}

void host_image_done(struct host_image *image)
{
	fd_close(&image->dir);
}
