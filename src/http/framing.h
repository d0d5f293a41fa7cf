/* SPDX-License-Identifier: Apache-2.0 */
/*
 * framing.h - where the body of a request ends: by its length, or by chunks.
 *
 * Chunks are parsed by llhttp, which gets their lines only when they are complete and have passed our
 * own check: CRLF at the end, at most 256 bytes, few extensions in all. Trailers are refused.
 */
#ifndef HTTP_FRAMING_H
#define HTTP_FRAMING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <llhttp.h>

enum { CHUNK_LINE_MAX = 256, CHUNK_EXTENSIONS_MAX = 4096 };

enum framing_state {
	FRAMING_MORE,  /* the next step needs more bytes than there are */
	FRAMING_PIECE, /* *ret_piece of *ret_size bytes of the body */
	FRAMING_ON,    /* only framing was used up: call again */
	FRAMING_END,
	FRAMING_BAD,
};

struct framing {
	bool chunked, last;
	enum { AT_SIZE, AT_DATA, AT_DATA_END } at;
	uint64_t left; /* of the body, or of this chunk */
	uint32_t extensions;
};

/* A body of this size, UINT64_MAX: chunked. */
void framing_begin(struct framing *f, uint64_t size);
/* The next step in data: *ret_used bytes are done with. */
enum framing_state framing_step(struct framing *f, llhttp_t *parser, const char *data, size_t size,
				size_t *ret_used, const char **ret_piece, size_t *ret_size);

#endif
