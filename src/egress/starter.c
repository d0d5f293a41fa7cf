/* SPDX-License-Identifier: Apache-2.0 */
#include "egress/starter.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/program.h"
#include "network/policy.h"

enum { FIRST_FREE = 10, FDS_MAX = EGRESS_LISTENERS_MAX + 1 };

/* ---- messages ---- */

static int send_message(int fd, const void *data, size_t size, const int *fds, size_t fd_count)
{
	union {
		char space[CMSG_SPACE(FDS_MAX * sizeof(int))];
		struct cmsghdr align;
	} control = {0};
	struct iovec iov = {(void *)(uintptr_t)data, size};
	struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1};
	ssize_t n;

	if (fd_count > 0) {
		struct cmsghdr *c;

		m.msg_control = &control;
		m.msg_controllen = CMSG_SPACE(fd_count * sizeof(int));
		c = CMSG_FIRSTHDR(&m);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(fd_count * sizeof(int));
		memcpy(CMSG_DATA(c), fds, fd_count * sizeof(int));
	}
	do
		n = sendmsg(fd, &m, MSG_NOSIGNAL);
	while (n < 0 && errno == EINTR);
	return n < 0 ? -errno : (size_t)n == size ? 0 : -EMSGSIZE;
}

static bool wait_readable(int fd, uint64_t deadline_us)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};
	uint64_t now;
	int n;

	do {
		now = now_us();
		n = poll(&p, 1, now >= deadline_us ? 0 : (int)((deadline_us - now) / 1000) + 1);
	} while (n < 0 && errno == EINTR);
	return n > 0;
}

static const struct {
	uint32_t type;
	size_t size;
} answers[] = {
	{EGRESS_READY, sizeof(struct egress_ready)},
	{EGRESS_DONE, sizeof(struct egress_plain)},
	{EGRESS_REFUSED, sizeof(struct egress_refused)},
	{EGRESS_RECORD, sizeof(struct egress_record)},
	{EGRESS_TOTALS, sizeof(struct egress_totals)},
};

static bool has_its_size(const union egress_answer *a, size_t size)
{
	for (size_t i = 0; size >= sizeof a->header && i < ARRAY_SIZE(answers); i++)
		if (answers[i].type == a->header.type)
			return answers[i].size == size;
	return false;
}

/* Whoever does not read must not make us wait. */
static int send_now(int fd, const void *data, size_t size)
{
	return send(fd, data, size, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 ? -errno : 0;
}

/* 0; -EAGAIN: nothing is there; -EPIPE: hung up; -EPROTO. Descriptors that come along are not taken. */
static int receive(int fd, union egress_answer *ret)
{
	struct iovec iov = {ret, sizeof *ret};
	struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1};
	ssize_t n;

	do
		n = recvmsg(fd, &m, MSG_DONTWAIT);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return errno == ECONNRESET ? -EPIPE : -errno;
	if (n == 0)
		return -EPIPE;
	return m.msg_flags & (MSG_TRUNC | MSG_CTRUNC) || !has_its_size(ret, (size_t)n) ? -EPROTO
										       : 0;
}

static int receive_until(int fd, uint64_t deadline_us, union egress_answer *ret)
{
	return wait_readable(fd, deadline_us) ? receive(fd, ret) : -ETIMEDOUT;
}

/* ---- the process ---- */

static void forget(struct egress_process *p)
{
	*p = (struct egress_process){.pidfd = -1, .setup = -1, .control = -1};
}

/* Nothing of ours goes along: no environment, no terminal, no other descriptor. */
static int spawn(const char *program, int setup, int keep, pid_t *ret, struct err *e)
{
	char fd[12], name[] = "cloche-egress";
	char *argv[] = {name, fd, NULL}, *envp[] = {NULL};
	posix_spawn_file_actions_t actions;
	posix_spawnattr_t attributes;
	sigset_t none, all;
	int r;

	snprintf(fd, sizeof fd, "%d", EGRESS_FD);
	sigemptyset(&none);
	sigfillset(&all);
	posix_spawn_file_actions_init(&actions);
	posix_spawnattr_init(&attributes);
	for (int i = 0; i < 3; i++)
		posix_spawn_file_actions_addopen(&actions, i, "/dev/null", O_RDWR, 0);
	posix_spawn_file_actions_adddup2(&actions, setup, EGRESS_FD);
	if (keep >= 0)
		posix_spawn_file_actions_adddup2(&actions, keep, EGRESS_KEEP_FD);
	posix_spawn_file_actions_addclosefrom_np(&actions,
						 keep >= 0 ? EGRESS_KEEP_FD + 1 : EGRESS_FD + 1);
	posix_spawn_file_actions_addchdir_np(&actions, "/");
	posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF |
						      POSIX_SPAWN_SETSID);
	posix_spawnattr_setsigmask(&attributes, &none);
	posix_spawnattr_setsigdefault(&attributes, &all);
	r = posix_spawn(ret, program, &actions, &attributes, argv, envp);
	posix_spawn_file_actions_destroy(&actions);
	posix_spawnattr_destroy(&attributes);
	return r ? err_set(e, r, "start %s", program) : 0;
}

