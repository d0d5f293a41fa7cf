/* SPDX-License-Identifier: Apache-2.0 */
#include "native/stream.h"

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"

/* A blocking pipe that polls writable takes this much without blocking (POSIX PIPE_BUF on Linux). */
enum { SINK_CHUNK = 4096, READ_CHUNK = 65536 };

void stream_init(struct stream *s, int source, int sink, bool escape, uint64_t cap,
		 struct captured *captured)
{
	*s = (struct stream){.source = source,
			     .sink = sink,
			     .escape = escape,
			     .cap = cap,
			     .captured = captured,
			     .stuck_at = SIZE_MAX};
}

void stream_close(struct stream *s)
{
	fd_close(&s->source);
}

static size_t backlog(const struct stream *s)
{
	return s->captured->size - s->flushed;
}

bool stream_is_behind(const struct stream *s)
{
	return s->sink >= 0 && backlog(s) >= STREAM_BACKLOG;
}

bool stream_wants_input(const struct stream *s)
{
	return s->source >= 0 && !(s->cap == UINT64_MAX && stream_is_behind(s));
}

bool stream_wants_room(const struct stream *s)
{
	return s->sink >= 0 && !s->sink_gone && backlog(s) > 0 && s->captured->size != s->stuck_at;
}

/* Forget what the sink has taken, once that is the larger part. */
static void compact(struct stream *s)
{
	struct captured *c = s->captured;

	if (s->sink < 0 || s->flushed == 0 || s->flushed < c->size / 2)
		return;
	memmove(c->data, c->data + s->flushed, c->size - s->flushed);
	c->size -= s->flushed;
	s->flushed = 0;
	s->stuck_at = SIZE_MAX;
}

static void keep(struct stream *s, const char *data, size_t size)
{
	struct captured *c = s->captured;
	size_t n = size;

	if (c->kept >= s->cap)
		return;
	if (n > s->cap - c->kept)
		n = (size_t)(s->cap - c->kept);
	compact(s);
	if (c->size + n > s->room) {
		size_t room = s->room ? s->room * 2 : 8192;
		char *more;

		while (room < c->size + n)
			room *= 2;
		more = s->failed ? NULL : realloc(c->data, room);
		if (!more) {
			/* From here on everything is dropped, so that what is kept stays a prefix. */
			s->failed = true;
			s->cap = c->kept;
			return;
		}
		c->data = more;
		s->room = room;
	}
	memcpy(c->data + c->size, data, n);
	c->size += n;
	c->kept += n;
}

void stream_put(struct stream *s, const char *data, size_t size)
{
	s->captured->bytes += (uint64_t)size;
	keep(s, data, size);
}

ssize_t stream_read(struct stream *s)
{
	char data[READ_CHUNK];
	ssize_t n = read(s->source, data, sizeof data);

	if (n < 0)
		return errno == EINTR || errno == EAGAIN ? -EAGAIN : (stream_close(s), 0);
	if (n == 0) {
		stream_close(s);
		return 0;
	}
	stream_put(s, data, (size_t)n);
	return n;
}

/* Length of a UTF-8 character that may be shown, 0 if these bytes may not, -1 if the end cuts it. */
static int showable(const char *data, size_t left)
{
	unsigned char c = (unsigned char)data[0];
	ssize_t whole;
	int n;

	if (c < 0x80)
		return c == '\n' || c == '\t' || (c >= 0x20 && c != 0x7f);
	n = c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4;
	if ((size_t)n > left)
		return utf8_prefix(data, left, true) == 0 ? -1 : 0;
	whole = utf8_prefix(data, (size_t)n, false);
	if (whole != n || (c == 0xc2 && (unsigned char)data[1] < 0xa0))
		return 0;
	return n;
}

size_t terminal_escape(const char *data, size_t size, bool last, char *out, size_t *ret_size)
{
	char *o = out;
	size_t i = 0;

	while (i < size) {
		int n = showable(data + i, size - i);

		if (n < 0 && !last)
			break;
		if (n > 0) {
			memcpy(o, data + i, (size_t)n);
			o += n;
			i += (size_t)n;
		} else {
			o += snprintf(o, 5, "\\x%02x", (unsigned char)data[i]);
			i++;
		}
	}
	*ret_size = (size_t)(o - out);
	return i;
}

/* Escaped text goes to terminals, which block; anything else may be non-blocking or stop half way. */
static void write_to_sink(struct stream *s, size_t n, bool last)
{
	const char *data = s->captured->data + s->flushed;
	char shown[4 * SINK_CHUNK];
	size_t taken, size;
	ssize_t w;

	if (s->escape) {
		taken = terminal_escape(data, n, last, shown, &size);
		if (size > 0 && fd_write_all(s->sink, shown, size) < 0)
			s->sink_gone = true;
		s->flushed += taken;
		if (taken == 0)
			s->stuck_at = s->captured->size; /* half a character */
		return;
	}
	w = write(s->sink, data, n);
	if (w >= 0)
		s->flushed += (size_t)w;
	else if (errno != EAGAIN && errno != EINTR)
		s->sink_gone = true;
}

void stream_flush_some(struct stream *s)
{
	size_t n = backlog(s), chunk = s->escape ? SINK_CHUNK / 4 : SINK_CHUNK;

	if (n > chunk)
		n = chunk;
	if (n > 0)
		write_to_sink(s, n, false);
	compact(s);
}

void stream_drain(struct stream *s)
{
	while (s->source >= 0 && stream_read(s) > 0)
		;
	stream_close(s);
}

void stream_flush(struct stream *s, int cancel_fd)
{
	s->stuck_at = SIZE_MAX;
	while (stream_wants_room(s)) {
		struct pollfd p[] = {{s->sink, POLLOUT, 0}, {cancel_fd, POLLIN, 0}};
		size_t n = backlog(s);

		if (poll(p, 2, -1) < 0 && errno != EINTR)
			return;
		if (p[1].revents || p[0].revents & (POLLERR | POLLNVAL))
			return;
		if (p[0].revents)
			write_to_sink(s, n > SINK_CHUNK ? SINK_CHUNK : n, n <= SINK_CHUNK);
	}
}

void terminal_error(const struct err *e)
{
	char shown[4 * sizeof e->text];
	size_t size;

	terminal_escape(e->text, strlen(e->text), true, shown, &size);
	fputs("cloche: ", stderr);
	for (size_t i = 0; i < size; i++)
		if (shown[i] == '\n')
			fputs("\\x0a", stderr);
		else
			fputc(shown[i], stderr);
	fputc('\n', stderr);
}
