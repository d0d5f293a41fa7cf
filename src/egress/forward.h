/* SPDX-License-Identifier: Apache-2.0 */
/*
 * forward.h - inside the forwarder of HTTP requests: forward.c has the order of things, request.c what is asked and
 * how it is written upstream, answer.c what comes back.
 */
#ifndef EGRESS_FORWARD_H
#define EGRESS_FORWARD_H

#include "egress/credential.h"
#include "egress/egress.h"
#include "http/framing.h"

enum request_at { REQUEST_HEAD, REQUEST_ROUTE, REQUEST_BODY, REQUEST_SENT };
enum answer_at { ANSWER_NONE, ANSWER_HEAD, ANSWER_BODY, ANSWER_DONE };

struct forward {
	bool proxy; /* requests say where they go */

	/* the request */
	enum request_at request_at;
	struct head_scan scan;
	struct head request;
	llhttp_t parser;
	struct framing body;
	char *path, *target; /* without and with its query; target points into request.text */
	bool upgrade;        /* to WebSocket, allowed */
	bool looked_at; /* a rule for this host looks at method or path, or there is a credential */
	bool bodiless;  /* HEAD */
	bool header_due; /* a deadline for its header runs */
	const struct credential *credential;

	/* the upstream it fits */
	char host[HOST_SIZE];
	uint16_t port;
	bool used; /* a request went there before this one */

	/* the answer */
	enum answer_at answer_at;
	struct bytes back; /* of it, not used up */
	struct head_scan back_scan;
	llhttp_t back_parser;
	struct framing back_body;
	bool heard;     /* a byte of it came */
	bool began;     /* it was begun to the client */
	bool until_end; /* the upstream's end is its end */
	bool chunked;   /* to the client */
	bool raw;       /* 101: bytes from now on */
	bool keep_client, keep_upstream;
	unsigned interim;
	struct redactor *redactor;
};

extern const struct http_limits forward_limits;

/* Pure: where a request wants to go and whether its parts agree (request.c). */
struct request_aim {
	const char *host; /* as written, in the request; NULL: only for an origin-form */
	size_t host_size;
	uint16_t port;
	const char *target; /* from "/" on */
};
/* NULL, or why it is a bad request. A Host has to be host:port then. */
const char *request_aim(const struct head *h, bool proxy, struct request_aim *ret);
/* Does the Host field say this host and port? An absent one does (HTTP/1.0). */
bool request_host_agrees(const struct head *h, const char *host, uint16_t port, bool tls);
/* Fields that no proxy passes on, and those that a Connection field names. */
bool request_hop_by_hop(const struct head *h, const char *name);
bool request_is_upgrade(const struct head *h);

/* Bytes of what came that are used up; more of it has to come when that is none. */
size_t forward_use_request(struct connection *c, const char *data, size_t size);
size_t answer_use(struct connection *c, const char *data, size_t size);
/* Nothing more comes from upstream: is that the answer's end? */
enum step answer_ended(struct connection *c);

/* The head as it goes upstream, into b. False at ENOMEM. */
bool request_write(struct connection *c, struct bytes *b);
/* Whole fields "name: value\r\n" into b. */
bool field_add(struct bytes *b, const char *name, const char *value);
bool text_add(struct bytes *b, const char *text);
enum step forward_upstream_failed(struct connection *c, const char *why);
/* Count what went or came. */
void forward_count(struct connection *c, uint64_t *counter, size_t bytes);

#endif