int egress_start(struct egress_process *p, int keep, struct err *e)
{
	_cleanup_close_ int theirs = -1, kept = -1;
	char program[PROGRAM_PATH_SIZE];
	int pair[2];

	forget(p);
	if (program_find("cloche-egress", program, e) < 0)
		return -1;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return err_set(e, errno, "make a socket pair");
	p->setup = pair[0];
	/* Out of the way of the numbers that they get there. */
	theirs = fcntl(pair[1], F_DUPFD_CLOEXEC, FIRST_FREE);
	close(pair[1]);
	kept = keep < 0 ? -1 : fcntl(keep, F_DUPFD_CLOEXEC, FIRST_FREE);
	if (theirs < 0 || (keep >= 0 && kept < 0)) {
		err_set(e, errno, "duplicate descriptors");
		egress_stop(p);
		return -1;
	}
	if (spawn(program, theirs, kept, &p->pid, e) < 0) {
		p->pid = 0;
		egress_stop(p);
		return -1;
	}
	p->pidfd = (int)syscall(SYS_pidfd_open, p->pid, 0);
	if (p->pidfd < 0) {
		err_set(e, errno, "watch cloche-egress");
		egress_stop(p);
		return -1;
	}
	return 0;
}

static int seal(const char *json, size_t size, struct err *e)
{
	int fd = memfd_create("cloche-egress", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	int r = fd < 0 ? -errno : fd_write_all(fd, json, size);

	if (r == 0 &&
	    fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE) < 0)
		r = -errno;
	if (r == 0)
		return fd;
	if (fd >= 0)
		close(fd);
	return err_set(e, -r, "write the network configuration");
}

int egress_configure(struct egress_process *p, const char *json, size_t size, uint32_t uid,
		     uint32_t gid, int control, struct err *e)
{
	const struct egress_config c = {.header = {.type = EGRESS_CONFIG, .sequence = 1},
					.version = EGRESS_VERSION,
					.uid = uid,
					.gid = gid};
	_cleanup_close_ int memfd = seal(json, size, e), theirs = -1;
	int pair[2], r;

	if (memfd < 0)
		return -1;
	if (control < 0) {
		if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
			return err_set(e, errno, "make a socket pair");
		p->control = pair[0];
		control = theirs = pair[1];
	}
	r = send_message(p->setup, &c, sizeof c, (const int[]){memfd, control}, 2);
	return r < 0 ? err_set(e, -r, "configure cloche-egress") : 0;
}

/* Why there is no answer. */
static int no_answer(int r, const char *what, struct err *e)
{
	if (r == -EPIPE)
		return err_set(e, 0, "%s: cloche-egress has ended", what);
	return err_set(e, -r, "%s", what);
}

static int refused(const union egress_answer *a, struct err *e)
{
	return err_set(e, 0, "%.*s", (int)sizeof a->refused.message - 1, a->refused.message);
}

int egress_wait_ready(struct egress_process *p, struct egress_ready *ret, struct err *e)
{
	union egress_answer a;
	int r = receive_until(p->setup, now_us() + EGRESS_READY_MS * 1000ull, &a);

	if (r == 0 && a.header.type == EGRESS_REFUSED)
		return refused(&a, e);
	if (r == 0 && (a.header.type != EGRESS_READY || a.ready.ca_size > sizeof a.ready.ca))
		r = -EPROTO;
	if (r < 0)
		return no_answer(r, "prepare the network", e);
	*ret = a.ready;
	return 0;
}

int egress_serve(struct egress_process *p, const uint32_t *kinds, const int *fds, size_t count,
		 int init, struct err *e)
{
	struct egress_serve s = {.header = {.type = EGRESS_SERVE, .sequence = 2},
				 .count = (uint32_t)count};
	int all[FDS_MAX], r;

	if (count > EGRESS_LISTENERS_MAX)
		return err_set(e, 0, "more than %d listeners", EGRESS_LISTENERS_MAX);
	memcpy(s.kinds, kinds, count * sizeof *kinds);
	memcpy(all, fds, count * sizeof *fds);
	all[count] = init;
	r = send_message(p->setup, &s, sizeof s, all, count + 1);
	p->serves = r == 0;
	return r < 0 ? no_answer(r, "hand the listeners to cloche-egress", e) : 0;
}

