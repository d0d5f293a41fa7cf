/* SPDX-License-Identifier: Apache-2.0 */
/*
 * join.c - the zygote's side of joining a prepared sandbox.
 *
 * A process can set a pid namespace only for its children, and needs CAP_SYS_ADMIN in its own user
 * namespace for that, which the zygote has not. So a helper is made that shares the zygote's memory and
 * stack, as vfork()'s child does, born in the sandbox's cgroup. It enters all of the sandbox's namespaces
 * by one setns() - as the owner of their user namespace's parent it may - and there calls fork(): the
 * child is a copy of the zygote on the same frames and simply returns. The helper exits; the zygote, which
 * slept meanwhile, goes on.
 *
 * What the helper cannot do is left to the child: the time namespace (the kernel wants a process alone in
 * its memory) and the v1 cgroups (the helper shares the zygote's memory: were it chosen by the OOM killer
 * of a sandbox, the zygote would die with it; a CPU limit would hold the zygote up).
 */
#include "zygote/join.h"

#include <errno.h>
#include <linux/capability.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "native/clone3.h"
#include "native/seat.h"
#include "native/seccomp.h"

enum {
	CAPABILITIES = 64,
	BORN_INSIDE = CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWUTS |
		      CLONE_NEWNET | CLONE_NEWCGROUP,
};

/*
 * clone3() that returns twice on one stack. The return address must not lie there while the helper runs:
 * it would be overwritten. glibc's vfork() does the same; user shadow stacks are not handled.
 */
long join_clone3(struct clone3_args *args, size_t size) __attribute__((returns_twice));
__asm__(".text\n"
	".type join_clone3, @function\n"
	".hidden join_clone3\n"
	"join_clone3:\n\t"
	"pop %rdx\n\t"
	"mov $435, %eax\n\t" /* __NR_clone3 */
	"syscall\n\t"
	"push %rdx\n\t"
	"ret\n"
	".size join_clone3, . - join_clone3\n");

int join_split(const struct join_data *data, size_t size, const int *fds, size_t count,
	       struct join *ret, struct err *e)
{
	size_t n = 2;

	if (size != sizeof *data || data->has_cgroup > 1 || data->task_count > JOIN_TASKS_MAX ||
	    data->of_init > 1 || data->zero || count != 2 + data->has_cgroup + data->task_count)
		return err_set(e, 0, "join a sandbox: malformed request");
	*ret = (struct join){
		.seat = fds[0], .init = fds[1], .cgroup = -1, .of_init = data->of_init};
	if (data->has_cgroup)
		ret->cgroup = fds[n++];
	for (; n < count; n++)
		ret->tasks[ret->task_count++] = fds[n];
	return 0;
}

/* What the helper leaves in the memory it shares. */
struct birth {
	pid_t child;
	int errnum;
	const char *what;
};

/*
 * In the helper. Returns in the child only. of_init: through a second helper, in the same memory but in the
 * sandbox's pid namespace. Whose parent has left belongs to PID 1 of the pid namespace that the parent was in:
 * the child of the second one becomes init's.
 */
in_clone_child static void be_helper(const struct join *j, struct birth *b)
{
	struct clone3_args args = {.flags = CLONE_VM | CLONE_VFORK};
	long second = 0;

	if (setns(j->init, BORN_INSIDE) < 0) {
		b->errnum = errno;
		b->what = "enter a prepared sandbox (joined already?)";
		syscall(SYS_exit, 1);
	}
	if (j->of_init)
		second = join_clone3(&args, sizeof args);
	if (second == 0) {
		b->child = fork();
		if (b->child == 0)
			return;
	}
	if (second < 0 || b->child < 0) {
		b->errnum = second < 0 ? (int)-second : errno;
		b->what = "fork into a prepared sandbox";
	}
	syscall(SYS_exit, 0);
}

pid_t zygote_fork(const struct join *j, struct err *e)
{
	struct clone3_args args = {
		.flags = CLONE_VM | CLONE_VFORK | (j->cgroup >= 0 ? CLONE_INTO_CGROUP : 0),
		.cgroup = j->cgroup >= 0 ? (uint64_t)j->cgroup : 0,
	};
	struct birth birth = {.child = -1, .errnum = EIO, .what = "make a helper"};
	sigset_t all, before;
	long helper;

	/* A handler must not run in the helper, which shares this memory. */
	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, &before);
	helper = join_clone3(&args, sizeof args);
	if (helper == 0) {
		be_helper(j, &birth);
		sigprocmask(SIG_SETMASK, &before, NULL);
		return 0;
	}
	while (helper > 0 && waitpid((pid_t)helper, NULL, __WALL) < 0 && errno == EINTR)
		;
	sigprocmask(SIG_SETMASK, &before, NULL);
	if (helper < 0)
		return err_set(e, (int)-helper, "%s", birth.what);
	return birth.child > 0 ? birth.child : err_set(e, birth.errnum, "%s", birth.what);
}

int join_adopt(void)
{
	return prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) < 0 ? -errno : 0;
}

