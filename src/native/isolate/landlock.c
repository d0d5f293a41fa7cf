/* SPDX-License-Identifier: Apache-2.0 */
/*
 * landlock.c - a second lock on files, abstract sockets and signals, independent of the mounts.
 *
 * Rules are made on the merged tree. What the kernel's Landlock does not know is left out by version:
 * the supervisor reports the ABI that was used. TCP rules are not handled: they would also stop
 * servers on 127.0.0.1, and the network namespace does that work.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <limits.h>
#include <unistd.h>

#include "native/isolate/isolate.h"

#ifndef SYS_landlock_create_ruleset
#define SYS_landlock_create_ruleset 444
#define SYS_landlock_add_rule       445
#define SYS_landlock_restrict_self  446
#endif

/* include/uapi/linux/landlock.h; Debian 12's header stops at ABI 2 */
enum {
	FS_EXECUTE = 1 << 0,
	FS_WRITE_FILE = 1 << 1,
	FS_READ_FILE = 1 << 2,
	FS_READ_DIR = 1 << 3,
	FS_REMOVE_DIR = 1 << 4,
	FS_REMOVE_FILE = 1 << 5,
	FS_MAKE_CHAR = 1 << 6,
	FS_MAKE_DIR = 1 << 7,
	FS_MAKE_REG = 1 << 8,
	FS_MAKE_SOCK = 1 << 9,
	FS_MAKE_FIFO = 1 << 10,
	FS_MAKE_BLOCK = 1 << 11,
	FS_MAKE_SYM = 1 << 12,
	FS_REFER = 1 << 13,     /* ABI 2 */
	FS_TRUNCATE = 1 << 14,  /* ABI 3 */
	FS_IOCTL_DEV = 1 << 15, /* ABI 5 */
	FS_ALL = (1 << 16) - 1,
	OF_A_FILE = FS_EXECUTE | FS_WRITE_FILE | FS_READ_FILE | FS_TRUNCATE | FS_IOCTL_DEV,
	SCOPE_ABSTRACT_UNIX = 1 << 0,
	SCOPE_SIGNAL = 1 << 1, /* ABI 6 */
	READ = FS_READ_FILE | FS_READ_DIR,
	WRITE = FS_ALL & ~(FS_EXECUTE | FS_MAKE_CHAR | FS_MAKE_BLOCK | FS_IOCTL_DEV),
};

struct ruleset_attr {
	uint64_t fs, net, scoped;
};

struct path_beneath {
	uint64_t access;
	int32_t fd;
} __attribute__((packed));

static uint64_t known_to(uint32_t abi)
{
	uint64_t known = FS_ALL;

	if (abi < 5)
		known &= ~(uint64_t)FS_IOCTL_DEV;
	if (abi < 3)
		known &= ~(uint64_t)FS_TRUNCATE;
	if (abi < 2)
		known &= ~(uint64_t)FS_REFER;
	return known;
}

static int allow(struct isolation *s, int ruleset, const char *path, uint64_t access)
{
	struct path_beneath rule = {access & known_to(s->plan->landlock_abi),
				    open(path, O_PATH | O_CLOEXEC | O_NOFOLLOW)};
	struct stat st;
	int r = 0;

	if (rule.fd < 0 || fstat(rule.fd, &st) < 0)
		return step_failed(s, errno, "open %s", path);
	if (!S_ISDIR(st.st_mode))
		rule.access &= OF_A_FILE;
	if (syscall(SYS_landlock_add_rule, ruleset, 1, &rule, 0) < 0)
		r = step_failed(s, errno, "allow %s", path);
	close(rule.fd);
	return r;
}

/* Entries of an image's root that get a rule of their own; no real image has as many. */
enum { ROOT_ENTRIES_MAX = 1000 };

/* Has this name, below the root, rules of its own? */
static bool is_ours(const struct plan *p, const char *name)
{
	if (strcmp(name, "dev") == 0 || strcmp(name, "proc") == 0)
		return true;
	for (uint32_t i = 0; i < p->tmpfs_count; i++)
		if (strcmp(p->tmpfs[i].path + 1, name) == 0)
			return true;
	for (uint32_t i = 0; i < p->volume_count; i++)
		if (strcmp(p->volumes[i].box + 1, name) == 0)
			return true;
	return false;
}