void egress_stop(struct egress_process *p)
{
	siginfo_t info;

	fd_close(&p->setup);
	fd_close(&p->control);
	if (p->pid > 0) {
		/* A child that nobody else waits for: its number is its own. */
		if (p->pidfd >= 0)
			syscall(SYS_pidfd_send_signal, p->pidfd, SIGKILL, NULL, 0);
		else
			kill(p->pid, SIGKILL);
		while (waitid(P_PID, (id_t)p->pid, &info, WEXITED) < 0 && errno == EINTR)
			;
	}
	fd_close(&p->pidfd);
	forget(p);
}

/* ---- control ---- */

static int ask(int control, enum egress_type type, uint32_t sequence)
{
	const struct egress_plain m = {{.type = type, .sequence = sequence}};

	return send_now(control, &m, sizeof m);
}

int egress_watch(int control, struct err *e)
{
	int r = ask(control, EGRESS_WATCH, 1);

	return r < 0 ? no_answer(r, "watch connections", e) : 0;
}

/* A record goes to fn. An acknowledgement that finds no room is made good by the next. */
static int take_record(int control, const union egress_answer *a, egress_record_fn *fn,
		       void *context)
{
	int r;

	if (!egress_record_is_valid(&a->record))
		return -EPROTO;
	fn(context, &a->record);
	r = ask(control, EGRESS_ACK, a->header.sequence);
	return r == -EAGAIN ? 0 : r;
}

int egress_take(int control, egress_record_fn *fn, void *context)
{
	union egress_answer a;
	int r = receive(control, &a);

	if (r == -EAGAIN)
		return 0;
	if (r == 0 && a.header.type == EGRESS_RECORD)
		r = take_record(control, &a, fn, context);
	return r < 0 ? -1 : 1;
}

int egress_flush(int control, egress_record_fn *fn, void *context, struct egress_totals *ret,
		 struct err *e)
{
	uint64_t deadline = now_us() + EGRESS_ANSWER_MS * 1000ull;
	int r = ask(control, EGRESS_FLUSH, 2);
	bool asked = r == 0;
	union egress_answer a;

	while (r == 0 || r == -EAGAIN) {
		r = now_us() < deadline ? receive_until(control, deadline, &a) : -ETIMEDOUT;
		if (r < 0)
			break;
		if (a.header.type == EGRESS_TOTALS) {
			*ret = a.totals;
			return 0;
		}
		if (a.header.type == EGRESS_RECORD)
			r = take_record(control, &a, fn, context);
		if (r == 0 && !asked) { /* its queue was full of what it had not read */
			r = ask(control, EGRESS_FLUSH, 2);
			asked = r == 0;
		}
	}
	return no_answer(r, "count connections", e);
}

int egress_set_policy(int control, const char *json, size_t size, struct err *e)
{
	const struct egress_plain m = {{.type = EGRESS_POLICY, .sequence = 3}};
	uint64_t deadline = now_us() + EGRESS_ANSWER_MS * 1000ull;
	_cleanup_close_ int memfd = seal(json, size, e);
	union egress_answer a;
	int r;

	if (memfd < 0)
		return -1;
	r = send_message(control, &m, sizeof m, &memfd, 1);
	/* It may have been taken over, and never stop talking of something else. */
	while (r == 0) {
		r = now_us() < deadline ? receive_until(control, deadline, &a) : -ETIMEDOUT;
		if (r == 0 && a.header.type == EGRESS_DONE)
			return 0;
		if (r == 0 && a.header.type == EGRESS_REFUSED)
			return refused(&a, e);
	}
	return no_answer(r,
			 "change the rules: it is not known whether the old or the new ones hold, "
			 "change them again or end the sandbox",
			 e);
}

bool egress_answer_is_valid(const union egress_answer *a, size_t size)
{
	return has_its_size(a, size) &&
	       (a->header.type != EGRESS_RECORD || egress_record_is_valid(&a->record));
}

int egress_receive(int control, union egress_answer *ret)
{
	int r = receive(control, ret);

	if (r == 0 && ret->header.type == EGRESS_RECORD && !egress_record_is_valid(&ret->record))
		return -EPROTO;
	return r;
}

int egress_ask(int control, enum egress_type type, uint32_t sequence)
{
	return ask(control, type, sequence);
}
