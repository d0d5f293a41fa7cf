/* SPDX-License-Identifier: Apache-2.0 */
/*
 * http.h - one question sent, one answer taken as it comes, by libcurl: no redirects, no cookies, nothing decoded.
 * Bounded: time to connect, time between two bytes, time in all; bytes of headers and of the answer.
 */
#ifndef ASK_HTTP_H
#define ASK_HTTP_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "registry/url.h"

enum {
	HTTP_HEADER_BYTES = 64 << 10,
	HTTP_ANSWER_BYTES = 32 << 20, /* on the wire: a streamed token takes 200 bytes and more */
	HTTP_MESSAGE_BYTES = 16 << 10 /* kept of an answer that is no success */
};

struct http_question {
	const struct url *url;
	const char *const *fields; /* "Name: value", ends with NULL */
	const char *body;
	size_t size;
	uint64_t connect_us, stall_us;
	uint64_t deadline_us; /* a time */
	int cancel_fd;        /* ends it when it can be read */
	/* The body of a success. -1: it ends, e is the error. */
	int (*take)(void *context, const char *type, const char *data, size_t size, struct err *e);
	void *context;
};

enum http_end {
	HTTP_DONE,        /* there is a status, and all of the answer */
	HTTP_UNREACHABLE, /* not a byte came */
	HTTP_CUT,         /* it broke off */
	HTTP_STALLED,     /* nothing for too long */
	HTTP_DEADLINE,
	HTTP_CANCELLED,
	HTTP_REFUSED, /* take() did not want it, or it is too much */
	HTTP_INTERNAL /* before anything was sent */
};

struct http_answer {
	long status;
	char type[64]; /* lower case, without parameters */
	uint64_t retry_after_s;
	char message[HTTP_MESSAGE_BYTES + 1]; /* the beginning of what is no success */
	size_t message_size;
};

/* Not HTTP_DONE: e says what happened. */
enum http_end http_ask(const struct http_question *q, struct http_answer *ret, struct err *e);

#endif
