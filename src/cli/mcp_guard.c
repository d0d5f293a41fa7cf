/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mcp_guard.c - the end of a session's kept sandboxes, whatever ended the session.
 *
 * A process of its own, in a session of its own, that waits for the end of a pipe whose other end only we
 * have. Then it asks the service for what was made under our session's name, and ends it. It makes no
 * difference whether we closed the pipe or were killed. Should it be killed as well, the sandboxes' idle
 * time-out remains.
 */
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "cli/mcp.h"

enum { WAIT_MS = 5000 };

static void end_one(struct remote *r, json_t *row)
{
	_cleanup_answer_ struct answer gone = {0};
	char target[TARGET_SIZE];
	struct err e = {0};

	if (strcmp(text_of(row, "state"), "ended") == 0)
		return;
	if (sandbox_target(target, text_of(row, "id"), &e, "%s", "") < 0 ||
	    remote_ask(r, "DELETE", target, NULL, &gone, &e) < 0)
		server_log(&e);
}

static void end_all(const char *session)
{
	_cleanup_answer_ struct answer list = {0};
	char target[160];
	struct err e = {0};
	struct remote r;
	json_t *row;
	size_t i;

	snprintf(target, sizeof target, "/v1/sandboxes?session=%s&limit=1000", session);
	if (remote_open(&r, &e) == 0 && remote_ask(&r, "GET", target, NULL, &list, &e) == 0)
		json_array_foreach(json_object_get(list.json, "sandboxes"), i, row)
			end_one(&r, row);
	remote_close(&r);
}

static void guard(int pipe_fd, const char *session)
{
	int null = open("/dev/null", O_RDWR);
	char byte;
	ssize_t n;

	setsid();
	prctl(PR_SET_NAME, "cloche-mcp-end");
	dup2(null, 0);
	dup2(null, 1);
	dup2(pipe_fd, 3);
	syscall(SYS_close_range, 4, ~0u, 0);
	do
		n = read(3, &byte, 1);
	while (n < 0 && errno == EINTR);
	end_all(session);
	_exit(0);
}

int guard_start(struct worker *w, struct err *e)
{
	struct server *s = (struct server *)w; /* its first member */
	int ends[2];
	pid_t pid;

	if (s->guard_pipe >= 0)
		return 0;
	if (pipe2(ends, O_CLOEXEC) < 0)
		return err_set(e, errno, "make a pipe");
	pid = fork();
	if (pid == 0)
		guard(ends[0], w->session);
	close(ends[0]);
	if (pid < 0) {
		close(ends[1]);
		return err_set(e, errno, "start a process");
	}
	s->guard_pipe = ends[1];
	s->guard_pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
	return 0;
}

/* A service that does not answer must not keep us: the process goes on by itself. */
void guard_done(struct server *s)
{
	struct pollfd p = {s->guard_pidfd, POLLIN, 0};

	fd_close(&s->guard_pipe);
	if (s->guard_pidfd >= 0)
		(void)poll(&p, 1, WAIT_MS);
	fd_close(&s->guard_pidfd);
}
