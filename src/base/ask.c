/* SPDX-License-Identifier: Apache-2.0 */
#include "base/ask.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "base/fd.h"
#include "base/write_signals.h"

extern char **environ;

struct running {
	const struct ask *a;
	const char *program;
	pid_t pid;
	int in, out;
	char *answer;
	size_t size, room; /* room: without the NUL */
	uint64_t deadline;
};

static int start(struct running *h, struct err *e)
{
	posix_spawn_file_actions_t actions;
	posix_spawnattr_t attributes;
	sigset_t none, usual;
	int in[2], out[2], r;

	if (pipe2(in, O_CLOEXEC) < 0)
		return err_set(e, errno, "make a pipe");
	if (pipe2(out, O_CLOEXEC) < 0) {
		close(in[0]);
		close(in[1]);
		return err_set(e, errno, "make a pipe");
	}
	sigemptyset(&none);
	sigemptyset(&usual);
	sigaddset(&usual, SIGPIPE); /* which this program may ignore */
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, in[0], 0);
	posix_spawn_file_actions_adddup2(&actions, out[1], 1);
	posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
	posix_spawnattr_init(&attributes);
	posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK |
						      POSIX_SPAWN_SETSIGDEF);
	posix_spawnattr_setsigmask(&attributes, &none);
	posix_spawnattr_setsigdefault(&attributes, &usual);
	r = posix_spawnp(&h->pid, h->program, &actions, &attributes, h->a->argv, environ);
	posix_spawnattr_destroy(&attributes);
	posix_spawn_file_actions_destroy(&actions);
	close(in[0]);
	close(out[1]);
	h->in = in[1];
	h->out = out[0];
	return r == 0 ? 0 : err_set(e, r, "run %.200s%s", h->program, h->a->hint);
}

/* One piece of its answer. 1: its end. */
static int take(struct running *h, struct err *e)
{
	ssize_t n = read(h->out, h->answer + h->size, h->room + 1 - h->size);

	if (n < 0)
		return errno == EINTR ? 0 : err_set(e, errno, "read from %.200s", h->program);
	h->size += (size_t)n;
	if (h->size > h->room)
		return err_set(e, 0, "%.200s says more than %zu bytes", h->program, h->room);
	return n == 0;
}

static int listen_to(struct running *h, struct err *e)
{
	for (;;) {
		struct pollfd p[] = {{h->out, POLLIN, 0}, {h->a->cancel_fd, POLLIN, 0}};
		uint64_t now = now_us();
		int r;

		if (now >= h->deadline)
			return err_set(e, ETIMEDOUT, "%.200s gives no answer", h->program);
		r = poll(p, ARRAY_SIZE(p), (int)((h->deadline - now) / 1000 + 1));
		if (r < 0 && errno != EINTR)
			return err_set(e, errno, "wait for %.200s", h->program);
		if (r <= 0)
			continue;
		if (p[1].revents)
			return err_set(e, ECANCELED, "wait for %.200s", h->program);
		r = take(h, e);
		if (r != 0)
			return r < 0 ? -1 : 0;
	}
}

/* It is short: a pipe takes it at once, whether somebody reads it or not. */
static int tell(struct running *h, struct err *e)
{
	struct write_signals signals;
	int r;

	write_signals_block(&signals);
	r = fd_write_all(h->in, h->a->input, strlen(h->a->input));
	write_signals_restore(&signals);
	fd_close(&h->in);
	return r < 0 && r != -EPIPE ? err_set(e, -r, "write to %.200s", h->program) : 0;
}

/* Its whole group: it may have started others that hold its output. Then the status is there. */
static int end(struct running *h)
{
	int status = -1;

	fd_close(&h->in);
	fd_close(&h->out);
	kill(-h->pid, SIGKILL);
	while (waitpid(h->pid, &status, 0) < 0 && errno == EINTR)
		;
	return status;
}

/* Its output ends when it does, or a little before: it may finish by itself, within its time. */
static int wait_for(struct running *h)
{
	_cleanup_close_ int pidfd = (int)syscall(SYS_pidfd_open, h->pid, 0);
	struct pollfd p = {pidfd, POLLIN, 0};
	uint64_t now;

	while (pidfd >= 0 && (now = now_us()) < h->deadline &&
	       poll(&p, 1, (int)((h->deadline - now) / 1000 + 1)) < 0 && errno == EINTR)
		;
	return end(h);
}

int ask_program(const struct ask *a, char *answer, size_t room, size_t *ret_size, int *ret_status,
		struct err *e)
{
	struct running h = {
		.a = a,
		.program = a->argv[0],
		.in = -1,
		.out = -1,
		.answer = answer,
		.room = room - 1,
		.deadline = now_us() + a->timeout_us,
	};

	if (start(&h, e) < 0) {
		fd_close(&h.in);
		fd_close(&h.out);
		return -1;
	}
	if (tell(&h, e) < 0 || listen_to(&h, e) < 0) {
		end(&h);
		return -1;
	}
	*ret_status = wait_for(&h);
	answer[h.size] = '\0';
	*ret_size = h.size;
	return 0;
}
