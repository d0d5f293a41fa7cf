/* SPDX-License-Identifier: Apache-2.0 */
/* reading.h - from the bytes of an HTTP answer to a model's: a stream of events, or one JSON text. No I/O. */
#ifndef ASK_READING_H
#define ASK_READING_H

#include "ask/provider.h"
#include "ask/sse.h"

enum { READING_BYTES = 8 << 20 /* of an answer that is not streamed */ };

struct reading {
	const struct provider *provider; /* set by the owner, */
	struct answer *answer;           /* this too; the rest begins as zeros */
	struct sse sse;
	struct text whole;
	bool streamed;
};

/* The next bytes of a body of this content type (lower case, no parameters). context is the reading. */
int reading_take(void *context, const char *type, const char *data, size_t size,
		 struct err *e) must_check;

/* The body has ended: was it an answer, and all of it? */
int reading_end(struct reading *r, struct err *e) must_check;
void reading_done(struct reading *r);

#endif
