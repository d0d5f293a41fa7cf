/* SPDX-License-Identifier: Apache-2.0 */
/*
 * floor.c - the least that single use of a Python can cost on this machine: an interpreter that forks itself.
 *
 * Loaded into python3 (floor.py). No service, no protocol, no record, no user namespace, no overlay: each run is a fork
 * of this very process into pid, mount, ipc and uts namespaces, a network namespace and cgroups that are used
 * again and again, one tmpfs and one proc, the filter, no capability, another uid; it runs the code and is seen dead.
 * What the service does in less than 1 / 0.6 of this is a good deal more.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "native/clone3.h"
#include "native/seccomp.h"

enum { WORKERS_MAX = 64, GROUPS_MAX = 64, TREES_MAX = 5, OUTPUT_MAX = 4096, USER = 65534 };

/* Called by floor.py. */
#define exported __attribute__((visibility("default")))
exported void floor_group(int unified, const int *v1, int count);
exported void floor_begin(const char *folder, int count);
exported long floor_serve(int count, double seconds, const char *code, const char *wanted,
			  uint64_t *took, long took_max);

/* A set of cgroups; the CPU quota of one that was just used would be used up. */
struct group {
	int unified, tasks[TREES_MAX], task_count;
};

struct worker {
	int netns, out, pidfd;
	pid_t pid;
	uint64_t begun;
};

static struct group groups[GROUPS_MAX];
static int group_count, next_group;
static struct worker workers[WORKERS_MAX];

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

__attribute__((noreturn)) static void die(const char *what)
{
	fprintf(stderr, "floor: %s: %s\n", what, strerror(errno));
	_exit(1);
}

/* Directory descriptors: unified (or -1) and v1 ones, made by floor.py. */
void floor_group(int unified, const int *v1, int count)
{
	struct group *g = &groups[group_count++];

	g->unified = unified;
	for (g->task_count = 0; g->task_count < count; g->task_count++) {
		g->tasks[g->task_count] = openat(v1[g->task_count], "tasks", O_WRONLY | O_CLOEXEC);
		if (g->tasks[g->task_count] < 0)
			die("open tasks");
	}
}

static int new_netns(void)
{
	int own = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC), fd, s;
	struct ifreq lo = {.ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING};

	if (own < 0 || unshare(CLONE_NEWNET) < 0)
		die("make a network namespace");
	s = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (ioctl(s, SIOCSIFFLAGS, &lo) < 0)
		die("bring lo up");
	close(s);
	fd = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
	if (fd < 0 || setns(own, CLONE_NEWNET) < 0)
		die("come back");
	close(own);
	return fd;
}

/* count workers. And the host's /usr as root, with nothing else of it, once for all. */
void floor_begin(const char *folder, int count)
{
	static const char *const links[][2] = {
		{"usr/bin", "bin"}, {"usr/lib", "lib"}, {"usr/lib64", "lib64"}};

	for (int i = 0; i < count; i++)
		workers[i] = (struct worker){.netns = new_netns(), .out = -1, .pidfd = -1};
	if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
	    mount("tmpfs", folder, "tmpfs", 0, "size=1m") < 0 || chdir(folder) < 0)
		die("make a root");
	for (size_t i = 0; i < sizeof links / sizeof *links; i++)
		if (symlink(links[i][0], links[i][1]) < 0)
			die("symlink");
	if (mkdir("usr", 0755) < 0 || mkdir("tmp", 0777) < 0 || mkdir("proc", 0555) < 0 ||
	    mount("/usr", "usr", NULL, MS_BIND, NULL) < 0 ||
	    mount(NULL, "usr", NULL, MS_BIND | MS_REMOUNT | MS_RDONLY, NULL) < 0 ||
	    syscall(SYS_pivot_root, ".", ".") < 0 || umount2(".", MNT_DETACH) < 0 || chdir("/") < 0)
		die("enter the root");
}

