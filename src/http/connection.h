/* SPDX-License-Identifier: Apache-2.0 */
/*
 * connection.h - inside the HTTP server: server, connection, exchange, and who calls whom.
 *
 * http.c accepts and counts; connection.c reads, parses and hands on; wire.c moves bytes over a socket
 * or TLS; exchange.c is what a handler calls; answer.c writes headers and refusals.
 *
 * Invariants. A connection is freed only by its close callback, so it outlives every call that is on the
 * stack. An exchange may be freed by any call of its handler: whoever calls back compares c->x with what
 * it was afterwards. Handlers are called back from the loop only, never from inside a call of theirs:
 * such a call leaves a note with connection_soon(). The server's read buffer belongs to the connection
 * that is being run and never outlasts that.
 */
#ifndef HTTP_CONNECTION_H
#define HTTP_CONNECTION_H

#include <openssl/ssl.h>
#include <sys/uio.h>

#include "base/bytes.h"
#include "http/deadlines.h"
#include "http/framing.h"
#include "http/head.h"
#include "http/http.h"

enum {
	READ_SIZE = 64 * 1024,
	OUT_ENOUGH = 256 * 1024,    /* exchange_write() says wait */
	OUT_ROOM = 64 * 1024,       /* on_room again */
	OUT_MAX = 64 * 1024 * 1024, /* a handler that does not wait is cut here */
	DRAIN_MAX = 64 * 1024,      /* of a body nobody wants, to keep the connection */
	LINGER_MAX = 64 * 1024 * 1024,
	LINGER_MS = 2000,
	REFUSED_MAX = 64,    /* connections beyond the caps that are being told so */
	FDS_MAX = 33,        /* of one request */
	FDS_HELD_MAX = 1024, /* of all requests not begun or not taken yet */
	PEER_BUCKETS = 256,
};

enum deadline_kind {
	DEADLINE_HEADER,
	DEADLINE_BODY,
	DEADLINE_WRITE,
	DEADLINE_IDLE,
	DEADLINE_LINGER,
};

/* Connections that have the same peer; the caps count by group: uid, IPv4 address, IPv6 network (/64). */
struct peer_count {
	struct peer_count *next;
	struct peer peer;
	char group[64];
	size_t count;
};

struct listener {
	uv_poll_t poll;
	struct listener *next;
	struct http_server *server;
	int fd;
	enum peer_kind kind;
	SSL_CTX *tls;
	bool off; /* closed, or waiting for descriptors */
};

struct http_server {
	uv_loop_t *loop;
	struct http_limits limits;
	http_handler handler;
	void *context;
	struct listener *listeners;
	struct connection *connections; /* all that are not closed */
	size_t count, refused;
	struct peer_count *peers[PEER_BUCKETS];
	struct deadlines deadlines;
	struct connection *soon, *soon_last; /* wait for soon_idle, which runs in the next turn */
	size_t soon_count;
	uv_idle_t soon_idle;
	uv_timer_t accept_timer;
	int spare_fd; /* given up to accept and refuse when there are no descriptors */
	size_t fds_held;
	size_t handles; /* uv handles not closed yet */
	bool stopped, closing;
	void (*done)(void *context);
	void *done_context;
	char date[48];
	uint64_t date_ms;
	char read_buffer[READ_SIZE];
};

enum connection_state {
	CONN_OPEN,
	CONN_LAST,   /* what is in out is the last; nothing is read */
	CONN_LINGER, /* our side is shut: read and throw away, so that the client gets the answer */
	CONN_CLOSED,
};

