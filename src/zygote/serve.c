/* SPDX-License-Identifier: Apache-2.0 */
/*
 * serve.c - the zygote: forks a child for each FORK, reaps it, says how it ended.
 *
 * It runs no code of anybody's and holds no data of a run: what a child gets comes over the child's own
 * control socket. Every signal is blocked, so that none can set a flag inside the interpreter that a
 * child would find; only while it sleeps SIGCHLD is let through, to wake it.
 *
 * fork() is libc's, between the interpreter's hooks: a bare clone() leaves out pthread_atfork() handlers,
 * and a matrix product in OpenBLAS then hung for ever. It is refused when there is a second thread: what
 * that one holds locked would stay locked in the child.
 */
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "zygote/interp.h"
#include "zygote/joiner.h"
#include "zygote/zygote.h"

enum { ALL_FDS = ZYGOTE_FDS + ZYGOTE_JOIN_FDS_MAX };

struct child {
	pid_t pid; /* 0: free */
	uint32_t sequence;
};
static struct child
	*children; /* ZYGOTE_CHILDREN_MAX; empty in a child: siblings are not its business */
static size_t child_count;

static char message[ZYGOTE_MESSAGE_MAX];

static void woken(int signal)
{
	(void)signal;
}

/* The pool is gone when it cannot be told. */
static void tell(const void *answer, size_t size)
{
	if (message_send(ZYGOTE_FD_REQUESTS, answer, size, NULL, 0) < 0)
		_exit(0);
}

static void refuse(uint32_t sequence, const struct err *e)
{
	if (message_refuse(ZYGOTE_FD_REQUESTS, ZYGOTE_REFUSED, sequence, e) < 0)
		_exit(0);
}

static void reap(void)
{
	struct rusage used;
	int status;
	pid_t pid;

	while ((pid = wait4(-1, &status, WNOHANG, &used)) > 0) {
		struct zygote_ended m = {
			.header = {ZYGOTE_ENDED, 0},
			.pid = pid,
			.status = (uint32_t)status,
			.cpu_us =
				(uint64_t)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1000000 +
				(uint64_t)(used.ru_utime.tv_usec + used.ru_stime.tv_usec),
		};

		for (size_t i = 0; i < ZYGOTE_CHILDREN_MAX && !m.header.sequence; i++)
			if (children[i].pid == pid) {
				m.header.sequence = children[i].sequence;
				children[i].pid = 0;
				child_count--;
			}
		if (m.header.sequence)
			tell(&m, sizeof m);
	}
}

static int check_streams(const struct zygote *z, const int *fds, struct err *e)
{
	for (int i = 0; i < 3; i++) {
		struct stat st;

		if (fstat(fds[ZYGOTE_STDIN + i], &st) < 0)
			return err_set(e, errno, "standard stream %d", i);
		if ((st.st_mode & S_IFMT) != (z->streams[i].st_mode & S_IFMT) ||
		    (S_ISCHR(st.st_mode) && st.st_rdev != z->streams[i].st_rdev))
			return err_set(
				e, ENOTSUP,
				"standard stream %d is of another kind than the interpreter's", i);
	}
	return 0;
}

static int check_threads(const struct zygote *z, struct err *e)
{
	struct stat st;

	if (fstat(z->tasks, &st) < 0)
		return err_set(e, errno, "/proc/self/task");
	if (st.st_nlink != 2 + 1) /* "." and ".." and one thread */
		return err_set(e, EBUSY,
			       "the interpreter has %lu threads: a fork would lose all but one",
			       (unsigned long)st.st_nlink - 2);
	return 0;
}

static pid_t fork_child(const struct zygote *z, const struct zygote_fork *m,
			const struct joiner_seat *seat, const int *fds, size_t fd_count,
			struct err *e)
{
	pid_t pid;

	PyOS_BeforeFork();
	pid = zygote_joiner.fork ? zygote_joiner.fork(seat, e) : fork();
	if (pid == 0)
		child_main(z, m, fds, fd_count);
	if (pid < 0 && !zygote_joiner.fork)
		err_set(e, errno, "fork");
	PyOS_AfterFork_Parent();
	return pid;
}

