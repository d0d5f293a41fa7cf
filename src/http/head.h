/* SPDX-License-Identifier: Apache-2.0 */
/*
 * head.h - the header of a request: found in the bytes, checked byte by byte, parsed by llhttp, judged.
 *
 * llhttp sees a header only when it is complete and every line of it has passed our scan, so that the two
 * cannot differ on where a line or the header ends: it takes bare LF, obs-fold and more spaces than one.
 */
#ifndef HTTP_HEAD_H
#define HTTP_HEAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <llhttp.h>

#include "base/cleanup.h"
#include "http/http.h"
#include "http/target.h"

/* Why a request is answered by this layer: an HTTP status of ours, and a literal sentence. */
struct refusal {
	int status;
	const char *detail;
};

/* How far a header has been looked at; zero at its first byte. */
struct head_scan {
	size_t seen, line;
	unsigned lines;
};

enum head_state { HEAD_MORE, HEAD_COMPLETE, HEAD_BAD };

/* Go on from s->seen. data is the header from its first byte. Complete: s->seen is its size. */
enum head_state head_scan(struct head_scan *s, const char *data, size_t size,
			  const struct http_limits *limits, struct refusal *ret_why);

struct field {
	char *name, *value; /* the name in lower case */
};

struct head {
	const char *method; /* a literal */
	struct target target;
	struct field *fields;
	size_t field_count;
	uint64_t body_size; /* UINT64_MAX: chunked */
	bool http10;
	bool close;   /* the client wants the connection closed behind the answer */
	bool expects; /* Expect: 100-continue */
	char *memory; /* owns the fields and their texts */
};

/* Parse a header that the scan found complete. parser is left where a chunked body begins. */
int head_parse(const char *data, size_t size, const struct http_limits *limits, llhttp_t *parser,
	       struct head *ret, struct refusal *ret_why) must_check;
void head_done(struct head *h);

/* Is it in a comma-separated list, whatever its case? */
bool list_has_token(const char *list, const char *token);

#endif