struct connection {
	uv_poll_t poll;
	struct http_server *server;
	struct connection *prev, *next;           /* server->connections */
	struct connection *soon_prev, *soon_next; /* server->soon; while in_soon */
	struct peer_count *peer;
	struct exchange *x;
	SSL *ssl;
	struct deadline reading, writing;
	struct bytes in, out;
	struct head_scan scan;
	llhttp_t parser;
	struct framing framing;
	int *fds;
	unsigned char fd_count;
	int fd, mask;
	enum connection_state state;
	size_t progress; /* bytes of a body since its deadline was set */
	size_t lingered;
	bool refused;   /* beyond the caps: counted in server->refused */
	bool body_open; /* the framing is not at its end */
	bool blank;     /* an empty line before the request was skipped */
	bool eof, broken, in_soon, running;
	bool hung;           /* hung up on while a handler does not take what came before */
	bool blocked;        /* the socket took less than all: wait for it */
	bool tls_want_write; /* SSL_read wants to write, SSL_write to read */
	bool tls_want_read;
};

struct joined {
	struct joined *next;
	const char *name;
	char text[];
};

struct exchange {
	struct connection *c;
	struct head head;
	const struct exchange_ops *ops;
	void *data;
	struct joined *joined;
	int fds[FDS_MAX];
	unsigned fd_count;
	void (*collected)(struct exchange *x, char *data, size_t size);
	char *body;
	size_t body_size, body_room, body_limit;
	uint64_t left; /* of an answer with a size */
	bool paused, end_told, room_owed, too_large;
	bool continued; /* 100 was sent or is not wanted */
	bool began, chunked, sized, bodiless, keep, taken, wrote_end, patient;
};

/* wire.c. Count, 0 at the end, -EAGAIN, or -errno when it is lost. Descriptors go to c or are closed. */
ssize_t wire_read(struct connection *c, void *data, size_t size);
/* Write c->out and then iov (at most 4), keeping in c->out what is not taken. Sets blocked, broken. */
void wire_write(struct connection *c, const struct iovec *iov, size_t count);
void wire_flush(struct connection *c);
void fds_close(struct http_server *s, int *fds, unsigned count);

/* connection.c. Takes fd, and ssl when not NULL. NULL at ENOMEM. */
struct connection *connection_new(struct http_server *s, int fd, SSL *ssl, struct peer_count *peer);
void connection_soon(struct connection *c);
/* Answer and hang up; what x there is, is told that the client has gone. */
void connection_refuse(struct connection *c, int status, const char *detail);
void connection_close(struct connection *c);
/* c->x has answered and is freed: go on with the next request, or send the rest and hang up. */
void connection_next(struct connection *c, bool keep);
/* A handler wrote or changed its mind: what has to be done now, without calling it back. */
void connection_touched(struct connection *c);
/* Do all that can be done now; events of the socket or 0. */
void connection_attend(struct connection *c, int events);
void soon_forget(struct connection *c);
void connection_expired(struct deadline *d);

/* exchange.c */
struct exchange *exchange_new(struct connection *c, struct head *head);
void exchange_free(struct exchange *x);
/* Free c->x after telling it. */
void exchange_lost(struct connection *c);
void exchange_body(struct exchange *x, const char *data, size_t size);
void exchange_tell_end(struct exchange *x);
bool exchange_wants_body(const struct exchange *x);

/* answer.c */
const char *answer_date(struct http_server *s);
/* Status line and fields of ours; its size, at most ANSWER_HEAD_MAX. */
enum { ANSWER_HEAD_MAX = 512 };
enum answer_body { ANSWER_SIZED, ANSWER_CHUNKED, ANSWER_TO_END, ANSWER_BODILESS };
size_t answer_head(struct http_server *s, char *text, int status, const char *type,
		   enum answer_body kind, uint64_t size, bool close);
/* Whole "Name: value\r\n" lines and nothing else. */
bool answer_fields_ok(const char *fields);
/* A whole answer with a problem document and Connection: close. */
size_t answer_refusal(struct http_server *s, char *text, size_t room, int status,
		      const char *detail, bool with_body);

/* http.c */
void server_forget(struct connection *c); /* it is closed: counts, caps, accepting again */
void server_handle_closed(struct http_server *s);

#endif