static int serve_fork(const struct zygote *z, size_t size, const int *fds, size_t fd_count,
		      struct zygote_pid *ret, struct err *e)
{
	const struct zygote_fork *m = (const struct zygote_fork *)message;
	struct joiner_seat seat;

	if (message_fork_check(message, size, fd_count, e) < 0)
		return -1;
	if (child_count == ZYGOTE_CHILDREN_MAX)
		return err_set(e, EAGAIN, "%d children live", ZYGOTE_CHILDREN_MAX);
	if (check_streams(z, fds, e) < 0 || check_threads(z, e) < 0)
		return -1;
	seat = (struct joiner_seat){m + 1, m->join_size, fds + ZYGOTE_FDS, m->join_fds};
	*ret = (struct zygote_pid){.header = {ZYGOTE_FORKED, m->header.sequence}};
	ret->pid = fork_child(z, m, &seat, fds, fd_count, e);
	if (ret->pid < 0)
		return -1;
	if (zygote_joiner.leaves && zygote_joiner.leaves(&seat))
		return 0;
	for (size_t i = 0; i < ZYGOTE_CHILDREN_MAX; i++)
		if (children[i].pid == 0) {
			children[i] = (struct child){ret->pid, m->header.sequence};
			child_count++;
			break;
		}
	return 0;
}

static void serve_message(const struct zygote *z)
{
	const struct zygote_header *h = (const struct zygote_header *)message;
	struct zygote_pid forked;
	struct err e = {0};
	int fds[ALL_FDS];
	size_t fd_count;
	ssize_t n = message_receive(ZYGOTE_FD_REQUESTS, message, sizeof message, fds, &fd_count);

	if (n == 0 || (n < 0 && n != -EBADMSG))
		_exit(0);
	if (n < (ssize_t)sizeof *h) {
		err_set(&e, EBADMSG, "a message that cannot be read");
		refuse(0, &e);
	} else if (serve_fork(z, (size_t)n, fds, fd_count, &forked, &e) < 0) {
		refuse(h->sequence, &e);
	} else {
		tell(&forked, sizeof forked);
	}
	for (size_t i = 0; n > 0 && i < fd_count; i++)
		close(fds[i]);
}

static int make_table(struct err *e)
{
	const size_t size = ZYGOTE_CHILDREN_MAX * sizeof *children;
	void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED || madvise(p, size, MADV_WIPEONFORK) < 0)
		return err_set(e, errno, "memory for the table of children");
	children = p;
	return 0;
}

_Noreturn void zygote_serve(const struct zygote *z, uint32_t sequence)
{
	struct zygote_pid ready = {.header = {ZYGOTE_READY, sequence}, .pid = getpid()};
	struct sigaction action = {.sa_handler = woken};
	struct pollfd p[] = {{.fd = ZYGOTE_FD_REQUESTS, .events = POLLIN},
			     {.fd = z->first, .events = POLLIN}};
	sigset_t asleep;
	struct err e = {0};

	if (make_table(&e) < 0 || (zygote_joiner.begin && zygote_joiner.begin(&e) < 0)) {
		message_refuse(ZYGOTE_FD_REQUESTS, ZYGOTE_FAILED, sequence, &e);
		_exit(1);
	}
	if (message_send(ZYGOTE_FD_REQUESTS, &ready, sizeof ready, NULL, 0) < 0)
		_exit(2);
	sigaction(SIGCHLD, &action, NULL);
	sigfillset(&asleep);
	sigdelset(&asleep, SIGCHLD);
	for (;;) {
		int n = ppoll(p, ARRAY_SIZE(p), NULL, &asleep);

		if (n < 0 && errno != EINTR)
			_exit(2);
		reap();
		if (n > 0 && p[1].revents)
			_exit(0); /* whoever started it counts it as dead */
		if (n > 0 && p[0].revents)
			serve_message(z);
	}
}
