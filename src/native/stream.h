/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stream.h - one output stream on its way: drained always, kept up to a cap, counted exactly, and
 * passed on as fast as the reader takes it, never faster than memory allows.
 */
#ifndef NATIVE_STREAM_H
#define NATIVE_STREAM_H

#include <stdbool.h>

#include "sandbox/result.h"

struct stream {
	int source; /* read end of the command's pipe, -1: at its end */
	int sink;   /* where kept bytes go as they come, -1: they stay here */
	bool escape;
	bool sink_gone; /* the reader went away */
	uint64_t cap;
	struct captured *captured;
	size_t room;     /* allocated */
	size_t flushed;  /* of captured->data, what the sink has taken */
	size_t stuck_at; /* size at which the sink could take nothing: half a character */
	bool failed;     /* memory was short: counted as dropped */
};

/* Most bytes waiting for a slow sink when the cap is unlimited: then the source is not read. */
enum { STREAM_BACKLOG = 1 << 20 };

void stream_init(struct stream *s, int source, int sink, bool escape, uint64_t cap,
		 struct captured *captured);

/* True if the source should be polled for input; true if the sink should be polled for room. */
bool stream_wants_input(const struct stream *s);
bool stream_wants_room(const struct stream *s);

/* Read once. Returns bytes read, 0 at the end (source closed), -EAGAIN if there is nothing. */
ssize_t stream_read(struct stream *s);

/* The same with bytes that came another way. */
void stream_put(struct stream *s, const char *data, size_t size);

/* More waits for the sink than should: hold whoever writes, when the cap is unlimited. */
bool stream_is_behind(const struct stream *s);

/* Write a little to the sink; call when it is writable. */
void stream_flush_some(struct stream *s);

/* Read to the end: the writers are dead, so what is left is at most a pipe's content. */
void stream_drain(struct stream *s);

/* Pass on all that is left, however long the reader takes, until cancel_fd (-1: none) is readable. */
void stream_flush(struct stream *s, int cancel_fd);
void stream_close(struct stream *s);

/* Make text safe to show: C0 controls but \n and \t, DEL, C1 controls and bytes that are no UTF-8 come
 * out as \xNN. Returns the bytes of data consumed (an incomplete character at the end is left unless
 * last). out has room for 4 * size. */
size_t terminal_escape(const char *data, size_t size, bool last, char *out, size_t *ret_size);

/* "cloche: " and the text on stderr, as one line whatever names went into it. */
void terminal_error(const struct err *e);

#endif
