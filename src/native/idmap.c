/* SPDX-License-Identifier: Apache-2.0 */
#include "native/idmap.h"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "native/clone3.h"
#include "native/owner.h"

enum { MAX_PAIRS = 8 };

in_clone_child static int hold(void *parent)
{
	/* Should the parent be killed meanwhile, this process must not stay. */
	if (syscall(SYS_prctl, PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0 ||
	    syscall(SYS_getppid) != (intptr_t)parent)
		return 1;
	while (syscall(SYS_pause))
		;
	return 0;
}

static int write_map(pid_t pid, const char *name, const struct id_pair *pairs, size_t count,
		     struct err *e)
{
	char path[64], text[MAX_PAIRS * 40];
	int n = 0, r;

	for (size_t i = 0; i < count; i++)
		n += snprintf(text + n, sizeof text - (size_t)n, "%u %u 1\n", pairs[i].inside,
			      pairs[i].outside);
	snprintf(path, sizeof path, "/proc/%d/%s", pid, name);
	r = fd_write_file(AT_FDCWD, path, text);
	return r < 0 ? err_set(e, -r, "write %s of a new user namespace", name) : 0;
}

static int open_userns(pid_t pid, int *ret_fd, struct err *e)
{
	char path[64];

	snprintf(path, sizeof path, "/proc/%d/ns/user", pid);
	*ret_fd = open(path, O_RDONLY | O_CLOEXEC);
	return *ret_fd < 0 ? err_set(e, errno, "open a new user namespace") : 0;
}

static int make_owned(const struct userns_owner *owner, struct clone3_args *args, pid_t me)
{
	int dumpable = prctl(PR_GET_DUMPABLE), death_signal = 0, r;
	uint32_t uid = geteuid(), gid = getegid();
	pid_t pid;

	prctl(PR_GET_PDEATHSIG, &death_signal);
	r = owner_become(owner->uid, owner->gid);
	pid = r < 0 ? r : clone3_call(args, hold, (void *)(intptr_t)me);
	r = owner_become(uid, gid);
	if (dumpable == 1)
		prctl(PR_SET_DUMPABLE, 1);
	if (death_signal)
		prctl(PR_SET_PDEATHSIG, death_signal);
	if (r < 0 && pid > 0) {
		kill(pid, SIGKILL);
		waitpid(pid, NULL, __WALL);
	}
	return r < 0 ? r : pid;
}

int userns_make(const struct id_pair *uids, size_t uid_count, const struct id_pair *gids,
		size_t gid_count, const struct userns_owner *owner, struct userns_holder *holder,
		int *ret_fd, struct err *e)
{
	struct clone3_args args = {
		.flags = CLONE_VM | CLONE_NEWUSER,
		.stack = (uint64_t)(uintptr_t)holder->stack,
		.stack_size = sizeof holder->stack,
	};
	sigset_t all, before;
	pid_t pid, me = getpid();
	int r;

	holder->pid = 0;
	if (uid_count > MAX_PAIRS || gid_count > MAX_PAIRS)
		return err_set(e, 0, "too many id maps");
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	pid = owner ? make_owned(owner, &args, me) : clone3_call(&args, hold, (void *)(intptr_t)me);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (pid < 0)
		return err_set(e, -pid,
			       "make a user namespace (see /proc/sys/user/max_user_namespaces)");
	holder->pid = pid;
	r = write_map(pid, "uid_map", uids, uid_count, e);
	if (r == 0)
		r = write_map(pid, "gid_map", gids, gid_count, e);
	if (r == 0)
		r = open_userns(pid, ret_fd, e);
	kill(pid, SIGKILL);
	return r;
}

void userns_holder_reap(struct userns_holder *holder)
{
	while (holder->pid > 0 && waitpid(holder->pid, NULL, __WALL) < 0 && errno == EINTR)
		;
	holder->pid = 0;
}

static int run_helper(const char *program, pid_t pid, const struct id_pair *pairs, size_t count,
		      struct err *e)
{
	char numbers[1 + MAX_PAIRS * 3][12];
	char *argv[3 + MAX_PAIRS * 3];
	char *const environment[] = {NULL};
	size_t n = 0, a = 0;
	pid_t child;
	int status, r;

	argv[a++] = (char *)(uintptr_t)program;
	snprintf(numbers[n], sizeof numbers[n], "%d", pid);
	argv[a++] = numbers[n++];
	for (size_t i = 0; i < count && i < MAX_PAIRS; i++) {
		const uint32_t row[] = {pairs[i].inside, pairs[i].outside, 1};

		for (size_t k = 0; k < ARRAY_SIZE(row); k++) {
			snprintf(numbers[n], sizeof numbers[n], "%u", row[k]);
			argv[a++] = numbers[n++];
		}
	}
	argv[a] = NULL;
	r = posix_spawn(&child, program, NULL, NULL, argv, environment);
	if (r != 0)
		return err_set(e, r, "run %s (install the package uidmap)", program);
	while (waitpid(child, &status, 0) < 0)
		if (errno != EINTR)
			return err_set(e, errno, "wait for %s", program);
	if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
		return err_set(e, 0, "%s refused the ids: check /etc/subuid and /etc/subgid",
			       program);
	return 0;
}

int userns_map_by_helper(pid_t pid, const struct id_pair *uids, const struct id_pair *gids,
			 size_t count, struct err *e)
{
	if (run_helper("/usr/bin/newuidmap", pid, uids, count, e) < 0)
		return -1;
	return run_helper("/usr/bin/newgidmap", pid, gids, count, e);
}
