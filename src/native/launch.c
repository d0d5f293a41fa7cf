/* SPDX-License-Identifier: Apache-2.0 */
#include "native/launch.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "native/clone3.h"
#include "native/raw.h"

/* The static init, put here by tools/embed.sh. */
extern const char cloche_init_begin[], cloche_init_end[];

enum { CONTROL = 3, EXECUTABLE = 4, KEEP = 5, FIRST_FREE = 6 };

static int init_fd = -1;
static int init_errno;

static void make_init(void)
{
	size_t size = (size_t)(cloche_init_end - cloche_init_begin);
	int fd = memfd_create("cloche-init", MFD_CLOEXEC | MFD_ALLOW_SEALING), r;

	if (fd < 0) {
		init_errno = errno;
		return;
	}
	r = fd_write_all(fd, cloche_init_begin, size);
	if (r == 0 &&
	    fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE) < 0)
		r = -errno;
	if (r < 0) {
		close(fd);
		init_errno = -r;
		return;
	}
	init_fd = fd;
}

in_clone_child static int child_failed(struct launch *l, long r, const char *what)
{
	l->errnum = (int)-r;
	l->what = what;
	return 127;
}

/* Root of a user namespace without maps would lose all capabilities by executing: ambient ones stay. */
in_clone_child static long keep_capabilities(void)
{
	struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
	struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3];

	long r = raw_call(SYS_capget, (long)&header, (long)data, 0, 0);

	if (r < 0)
		return r;
	data[0].inheritable = data[0].permitted;
	data[1].inheritable = data[1].permitted;
	r = raw_call(SYS_capset, (long)&header, (long)data, 0, 0);
	for (int cap = 0; r >= 0 && cap < 64; cap++)
		if (data[cap / 32].permitted & 1u << cap % 32)
			r = raw_call(SYS_prctl, PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, cap, 0);
	return r;
}

/* Runs on its own stack in the parent's memory, beside the parent: system calls only, and none that
 * writes errno, which is the parent's. */
in_clone_child static int child(void *argument)
{
	struct launch *l = argument;
	const int wanted[] = {l->null, l->null, l->null, l->control, l->executable, l->keep};
	long high[ARRAY_SIZE(wanted)], r;
	char *argv[] = {(char *)(uintptr_t) "cloche-init", NULL}, *envp[] = {NULL};

	/* First out of the way of each other, then into place. */
	for (size_t i = 0; i < ARRAY_SIZE(wanted); i++) {
		high[i] = raw_call(SYS_fcntl, wanted[i], F_DUPFD, FIRST_FREE, 0);
		if (high[i] < 0)
			return child_failed(l, high[i], "duplicate descriptors");
	}
	for (size_t i = 0; i < ARRAY_SIZE(wanted); i++) {
		r = raw_call(SYS_dup3, high[i], (long)i, i == EXECUTABLE ? O_CLOEXEC : 0, 0);
		if (r < 0)
			return child_failed(l, r, "place descriptors");
	}
	r = raw_call(SYS_close_range, FIRST_FREE, ~0u, 0, 0);
	if (r < 0)
		return child_failed(l, r, "close descriptors");
	r = raw_call(SYS_setsid, 0, 0, 0, 0);
	if (r < 0)
		return child_failed(l, r, "start a session");
	r = l->rootless ? keep_capabilities() : 0;
	if (r < 0)
		return child_failed(l, r, "keep capabilities of the user namespace");
	r = raw_call5(SYS_execveat, EXECUTABLE, (long)"", (long)argv, (long)envp, AT_EMPTY_PATH);
	return child_failed(l, r, "execute init (is vm.memfd_noexec 2? set it to 0 or 1)");
}

int launch_begin(struct launch *l, pid_t *ret_pid, int *ret_pidfd, struct err *e)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	int pidfd = -1;
	struct clone3_args args = {
		.flags = CLONE_VM | CLONE_CHILD_CLEARTID | CLONE_PIDFD | CLONE_NEWPID |
			 (l->rootless ? CLONE_NEWUSER : 0) |
			 (l->cgroup >= 0 ? CLONE_INTO_CGROUP : 0),
		.pidfd = (uint64_t)(uintptr_t)&pidfd,
		.child_tid = (uint64_t)(uintptr_t)&l->running,
		.stack = (uint64_t)(uintptr_t)l->stack,
		.stack_size = sizeof l->stack,
		.cgroup = (uint64_t)l->cgroup,
	};
	_cleanup_close_ int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	sigset_t all, before;
	pid_t pid;

	if (null < 0)
		return err_set(e, errno, "open /dev/null");
	pthread_once(&once, make_init);
	if (init_fd < 0)
		return err_set(e, init_errno, "prepare init");
	l->executable = init_fd;
	l->null = null;
	l->running = 1;
	/* A handler of the caller's must not run in the child, which shares this memory. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	pid = clone3_call(&args, child, l);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (pid < 0) {
		l->running = 0;
		return err_set(
			e, -pid,
			l->rootless
				? "make a user namespace (see /proc/sys/user/max_user_namespaces and "
				  "kernel.unprivileged_userns_clone; an AppArmor profile may forbid it)"
				: "make a pid namespace");
	}
	*ret_pid = pid;
	*ret_pidfd = pidfd;
	return 0;
}

int launch_finish(struct launch *l, struct err *e)
{
	/* The kernel's wake-up is for any process, not only this one: no FUTEX_PRIVATE_FLAG. */
	while (__atomic_load_n(&l->running, __ATOMIC_ACQUIRE) != 0)
		(void)syscall(SYS_futex, &l->running, FUTEX_WAIT, 1, NULL, NULL, 0);
	return l->errnum ? err_set(e, l->errnum, "%s", l->what) : 0;
}

int launch_wait(int pidfd, bool *ret_signaled, int *ret_status)
{
	siginfo_t info;

	while (waitid((idtype_t)P_PIDFD, (id_t)pidfd, &info, WEXITED | __WALL) < 0)
		if (errno != EINTR)
			return -errno;
	*ret_signaled = info.si_code != CLD_EXITED;
	*ret_status = info.si_status;
	return 0;
}
