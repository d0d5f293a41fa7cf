/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sandbox_self.c - cloched parses what clients and sandboxes say, so it is held like one of them.
 *
 * It has no capability and its own user already. Here it loses the rest: other system calls than those of
 * self_calls.def answer EPERM (clone3 and io_uring ENOSYS, which their callers take as "not there"), other
 * architectures are killed, it can never execute anything nor make memory executable, and Landlock leaves
 * it its state and the counters of cgroups. Sockets of the spawner and of inits are not files to Landlock:
 * their modes and peer credentials guard them.
 *
 * A connection that came by TCP could be taken apart and connected elsewhere (connect() to AF_UNSPEC, then
 * again): Landlock refuses that from ABI 4 on (Linux 6.7). Before, cloched can reach what its user can.
 */
#include "service/sandbox_self.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <seccomp.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "native/native.h"

enum { CONDITIONS = 2, SELF = -1 };

/* ---- system calls ---- */

struct rule {
	int call;
	unsigned count;
	struct scmp_arg_cmp conditions[CONDITIONS];
};

/* The kernel looks at 32 bits of an int, so the filter does. */
#define INT(n, value)                                                    \
	{                                                                \
		n, SCMP_CMP_MASKED_EQ, UINT32_MAX, (scmp_datum_t)(value) \
	}
#define BITS(n, mask, value)                                       \
	{                                                          \
		n, SCMP_CMP_MASKED_EQ, (scmp_datum_t)(mask), value \
	}
#define COUNT(...)      (sizeof((struct scmp_arg_cmp[]){__VA_ARGS__}) / sizeof(struct scmp_arg_cmp))
#define CALL(name)      {SCMP_SYS(name), 0, {{0}}},
#define WHEN(name, ...) {SCMP_SYS(name), COUNT(__VA_ARGS__), {__VA_ARGS__}},

static const struct rule allowed[] = {
#include "service/self_calls.def"
};

static const int absent[] = {SCMP_SYS(clone3), SCMP_SYS(io_uring_setup), SCMP_SYS(io_uring_enter),
			     SCMP_SYS(io_uring_register), SCMP_SYS(rseq)};

static int add(scmp_filter_ctx ctx, struct rule rule)
{
	for (unsigned i = 0; i < rule.count; i++)
		if (rule.conditions[i].datum_b == (scmp_datum_t)SELF)
			rule.conditions[i].datum_b = (scmp_datum_t)getpid();
	return seccomp_rule_add_array(ctx, SCMP_ACT_ALLOW, rule.call, rule.count, rule.conditions);
}

static int filter(struct err *e)
{
	scmp_filter_ctx ctx = seccomp_init(SCMP_ACT_ERRNO(EPERM));
	int r = ctx ? 0 : -ENOMEM;

	if (r == 0)
		r = seccomp_attr_set(ctx, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_KILL_PROCESS);
	for (size_t i = 0; r == 0 && i < ARRAY_SIZE(allowed); i++)
		r = add(ctx, allowed[i]);
	for (size_t i = 0; r == 0 && i < ARRAY_SIZE(absent); i++)
		r = seccomp_rule_add(ctx, SCMP_ACT_ERRNO(ENOSYS), absent[i], 0);
	if (r == 0)
		r = seccomp_load(ctx);
	seccomp_release(ctx);
	return r < 0 ? err_set(e, -r, "load the system call filter") : 0;
}

/* ---- files ---- */

/* include/uapi/linux/landlock.h; Debian 12's header stops at ABI 2 */
enum {
	FS_WRITE_FILE = 1 << 1,
	FS_READ_FILE = 1 << 2,
	FS_READ_DIR = 1 << 3,
	FS_REMOVE_DIR = 1 << 4,
	FS_REMOVE_FILE = 1 << 5,
	FS_MAKE_DIR = 1 << 7,
	FS_MAKE_REG = 1 << 8,
	FS_ABI_1 = (1 << 13) - 1,
	FS_REFER = 1 << 13,     /* ABI 2 */
	FS_TRUNCATE = 1 << 14,  /* ABI 3 */
	FS_IOCTL_DEV = 1 << 15, /* ABI 5 */
	NET_TCP = 3,            /* to bind, to connect: ABI 4 */
	SCOPE_ABSTRACT_UNIX = 1 << 0,
	SCOPE_SIGNAL = 1 << 1, /* ABI 6 */
	RULE_PATH_BENEATH = 1,
	STATE = FS_READ_FILE | FS_READ_DIR | FS_WRITE_FILE | FS_REMOVE_DIR | FS_REMOVE_FILE |
		FS_MAKE_DIR | FS_MAKE_REG | FS_TRUNCATE,
};

struct ruleset_attr {
	uint64_t fs, net, scoped;
};

struct path_beneath {
	uint64_t access;
	int32_t fd;
} __attribute__((packed));

/* All that this kernel knows; older ones want the shorter struct, which they take when the rest is 0. */
static struct ruleset_attr handled(int abi)
{
	const char *notify = getenv("NOTIFY_SOCKET");
	struct ruleset_attr a = {.fs = FS_ABI_1};

	a.fs |= (abi >= 2 ? FS_REFER : 0) | (abi >= 3 ? FS_TRUNCATE : 0) |
		(abi >= 5 ? FS_IOCTL_DEV : 0);
	a.net = abi >= 4 ? NET_TCP : 0;
	a.scoped =
		abi < 6 ? 0 : SCOPE_SIGNAL | (notify && *notify == '@' ? 0 : SCOPE_ABSTRACT_UNIX);
	return a;
}

static int allow(int rules, const struct ruleset_attr *a, const char *path, uint64_t access)
{
	_cleanup_close_ int fd = open(path, O_PATH | O_CLOEXEC);
	struct path_beneath rule = {.access = access & a->fs, .fd = fd};

	if (fd < 0)
		return errno == ENOENT ? 0 : -errno;
	return syscall(SYS_landlock_add_rule, rules, RULE_PATH_BENEATH, &rule, 0) < 0 ? -errno : 0;
}

static int own_folder_only(const char *state_dir, const char *runtime_dir, int abi, struct err *e)
{
	struct ruleset_attr a = handled(abi);
	_cleanup_close_ int rules = (int)syscall(SYS_landlock_create_ruleset, &a, sizeof a, 0);
	int r;

	if (rules < 0)
		return err_set(e, errno, "make a Landlock ruleset");
	r = allow(rules, &a, state_dir, STATE);
	if (r == 0)
		r = allow(rules, &a, "/sys/fs/cgroup", FS_READ_FILE);
	if (r == 0) /* what the image of a sandbox wants (box_image.c) */
		r = allow(rules, &a, runtime_dir, FS_READ_FILE);
	if (r == 0) /* http.c holds a descriptor of it for the day when there are no others */
		r = allow(rules, &a, "/dev/null", FS_READ_FILE);
	if (r == 0 && syscall(SYS_landlock_restrict_self, rules, 0) < 0)
		r = -errno;
	return r < 0 ? err_set(e, -r, "restrict cloched to its folders") : 0;
}

int sandbox_self(const char *state_dir, const char *runtime_dir, struct err *e)
{
	int abi = landlock_abi();

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)
		return err_set(e, errno, "give up privileges");
	if (abi > 0 && own_folder_only(state_dir, runtime_dir, abi, e) < 0)
		return -1;
	return filter(e);
}
