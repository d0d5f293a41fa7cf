/* SPDX-License-Identifier: Apache-2.0 */
/*
 * call.h - one request and its answer, without blocking: several can be under way in one poll loop, and
 * call_run() is the loop for one.
 *
 * What is sent and what is received is in memory a piece at a time only. An answer that comes before
 * the request is complete ends the sending. A status other than 2xx is an error that says what the
 * problem document says.
 */
#ifndef CLIENT_CALL_H
#define CLIENT_CALL_H

#include <jansson.h>

#include "client/response.h"
#include "client/service.h"

enum { CALL_ANSWER_BYTES = 16 << 20, CALL_FDS = 32 };

/* Gives the next piece of a body: its size, 0 at the end, -EAGAIN when there is none now (call_pump()
 * again when there is), other -errno to give up. */
typedef ssize_t (*call_source)(void *context, char *data, size_t room);

struct request {
	const char *method;
	const char *target; /* path and query, already encoded */
	const char *type;   /* Content-Type of the body */
	const char *fields; /* further "Name: value\r\n" lines, or NULL */
	const void *body;   /* or NULL */
	size_t body_size;
	call_source source; /* instead of body: sent chunked, or as source_size bytes */
	void *source_context;
	uint64_t source_size; /* UINT64_MAX: chunked */
	bool trailers;        /* fields behind the answer are read */
	const int *fds;       /* passed with the first byte; unix sockets only */
	size_t fd_count;
	response_sink sink; /* gets the body of a 2xx answer; NULL: it is collected */
	void *sink_context;
};

struct call;

/* Begin. The request's texts and callbacks must live as long as the call; body is copied. NULL with e. */
struct call *call_new(struct service *s, const struct request *q, struct err *e) must_check;
void call_free(struct call *c);
/* A field behind the answer's body, as response_trailer(). */
const char *call_trailer(const struct call *c, const char *name, size_t *ret_size);

/* The descriptor to poll and for what. */
int call_fd(const struct call *c);
short call_events(const struct call *c);

/* Do what can be done now. 1: the answer is complete, 0: go on, -1: e. */
int call_pump(struct call *c, struct err *e) must_check;

/* Pump until the end, or until cancel_fd (-1: none) is readable: then e->errnum is ECANCELED. */
int call_run(struct call *c, int cancel_fd, struct err *e) must_check;

/* 0 until the header has come. */
int call_status(const struct call *c);

/* What was collected, NUL-terminated; the call's. */
const char *call_text(const struct call *c, size_t *ret_size);

static inline void call_unref(struct call **c)
{
	call_free(*c);
}
#define _cleanup_call_ _cleanup_(call_unref)

/* Text as one value of a query or one component of a path. 0, or -ENAMETOOLONG. */
int url_encode(const char *text, char *out, size_t size) must_check;

#endif
