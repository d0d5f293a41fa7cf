/* SPDX-License-Identifier: Apache-2.0 */
/* begin.c - how a command begins: started (START), or taken over while it waits (TAKE). */
#include "init/command.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

/* What ends at once is told of in one piece: each of its ends would wake us, and each time the service. An interpreter
 * needs half of its time for its end. Who wants output as it comes (KEEP_LOSSLESS) hears of it at once. */
enum { HOLD_US = 500, HOLD_CODE_US = 1000 };

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

static const char *refuse_waiting(const struct kept *k, const struct start_record *s,
				  int *ret_errno)
{
	if (s->flags & START_WAITS &&
	    (s->flags & ~(uint32_t)START_JOINED) != (START_WAITS | START_STDIN | KEEP_HEAD))
		return "one that waits has an open stdin, and nobody attached";
	if (s->flags & START_JOINED && s->flags & START_PTY)
		return "what has joined has no terminal";
	*ret_errno = ESRCH;
	return s->flags & START_JOINED && k->g->joined_fds[JOINED_CONTROL] < 0 ? "nobody has joined"
									       : NULL;
}

static const char *refuse(const struct kept *k, const struct start_record *s, uint32_t size,
			  const char *payload, int *ret_errno)
{
	unsigned keep = s->flags & (KEEP_HEAD | KEEP_TAIL | KEEP_LOSSLESS);
	const char *what;

	*ret_errno = EINVAL;
	if (size < sizeof *s || payload[size - 1] != '\0' || s->zero || s->zero2)
		return "malformed start";
	if (s->flags & ~((unsigned)START_JOINED * 2 - 1) || keep == 0 || keep & (keep - 1))
		return "flags";
	if (s->flags & (START_WAITS | START_JOINED) && (what = refuse_waiting(k, s, ret_errno)))
		return what;
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

void command_free(struct command *m)
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

/* Rounded up: nobody has less time than was said. */
static void start_clock(struct command *m, uint32_t limit_ms)
{
	m->started_us = guest_now_us();
	m->deadline_ms = limit_ms ? (m->started_us + 999) / 1000 + limit_ms : INT64_MAX;
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
	start_clock(m, s->limit_ms);
	m->out[1].ended = s->flags & START_PTY;
	return m;
}

/* The conversation that started or took it hears of it to its end. */
static void attach_starter(struct conversation *c, struct command *m, int64_t hold_us)
{
	c->command = m;
	c->follow = true;
	c->takes_input = m->flags & START_STDIN;
	c->lasts = !c->takes_input;
	c->until[0] = c->until[1] = UINT64_MAX;
	c->more = command_more_output;
	if (m->flags & KEEP_LOSSLESS)
		m->starter = c;
	else
		m->held_us = guest_now_us() + hold_us;
}

static void tell_begun(struct conversation *c, const struct command *m)
{
	struct begun_record begun = {.number = m->number, .pid = m->pid_was};

	conversation_put(c, FRAME_BEGUN, 0, &begun, sizeof begun);
}

/* From here on the command is there, whatever becomes of the conversation. */
static void begin(struct kept *k, struct conversation *c, struct command *m)
{
	add_command(k, m);
	if (!(m->flags & START_STDIN)) {
		command_end_input(m); /* an empty terminal has room for it */
		close_fd(&m->in);
	}
	tell_begun(c, m);
	if (m->flags & START_ATTACH) {
		attach_starter(c, m, m->flags & START_JOINED ? HOLD_CODE_US : HOLD_US);
		return;
	}
	/* Who has started what waits may take it on this conversation. */
	c->again =
		m->flags & START_WAITS && !c->half && conversation_put(c, FRAME_DONE, 0, NULL, 0);
	c->over = !c->again;
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
	r = start.flags & START_JOINED ? 0 : open_stdio(k, m, &start, theirs);
	if (start.flags & START_JOINED)
		r = command_adopt(k, m, &start, payload + sizeof start, size - sizeof start, &what);
	else if (r == 0)
		r = guest_launch(k->g, &exec, payload + sizeof start, size - sizeof start, theirs,
				 start.flags & START_PTY, &stage, &what);
	if (start.flags & START_PTY)
		theirs[1] = theirs[2] = -1;
	guest_close(theirs);
	if (r < 0) {
		conversation_fail(c, stage, -r, what);
		command_free(m);
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
	if (m->pid == 0 || command_is_dead(m->pid) || m->in < 0 || m->out[0].keep.bytes ||
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
	m = command_find(k, t.number);
	for (int i = 0; m && m->pid && i < 2; i++)
		while (command_take_output(m, i))
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
	start_clock(m, t.limit_ms);
	tell_begun(c, m);
	attach_starter(c, m, HOLD_CODE_US);
}
