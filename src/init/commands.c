/* SPDX-License-Identifier: Apache-2.0 */
/*
 * commands.c - the commands of a kept sandbox: from START to FORGET.
 *
 * A command is running until it was reaped and what was in its pipes at that moment has been taken. That
 * amount is asked for once (FIONREAD): survivors that hold the pipe can neither delay the end nor add to
 * it, and what they write later is read and thrown away, so that they live on.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "init/keep.h"
#include "init/kept.h"

enum { PIECE = OUT_SIZE - 1024, TERMINAL_REST = 1 << 20, TERMINAL_AGAIN_MS = 200 };

struct stream {
	int fd; /* -1: closed */
	struct keep keep;
	bool ended;       /* nothing more counts */
	uint64_t rest;    /* once the command is dead: what still counts */
	int64_t again_ms; /* a terminal that nobody holds: not to be asked before */
};

struct command {
	struct command *next;
	uint32_t number, flags;
	pid_t pid;     /* 0: reaped */
	pid_t session; /* 0: nobody can be in it any more */
	char tag[TAG_SIZE];
	bool fresh; /* reaped just now */
	bool over;  /* and its streams are at their end */
	int64_t started_us, deadline_ms;
	struct stream out[2];
	int in;                       /* stdin, or the terminal once more; -1: closed */
	struct conversation *writer;  /* in the middle of a frame */
	struct conversation *starter; /* KEEP_LOSSLESS: reading waits for it */
	uint32_t pid_was;
	struct ended_record ended;
};

static struct command *find(const struct kept *k, uint32_t number)
{
	struct command *m = k->commands;

	while (m && m->number != number)
		m = m->next;
	return m;
}

