/* SPDX-License-Identifier: Apache-2.0 */
/*
 * child.c - a single-use child: from fork to the moment its code begins.
 *
 * Joins its sandbox first, then makes itself the interpreter that `python3 -` would be there: its own
 * streams, session and random numbers, no descriptor, handler or mask of the zygote's. Then it sleeps
 * until its RUN comes. It never returns into the zygote's loop.
 *
 * Signals stay blocked until the code runs: one that comes early waits, and is the code's.
 */
#include <errno.h>
#include <fcntl.h>
#include <sys/syscall.h>

#include "zygote/interp.h"
#include "zygote/joiner.h"
#include "zygote/zygote.h"

enum { CONTROL = 3 }; /* where the control socket lies once everything else is closed */

static char message[ZYGOTE_MESSAGE_MAX];

static _Noreturn void refuse(int control, uint32_t sequence, const struct err *e)
{
	_exit(message_refuse(control, ZYGOTE_REFUSED, sequence, e) < 0 ? 2 : 1);
}

/* Nothing but 0, 1, 2 and the control socket is left. */
static int take_streams(const int *fds, struct err *e)
{
	for (int i = 0; i < 3; i++)
		if (dup2(fds[ZYGOTE_STDIN + i], i) < 0)
			return err_set(e, errno, "standard stream %d", i);
	if (fds[ZYGOTE_CONTROL] != CONTROL && dup3(fds[ZYGOTE_CONTROL], CONTROL, O_CLOEXEC) < 0)
		return err_set(e, errno, "control socket");
	if (syscall(SYS_close_range, CONTROL + 1, ~0u, 0) < 0)
		return err_set(e, errno, "close the zygote's descriptors");
	clearerr(stdin);                           /* the bootstrap's end */
	if (getsid(0) != getpid() && setsid() < 0) /* the joiner may have */
		return err_set(e, errno, "new session");
	return 0;
}

/* Sleep until the code is there. */
static void wait_for_run(struct run_view *v)
{
	const struct zygote_header *h = (const struct zygote_header *)message;
	int fds[ZYGOTE_FDS + ZYGOTE_JOIN_FDS_MAX];
	struct err e = {0};
	size_t fd_count;
	ssize_t n;

	do
		n = message_receive(CONTROL, message, sizeof message, fds, &fd_count);
	while (n == -EINTR);
	if (n == 0 || n == -ECONNRESET)
		_exit(0); /* not needed */
	if (n < 0)
		err_set(&e, (int)-n, "receive RUN");
	else if (fd_count)
		err_set(&e, EBADMSG, "RUN: takes no descriptors");
	else if (message_run_split(message, (size_t)n, v, &e) == 0)
		return;
	refuse(CONTROL, n >= (ssize_t)sizeof *h ? h->sequence : 0, &e);
}

_Noreturn void child_main(const struct zygote *z, const struct zygote_fork *m, const int *fds,
			  size_t fd_count)
{
	const struct joiner_seat seat = {m + 1, m->join_size, fds + ZYGOTE_FDS,
					 fd_count - ZYGOTE_FDS};
	struct zygote_header waiting = {ZYGOTE_WAITING, m->header.sequence}, running;
	struct sigaction action = {.sa_handler = SIG_DFL};
	uint32_t flags = m->flags;
	struct run_view v = {0};
	struct err e = {0};

	if (zygote_joiner.join(&seat, &e) < 0)
		refuse(fds[ZYGOTE_CONTROL], m->header.sequence, &e);
	if (take_streams(fds, &e) < 0)
		refuse(CONTROL, m->header.sequence, &e);
	PyOS_AfterFork_Child();
	sigaction(SIGCHLD, &action, NULL);
	if (fresh_sibling(&e) < 0)
		refuse(CONTROL, m->header.sequence, &e);
	if (flags & ZYGOTE_WARM)
		run_warm();
	if (message_send(CONTROL, &waiting, sizeof waiting, NULL, 0) < 0)
		_exit(0);
	wait_for_run(&v);
	if (apply_run(&v, &e) < 0)
		refuse(CONTROL, v.run->header.sequence, &e);
	running = (struct zygote_header){ZYGOTE_RUNNING, v.run->header.sequence};
	if (message_send(CONTROL, &running, sizeof running, NULL, 0) < 0)
		_exit(0); /* nobody would know that it ran */
	close(CONTROL);
	fresh_moment();
	sigprocmask(SIG_SETMASK, &z->mask, NULL);
	run_code(v.argv[0][1] == 'c' ? v.argv[1] : NULL);
}
