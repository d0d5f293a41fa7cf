/* SPDX-License-Identifier: Apache-2.0 */
/*
 * head.h - the header of a request or an answer: found in the bytes, checked byte by byte, parsed by llhttp, judged.
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

/* What a request may ask for: a path of ours, decoded (target.h), but no CONNECT or TRACE; or whatever a proxy is asked
 * for, whose text is only known to have no other bytes than visible ASCII and no fragment. */
enum head_form { HEAD_SERVER, HEAD_PROXY };

struct head {
	const char *method;   /* a literal; NULL in an answer */
	struct target target; /* HEAD_SERVER */
	char *text; /* HEAD_PROXY: the target as it came; of an answer: its reason phrase */
	int status; /* of an answer */
	struct field *fields;
	size_t field_count;
	uint64_t body_size; /* UINT64_MAX: chunked */
	bool to_end;        /* an answer that says neither length nor chunked */
	bool http10;
	bool close;   /* the client wants the connection closed behind the answer */
	bool expects; /* Expect: 100-continue */
	char *memory; /* owns the fields and their texts */
};

/* Parse a header that the scan found complete. parser is left where a chunked body begins. Under HEAD_PROXY a request by
 * HTTP/1.0 may come without a Host, as CONNECT of Python's http.client before 3.12 does. */
int head_parse(const char *data, size_t size, enum head_form form, const struct http_limits *limits,
	       llhttp_t *parser, struct head *ret, struct refusal *ret_why) must_check;
/* The same for an answer's. What body it has depends on the request, too: that is not looked at. */
int head_parse_answer(const char *data, size_t size, const struct http_limits *limits,
		      llhttp_t *parser, struct head *ret, struct refusal *ret_why) must_check;
void head_done(struct head *h);

/* The field's value, NULL when it is absent; name in lower case. The first, if there are several. */
const char *head_field(const struct head *h, const char *name);
/* Is it in a comma-separated list, whatever its case? */
bool list_has_token(const char *list, const char *token);

#endif
