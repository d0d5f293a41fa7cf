/* SPDX-License-Identifier: Apache-2.0 */
/*
 * userns.c - user namespaces below others.
 *
 * The kernel wants much of whoever makes one: it must be in the parent, its effective ids must have names
 * there (they become the owner), and the maps are written by a process in the parent or the new one that
 * has rights in the parent and can open the file, which is real root's while the memory is undumpable. A
 * helper that shares our memory is all that at once: its effective ids are the owner's, its file system
 * ids still root's, and it has entered the parent, where that gives it all capabilities.
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "init/nest.h"
#include "native/clone3.h"
#include "native/owner.h"
#include "native/raw.h"

enum { HELPER_STACK = 16384, HOLDER_STACK = 4096 };

struct making {
	int parent;
	uint32_t uid, gid;
	const char *uid_map, *gid_map;
	pid_t holder;
	int errnum;
};

static char holder_stack[HOLDER_STACK] __attribute__((aligned(16)));

in_clone_child static int hold(void *nothing)
{
	(void)nothing;
	for (;;)
		raw_call(SYS_pause, 0, 0, 0, 0);
	return 0;
}

static int write_map(pid_t pid, const char *name, const char *text)
{
	char path[64];
	size_t n = strlen(text);
	int fd, r = 0;

	snprintf(path, sizeof path, "/proc/%d/%s", pid, name);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return -1;
	if (write(fd, text, n) != (ssize_t)n)
		r = -1;
	close(fd);
	return r;
}

in_clone_child static int help(void *argument)
{
	struct making *m = argument;
	struct clone3_args args = {
		.flags = CLONE_VM | CLONE_NEWUSER | CLONE_PARENT,
		.stack = (uint64_t)(uintptr_t)holder_stack,
		.stack_size = sizeof holder_stack,
	};

	m->errnum = -owner_become(m->uid, m->gid);
	syscall(SYS_setfsuid, 0); /* the maps of the holder are files of real root's */
	if (m->errnum == 0 && m->parent >= 0 && setns(m->parent, CLONE_NEWUSER) < 0)
		m->errnum = errno;
	if (m->errnum)
		return 1;
	m->holder = clone3_call(&args, hold, NULL);
	if (m->holder < 0)
		m->errnum = -m->holder;
	else if (write_map(m->holder, "uid_map", m->uid_map) < 0 ||
		 write_map(m->holder, "gid_map", m->gid_map) < 0)
		m->errnum = errno;
	return 0;
}

int userns_below(int parent, uint32_t owner_uid, uint32_t owner_gid, const char *uid_map,
		 const char *gid_map)
{
	static char stack[HELPER_STACK] __attribute__((aligned(16)));
	struct making m = {parent, owner_uid, owner_gid, uid_map, gid_map, 0, 0};
	struct clone3_args args = {
		.flags = CLONE_VM | CLONE_VFORK | CLONE_FILES,
		.stack = (uint64_t)(uintptr_t)stack,
		.stack_size = sizeof stack,
	};
	char path[64];
	pid_t helper = clone3_call(&args, help, &m);
	int fd = -1;

	if (helper < 0)
		return helper;
	while (waitpid(helper, NULL, __WALL) < 0 && errno == EINTR)
		;
	if (m.holder <= 0)
		return m.errnum ? -m.errnum : -EIO;
	if (m.errnum == 0) {
		snprintf(path, sizeof path, "/proc/%d/ns/user", m.holder);
		fd = open(path, O_RDONLY | O_CLOEXEC);
		if (fd < 0)
			m.errnum = errno;
	}
	kill(m.holder, SIGKILL);
	while (waitpid(m.holder, NULL, __WALL) < 0 && errno == EINTR)
		;
	return m.errnum ? -m.errnum : fd;
}