/* An image has its programs wherever it likes: all of its root can be read and executed, but not what is mounted
 * in it. A rule for "/" would hold below that, too. */
static int allow_image(struct isolation *s, int ruleset)
{
	struct dirent *entry;
	unsigned count = 0;
	DIR *root = opendir("/");
	int r = 0;

	if (!root)
		return step_failed(s, errno, "list /");
	while (r == 0 && (entry = readdir(root))) {
		char path[NAME_MAX + 2];

		if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0 ||
		    entry->d_type == DT_LNK || is_ours(s->plan, entry->d_name))
			continue;
		if (++count > ROOT_ENTRIES_MAX)
			r = step_failed(s, E2BIG, "more than %d entries in the image's root",
					ROOT_ENTRIES_MAX);
		snprintf(path, sizeof path, "/%s", entry->d_name);
		if (r == 0)
			r = allow(s, ruleset, path, READ | FS_EXECUTE);
	}
	closedir(root);
	return r;
}

static int allow_all(struct isolation *s, int ruleset)
{
	const struct plan *p = s->plan;
	const struct {
		const char *path;
		uint64_t access;
	} fixed[] = {
		{"/", FS_READ_DIR},
		{"/proc", READ},
		{"/dev", READ | FS_WRITE_FILE | (p->dev_profile ? FS_IOCTL_DEV : 0)},
		{"/etc", READ},
		{"/usr", READ | FS_EXECUTE},
	};
	const size_t count = sizeof fixed / sizeof *fixed - (*p->lowers ? 2 : 0);
	int r = 0;

	for (size_t i = 0; r == 0 && i < count; i++)
		r = allow(s, ruleset, fixed[i].path, fixed[i].access);
	if (r == 0 && *p->lowers)
		r = allow_image(s, ruleset);
	for (uint32_t i = 0; r == 0 && i < p->tmpfs_count; i++)
		r = allow(s, ruleset, p->tmpfs[i].path,
			  READ | WRITE | (p->tmpfs[i].exec ? FS_EXECUTE : 0));
	for (uint32_t i = 0; r == 0 && i < p->volume_count; i++)
		r = allow(s, ruleset, p->volumes[i].box,
			  READ | FS_EXECUTE | (p->volumes[i].writable ? WRITE : 0));
	return r;
}

/* A ruleset's descriptor, or -errno. */
static int make(struct isolation *s, uint64_t scopes)
{
	uint32_t abi = s->plan->landlock_abi;
	struct ruleset_attr attr = {known_to(abi), 0, scopes};
	size_t size = abi >= 6 ? 24 : abi >= 4 ? 16 : 8;
	int ruleset = (int)syscall(SYS_landlock_create_ruleset, &attr, size, 0), r;

	if (ruleset < 0)
		return step_failed(s, errno, "make a ruleset");
	r = allow_all(s, ruleset);
	if (r == 0)
		return ruleset;
	close(ruleset);
	return r;
}

int isolate_landlock_rules(struct isolation *s)
{
	uint64_t scopes = SCOPE_ABSTRACT_UNIX | SCOPE_SIGNAL;

	s->own_ruleset = -1;
	if (s->plan->landlock_abi == 0)
		return 0;
	if (s->keep_ruleset) {
		s->ruleset = make(s, scopes);
		if (s->ruleset < 0)
			return s->ruleset;
		/* Who joins has a domain beside init's, not below it: with its signals scoped, init could not end
		 * it. In its pid namespace there is nobody else to send one to. */
		scopes &= ~(uint64_t)SCOPE_SIGNAL;
	}
	s->own_ruleset = make(s, scopes);
	return s->own_ruleset < 0 ? s->own_ruleset : 0;
}

int isolate_landlock(struct isolation *s)
{
	int r = 0;

	if (s->plan->landlock_abi == 0)
		return 0;
	if (syscall(SYS_landlock_restrict_self, s->own_ruleset, 0) < 0)
		r = step_failed(s, errno, "enforce the ruleset");
	close(s->own_ruleset);
	return r;
}