/* Tell init that its sandbox is taken; what it answers. */
static int take_seat(int seat, struct seat_record *ret, int *ret_ruleset, struct err *e)
{
	const char joined = SEAT_JOINED;
	union {
		char space[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} control;
	struct iovec iov = {ret, sizeof *ret};
	struct msghdr m = {.msg_iov = &iov,
			   .msg_iovlen = 1,
			   .msg_control = &control,
			   .msg_controllen = sizeof control};
	struct cmsghdr *c;
	ssize_t n;

	*ret_ruleset = -1;
	if (send(seat, &joined, 1, MSG_NOSIGNAL) != 1)
		return err_set(e, errno, "tell the sandbox's init");
	n = recvmsg(seat, &m, MSG_CMSG_CLOEXEC);
	if (n != sizeof *ret)
		return err_set(e, n < 0 ? errno : 0, "hear from the sandbox's init");
	c = CMSG_FIRSTHDR(&m);
	if (c && c->cmsg_type == SCM_RIGHTS && c->cmsg_len == CMSG_LEN(sizeof(int)))
		memcpy(ret_ruleset, CMSG_DATA(c), sizeof(int));
	if (ret->landlock != (*ret_ruleset >= 0) || ret->uid == 0 || ret->gid == 0 ||
	    ret->profile[sizeof ret->profile - 1])
		return err_set(e, EPROTO, "hear from the sandbox's init");
	return 0;
}

/* As isolate_rlimits() of init: the lower of ours and the plan's, soft = hard but for CPU time. */
static int lower_limits(const struct seat_record *r, struct err *e)
{
	for (int i = 0; i < PLAN_RLIMITS; i++) {
		struct rlimit now, want;

		if (r->rlimit[i] == UINT64_MAX)
			continue;
		if (getrlimit((__rlimit_resource_t)i, &now) < 0)
			return err_set(e, errno, "read rlimit %d", i);
		want.rlim_max = now.rlim_max < r->rlimit[i] ? now.rlim_max : r->rlimit[i];
		want.rlim_cur = want.rlim_max;
		if (i == RLIMIT_CPU && want.rlim_max > 1)
			want.rlim_cur = want.rlim_max - 1;
		if (setrlimit((__rlimit_resource_t)i, &want) < 0)
			return err_set(e, errno, "set rlimit %d", i);
	}
	return 0;
}

/* Entering a user namespace gave this process all capabilities in it and a full bounding set. The user
 * it comes from has no name inside, so no change of ids clears anything by itself. */
static int become_user(const struct seat_record *r, struct err *e)
{
	struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
	struct __user_cap_data_struct none[_LINUX_CAPABILITY_U32S_3] = {0};

	for (int cap = 0; cap < CAPABILITIES; cap++)
		if (prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) < 0) {
			if (errno == EINVAL && cap > 0)
				break; /* above the last one this kernel knows */
			return err_set(e, errno, "drop capability %d", cap);
		}
	if (syscall(SYS_setgroups, 0, NULL) < 0 ||
	    syscall(SYS_setresgid, r->gid, r->gid, r->gid) < 0 ||
	    syscall(SYS_setresuid, r->uid, r->uid, r->uid) < 0)
		return err_set(e, errno, "become the sandbox user");
	if (syscall(SYS_capset, &header, none) < 0)
		return err_set(e, errno, "drop all capabilities");
	return 0;
}

/* no_new_privs before Landlock and the filter, which ask for it; dumpable as after an exec, which the
 * change of user took away: the code may read its own /proc. */
static int lock(const struct seat_record *r, int ruleset, struct err *e)
{
	const struct seccomp_profile *filter = seccomp_profile_find(r->profile);
	int n;

	if (!filter)
		return err_set(e, 0, "no seccomp profile %s", r->profile);
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return err_set(e, errno, "set no_new_privs");
	if (ruleset >= 0 && syscall(SYS_landlock_restrict_self, ruleset, 0) < 0)
		return err_set(e, errno, "enforce the Landlock rules");
	if (prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) < 0)
		return err_set(e, errno, "become dumpable");
	n = seccomp_profile_load(filter);
	return n < 0 ? err_set(e, -n, "load seccomp profile %s", filter->name) : 0;
}

int zygote_join(const struct join *j, struct err *e)
{
	struct seat_record record;
	int ruleset, r;

	for (size_t i = 0; i < j->task_count; i++)
		if (write(j->tasks[i], "0", 1) != 1)
			return err_set(e, errno, "join the sandbox's cgroup");
	if (setns(j->init, CLONE_NEWTIME) < 0)
		return err_set(e, errno, "enter the sandbox's time namespace");
	r = take_seat(j->seat, &record, &ruleset, e);
	if (r == 0 && setsid() < 0)
		r = err_set(e, errno, "start a session");
	if (r == 0)
		r = lower_limits(&record, e);
	if (r == 0)
		r = become_user(&record, e);
	if (r == 0)
		r = lock(&record, ruleset, e);
	if (ruleset >= 0)
		close(ruleset);
	return r;
}
