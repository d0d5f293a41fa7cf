/* SPDX-License-Identifier: Apache-2.0 */
#include "init/guest.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

void guest_init(struct guest *g, int control)
{
	sigset_t child;

	sigemptyset(&child);
	sigaddset(&child, SIGCHLD);
	g->control = control;
	g->reaper = signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK);
	g->out = (struct relay){-1, 1};
	g->err = (struct relay){-1, 2};
	g->stdin_pipe = -1;
	g->seat = g->ruleset = -1;
	memset(g->joined_fds, -1, sizeof g->joined_fds);
	if (g->reaper < 0)
		_exit(1);
}

void guest_report_failure(struct guest *g, const char *stage, int errnum, const char *what)
{
	struct failed_record f = {.errnum = (uint32_t)errnum};

	snprintf(f.stage, sizeof f.stage, "%s", stage);
	snprintf(f.what, sizeof f.what, "%s", what);
	(void)frame_send(g->control, FRAME_FAILED, 0, &f, sizeof f, NULL, 0);
}

/* READY carries the writable places, so that the outside can measure them and, when every process is
 * dead, collect what was left there; rootless also the user namespace, which owns those files. */
int guest_ready(struct guest *g, const struct isolation *s)
{
	int fds[PLAN_MAX_TMPFS + 1];
	size_t n = 0;
	int r;

	for (uint32_t i = 0; i < s->plan->tmpfs_count; i++)
		fds[n++] = s->tmpfs_dirs[i];
	if (s->plan->rootless) {
		fds[n] = open("/proc/self/ns/user", O_RDONLY | O_CLOEXEC);
		if (fds[n++] < 0)
			return -errno;
	}
	r = frame_send(g->control, FRAME_READY, 0, NULL, 0, fds, n);
	for (size_t i = 0; i < n; i++)
		close(fds[i]);
	return r;
}

int guest_as_user(uint32_t uid, uint32_t gid)
{
	return syscall(SYS_setresgid, -1, gid, -1) < 0 || syscall(SYS_setresuid, -1, uid, -1) < 0
		       ? -errno
		       : 0;
}

static int parent_death_signal = SIGKILL; /* 0: a kept sandbox */
static bool joinable;

void guest_open_seat(void)
{
	joinable = true;
	guest_protect();
}

void guest_close_seat(void)
{
	joinable = false;
	guest_protect();
}

void guest_protect(void)
{
	prctl(PR_SET_DUMPABLE, joinable, 0, 0, 0);
	prctl(PR_SET_PDEATHSIG, parent_death_signal, 0, 0, 0);
}

void guest_outlive(void)
{
	parent_death_signal = 0;
	guest_protect();
}

int guest_as_root(void)
{
	int r = syscall(SYS_setresuid, -1, 0, -1) < 0 || syscall(SYS_setresgid, -1, 0, -1) < 0
			? -errno
			: 0;

	guest_protect();
	return r;
}

static void send_or_die(struct guest *g, enum frame_type type, unsigned stream, const void *payload,
			uint32_t size)
{
	if (frame_send(g->control, type, stream, payload, size, NULL, 0) < 0)
		_exit(1);
}

/* One read of a relayed pipe; blocks in the send when the outside is slow, which is back-pressure. */
static void relay_read(struct guest *g, struct relay *r)
{
	static unsigned char data[FRAME_DATA_MAX];
	ssize_t n = read(r->fd, data, sizeof data);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n > 0) {
		send_or_die(g, FRAME_DATA, r->stream, data, (uint32_t)n);
		return;
	}
	close(r->fd);
	r->fd = -1;
	send_or_die(g, FRAME_EOF, r->stream, NULL, 0);
}

/* What the command wrote before it ended must come before its end. */
static void relay_rest(struct guest *g, struct relay *r)
{
	struct pollfd p = {.fd = r->fd, .events = POLLIN};

	while (r->fd >= 0 && (p.fd = r->fd, poll(&p, 1, 0) > 0))
		relay_read(g, r);
}

static void stdin_write(struct guest *g)
{
	ssize_t n = 0;

	if (g->stdin_pipe >= 0 && g->stdin_filled > 0) {
		n = write(g->stdin_pipe, g->stdin_data, g->stdin_filled);
		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			return;
	}
	if (n < 0 || g->stdin_pipe < 0) { /* nobody reads any more: consumed */
		n = (ssize_t)g->stdin_filled;
		if (g->stdin_pipe >= 0)
			close(g->stdin_pipe);
		g->stdin_pipe = -1;
	}
	if (n > 0) {
		uint32_t credit = (uint32_t)n;

		g->stdin_filled -= (size_t)n;
		memmove(g->stdin_data, g->stdin_data + n, g->stdin_filled);
		send_or_die(g, FRAME_CREDIT, 0, &credit, sizeof credit);
	}
	if (g->stdin_filled == 0 && g->stdin_ended && g->stdin_pipe >= 0) {
		close(g->stdin_pipe);
		g->stdin_pipe = -1;
	}
}

static void command_ended(struct guest *g, const siginfo_t *info)
{
	g->command = 0;
	g->ended.signaled = info->si_code != CLD_EXITED;
	g->ended.core = info->si_code == CLD_DUMPED;
	g->ended.status = (uint32_t)info->si_status;
}

/* Reap whatever has ended. The command's end is reported once nothing more can be reaped: by then its
 * orphans are our children, so "survivors" is exact. */
