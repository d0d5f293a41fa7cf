/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sse.h - server-sent events, as providers stream answers: lines "data: ..." up to a blank one.
 *
 * Of an event only its data is told: all three providers repeat the event's name inside. Lines end with LF or CRLF
 * (a bare CR, which the standard allows and nobody sends, ends none). A line or an event beyond SSE_BYTES is an error.
 * An event that has no blank line behind it at the end of the stream was cut and is not told, as the standard has it.
 */
#ifndef ASK_SSE_H
#define ASK_SSE_H

#include <stddef.h>

#include "ask/answer.h"
#include "base/splitter.h"

enum { SSE_BYTES = 4 << 20 };

struct sse {
	struct splitter lines; /* begins as zeros, as all of it */
	struct text data;
	bool has_data, looked;
};

/* -1 with e ends the stream. */
typedef int (*sse_sink)(void *context, const char *data, size_t size, struct err *e);

int sse_feed(struct sse *s, const char *data, size_t size, sse_sink sink, void *context,
	     struct err *e) must_check;
void sse_done(struct sse *s);

#endif
