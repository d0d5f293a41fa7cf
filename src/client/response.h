/* SPDX-License-Identifier: Apache-2.0 */
/*
 * response.h - an HTTP/1.1 answer, read in pieces of any size and strictly: the peer is our own
 * service, and treated as if it were not.
 *
 * Refused: other versions, bare CR or LF, folded or nameless fields, control characters, more than
 * RESPONSE_HEADER_BYTES or RESPONSE_FIELDS, no length, two lengths, encodings other than chunked, chunk
 * extensions, and bytes behind the end. Fields behind a chunked body are refused unless
 * they were asked for; then they are read within the same bounds. Memory is bounded by this struct.
 */
#ifndef CLIENT_RESPONSE_H
#define CLIENT_RESPONSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum {
	RESPONSE_HEADER_BYTES = 32 << 10, /* status line and all fields */
	RESPONSE_FIELDS = 128,
	RESPONSE_INTERIM = 4, /* most 1xx answers in front of the real one */
};

enum response_state {
	RESPONSE_HEADER,
	RESPONSE_BODY,       /* `left` bytes */
	RESPONSE_CHUNK_SIZE, /* its line, in `line` */
	RESPONSE_CHUNK,      /* `left` bytes */
	RESPONSE_CHUNK_END,  /* CRLF behind it */
	RESPONSE_LAST,       /* fields and the empty line behind the last chunk */
	RESPONSE_DONE,
};

struct response {
	enum response_state state;
	int status;
	bool takes_trailers; /* set it after response_init() */
	bool chunked;
	bool closes;           /* the peer takes no further request on this connection */
	uint64_t size;         /* of the body, when not chunked */
	char content_type[96]; /* lower case, without parameters */
	unsigned interim;
	uint64_t left;
	size_t filled;       /* of header; or of line */
	size_t trailer_size; /* in header, once all is there */
	char line[20];
	char header[RESPONSE_HEADER_BYTES];
};

/* Takes a piece of the body; -1 with e ends everything. */
typedef int (*response_sink)(void *context, const char *data, size_t size, struct err *e);

void response_init(struct response *r);

/* Read on. sink (may be NULL) gets body bytes; r->status is set by then. */
int response_feed(struct response *r, const char *data, size_t size, response_sink sink,
		  void *context, struct err *e) must_check;

/* Of the fields behind a body that is complete, the value of this one (lower case); NULL: there is none. */
const char *response_trailer(const struct response *r, const char *name, size_t *ret_size);

/* The connection is at its end: an error unless the answer is complete. */
int response_eof(const struct response *r, struct err *e) must_check;

#endif
