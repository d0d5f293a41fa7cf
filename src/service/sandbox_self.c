/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sandbox_self.c - cloched parses what clients and sandboxes say, so it is held like one of them.
 *
 * It has no capability and its own user already. Here it loses the rest: other system calls than the
 * listed ones answer EPERM (clone3 and io_uring ENOSYS, which their callers take as "not there"), other
 * architectures are killed, it can never execute anything, and Landlock leaves it its state, its sockets
 * and the counters of cgroups.
 */
#include "service/sandbox_self.h"

#include <fcntl.h>
#include <linux/landlock.h>
#include <seccomp.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "native/native.h"

static const int allowed[] = {
#define CALL(name) SCMP_SYS(name),
#include "service/self_calls.def"
#undef CALL
};

static const int absent[] = {SCMP_SYS(clone3), SCMP_SYS(io_uring_setup), SCMP_SYS(io_uring_enter),
			     SCMP_SYS(io_uring_register), SCMP_SYS(rseq)};

static int filter(struct err *e)
{
	scmp_filter_ctx ctx = seccomp_init(SCMP_ACT_ERRNO(EPERM));
	int r = ctx ? 0 : -ENOMEM;

	if (r == 0)
		r = seccomp_attr_set(ctx, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_KILL_PROCESS);
	for (size_t i = 0; r == 0 && i < ARRAY_SIZE(allowed); i++)
		r = seccomp_rule_add(ctx, SCMP_ACT_ALLOW, allowed[i], 0);
	for (size_t i = 0; r == 0 && i < ARRAY_SIZE(absent); i++)
		r = seccomp_rule_add(ctx, SCMP_ACT_ERRNO(ENOSYS), absent[i], 0);
	/* Unix sockets to the spawner and to inits; no others are made here. */
	if (r == 0)
		r = seccomp_rule_add(ctx, SCMP_ACT_ALLOW, SCMP_SYS(socket), 1,
				     SCMP_A0(SCMP_CMP_EQ, AF_UNIX));
	/* Threads of libuv's pool, should it ever want one; no new process, no namespace. */
	if (r == 0)
		r = seccomp_rule_add(ctx, SCMP_ACT_ALLOW, SCMP_SYS(ioctl), 1,
				     SCMP_A1(SCMP_CMP_EQ, FIONBIO));
	if (r == 0)
		r = seccomp_load(ctx);
	seccomp_release(ctx);
	return r < 0 ? err_set(e, -r, "load the system call filter") : 0;
}

#define READ  (LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR)
#define WRITE                                                                                      \
	(LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_REMOVE_DIR |                           \
	 LANDLOCK_ACCESS_FS_REMOVE_FILE | LANDLOCK_ACCESS_FS_MAKE_DIR |                            \
	 LANDLOCK_ACCESS_FS_MAKE_REG | (1ull << 14) /* TRUNCATE */)
#define EVERYTHING ((1ull << 15) - 1)

static int allow(int rules, const char *path, uint64_t access)
{
	struct landlock_path_beneath_attr rule = {.allowed_access = access,
						  .parent_fd = open(path, O_PATH | O_CLOEXEC)};
	int r = 0;

	if (rule.parent_fd < 0)
		return errno == ENOENT ? 0 : -errno;
	if (syscall(SYS_landlock_add_rule, rules, LANDLOCK_RULE_PATH_BENEATH, &rule, 0) < 0)
		r = -errno;
	close(rule.parent_fd);
	return r;
}

static int own_folders_only(const struct service *v, struct err *e)
{
	struct landlock_ruleset_attr attr = {.handled_access_fs = EVERYTHING};
	int rules = (int)syscall(SYS_landlock_create_ruleset, &attr, sizeof(uint64_t), 0), r;

	if (rules < 0)
		return err_set(e, errno, "make a Landlock ruleset");
	r = allow(rules, v->config.state_dir, READ | WRITE);
	if (r == 0)
		r = allow(rules, v->config.runtime_dir, READ);
	if (r == 0)
		r = allow(rules, "/sys/fs/cgroup", READ);
	if (r == 0 && syscall(SYS_landlock_restrict_self, rules, 0) < 0)
		r = -errno;
	close(rules);
	return r < 0 ? err_set(e, -r, "restrict cloched to its folders") : 0;
}

int sandbox_self(struct service *v, struct err *e)
{
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)
		return err_set(e, errno, "give up privileges");
	if (landlock_abi() >= 3 && own_folders_only(v, e) < 0)
		return -1;
	return filter(e);
}
