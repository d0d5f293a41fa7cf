/* SPDX-License-Identifier: Apache-2.0 */
/* commands.c - the commands of a kept sandbox as a whole: descriptors, clocks, ends, and what is asked of one. */
#include "init/command.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/wait.h>

/* LOOK_MS: as often as the supervisor of a run without a service does. */
enum { TERMINAL_REST = 1 << 20, LOOK_MS = 250 };

struct command *command_find(const struct kept *k, uint32_t number)
{
	struct command *m = k->commands;

	while (m && m->number != number)
		m = m->next;
	return m;
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
		for (int i = 0; i < 2 && n < room && !m->held_us; i++)
			if (m->out[i].fd >= 0 && m->out[i].again_ms <= now_ms &&
			    command_readable(m, i, 1) > 0) {
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
			command_take_output(m, polled[i].what);
		} else if (m->writer && command_write_input(m, m->writer)) {
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

bool command_is_dead(pid_t pid)
{
	siginfo_t info = {0};

	return waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
	       info.si_pid == pid;
}

/* The places that the sandbox has as tmpfs; a volume may lie on what does not answer. */
static uint16_t look_at_room(const struct kept *k)
{
	const struct plan *p = k->g->plan;
	uint16_t full = 0;

	for (uint32_t i = 0; p && i < p->tmpfs_count; i++) {
		struct statvfs f;

		if (statvfs(p->tmpfs[i].path, &f) < 0)
			continue;
		if (f.f_blocks && f.f_bavail == 0)
			full |= FULL_DISK;
		if (f.f_files && f.f_ffree == 0)
			full |= FULL_INODES;
	}
	return full;
}

/* Of what runs while somebody waits for it; what runs in the background would keep every sandbox awake. */
static void sample_room(struct kept *k, int64_t now_ms, int64_t *until)
{
	uint16_t full = 0;
	bool looked = false;

	for (struct command *m = k->commands; m; m = m->next) {
		if (m->pid == 0 || !(m->flags & START_ATTACH))
			continue;
		if (!looked && k->look_ms <= now_ms) {
			full = k->look_ms ? look_at_room(k) : 0;
			k->look_ms = now_ms + LOOK_MS;
		}
		looked = true;
		m->ended.full |= full;
	}
	if (!looked)
		k->look_ms = 0;
	else if (k->look_ms < *until)
		*until = k->look_ms;
}

void commands_clock(struct kept *k, int64_t now_us, int64_t *until_us)
{
	int64_t now_ms = now_us / 1000, until = INT64_MAX;

	sample_room(k, now_ms, &until);
	for (struct command *m = k->commands; m; m = m->next) {
		if (m->pid == 0)
			continue;
		if (m->held_us && m->held_us < *until_us)
			*until_us = m->held_us;
		if (m->deadline_ms <= now_ms && command_is_dead(m->pid))
			m->deadline_ms = INT64_MAX;
		else if (m->deadline_ms <= now_ms)
			kill_for_time(k, m);
		if (m->deadline_ms < until)
			until = m->deadline_ms;
		if (m->out[0].again_ms > now_ms && m->out[0].again_ms < until)
			until = m->out[0].again_ms;
	}
	if (until < INT64_MAX && until * 1000 < *until_us)
		*until_us = until * 1000;
}

void commands_let_go(struct kept *k, int64_t now_us)
{
	for (struct command *m = k->commands; m; m = m->next)
		if (m->held_us <= now_us)
			m->held_us = 0;
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
	m->held_us = 0;
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
		command_end_stream(m, s, true);
	while (!s->ended && command_take_output(m, i))
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
		if (m->flags & START_ATTACH)
			m->ended.full |= look_at_room(k);
		close_fd(&m->in);
		count_rest(m, 0);
		count_rest(m, 1);
		command_finish(m);
	}
}

uint32_t commands_session(const struct kept *k, pid_t session)
{
	for (const struct command *m = k->commands; m; m = m->next)
		if (m->session == session)
			return m->number;
	return 0;
}

bool command_is_held(const struct conversation *c)
{
	return c->command && c->command->held_us;
}

/* ------------------------------------------------------------------------------------ the other ones */

void command_attach(struct kept *k, struct conversation *c, char *payload, uint32_t size)
{
	struct attach_record a;
	struct command *m;

	(void)size;
	memcpy(&a, payload, sizeof a);
	m = command_find(k, a.number);
	if (!m || a.follow > 1) {
		conversation_fail(c, "attach", m ? EINVAL : ESRCH, "command");
		return;
	}
	c->command = m;
	c->follow = a.follow;
	c->more = command_more_output;
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
	m = command_find(k, number);
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
	m = command_find(k, kr.number);
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
	m = command_find(k, rr.number);
	w.ws_row = rr.rows;
	w.ws_col = rr.columns;
	if (!m || !(m->flags & START_PTY))
		conversation_fail(c, "resize", m ? ENOTTY : ESRCH, "command");
	else if (m->out[0].fd < 0 || ioctl(m->out[0].fd, TIOCSWINSZ, &w) < 0)
		conversation_fail(c, "resize", m->out[0].fd < 0 ? ESRCH : errno, "terminal");
	else
		conversation_done(c);
}

/* Who reads of it has its last words now. 0, or -errno: it is not there, or not over. */
static int forget(struct kept *k, uint32_t number)
{
	struct command **m = &k->commands, *gone;

	while (*m && (*m)->number != number)
		m = &(*m)->next;
	gone = *m;
	if (!gone || !gone->over)
		return gone ? -EBUSY : -ESRCH;
	EACH_CONVERSATION(k, o)
		if (o->command == gone) {
			o->command = NULL;
			o->more = NULL;
			o->over = !o->again; /* else another opening was promised */
			o->takes_input = false;
		}
	*m = gone->next;
	k->command_count--;
	command_free(gone);
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

static bool input_is_cut(const struct kept *k, const struct command *m)
{
	if (m->in < 0 || m->flags & START_PTY)
		return false;
	EACH_CONVERSATION(k, o)
		if (o->fd >= 0 && o->command == m && o->takes_input)
			return false;
	return true;
}

static void more_list(struct kept *k, struct conversation *c)
{
	for (struct command *m = k->commands; m; m = m->next) {
		struct command_record r = {.number = m->number, .pid = m->pid_was};

		if (m->number <= c->listed)
			continue;
		memcpy(r.tag, m->tag, sizeof r.tag);
		r.flags = m->flags | (input_is_cut(k, m) ? INPUT_IS_CUT : 0);
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
