/* SPDX-License-Identifier: Apache-2.0 */
/*
 * userns.c - the sandbox's own user namespace: two ids of the host that nobody else has, root inside
 * and the sandbox user. Nothing inside may make another one.
 */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "protocol/protocol.h"
#include "native/isolate/isolate.h"

static int become_root_inside(struct isolation *s)
{
	if (syscall(SYS_setgroups, 0, NULL) < 0 || syscall(SYS_setresgid, 0, 0, 0) < 0 ||
	    syscall(SYS_setresuid, 0, 0, 0) < 0)
		return step_failed(s, errno, "become root of the user namespace");
	return 0;
}

/* Root mode: the supervisor made the namespace and its maps; its descriptor comes along. Rootless: this
 * process is in it already and asks for the maps. */
int isolate_userns_receive(struct isolation *s)
{
	int fds[2]; /* and a /proc to use in the place of the host's */
	size_t count = ARRAY_SIZE(fds);
	struct frame f;
	int r;

	if (s->plan->rootless) {
		r = frame_send(s->control, FRAME_MAPME, 0, NULL, 0, NULL, 0);
		if (r < 0)
			return step_failed(s, -r, "ask for id maps");
	}
	r = frame_receive(s->control, FROM_HOST, &f, NULL, 0, fds, &count);
	if (r < 0 || f.type != FRAME_USERNS || (count == 0) != s->plan->rootless)
		return step_failed(s, r < 0 ? -r : EPROTO, "receive the user namespace");
	s->userns = -1;
	if (s->plan->rootless)
		return become_root_inside(s);
	s->userns = fds[0];
	if (count == 2) {
		close(s->proc);
		s->proc = fds[1];
	}
	return 0;
}

static int forbid_more(struct isolation *s)
{
	int fd = openat(s->proc, "sys/user/max_user_namespaces", O_WRONLY | O_CLOEXEC);
	int r = 0;

	if (fd < 0)
		return step_failed(s, errno, "open user.max_user_namespaces");
	if (write(fd, "0", 1) != 1)
		r = step_failed(s, errno, "set user.max_user_namespaces");
	close(fd);
	return r;
}

int isolate_userns_enter(struct isolation *s)
{
	int r;

	if (!s->plan->rootless && !layer_is_off(s, "userns")) {
		if (setns(s->userns, CLONE_NEWUSER) < 0)
			return step_failed(s, errno, "enter the user namespace");
		r = become_root_inside(s);
		if (r < 0)
			return r;
	}
	if (!layer_is_off(s, "cgroupns") && unshare(CLONE_NEWCGROUP) < 0)
		return step_failed(s, errno, "unshare the cgroup namespace");
	return layer_is_off(s, "userns") || layer_is_off(s, "forbid_userns") ? 0 : forbid_more(s);
}
