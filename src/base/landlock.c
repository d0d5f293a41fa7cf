/* SPDX-License-Identifier: Apache-2.0 */
#include "base/landlock.h"

#include <fcntl.h>
#include <stdbool.h>
#include <sys/stat.h>
#include <sys/syscall.h>

enum {
	NEWEST_ABI = 7,
	FS_ABI_1 = (1 << 13) - 1,
	FS_REFER = 1 << 13,     /* ABI 2 */
	FS_IOCTL_DEV = 1 << 15, /* ABI 5; LANDLOCK_TRUNCATE is ABI 3 */
	OF_A_FILE = 1 << 0 | LANDLOCK_WRITE_FILE | LANDLOCK_READ_FILE | LANDLOCK_TRUNCATE |
		    FS_IOCTL_DEV,
	RULE_PATH_BENEATH = 1,
};

struct ruleset_attr {
	uint64_t fs, net, scoped;
};

struct path_beneath {
	uint64_t access;
	int32_t fd;
} __attribute__((packed));

int landlock_abi(void)
{
	int abi = (int)syscall(SYS_landlock_create_ruleset, NULL, 0, 1 /* VERSION */);

	return abi < 0 ? 0 : abi > NEWEST_ABI ? NEWEST_ABI : abi;
}

/* All that this kernel knows; older ones want the shorter struct, which they take when the rest is 0. */
static struct ruleset_attr handled(int abi, uint64_t tcp, uint64_t scopes)
{
	struct ruleset_attr a = {.fs = FS_ABI_1};

	a.fs |= (abi >= 2 ? FS_REFER : 0) | (abi >= 3 ? LANDLOCK_TRUNCATE : 0) |
		(abi >= 5 ? FS_IOCTL_DEV : 0);
	a.net = abi >= 4 ? tcp : 0;
	a.scoped = abi >= 6 ? scopes : 0;
	return a;
}

static int allow(int rules, const struct ruleset_attr *a, const struct landlock_path *p)
{
	_cleanup_close_ int fd = open(p->path, O_PATH | O_CLOEXEC);
	struct path_beneath rule = {.access = p->access & a->fs, .fd = fd};
	struct stat st;

	if (fd < 0)
		return errno == ENOENT ? 0 : -errno;
	if (fstat(fd, &st) < 0)
		return -errno;
	if (!S_ISDIR(st.st_mode))
		rule.access &= OF_A_FILE;
	return syscall(SYS_landlock_add_rule, rules, RULE_PATH_BENEATH, &rule, 0) < 0 ? -errno : 0;
}

int landlock_restrict(const struct landlock_path *paths, size_t count, uint64_t tcp,
		      uint64_t scopes, struct err *e)
{
	int abi = landlock_abi();
	struct ruleset_attr a = handled(abi, tcp, scopes);
	_cleanup_close_ int rules = -1;
	int r = 0;

	if (abi == 0)
		return 0;
	rules = (int)syscall(SYS_landlock_create_ruleset, &a, sizeof a, 0);
	if (rules < 0)
		return err_set(e, errno, "make a Landlock ruleset");
	for (size_t i = 0; r == 0 && i < count; i++) {
		r = allow(rules, &a, &paths[i]);
		if (r < 0)
			return err_set(e, -r, "allow %s by Landlock", paths[i].path);
	}
	if (syscall(SYS_landlock_restrict_self, rules, 0) < 0)
		return err_set(e, errno, "restrict this process to its files by Landlock");
	return 0;
}