static void reap(struct guest *g)
{
	struct signalfd_siginfo ignored;
	bool ended = false;
	siginfo_t info;

	while (read(g->reaper, &ignored, sizeof ignored) > 0)
		;
	for (;;) {
		info.si_pid = 0;
		if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG) < 0 || info.si_pid == 0)
			break;
		if (info.si_pid == g->command) {
			command_ended(g, &info);
			ended = true;
		}
	}
	if (!ended)
		return;
	relay_rest(g, &g->out);
	relay_rest(g, &g->err);
	g->ended.survivors =
		info.si_pid == 0 && waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0;
	send_or_die(g, FRAME_EXITED, 0, &g->ended, sizeof g->ended);
	if (g->last && !g->ended.survivors)
		_exit(0);
}

int64_t guest_now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

static int64_t now_ms(void)
{
	return guest_now_us() / 1000;
}

/* What is left of the command before. */
static void forget_streams(struct guest *g)
{
	int *fds[] = {&g->out.fd, &g->err.fd, &g->stdin_pipe};

	for (size_t i = 0; i < sizeof fds / sizeof *fds; i++) {
		if (*fds[i] >= 0)
			close(*fds[i]);
		*fds[i] = -1;
	}
	g->stdin_filled = 0;
	g->stdin_ended = false;
}

static void run(struct guest *g, char *payload, uint32_t size)
{
	const char *stage = "exec", *what = "";
	struct exec_record exec;
	int ours[3] = {-1, -1, -1}, r;

	memcpy(&exec, payload, sizeof exec);
	if (g->command != 0) {
		guest_report_failure(g, "exec", EBUSY, "a command is running");
		return;
	}
	if (g->seat >= 0) { /* who runs commands is not joined */
		guest_close_seat();
		close(g->seat);
		g->seat = -1;
	}
	forget_streams(g);
	g->last = exec.flags & EXEC_LAST;
	g->deadline_ms = exec.limit_ms ? now_ms() + exec.limit_ms : INT64_MAX;
	r = guest_start(g, &exec, payload + sizeof exec, size - sizeof exec, ours, &stage, &what);
	if (r < 0) {
		guest_report_failure(g, stage, -r, what);
		if (g->last)
			_exit(1);
		return;
	}
	if (exec.flags & EXEC_STDIO_FRAMES) {
		g->stdin_pipe = ours[0];
		g->out.fd = ours[1];
		g->err.fd = ours[2];
		send_or_die(g, FRAME_STARTED, 0, NULL, 0);
		return;
	}
	/* The outside reads and writes the pipes itself. */
	if (frame_send(g->control, FRAME_STARTED, 0, NULL, 0, ours, 3) < 0)
		_exit(1);
	for (int i = 0; i < 3; i++)
		close(ours[i]);
}

static void take_stdin(struct guest *g, const void *data, uint32_t size)
{
	if (size > sizeof g->stdin_data - g->stdin_filled)
		_exit(1); /* above the window: the other side is broken */
	memcpy(g->stdin_data + g->stdin_filled, data, size);
	g->stdin_filled += size;
	stdin_write(g);
}

/* One frame from outside. */
static void serve(struct guest *g)
{
	static char payload[FRAME_EXEC_MAX]; /* touched only as far as a frame reaches */
	int fds[1 + JOINED_FDS];
	size_t count = 1 + JOINED_FDS;
	struct frame f;
	uint32_t number;

	if (frame_receive(g->control, FROM_HOST, &f, payload, sizeof payload, fds, &count) < 0)
		_exit(0);
	if (f.type == FRAME_SERVE ? count != 1 && (count != 1 + JOINED_FDS || g->joined == 0)
				  : count != 0)
		_exit(1);
	switch (f.type) {
	case FRAME_EXEC:
		run(g, payload, f.size);
		break;
	case FRAME_PUT:
		if (guest_put(g, (unsigned char *)payload, f.size) < 0)
			_exit(1);
		break;
	case FRAME_DATA:
		take_stdin(g, payload, f.size);
		break;
	case FRAME_EOF:
		g->stdin_ended = true;
		stdin_write(g);
		break;
	case FRAME_SIGNAL:
		memcpy(&number, payload, sizeof number);
		if (g->command > 0 && number >= 1 && number <= 64)
			kill(g->command, (int)number);
		break;
	case FRAME_SERVE:
		if (g->command != 0 || g->seat >= 0) /* a prepared sandbox ends with its nest */
			_exit(1);
		memcpy(g->joined_fds, fds + 1, (count - 1) * sizeof *fds);
		guest_keep(g, fds[0]);
	default:
		_exit(1);
	}
}

/* Milliseconds until the command must be over, for poll. The outside has its own clock and comes first;
 * this one is for when the outside is stopped. */
static int time_left(const struct guest *g)
{
	int64_t left;

	if (g->command == 0 || g->deadline_ms == INT64_MAX)
		return -1;
	left = g->deadline_ms - now_ms();
	if (left <= 0)
		_exit(1);
	return left > INT32_MAX ? INT32_MAX : (int)left;
}

void guest_loop(struct guest *g)
{
	for (;;) {
		struct pollfd p[] = {
			{.fd = g->control, .events = POLLIN},
			{.fd = g->reaper, .events = POLLIN},
			{.fd = g->out.fd, .events = POLLIN},
			{.fd = g->err.fd, .events = POLLIN},
			{.fd = g->stdin_filled ? g->stdin_pipe : -1, .events = POLLOUT},
			{.fd = g->seat, .events = POLLIN},
		};

		if (poll(p, sizeof p / sizeof *p, time_left(g)) < 0) {
			if (errno == EINTR)
				continue;
			_exit(1);
		}
		if (p[2].revents)
			relay_read(g, &g->out);
		if (p[3].revents)
			relay_read(g, &g->err);
		if (p[4].revents)
			stdin_write(g);
		if (p[5].revents)
			guest_seat(g);
		if (p[1].revents)
			reap(g);
		if (p[0].revents)
			serve(g);
	}
}