static void close_fd(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

/* ------------------------------------------------------------------------------------------ output */

static void finish_if_over(struct command *m)
{
	if (m->over || m->pid != 0 || m->fresh || !m->out[0].ended || !m->out[1].ended)
		return;
	m->over = true;
	for (int i = 0; i < 2; i++) {
		m->ended.bytes[i] = m->out[i].keep.bytes;
		m->ended.first[i] = m->out[i].keep.first;
		m->ended.kept[i] = m->out[i].keep.end - m->out[i].keep.first;
	}
}

static void end_stream(struct command *m, struct stream *s, bool keep_open)
{
	s->ended = true;
	s->rest = 0;
	if (!keep_open)
		close_fd(&s->fd);
	finish_if_over(m);
}

/* How much may be read now. A terminal says only by EAGAIN that there is no more. */
static size_t readable(const struct command *m, int i, size_t most)
{
	const struct stream *s = &m->out[i];
	uint64_t n = most;

	if (s->ended)
		return most;
	if (m->pid == 0 && s->rest < n)
		n = s->rest;
	if (m->flags & KEEP_LOSSLESS && m->starter) {
		uint64_t taken = m->starter->position[i], room;

		room = s->keep.cap > s->keep.end - taken ? s->keep.cap - (s->keep.end - taken) : 0;
		n = room < n ? room : n;
	}
	return (size_t)n;
}

/* One read; false when there is no use in another one now. */
static bool take_output(struct command *m, int i)
{
	static unsigned char data[65536];
	struct stream *s = &m->out[i];
	size_t most = s->fd < 0 ? 0 : readable(m, i, sizeof data);
	ssize_t n;

	if (most == 0)
		return false;
	n = read(s->fd, data, most);
	if (n < 0 && errno == EINTR)
		return true;
	if (n < 0 && errno == EAGAIN) {
		if (m->pid == 0 && !s->ended)
			end_stream(m, s, true);
		return false;
	}
	/* A terminal that nobody holds says EIO. Letting go of it would be a hang-up for a command that is
	 * just about to exit; and it may be opened again, which no descriptor tells. */
	if (n < 0 && m->flags & START_PTY && m->pid != 0) {
		s->again_ms = guest_now_us() / 1000 + TERMINAL_AGAIN_MS;
		return false;
	}
	if (n <= 0) {
		if (s->ended)
			close_fd(&s->fd);
		else
			end_stream(m, s, false);
		return false;
	}
	if (s->ended)
		return true;
	keep_append(&s->keep, data, (size_t)n);
	if (m->pid == 0 && (s->rest -= (uint64_t)n) == 0)
		end_stream(m, s, true);
	return true;
}

static void send_data(struct command *m, struct conversation *c, int i)
{
	static unsigned char data[PIECE];
	const struct keep *keep = &m->out[i].keep;
	size_t n;

	if (c->position[i] < keep->first) {
		struct offset_record o = {keep->first, (uint32_t)i + 1, 0};

		if (!conversation_put(c, FRAME_OFFSET, 0, &o, sizeof o))
			return;
		c->position[i] = keep->first;
	}
	n = OUT_SIZE - c->out_to;
	if (n <= 512)
		return;
	n = n - 512 < PIECE ? n - 512 : PIECE;
	if (c->until[i] - c->position[i] < n)
		n = (size_t)(c->until[i] - c->position[i]);
	n = keep_copy(keep, c->position[i], data, n);
	if (n > 0 && conversation_put(c, FRAME_DATA, (unsigned)i + 1, data, (uint32_t)n))
		c->position[i] += n;
}

static bool sent_all(const struct command *m, const struct conversation *c, int i)
{
	return c->position[i] >= m->out[i].keep.end || c->position[i] >= c->until[i];
}

/* What an attached conversation gets next. */
static void more_output(struct kept *k, struct conversation *c)
{
	struct command *m = c->command;

	(void)k;
	for (int i = 0; i < 2; i++) {
		if (!c->eof_sent[i])
			send_data(m, c, i);
		if (!c->eof_sent[i] && m->out[i].ended && sent_all(m, c, i) &&
		    (c->follow || m->over))
			c->eof_sent[i] = conversation_put(c, FRAME_EOF, (unsigned)i + 1, NULL, 0);
	}
	if (m->over && c->eof_sent[0] && c->eof_sent[1]) {
		if (conversation_put(c, FRAME_ENDED, 0, &m->ended, sizeof m->ended))
			c->over = true;
	} else if (!c->follow && !m->over && sent_all(m, c, 0) && sent_all(m, c, 1)) {
		if (conversation_put(c, FRAME_DONE, 0, NULL, 0))
			c->over = true;
	}
}

/* ------------------------------------------------------------------------------------------- input */

/* Write what is left of the frame. True when all of it has been consumed, one way or another. */
static bool write_input(struct command *m, struct conversation *c)
{
	while (c->input_done < c->frame.size) {
		ssize_t n = -1;

		if (m->in >= 0) {
			n = write(m->in, c->payload + c->input_done, c->frame.size - c->input_done);
			if (n < 0 && errno == EINTR)
				continue;
			if (n < 0 && errno == EAGAIN)
				return false;
			if (n < 0)
				close_fd(&m->in);
		}
		if (n < 0) /* nobody reads any more: consumed */
			n = (ssize_t)(c->frame.size - c->input_done);
		c->input_done += (size_t)n;
		c->credit += (uint32_t)n;
	}
	return true;
}

/* A terminal has no end; its line discipline takes ^D for one. False: not now. */
static bool end_input(struct command *m)
{
	if (!(m->flags & START_PTY))
		close_fd(&m->in);
	return m->in < 0 || write(m->in, "\004", 1) == 1 || errno != EAGAIN;
}

bool command_take_frame(struct kept *k, struct conversation *c)
{
	struct command *m = c->command;

	if (m->writer && m->writer != c)
		return false;
	switch (c->frame.type) {
	case FRAME_DATA:
		m->writer = c;
		if (!write_input(m, c))
			return false;
		m->writer = NULL;
		return true;
	case FRAME_EOF:
		return end_input(m);
	case FRAME_FINISH:
		if (c->takes_finish) {
			if (c->credit > 0)
				conversation_put(c, FRAME_CREDIT, 0, &c->credit, sizeof c->credit);
			c->credit = 0;
			conversation_done(c);
			return true;
		}
		/* fall through */
	default:
		conversation_fail(c, "input", EPROTO, "no such frame here");
		(void)k;
		return true;
	}
}

void command_leave(struct kept *k, struct conversation *c)
{
	struct command *m = c->command;

	(void)k;
	c->command = NULL;
	if (!m)
		return;
	if (m->writer == c)
		m->writer = NULL;
	if (m->starter == c)
		m->starter = NULL;
}

/* -------------------------------------------------------------------------------------- descriptors */

static struct {
	struct command *m;
	int what; /* 0, 1: output; 2: input */
} polled[COMMANDS_MAX * 3];

size_t commands_poll(struct kept *k, struct pollfd *p, size_t room, int64_t now_ms)
{
	size_t n = 0;

	for (struct command *m = k->commands; m; m = m->next) {
		for (int i = 0; i < 2 && n < room; i++)
			if (m->out[i].fd >= 0 && m->out[i].again_ms <= now_ms &&
			    readable(m, i, 1) > 0) {
				polled[n].m = m;
				polled[n].what = i;
				p[n++] = (struct pollfd){.fd = m->out[i].fd, .events = POLLIN};
			}
		if (m->writer && m->in >= 0 && n < room) {
			polled[n].m = m;
			polled[n].what = 2;
			p[n++] = (struct pollfd){.fd = m->in, .events = POLLOUT};
		}
	}
	return n;
}

void commands_ready(struct kept *k, const struct pollfd *p, size_t count)
{
	(void)k;
	for (size_t i = 0; i < count; i++) {
		struct command *m = polled[i].m;

		if (!p[i].revents)
			continue;
		if (polled[i].what < 2) {
			take_output(m, polled[i].what);
		} else if (m->writer && write_input(m, m->writer)) {
			struct conversation *c = m->writer;

			m->writer = NULL; /* kept.c takes the frame, which is consumed, once more */
			c->input_done = c->frame.size;
		}
	}
}

/* --------------------------------------------------------------------------------------------- ends */

static void kill_for_time(struct kept *k, struct command *m)
{
	m->ended.timed_out = 1;
	m->deadline_ms = INT64_MAX;
	kill(m->pid, SIGKILL);
	session_signal(k->g, m->session, m->pid, SIGKILL);
}

/* It may have ended before its time, without having been reaped yet. */
static bool is_dead(pid_t pid)
{
	siginfo_t info = {0};

	return waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
	       info.si_pid == pid;
}

void commands_clock(struct kept *k, int64_t now_ms, int64_t *until)
{
	for (struct command *m = k->commands; m; m = m->next) {
		if (m->pid == 0)
			continue;
		if (m->deadline_ms <= now_ms && is_dead(m->pid))
			m->deadline_ms = INT64_MAX;
		else if (m->deadline_ms <= now_ms)
			kill_for_time(k, m);
		if (m->deadline_ms < *until)
			*until = m->deadline_ms;
		if (m->out[0].again_ms > now_ms && m->out[0].again_ms < *until)
			*until = m->out[0].again_ms;
	}
}

static uint64_t microseconds(struct timeval t)
{
	return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_usec;
}

bool commands_reaped(struct kept *k, pid_t pid, int status, const struct rusage *used)
{
	struct command *m = k->commands;

	while (m && m->pid != pid)
		m = m->next;
	if (!m)
		return false;
	m->pid = 0;
	m->fresh = true;
	m->ended.signaled = WIFSIGNALED(status);
	m->ended.status = (uint32_t)(WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
	m->ended.core = WIFSIGNALED(status) && WCOREDUMP(status);
	m->ended.wall_us = (uint64_t)(guest_now_us() - m->started_us);
	m->ended.cpu_us = microseconds(used->ru_utime) + microseconds(used->ru_stime);
	return true;
}

/* Orphans are our children by now. Without a child at all there is no need to look. */
static bool has_survivors(struct kept *k, struct command *m)
{
	siginfo_t info;

	m->ended.alone = waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) < 0;
	if (m->ended.alone)
		return false;
	if (m->ended.timed_out) { /* those that were just being made */
		session_signal(k->g, m->session, 0, SIGKILL);
		return false;
	}
	return session_is_alive(k->g, m->session);
}

static void count_rest(struct command *m, int i)
{
	struct stream *s = &m->out[i];
	int n = 0;

	if (s->ended)
		return;
	if (s->fd >= 0 && !(m->flags & START_PTY))
		s->rest = ioctl(s->fd, FIONREAD, &n) == 0 && n > 0 ? (uint64_t)n : 0;
	else
		s->rest = s->fd >= 0 ? TERMINAL_REST : 0;
	if (s->rest == 0)
		end_stream(m, s, true);
	while (!s->ended && take_output(m, i))
		;
}

void commands_ended(struct kept *k)
{
	for (struct command *m = k->commands; m; m = m->next) {
		if (!m->fresh)
			continue;
		m->ended.survivors = has_survivors(k, m);
		if (!m->ended.survivors)
			m->session = 0;
		m->fresh = false;
		close_fd(&m->in);
		count_rest(m, 0);
		count_rest(m, 1);
		finish_if_over(m);
	}
}

uint32_t commands_session(const struct kept *k, pid_t session)
{
	for (const struct command *m = k->commands; m; m = m->next)
		if (m->session == session)
			return m->number;
	return 0;
}

/* -------------------------------------------------------------------------------------------- START */

/* The terminal's ends: ours is there twice, for reading and for writing. */
static int open_terminal(const struct kept *k, struct command *m, const struct start_record *start,
			 int theirs[3])
{
	struct winsize size = {.ws_row = start->rows ? start->rows : 24,
			       .ws_col = start->columns ? start->columns : 80};
	int locked = 0, r = guest_as_user(k->g->uid, k->g->gid), master, slave = -1;

	master = r < 0 ? -1 : open("/dev/ptmx", O_RDWR | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);
	if (master >= 0 && ioctl(master, TIOCSPTLCK, &locked) == 0 &&
	    ioctl(master, TIOCSWINSZ, &size) == 0)
		slave = ioctl(master, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
	if (r == 0 && slave < 0)
		r = -errno;
	m->out[0].fd = master;
	theirs[0] = theirs[1] = theirs[2] = slave;
	if (r == 0) {
		m->in = fcntl(master, F_DUPFD_CLOEXEC, 0);
		r = m->in < 0 ? -errno : 0;
	}
	return guest_as_root() < 0 && r == 0 ? -EPERM : r;
}

static int open_stdio(const struct kept *k, struct command *m, const struct start_record *start,
		      int theirs[3])
{
	int ours[3] = {-1, -1, -1}, r;

	if (start->flags & START_PTY)
		return open_terminal(k, m, start, theirs);
	r = guest_pipes(k->g->uid, k->g->gid, theirs, ours);
	m->in = ours[0];
	m->out[0].fd = ours[1];
	m->out[1].fd = ours[2];
	return r;
}

static const char *refuse(const struct kept *k, const struct start_record *s, uint32_t size,
			  const char *payload, int *ret_errno)
{
	unsigned keep = s->flags & (KEEP_HEAD | KEEP_TAIL | KEEP_LOSSLESS);

	*ret_errno = EINVAL;
	if (size < sizeof *s || payload[size - 1] != '\0' || s->zero || s->zero2)
		return "malformed start";
	if (s->flags & ~((unsigned)START_WAITS * 2 - 1) || keep == 0 || keep & (keep - 1))
		return "flags";
	if (s->flags & START_WAITS && s->flags != (START_WAITS | START_STDIN | KEEP_HEAD))
		return "one that waits has an open stdin, and nobody attached";
	if (keep == KEEP_LOSSLESS && (!(s->flags & START_ATTACH) || s->keep_bytes == 0))
		return "lossless keeping needs START_ATTACH and room";
	if (s->tag[TAG_SIZE - 1] != '\0')
		return "tag";
	*ret_errno = EPERM;
	if (s->uid != k->g->uid || s->gid != k->g->gid || s->uid == 0 || s->gid == 0)
		return "not the sandbox's user";
	*ret_errno = EMFILE;
	if (k->command_count >= COMMANDS_MAX)
		return "commands";
	*ret_errno = 0;
	return NULL;
}

static void free_command(struct command *m)
{
	close_fd(&m->in);
	for (int i = 0; i < 2; i++) {
		close_fd(&m->out[i].fd);
		keep_done(&m->out[i].keep);
	}
	free(m);
}

/* A number of a process that is used again is no longer an old command's session. */
static void add_command(struct kept *k, struct command *m)
{
	struct command **last = &k->commands;

	for (; *last; last = &(*last)->next)
		if ((*last)->session == m->pid)
			(*last)->session = 0;
	*last = m;
	k->command_count++;
	m->number = ++k->last_number;
	m->session = m->pid;
	m->pid_was = (uint32_t)m->pid;
}

static struct command *new_command(const struct start_record *s)
{
	struct command *m = calloc(1, sizeof *m);

	if (!m)
		return NULL;
	memcpy(m->tag, s->tag, sizeof m->tag);
	m->flags = s->flags;
	m->in = m->out[0].fd = m->out[1].fd = -1;
	for (int i = 0; i < 2; i++)
		keep_init(&m->out[i].keep, s->flags & KEEP_HEAD, s->keep_bytes);
	m->started_us = guest_now_us();
	m->deadline_ms = s->limit_ms ? m->started_us / 1000 + s->limit_ms : INT64_MAX;
	m->out[1].ended = s->flags & START_PTY;
	return m;
}

/* From here on the command is there, whatever becomes of the conversation. */
/* The conversation that started or took it hears of it to its end. */
static void attach_starter(struct conversation *c, struct command *m)
{
	c->command = m;
	c->follow = true;
	c->takes_input = m->flags & START_STDIN;
	c->until[0] = c->until[1] = UINT64_MAX;
	c->more = more_output;
	if (m->flags & KEEP_LOSSLESS)
		m->starter = c;
}

static void tell_begun(struct conversation *c, const struct command *m)
{
	struct begun_record begun = {.number = m->number, .pid = m->pid_was};

	conversation_put(c, FRAME_BEGUN, 0, &begun, sizeof begun);
}

static void begin(struct kept *k, struct conversation *c, struct command *m)
{
	add_command(k, m);
	if (!(m->flags & START_STDIN)) {
		end_input(m); /* an empty terminal has room for it */
		close_fd(&m->in);
	}
	tell_begun(c, m);
	if (m->flags & START_ATTACH)
		attach_starter(c, m);
	else
		c->over = true;
}

void command_start(struct kept *k, struct conversation *c, char *payload, uint32_t size)
{
	struct start_record start = {0};
	struct exec_record exec = {0};
	int theirs[3] = {-1, -1, -1}, r;
	const char *stage = "start", *what;
	struct command *m = NULL;

	/* Who has hung up meanwhile has told that it will not run: an answer was given without us. */
	if (conversation_is_cut(c)) {
		c->over = true;
		return;
	}
	memcpy(&start, payload, size < sizeof start ? size : sizeof start);
	what = refuse(k, &start, size, payload, &r);
	if (!what && !(m = new_command(&start))) {
		what = "command";
		r = ENOMEM;
	}
	if (what) {
		conversation_fail(c, stage, r, what);
		return;
	}
	exec = (struct exec_record){start.uid, start.gid, start.argc, start.envc, 0, 0};
	what = start.flags & START_PTY ? "terminal" : "pipes";
	r = open_stdio(k, m, &start, theirs);
	if (r == 0)
		r = guest_launch(k->g, &exec, payload + sizeof start, size - sizeof start, theirs,
				 start.flags & START_PTY, &stage, &what);
	if (start.flags & START_PTY)
		theirs[1] = theirs[2] = -1;
	guest_close(theirs);
	if (r < 0) {
		conversation_fail(c, stage, -r, what);
		free_command(m);
		return;
	}
	m->pid = r;
	begin(k, c, m);
}

static const char *refuse_take(const struct command *m, const struct take_record *t, int *ret_errno)
{
	unsigned keep = t->flags & (KEEP_HEAD | KEEP_TAIL | KEEP_LOSSLESS);

	*ret_errno = EINVAL;
	if (t->zero || t->flags & ~keep || keep == 0 || keep & (keep - 1))
		return "malformed take";
	*ret_errno = ESRCH;
	if (!m || !(m->flags & START_WAITS))
		return "no command waits under this number";
	/* What it has written or closed by itself would be taken for its user's. */
	if (m->pid == 0 || is_dead(m->pid) || m->in < 0 || m->out[0].keep.bytes ||
	    m->out[1].keep.bytes || m->out[0].fd < 0 || m->out[1].fd < 0)
		return "the command that waited is not what it was";
	*ret_errno = 0;
	return NULL;
}

void command_take(struct kept *k, struct conversation *c, char *payload, uint32_t size)
{
	struct take_record t;
	struct command *m;
	const char *what;
	int r;

	(void)size;
	if (conversation_is_cut(c)) {
		c->over = true;
		return;
	}
	memcpy(&t, payload, sizeof t);
	m = find(k, t.number);
	for (int i = 0; m && m->pid && i < 2; i++)
		while (take_output(m, i))
			;
	what = refuse_take(m, &t, &r);
	if (what) {
		conversation_fail(c, "take", r, what);
		return;
	}
	m->flags = t.flags | START_STDIN | START_ATTACH;
	for (int i = 0; i < 2; i++) {
		keep_done(&m->out[i].keep);
		keep_init(&m->out[i].keep, t.flags & KEEP_HEAD, t.keep_bytes);
	}
	m->started_us = guest_now_us();
	m->deadline_ms = t.limit_ms ? m->started_us / 1000 + t.limit_ms : INT64_MAX;
	tell_begun(c, m);
	attach_starter(c, m);
}

/* ------------------------------------------------------------------------------------ the other ones */

void command_attach(struct kept *k, struct conversation *c, char *payload, uint32_t size)
{
	struct attach_record a;
	struct command *m;

	(void)size;
	memcpy(&a, payload, sizeof a);
	m = find(k, a.number);
	if (!m || a.follow > 1) {
		conversation_fail(c, "attach", m ? EINVAL : ESRCH, "command");
		return;
	}
	c->command = m;
	c->follow = a.follow;
	c->more = more_output;
	for (int i = 0; i < 2; i++) {
		const struct keep *keep = &m->out[i].keep;
		struct offset_record o = {a.from[i], (uint32_t)i + 1, 0};

		if (o.offset < keep->first)
			o.offset = keep->first;
		if (o.offset > keep->end)
			o.offset = keep->end;
		c->position[i] = o.offset;
		c->until[i] = a.follow ? UINT64_MAX : keep->end;
		conversation_put(c, FRAME_OFFSET, 0, &o, sizeof o);
	}
}

void command_input(struct kept *k, struct conversation *c, char *payload, uint32_t size)
{
	struct command *m;
	uint32_t number;

	(void)size;
	memcpy(&number, payload, sizeof number);
	m = find(k, number);
	if (!m || m->in < 0) {
		conversation_fail(c, "input", m ? EPIPE : ESRCH, m ? "stdin" : "command");
		return;
	}
	c->command = m;
	c->takes_input = c->takes_finish = true;
}

void command_kill(struct kept *k, struct conversation *c, char *payload, uint32_t size)
{
	struct kill_record kr;
	struct command *m;
	bool found;

	(void)size;
	memcpy(&kr, payload, sizeof kr);
	m = find(k, kr.number);
	if (kr.signal < 1 || kr.signal > 64 || kr.session > 1) {
		conversation_fail(c, "kill", EINVAL, "signal");
		return;
	}
	found = m && m->pid > 0 && kill(m->pid, (int)kr.signal) == 0;
	if (m && kr.session && m->session > 0 &&
	    session_signal(k->g, m->session, m->pid, (int)kr.signal) > 0)
		found = true;
	if (found)
		conversation_done(c);
	else
		conversation_fail(c, "kill", ESRCH, m ? "process" : "command");
}

void command_resize(struct kept *k, struct conversation *c, char *payload, uint32_t size)
{
	struct resize_record rr;
	struct winsize w = {0};
	struct command *m;

	(void)size;
	memcpy(&rr, payload, sizeof rr);
	m = find(k, rr.number);
	w.ws_row = rr.rows;
	w.ws_col = rr.columns;
	if (!m || !(m->flags & START_PTY))
		conversation_fail(c, "resize", m ? ENOTTY : ESRCH, "command");
	else if (m->out[0].fd < 0 || ioctl(m->out[0].fd, TIOCSWINSZ, &w) < 0)
		conversation_fail(c, "resize", m->out[0].fd < 0 ? ESRCH : errno, "terminal");
	else
		conversation_done(c);
}

/* Who still reads it is hung up on. */
/* Who reads of it has its last words now. 0, or -errno: it is not there, or not over. */
static int forget(struct kept *k, uint32_t number)
{
	struct command **m = &k->commands, *gone;

	while (*m && (*m)->number != number)
		m = &(*m)->next;
	gone = *m;
	if (!gone || !gone->over)
		return gone ? -EBUSY : -ESRCH;
	for (struct conversation *o = k->slots; o < k->slots + CONVERSATIONS_MAX; o++)
		if (o->command == gone) {
			o->command = NULL;
			o->more = NULL;
			o->over = true;
			o->takes_input = false;
		}
	*m = gone->next;
	k->command_count--;
	free_command(gone);
	return 0;
}

void command_forget(struct kept *k, struct conversation *c, char *payload, uint32_t size)
{
	int r = size % sizeof(uint32_t) ? -EPROTO : 0;

	for (uint32_t at = 0; at + sizeof(uint32_t) <= size && r != -EPROTO; at += 4) {
		uint32_t number;
		int one;

		memcpy(&number, payload + at, sizeof number);
		one = forget(k, number);
		if (r == 0)
			r = one;
	}
	if (r < 0)
		conversation_fail(c, "forget", -r, "command");
	else
		conversation_done(c);
}

static void more_list(struct kept *k, struct conversation *c)
{
	for (struct command *m = k->commands; m; m = m->next) {
		struct command_record r = {.number = m->number, .pid = m->pid_was};

		if (m->number <= c->listed)
			continue;
		memcpy(r.tag, m->tag, sizeof r.tag);
		r.flags = m->flags;
		r.running = !m->over;
		r.started_ms = (uint64_t)(m->started_us - k->born_us) / 1000;
		for (int i = 0; i < 2; i++)
			r.bytes[i] = m->out[i].keep.bytes;
		if (m->over)
			r.ended = m->ended;
		if (!conversation_put(c, FRAME_COMMAND, 0, &r, sizeof r))
			return;
		c->listed = m->number;
	}
	if (conversation_put(c, FRAME_DONE, 0, NULL, 0))
		c->over = true;
}

void command_list(struct kept *k, struct conversation *c, char *payload, uint32_t size)
{
	(void)k;
	(void)payload;
	(void)size;
	c->more = more_list;
}
