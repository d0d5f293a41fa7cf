/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nest.c - PID 1 of the pid namespace in which zygotes and prepared sandboxes live.
 *
 * Root in the user namespace that the sandboxes' namespaces belong to, nothing anywhere else. It forks the
 * sandboxes' inits and reaps whatever ends: inits, and the zygotes' children, whose parents are gone the
 * moment they are born. Its root holds two empty folders and a /proc, which inits need to mount theirs.
 */
#include "init/nest.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "native/clone3.h"
#include "native/isolate/mounts.h"

/* No process of a sandbox can have a number like that of a zygote: libraries that tell a fork by the pid
 * would take it for the zygote. The kernel goes on from here, and from 300 when it has come round. */
#define FIRST_PIDS "30000"

static struct nest_start nest;
static struct born {
	pid_t pid;
	uint32_t number;
} born[LENT_MAX]; /* by pid, the later one in the place of an earlier */
static int reaper;

__attribute__((noreturn)) static void give_up(int errnum, const char *what)
{
	struct nest_report r = {.type = NEST_FAILED, .errnum = errnum, .stage = "nest"};

	snprintf(r.what, sizeof r.what, "%s", what);
	nest_report_send(nest.report, &r, -1);
	_exit(1);
}

static int write_file(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC), r;

	if (fd < 0)
		return -1;
	r = write(fd, text, strlen(text)) < 0 ? -1 : 0;
	close(fd);
	return r;
}

/* As real root. The working directory is the image folder; what is mounted on its "mnt" becomes the root,
 * in which "mnt/new" is where an init attaches its mounts. */
static void own_root(void)
{
	if (unshare(CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWNET) < 0)
		give_up(errno, "unshare the nest's namespaces");
	if (mount("tmpfs", STAGE, "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC,
		  "size=64k,nr_inodes=16,mode=755") < 0 ||
	    mkdir(STAGE "/proc", 0555) < 0 || mkdir(STAGE "/mnt", 0755) < 0 ||
	    mkdir(STAGE "/mnt/new", 0755) < 0 ||
	    mount("proc", STAGE "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) < 0)
		give_up(errno, "make the nest's root");
	if (chdir(STAGE) < 0 || syscall(SYS_pivot_root, ".", ".") < 0 ||
	    umount2(".", MNT_DETACH) < 0 || chdir("/") < 0)
		give_up(errno, "enter the nest's root");
	if (write_file("/proc/sys/kernel/ns_last_pid", FIRST_PIDS) < 0)
		give_up(errno, "set the first pid of the nest");
}

static void become_root_below(void)
{
	if (setns(nest.userns, CLONE_NEWUSER) < 0 || syscall(SYS_setgroups, 0, NULL) < 0 ||
	    syscall(SYS_setresgid, 0, 0, 0) < 0 || syscall(SYS_setresuid, 0, 0, 0) < 0)
		give_up(errno, "become root of the sandboxes' user namespace");
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0 ||
	    prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0)
		give_up(errno, "protect the nest");
}

/* A keeper that does not listen makes new ones. */
static void give_back(uint32_t number)
{
	send(nest.requests, &number, sizeof number, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static void fork_cell(const struct cell_request *r, const int *fds)
{
	struct nest_report report = {.type = NEST_CELL, .number = r->number};
	int pidfd = -1;
	struct clone3_args args = {
		.flags = CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_PIDFD |
			 (r->has_cgroup ? CLONE_INTO_CGROUP : 0),
		.pidfd = (uint64_t)(uintptr_t)&pidfd,
		.exit_signal = SIGCHLD,
		.cgroup = r->has_cgroup ? (uint64_t)fds[CELL_CGROUP] : 0,
	};
	long pid = syscall(SYS_clone3, &args, sizeof args);

	if (pid == 0)
		cell_run(r, fds);
	report.pid = (int32_t)pid;
	if (pid < 0) {
		report.type = NEST_FAILED;
		report.errnum = errno;
		snprintf(report.stage, sizeof report.stage, "namespaces");
		snprintf(report.what, sizeof report.what, "start a prepared sandbox's init");
		give_back(r->number);
	} else {
		born[pid % LENT_MAX] = (struct born){(pid_t)pid, r->number};
	}
	if (nest_report_send(nest.report, &report, pidfd) < 0)
		_exit(1);
	if (pidfd >= 0)
		close(pidfd);
}

static void serve(void)
{
	static struct cell_request r;
	union {
		char space[CMSG_SPACE(CELL_FDS_MAX * sizeof(int))];
		struct cmsghdr align;
	} control;
	struct iovec iov = {&r, sizeof r};
	struct msghdr m = {.msg_iov = &iov,
			   .msg_iovlen = 1,
			   .msg_control = &control,
			   .msg_controllen = sizeof control};
	int fds[CELL_FDS_MAX];
	struct cmsghdr *c;
	size_t count;

	if (recvmsg(nest.requests, &m, MSG_CMSG_CLOEXEC) != sizeof r)
		_exit(0);
	c = CMSG_FIRSTHDR(&m);
	if (!c || c->cmsg_type != SCM_RIGHTS)
		_exit(1);
	count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
	if (count > CELL_FDS_MAX || count != CELL_CGROUP + r.has_cgroup)
		_exit(1);
	memcpy(fds, CMSG_DATA(c), count * sizeof(int));
	fork_cell(&r, fds);
	for (size_t i = 0; i < count; i++)
		close(fds[i]);
}

static void tell_keeper(pid_t pid)
{
	struct born *b = &born[pid % LENT_MAX];

	if (b->pid != pid)
		return;
	give_back(b->number);
	b->pid = 0;
}

static void reap(void)
{
	struct signalfd_siginfo ignored;
	struct rusage used;
	int status;
	pid_t pid;

	while (read(reaper, &ignored, sizeof ignored) > 0)
		;
	while ((pid = wait4(-1, &status, WNOHANG, &used)) > 0) {
		struct nest_report r = {.type = NEST_ENDED, .pid = pid, .status = (uint32_t)status};

		r.cpu_us = (uint64_t)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1000000 +
			   (uint64_t)(used.ru_utime.tv_usec + used.ru_stime.tv_usec);
		if (nest_report_send(nest.report, &r, -1) < 0)
			_exit(1);
		tell_keeper(pid);
	}
}

void nest_run(const struct nest_start *start)
{
	struct nest_report up = {.type = NEST_UP};
	int *keep[] = {&nest.requests, &nest.report, &nest.userns};
	sigset_t child;

	nest = *start;
	own_root();
	for (size_t i = 0; i < sizeof keep / sizeof *keep; i++)
		*keep[i] = fcntl(*keep[i], F_DUPFD_CLOEXEC, 100 + (int)i);
	syscall(SYS_close_range, 3, 99, 0);
	become_root_below();
	close(nest.userns);
	sigemptyset(&child);
	sigaddset(&child, SIGCHLD);
	reaper = signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK);
	if (reaper < 0)
		give_up(errno, "watch for ends");
	if (nest_report_send(nest.report, &up, -1) < 0)
		_exit(1);
	for (;;) {
		struct pollfd f[] = {{.fd = nest.requests, .events = POLLIN},
				     {.fd = reaper, .events = POLLIN}};

		if (poll(f, 2, -1) < 0 && errno != EINTR)
			_exit(1);
		if (f[1].revents)
			reap();
		if (f[0].revents)
			serve();
	}
}
