/* SPDX-License-Identifier: Apache-2.0 */
/*
 * splitter.h - lines of a stream that comes in pieces of any size, from anyone: NDJSON's.
 *
 * What was put in is taken out a line at a time, so whoever takes decides when there is room for the next
 * one. A line longer than the most is told once, as that, and its bytes are thrown away as they come: memory
 * is at most that long a line and what was put in last. Every byte is looked at once.
 */
#ifndef BASE_SPLITTER_H
#define BASE_SPLITTER_H

#include <stdbool.h>
#include <stddef.h>

#include "base/bytes.h"

struct splitter {
	size_t most; /* of one line, without its end; set by the owner, the rest begins as zeros */
	struct bytes left; /* was not taken */
	size_t looked;     /* so much of it has no line's end */
	bool skipping;     /* the rest of a line that was too long */
};

enum splitter_answer { SPLITTER_NONE, SPLITTER_LINE, SPLITTER_TOO_LONG };

/* Add bytes. 0 or -ENOMEM. A line that was taken before is not to be used any more. */
int splitter_put(struct splitter *s, const void *data, size_t size) must_check;

/* Take the next line, without "\n" or "\r\n": it stays the splitter's, until the next call. ended: nothing more will
 * come, so that what is left is a line too. */
enum splitter_answer splitter_next(struct splitter *s, bool ended, const char **ret_line,
				   size_t *ret_size);

void splitter_done(struct splitter *s);

#endif
