/* SPDX-License-Identifier: Apache-2.0 */
/*
 * http.h - the HTTP/1.1 server of cloched: llhttp in strict mode over libuv, hostile clients assumed.
 *
 * Everything runs on one loop in one thread. A handler gets an exchange when the header is complete
 * and checked, answers at once or later, and is told when the client has gone. Limits are in struct
 * http_limits; what exceeds one is answered (400, 408, 413, 414, 431, 429, 503) and hung up on.
 *
 * Refused by this layer, with 400: HTTP other than 1.1 and 1.0, obs-fold, no or two Hosts, both
 * Content-Length and Transfer-Encoding, two Content-Lengths, encodings other than chunked, empty names,
 * bytes outside the field rules, a request target that is not origin-form, a path with "%00", encoded
 * slashes, "." or ".." components, control characters, empty components but a last one, or invalid UTF-8,
 * bare CR or LF, trailers. With 405: CONNECT and TRACE. Query values may be any bytes but NUL: not always
 * UTF-8. Pipelined requests are answered one after the other.
 *
 * Gone: on a unix socket a client that only half-closes still gets its answer. On TCP and TLS the end of
 * its input before the answer counts as gone: there a half-close and a close look the same.
 */
#ifndef HTTP_HTTP_H
#define HTTP_HTTP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <uv.h>

#include "base/err.h"

struct http_limits {
	size_t header_bytes;     /* request line and all fields: 32 KiB */
	unsigned fields;         /* 64 */
	size_t path_bytes;       /* 8 KiB, query included */
	size_t connections;      /* in all: 4,096 */
	size_t per_peer;         /* from one uid or address: 1,024 */
	unsigned header_seconds; /* from the first byte to the end of the header: 10 */
	unsigned idle_seconds;   /* between requests: 75 */
	unsigned body_seconds;   /* without one byte (collected: 1 KiB) of an unfinished body: 20 */
	unsigned write_seconds;  /* without the client taking one byte of what waits for it: 30 */
};
extern const struct http_limits http_default_limits;

struct http_server;
struct exchange;

/* What a handler is called back with. Any may be NULL. After on_gone no other call comes. */
struct exchange_ops {
	/* A piece of the body, as it comes. Call exchange_pause() to get no more for now. */
	void (*on_body)(struct exchange *x, const void *data, size_t size);
	void (*on_body_end)(struct exchange *x);
	/* What was written has gone out, after exchange_write() had said to wait. */
	void (*on_room)(struct exchange *x);
	/* The client hung up or broke a rule before exchange_end(): forget x now. */
	void (*on_gone)(struct exchange *x);
	/* The body that is collected needs so many bytes in all; false: 429, and on_gone. */
	bool (*on_body_room)(struct exchange *x, size_t bytes);
};

enum peer_kind { PEER_UNIX, PEER_TCP, PEER_INSIDE };

struct peer {
	enum peer_kind kind;
	uid_t uid; /* PEER_UNIX */
	gid_t gid;
	pid_t pid;
	char address[64]; /* PEER_TCP, without the port; PEER_INSIDE: for whom it asks */
};

typedef void (*http_handler)(struct exchange *x, void *context);

/* A server on this loop; handler gets every exchange. Free with http_server_close(). */
struct http_server *http_server_new(uv_loop_t *loop, const struct http_limits *limits,
				    http_handler handler, void *context, struct err *e) must_check;

/* Serve a listening socket (unix or TCP), which is owned from now on, also on failure. tls: an SSL_CTX or
 * NULL; a reference is taken, TLS 1.2 is made its least, and SIGPIPE is ignored from then on. */
int http_server_listen(struct http_server *s, int fd, void *tls, struct err *e) must_check;

/* Serve one end of a socket pair, nonblocking, whose other end is this process's own: fd is owned from now on,
 * also on failure. The end of its input before the answer counts as gone. 0, or -errno. */
int http_server_adopt(struct http_server *s, int fd, const struct peer *peer) must_check;

