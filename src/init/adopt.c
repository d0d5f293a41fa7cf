/* SPDX-License-Identifier: Apache-2.0 */
/*
 * adopt.c - a zygote's child that has joined (seat.c) becomes a command like those that init has started.
 *
 * It is init's child already (zygote/join.h), so it is reaped like any other. What it is told is the RUN of
 * zygote/request.h: where START has the command line, it gets what is behind the interpreter's name.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "init/command.h"
#include "zygote/request.h"

/* It answers at once: nobody's code runs yet. */
enum { ANSWER_S = 5 };

static int ask(int control, const struct zygote_run *run, char *strings, size_t size)
{
	size_t folder = strlen(strings) + 1, name = strlen(strings + folder) + 1;
	struct iovec iov[] = {{(void *)(uintptr_t)run, sizeof *run},
			      {strings, folder},
			      {strings + folder + name, size - folder - name}};
	struct msghdr m = {.msg_iov = iov, .msg_iovlen = 3};

	if (sizeof *run + size > ZYGOTE_MESSAGE_MAX)
		return -E2BIG;
	return sendmsg(control, &m, MSG_NOSIGNAL) < 0 ? -errno : 0;
}

static int hear(int control)
{
	const struct timeval limit = {.tv_sec = ANSWER_S};
	union {
		struct zygote_header header;
		struct zygote_refused refused;
	} answer;
	ssize_t n;

	if (setsockopt(control, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) < 0)
		return -errno;
	n = recv(control, &answer, sizeof answer, 0);
	if (n < 0)
		return errno == EAGAIN ? -ETIMEDOUT : -errno;
	if (n == sizeof answer.header && answer.header.type == ZYGOTE_RUNNING)
		return 0;
	if (n == sizeof answer.refused && answer.header.type == ZYGOTE_REFUSED)
		return -ENOTSUP;
	return n == 0 ? -ECONNRESET : -EPROTO;
}

/* Two strings that a START always has: its folder, and what is executed. */
static bool has_two(const char *strings, size_t size)
{
	const char *end = memchr(strings, 0, size);

	return end && memchr(end + 1, 0, size - (size_t)(end + 1 - strings));
}

int command_adopt(struct kept *k, struct command *m, const struct start_record *start,
		  char *strings, size_t size, const char **ret_what)
{
	struct zygote_run run = {.header = {ZYGOTE_RUN, 1},
				 .argc = start->argc - 1,
				 .envc = start->envc,
				 .umask = 022};
	int *fds = k->g->joined_fds, r = -EPROTO;

	*ret_what = "what has joined";
	if (start->argc > 1 && has_two(strings, size))
		r = ask(fds[JOINED_CONTROL], &run, strings, size);
	if (r == 0)
		r = hear(fds[JOINED_CONTROL]);
	close_fd(
		&fds[JOINED_CONTROL]); /* it leaves when that is closed, and then it has run nothing */
	m->in = fds[JOINED_STDIN];
	for (int i = 0; i < 2; i++) {
		m->out[i].fd = fds[JOINED_STDOUT + i];
		if (r == 0 && fcntl(m->out[i].fd, F_SETFL, O_NONBLOCK) < 0)
			r = -errno;
	}
	memset(fds, -1, JOINED_FDS * sizeof *fds);
	if (r == 0 && fcntl(m->in, F_SETFL, O_NONBLOCK) < 0)
		r = -errno;
	if (r < 0) { /* whatever it may have begun is over before another begins in its place */
		kill(k->g->joined, SIGKILL);
		return r;
	}
	return k->g->joined;
}
