/* SPDX-License-Identifier: Apache-2.0 */
/*
 * join_pidns.c - a joiner for tests as root: each child is PID 1 of a new pid namespace, so that all
 * siblings have the same pid, and another user than the zygote's. The data is that user's id, or none.
 */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <sched.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/types.h>

#include "zygote/joiner.h"

/* And back to its own, or it could not make another. */
static pid_t fork_apart(const struct joiner_seat *seat, struct err *e)
{
	_cleanup_close_ int own = open("/proc/self/ns/pid", O_RDONLY | O_CLOEXEC);
	pid_t pid;

	(void)seat;
	if (own < 0 || unshare(CLONE_NEWPID) < 0)
		return err_set(e, errno, "new pid namespace");
	pid = fork();
	if (pid < 0)
		err_set(e, errno, "fork");
	if (pid != 0 && setns(own, CLONE_NEWPID) < 0)
		abort();
	return pid;
}

static int join(const struct joiner_seat *seat, struct err *e)
{
	uid_t uid;

	if (getpid() != 1)
		return err_set(e, 0, "pid %d in a new pid namespace", getpid());
	if (seat->size != sizeof uid)
		return 0;
	memcpy(&uid, seat->data, sizeof uid);
	if (setgroups(0, NULL) < 0 || setresgid(uid, uid, uid) < 0 || setresuid(uid, uid, uid) < 0)
		return err_set(e, errno, "become user %u", uid);
	prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);
	return 0;
}

const struct joiner zygote_joiner = {.name = "pidns", .fork = fork_apart, .join = join};