/* No new connections; open exchanges go on. http_server_close() ends all, then calls done. */
void http_server_stop(struct http_server *s);
void http_server_close(struct http_server *s, void (*done)(void *context), void *context);
size_t http_server_connections(const struct http_server *s);

/* The request. Texts live as long as the exchange. */
const char *exchange_method(const struct exchange *x);
/* Decoded path, starting with '/'; no empty components but a last one. */
const char *exchange_path(const struct exchange *x);
/* Decoded value of a query parameter, "" for one without value, NULL when absent. -1 from
 * exchange_query_check(): one that is not in allowed (NULL-terminated), or one given twice. */
const char *exchange_query(const struct exchange *x, const char *name);
int exchange_query_check(const struct exchange *x, const char *const allowed[],
			 const char **ret_bad);
const char *exchange_raw_query(const struct exchange *x);
/* The path as it came, for whoever passes it on. */
const char *exchange_raw_path(const struct exchange *x);
/* Field value by lower-case name, NULL when absent; several values of one name are joined by ", ". */
const char *exchange_field(const struct exchange *x, const char *name);
/* Walk all fields: i from 0 while it returns true. */
bool exchange_field_at(const struct exchange *x, size_t i, const char **ret_name,
		       const char **ret_value);
const struct peer *exchange_peer(const struct exchange *x);
/* UINT64_MAX: chunked; 0: none. */
uint64_t exchange_body_size(const struct exchange *x);
/* Descriptors that came with the request over a unix socket (at most 33): gives them away. */
size_t exchange_take_fds(struct exchange *x, int *fds, size_t room);

/* How the handler goes on. Set before it returns; without ops the body is read and thrown away. */
void exchange_set_ops(struct exchange *x, const struct exchange_ops *ops, void *data);
void *exchange_data(const struct exchange *x);
/* Collect the whole body first (413 above limit), then call back; data is NUL-terminated and stays the
 * exchange's. */
void exchange_collect(struct exchange *x, size_t limit,
		      void (*done)(struct exchange *x, char *data, size_t size));
/* What was collected has been used up: its memory is not needed until the answer. */
void exchange_drop_body(struct exchange *x);
void exchange_pause(struct exchange *x);
void exchange_resume(struct exchange *x);

/* The answer. fields: extra "Name: value\r\n" lines or NULL. Nothing may be called on x after
 * exchange_end() or exchange_reply(). */
void exchange_reply(struct exchange *x, int status, const char *type, const char *fields,
		    const void *data, size_t size);
/* size UINT64_MAX: chunked (HTTP/1.0: until close). HEAD requests get no body whatever is written. */
void exchange_begin(struct exchange *x, int status, const char *type, const char *fields,
		    uint64_t size);
/* Copies data. False: enough is waiting (256 KiB); go on at on_room. Whoever has 64 MiB waiting is cut. */
bool exchange_write(struct exchange *x, const void *data, size_t size);
/* False: what began with a size cannot be completed: the connection is cut so that the client sees it. */
void exchange_end(struct exchange *x, bool complete);
/* Whether the client reads fields behind a chunked body (TE: trailers); and a complete end with such ("Name:
 * value\r\n" lines; announce them as Trailer in exchange_begin). To other clients, or unchunked, none go. */
bool exchange_takes_trailers(const struct exchange *x);
void exchange_end_with(struct exchange *x, const char *fields);
bool exchange_began(const struct exchange *x);

/* Take the connection over (CONNECT-like, WebSocket): what came behind the header, and what comes
 * from now on, is given to on_body as raw bytes; exchange_write() writes raw bytes; on_body_end is the
 * client's half-close; exchange_end() closes. head: the whole answer header, e.g. "HTTP/1.1 101 ...\r\n\r\n". */
void exchange_take_over(struct exchange *x, const char *head, size_t size);
/* After taking over: the client may take as long as it likes to read what waits for it; the TCP stack tells of one that is
 * gone (keep-alive). */
void exchange_wait_patiently(struct exchange *x);
/* After taking over: our half-close, behind all that was written. */
void exchange_end_writing(struct exchange *x);

#endif
