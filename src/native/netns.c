/* SPDX-License-Identifier: Apache-2.0 */
/*
 * netns.c - a network namespace that has lo and nothing else; servers on 127.0.0.1 and ::1 work. With a network policy
 * there is more: capture.h.
 *
 * To make one takes the kernel 0.4 ms, as long as most of the other steps together. Nobody can make one
 * without being in it, so a child does that shares this process's memory and descriptors, and leaves a
 * descriptor. The two share one errno as well: the child makes its system calls without it.
 */
#include "native/netns.h"

#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "native/clone3.h"
#include "native/raw.h"

/* A connection that waits for its accept() is memory of the kernel's that is charged to nobody (its charge begins with
 * accept(), and cgroup v1 has none): as many as Linux let wait until 5.4, and not 4,096. Where /proc/sys cannot be
 * written (rootless before 6.13, a container's), it stays as it is. */
in_clone_child static void limit_waiting_connections(int proc)
{
	static const char path[] = "/proc/sys/net/core/somaxconn";
	long fd = raw_call(SYS_openat, proc, (long)(proc < 0 ? path : path + sizeof "/proc"),
			   O_WRONLY | O_CLOEXEC, 0);

	if (fd < 0)
		return;
	raw_call(SYS_write, fd, (long)"128", 3, 0);
	raw_call(SYS_close, fd, 0, 0, 0);
}

/* Ends with 0 or the number of the error; the namespace's descriptor is in m->fd. */
in_clone_child static int make(void *argument)
{
	static const struct ifreq loopback = {.ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING};
	struct netns_maker *m = argument;
	long fd, r = 0;

	if (m->userns >= 0)
		r = raw_call(SYS_setns, m->userns, CLONE_NEWUSER, 0, 0);
	if (r == 0)
		r = raw_call(SYS_unshare, CLONE_NEWNET, 0, 0, 0);
	if (r < 0)
		return (int)-r;
	fd = raw_call(SYS_socket, AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0, 0);
	if (fd < 0)
		return (int)-fd;
	r = raw_call(SYS_ioctl, fd, SIOCSIFFLAGS, (long)&loopback, 0);
	raw_call(SYS_close, fd, 0, 0, 0);
	limit_waiting_connections(m->proc);
	if (r == 0 && m->capture.wanted)
		r = capture_make(&m->capture);
	if (r < 0)
		return (int)-r;
	fd = raw_call(SYS_openat, AT_FDCWD, (long)"/proc/self/ns/net", O_RDONLY | O_CLOEXEC, 0);
	if (fd < 0)
		return (int)-fd;
	m->fd = (int)fd;
	return 0;
}

int netns_begin_in(struct netns_maker *m, int proc, int userns)
{
	struct clone3_args args = {
		.flags = CLONE_VM | CLONE_FILES,
		.stack = (uint64_t)(uintptr_t)m->stack,
		.stack_size = sizeof m->stack,
	};
	sigset_t all, before;
	pid_t pid;

	m->pid = 0;
	m->fd = -1;
	m->proc = proc;
	m->userns = userns;
	m->capture.count = 0;
	/* A handler of the caller's must not run in the child, which shares this memory. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	pid = clone3_call(&args, make, m);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (pid < 0)
		return pid;
	m->pid = pid;
	return 0;
}

int netns_begin(struct netns_maker *m, int proc)
{
	return netns_begin_in(m, proc, -1);
}

int netns_finish(struct netns_maker *m, int *ret_fd)
{
	int status;
	pid_t pid = m->pid;

	m->pid = 0;
	if (pid == 0)
		return -ECHILD;
	while (waitpid(pid, &status, __WALL) < 0)
		if (errno != EINTR)
			return -errno;
	if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
		capture_done(&m->capture);
		return WIFEXITED(status) ? -WEXITSTATUS(status) : -EIO;
	}
	*ret_fd = m->fd;
	return 0;
}

int netns_make(int *ret_fd)
{
	struct netns_maker m;
	int r;

	m.capture.wanted = false;
	r = netns_begin(&m, -1);
	return r < 0 ? r : netns_finish(&m, ret_fd);
}