static void isolate(const struct worker *w, const struct group *g)
{
	struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
	struct __user_cap_data_struct none[_LINUX_CAPABILITY_U32S_3] = {0};
	const struct rlimit files = {1024, 1024}, core = {0, 0};

	for (int i = 0; i < g->task_count; i++)
		if (write(g->tasks[i], "0", 1) != 1)
			die("join a cgroup");
	if (setns(w->netns, CLONE_NEWNET) < 0 ||
	    mount("tmpfs", "/tmp", "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, "size=64m") < 0 ||
	    mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) < 0)
		die("isolate");
	setrlimit(RLIMIT_NOFILE, &files);
	setrlimit(RLIMIT_CORE, &core);
	for (int cap = 0; prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) == 0; cap++)
		;
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || syscall(SYS_setgroups, 0, NULL) < 0 ||
	    syscall(SYS_setresgid, USER, USER, USER) < 0 ||
	    syscall(SYS_setresuid, USER, USER, USER) < 0 ||
	    syscall(SYS_capset, &header, none) < 0 ||
	    seccomp_profile_load(seccomp_profile_find("default")) < 0)
		die("drop privileges");
}

__attribute__((noreturn)) static void child(const struct worker *w, const struct group *g, int out,
					    const char *code)
{
	PyOS_AfterFork_Child();
	dup2(out, 1);
	isolate(w, g);
	syscall(SYS_close_range, 3, ~0u, 0);
	PyRun_SimpleString(code);
	_exit(0);
}

static void start(struct worker *w, const char *code)
{
	const struct group *g = &groups[next_group++ % group_count];
	struct clone3_args args = {
		.flags = CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_PIDFD |
			 (g->unified >= 0 ? CLONE_INTO_CGROUP : 0),
		.pidfd = (uint64_t)(uintptr_t)&w->pidfd,
		.exit_signal = SIGCHLD,
		.cgroup = g->unified >= 0 ? (uint64_t)g->unified : 0,
	};
	int p[2];

	if (pipe2(p, O_CLOEXEC) < 0)
		die("make a pipe");
	w->begun = now_ns();
	PyOS_BeforeFork();
	w->pid = (pid_t)syscall(SYS_clone3, &args, sizeof args);
	if (w->pid == 0)
		child(w, g, p[1], code);
	PyOS_AfterFork_Parent();
	if (w->pid < 0)
		die("fork");
	close(p[1]);
	w->out = p[0];
}

/* Its output has ended: what it took, with the right output; 0 otherwise. */
static uint64_t take_result(struct worker *w, const char *wanted)
{
	char text[OUTPUT_MAX];
	size_t size = 0;
	ssize_t n;

	while ((n = read(w->out, text + size, sizeof text - 1 - size)) > 0)
		size += (size_t)n;
	text[size] = '\0';
	close(w->out);
	w->out = -1;
	return strcmp(text, wanted) == 0 ? now_ns() - w->begun : 0;
}

/* count at a time, for so long; nanoseconds from the fork to the output's end go to took. The number of runs that
 * were seen dead, or -1 when one did not print what was wanted. */
long floor_serve(int count, double seconds, const char *code, const char *wanted, uint64_t *took,
		 long took_max)
{
	uint64_t until = now_ns() + (uint64_t)(seconds * 1e9);
	long done = 0, results = 0;
	int live = 0;

	for (int i = 0; i < count; i++) {
		start(&workers[i], code);
		live++;
	}
	while (live > 0) {
		struct pollfd p[2 * WORKERS_MAX];

		for (int i = 0; i < count; i++) {
			p[2 * i] = (struct pollfd){.fd = workers[i].out, .events = POLLIN};
			p[2 * i + 1] = (struct pollfd){.fd = workers[i].pidfd, .events = POLLIN};
		}
		if (poll(p, (nfds_t)(2 * count), -1) < 0)
			die("poll");
		for (int i = 0; i < count; i++) {
			struct worker *w = &workers[i];

			if (p[2 * i].revents || (p[2 * i + 1].revents && w->out >= 0)) {
				uint64_t ns = take_result(w, wanted);

				if (ns == 0)
					return -1;
				if (results < took_max)
					took[results++] = ns;
			}
			if (!p[2 * i + 1].revents)
				continue;
			waitpid(w->pid, NULL, __WALL);
			close(w->pidfd);
			w->pidfd = -1;
			done++;
			if (now_ns() < until)
				start(w, code);
			else
				live--;
		}
	}
	return done;
}
