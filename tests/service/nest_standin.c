/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nest_standin.c - stands in for an interpreter in a nest: forks children that join prepared sandboxes and
 * execute what they are told, under exactly the locks that zygote_join() puts on. With no arguments the
 * child says that it is there and leaves. "@locks PATH..." is not executed but done by the forked child itself:
 * it tries to open and lock each, says how that went, and stays.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd.h"
#include "nest_standin.h"

enum { REQUESTS = 3 };

static char *const environment[] = {"HOME=/tmp", "PATH=/usr/local/bin:/usr/bin:/bin",
				    "LANG=C.UTF-8", NULL};

__attribute__((noreturn)) static void hold_locks(char *const *path)
{
	struct stat st;

	for (; *path; path++) {
		int fd = open(*path, O_RDONLY | O_CLOEXEC), name = open(*path, O_PATH | O_CLOEXEC);
		const char *how = fd < 0                             ? "closed"
				  : flock(fd, LOCK_EX | LOCK_NB) < 0 ? "BUSY"
								     : "locked";

		memset(&st, 0, sizeof st);
		if (name < 0 || fstat(name, &st) < 0)
			st.st_ino = 0;
		printf("%s:%s:%lx.%lx ", *path, how, (unsigned long)st.st_dev,
		       (unsigned long)st.st_ino);
	}
	printf("\n");
	fflush(stdout);
	for (;;)
		pause();
}

__attribute__((noreturn)) static void child(const struct join *j, struct standin_request *r,
					    int out)
{
	char *argv[64] = {0}, *p = r->argv;
	struct err e = {0};

	if (zygote_join(j, &e) < 0) {
		dprintf(out, "join: %s\n", e.text);
		_exit(124);
	}
	for (uint32_t i = 0; i < r->argc && i < 63; i++, p += strlen(p) + 1)
		argv[i] = p;
	if (dup2(out, 1) < 0 || dup2(out, 2) < 0 || syscall(SYS_close_range, 3, ~0u, 0) < 0 ||
	    chdir("/workspace") < 0)
		_exit(123);
	if (!argv[0])
		_exit(write(1, "here\n", 5) == 5 ? 0 : 122);
	if (strcmp(argv[0], "@locks") == 0)
		hold_locks(argv + 1);
	execve(argv[0], argv, environment);
	perror(argv[0]);
	_exit(127);
}

static void answer(struct standin_request *r, const int *fds, size_t count)
{
	struct standin_answer a = {.pid = -1};
	struct err e = {0};
	struct join j;
	uint64_t begun = now_us();

	if (join_split(&r->join, sizeof r->join, fds + 1, count - 1, &j, &e) == 0) {
		a.pid = zygote_fork(&j, &e);
		if (a.pid == 0)
			child(&j, r, fds[0]);
	}
	a.fork_us = (uint32_t)(now_us() - begun);
	snprintf(a.text, sizeof a.text, "%s", e.text);
	for (size_t i = 0; i < count; i++)
		close(fds[i]);
	if (send(REQUESTS, &a, sizeof a, 0) != sizeof a)
		_exit(1);
}

int main(void)
{
	static struct standin_request r;

	for (;;) {
		union {
			char space[CMSG_SPACE((1 + JOIN_FDS_MAX) * sizeof(int))];
			struct cmsghdr align;
		} control;
		struct iovec iov = {&r, sizeof r};
		struct msghdr m = {.msg_iov = &iov,
				   .msg_iovlen = 1,
				   .msg_control = &control,
				   .msg_controllen = sizeof control};
		int fds[1 + JOIN_FDS_MAX];
		struct cmsghdr *c;
		size_t count;

		if (recvmsg(REQUESTS, &m, MSG_CMSG_CLOEXEC) <= 0)
			return 0;
		c = CMSG_FIRSTHDR(&m);
		if (!c)
			return 1;
		count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		memcpy(fds, CMSG_DATA(c), count * sizeof(int));
		answer(&r, fds, count);
	}
}
