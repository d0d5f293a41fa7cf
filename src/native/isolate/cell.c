/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cell.c - what the init of a prepared sandbox, and a zygote, do otherwise than a cold sandbox's init.
 *
 * The init is a fork of the nest's, so its memory's owner is the host's root, and while it is
 * undumpable its own files in /proc are not its own. It is dumpable while it sets itself up: nobody but
 * the nest knows it yet.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "native/isolate/isolate.h"

#ifndef CLONE_NEWTIME
#define CLONE_NEWTIME 0x80 /* linux/sched.h, 5.6 */
#endif

int isolate_cell_begin(struct isolation *s)
{
	if (prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) < 0)
		return step_failed(s, errno, "become dumpable");
	s->proc = open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC);
	return s->proc < 0 ? step_failed(s, errno, "open /proc") : 0;
}

/* The change of credentials before has made this process undumpable again. */
int isolate_cell_time(struct isolation *s)
{
	if (prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) < 0 || unshare(CLONE_NEWTIME) < 0)
		return step_failed(s, errno, "unshare the time namespace");
	return isolate_time(s);
}

int isolate_zygote_user(struct isolation *s)
{
	struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
	struct __user_cap_data_struct none[_LINUX_CAPABILITY_U32S_3] = {0};

	if (setns(s->userns, CLONE_NEWUSER) < 0)
		return step_failed(s, errno, "enter the zygote's user namespace");
	for (int cap = 0; cap < CAP_COUNT; cap++)
		if (prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) < 0) {
			if (errno == EINVAL && cap > 0)
				break;
			return step_failed(s, errno, "drop capability %d", cap);
		}
	if (syscall(SYS_setgroups, 0, NULL) < 0 ||
	    syscall(SYS_setresgid, s->plan->gid, s->plan->gid, s->plan->gid) < 0 ||
	    syscall(SYS_setresuid, s->plan->uid, s->plan->uid, s->plan->uid) < 0 ||
	    syscall(SYS_capset, &header, none) < 0)
		return step_failed(s, errno, "become the zygote's user");
	return 0;
}
