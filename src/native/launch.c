/* SPDX-License-Identifier: Apache-2.0 */
#include "native/launch.h"

#include <fcntl.h>
#include <linux/capability.h>
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

/* The static init, put here by tools/embed.sh. */
extern const char cloche_init_begin[], cloche_init_end[];

enum { CONTROL = 3, EXECUTABLE = 4, KEEP = 5, FIRST_FREE = 6, CHILD_STACK = 16384 };

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

struct child {
	const struct launch *l;
	int executable;
	int null;
	int errnum;
	const char *what;
};

in_clone_child static int child_failed(struct child *c, const char *what)
{
	c->errnum = errno;
	c->what = what;
	return 127;
}

/* Root of a user namespace without maps would lose all capabilities by executing: ambient ones stay. */
in_clone_child static int keep_capabilities(void)
{
	struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
	struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3];

	if (syscall(SYS_capget, &header, data) < 0)
		return -1;
	data[0].inheritable = data[0].permitted;
	data[1].inheritable = data[1].permitted;
	if (syscall(SYS_capset, &header, data) < 0)
		return -1;
	for (int cap = 0; cap < 64; cap++)
		if (data[cap / 32].permitted & 1u << cap % 32 &&
		    prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, cap, 0, 0) < 0)
			return -1;
	return 0;
}

/* Runs on its own stack in the parent's memory, while the parent waits: system calls only. */
in_clone_child static int child(void *argument)
{
	struct child *c = argument;
	const struct launch *l = c->l;
	const int wanted[] = {c->null, c->null, c->null, l->control, c->executable, l->keep};
	int high[ARRAY_SIZE(wanted)];
	char *argv[] = {(char *)(uintptr_t) "cloche-init", NULL}, *envp[] = {NULL};

	/* First out of the way of each other, then into place. */
	for (size_t i = 0; i < ARRAY_SIZE(wanted); i++) {
		high[i] = fcntl(wanted[i], F_DUPFD, FIRST_FREE);
		if (high[i] < 0)
			return child_failed(c, "duplicate descriptors");
	}
	for (size_t i = 0; i < ARRAY_SIZE(wanted); i++)
		if (dup3(high[i], (int)i, i == EXECUTABLE ? O_CLOEXEC : 0) < 0)
			return child_failed(c, "place descriptors");
	if (syscall(SYS_close_range, FIRST_FREE, ~0u, 0) < 0)
		return child_failed(c, "close descriptors");
	if (setsid() < 0)
		return child_failed(c, "start a session");
	if (l->rootless && keep_capabilities() < 0)
		return child_failed(c, "keep capabilities of the user namespace");
	syscall(SYS_execveat, EXECUTABLE, "", argv, envp, AT_EMPTY_PATH);
	return child_failed(c, "execute init (is vm.memfd_noexec 2? set it to 0 or 1)");
}

int launch_prepare(int *ret_fd, struct err *e)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, make_init);
	*ret_fd = init_fd;
	return init_fd < 0 ? err_set(e, init_errno, "prepare init") : 0;
}

int launch(const struct launch *l, pid_t *ret_pid, int *ret_pidfd, struct err *e)
{
	char stack[CHILD_STACK] __attribute__((aligned(16)));
	int pidfd = -1;
	struct child c = {.l = l};
	struct clone3_args args = {
		.flags = CLONE_VM | CLONE_VFORK | CLONE_PIDFD | CLONE_NEWPID |
			 (l->rootless ? CLONE_NEWUSER : 0) |
			 (l->cgroup >= 0 ? CLONE_INTO_CGROUP : 0),
		.pidfd = (uint64_t)(uintptr_t)&pidfd,
		.stack = (uint64_t)(uintptr_t)stack,
		.stack_size = sizeof stack,
		.cgroup = (uint64_t)l->cgroup,
	};
	_cleanup_close_ int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	sigset_t all, before;
	pid_t pid;

	if (null < 0)
		return err_set(e, errno, "open /dev/null");
	if (launch_prepare(&c.executable, e) < 0)
		return -1;
	c.null = null;
	/* A handler of the caller's must not run in the child, which shares this memory. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	pid = clone3_call(&args, child, &c);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (pid < 0)
		return err_set(
			e, -pid,
			l->rootless
				? "make a user namespace (see /proc/sys/user/max_user_namespaces and "
				  "kernel.unprivileged_userns_clone; an AppArmor profile may forbid it)"
				: "make a pid namespace");
	if (c.errnum != 0) {
		launch_wait(pidfd, &(bool){false}, &(int){0});
		close(pidfd);
		return err_set(e, c.errnum, "%s", c.what);
	}
	*ret_pid = pid;
	*ret_pidfd = pidfd;
	return 0;
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
