/* SPDX-License-Identifier: Apache-2.0 */
/* streams.c - what goes through a command's descriptors: output into keeping and on to who reads it, input. */
#include "init/command.h"

#include <errno.h>

enum { PIECE = OUT_SIZE - 1024, TERMINAL_AGAIN_MS = 200 };

/* ------------------------------------------------------------------------------------------ output */

void command_finish(struct command *m)
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

void command_end_stream(struct command *m, struct stream *s, bool keep_open)
{
	s->ended = true;
	s->rest = 0;
	if (!keep_open)
		close_fd(&s->fd);
	command_finish(m);
}

size_t command_readable(const struct command *m, int i, size_t most)
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

bool command_take_output(struct command *m, int i)
{
	static unsigned char data[65536];
	struct stream *s = &m->out[i];
	size_t most = s->fd < 0 ? 0 : command_readable(m, i, sizeof data);
	ssize_t n;

	if (most == 0)
		return false;
	n = read(s->fd, data, most);
	if (n < 0 && errno == EINTR)
		return true;
	if (n < 0 && errno == EAGAIN) {
		if (m->pid == 0 && !s->ended)
			command_end_stream(m, s, true);
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
			command_end_stream(m, s, false);
		return false;
	}
	if (s->ended)
		return true;
	keep_append(&s->keep, data, (size_t)n);
	if (m->pid == 0 && (s->rest -= (uint64_t)n) == 0)
		command_end_stream(m, s, true);
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

void command_more_output(struct kept *k, struct conversation *c)
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
		if (!conversation_put(c, FRAME_ENDED, 0, &m->ended, sizeof m->ended))
			return;
		c->again = c->lasts && !c->half && c->header_filled == 0 &&
			   conversation_put(c, FRAME_DONE, 0, NULL, 0);
		c->over = !c->again;
	} else if (!c->follow && !m->over && sent_all(m, c, 0) && sent_all(m, c, 1)) {
		if (conversation_put(c, FRAME_DONE, 0, NULL, 0))
			c->over = true;
	}
}

/* ------------------------------------------------------------------------------------------- input */

bool command_write_input(struct command *m, struct conversation *c)
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

bool command_end_input(struct command *m)
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
		if (!command_write_input(m, c))
			return false;
		m->writer = NULL;
		return true;
	case FRAME_EOF:
		return command_end_input(m);
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
