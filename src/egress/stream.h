/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stream.h - a nonblocking connection, plain or TLS, with one way to read and write; and both ends of opened TLS.
 *
 * The relay and the HTTP forwarder are written against this and do not know which it is. Nothing here owns a loop: the
 * owner polls fd for what stream_wants() says. SIGPIPE has to be ignored by the process: OpenSSL writes with write().
 *
 * {.fd = fd} is a plain stream. TLS is 1.2 or 1.3, without renegotiation, compression and early data.
 */
#ifndef EGRESS_STREAM_H
#define EGRESS_STREAM_H

#include <openssl/ssl.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "base/err.h"

struct stream {
	int fd;
	SSL *ssl;                   /* NULL: plain */
	bool want_read, want_write; /* what TLS waits for, whatever was asked of it */
	bool shaking;               /* between stream_*_tls() and the end of stream_shake() */
	bool peer_ended;            /* close_notify, or the end of a plain one */
	bool ended;                 /* our half, or TLS has failed: no close_notify any more */
};

/* Bytes, 0 at the end (TLS: only by close_notify), -EAGAIN, -ECONNABORTED (TLS: cut off), or -errno. */
ssize_t stream_read(struct stream *s, void *data, size_t size);
ssize_t stream_write(struct stream *s, const void *data, size_t size);
/* Half-close: FIN, or close_notify and FIN. 0, -EAGAIN, -errno. */
int stream_end(struct stream *s);
void stream_close(struct stream *s); /* idempotent */
/* UV_READABLE | UV_WRITABLE to poll for, given what the owner wants to do next. */
int stream_wants(const struct stream *s, bool read, bool write);
/* Decrypted bytes that wait inside, which no poll tells of. */
bool stream_pending(const struct stream *s);

/* ---- opening TLS: this sandbox's authority, and both handshakes ---- */

struct authority; /* a key pair and certificate of P-256, made anew, in memory only */

int authority_new(struct authority **ret, struct err *e) must_check;
void authority_free(struct authority *a);
/* PEM of the certificate; the authority's. */
const char *authority_pem(const struct authority *a, size_t *ret_size);

/* What a ClientHello says, from the bytes peeked so far: 1 whole, 0 more is needed, -EBADMSG no TLS, or one that is refused:
 * over 16 KiB, two names, a name that is not canonical. host "" when there is no SNI. */
struct hello {
	char host[256];
	bool encrypted;  /* ECH: the real name is hidden */
	bool alpn_http1; /* offers http/1.1, or no ALPN at all */
};
int hello_read(const void *data, size_t size, struct hello *ret) must_check;

/* Be the server of this host on a connection whose ClientHello was peeked, not read: a leaf of the authority for exactly
 * host (kept for the next time, 64 at most), ALPN http/1.1 only. */
int stream_accept_tls(struct stream *s, struct authority *a, const char *host,
		      struct err *e) must_check;

/* Be a client: host is SNI and what the certificate has to be for, verified against the system's store (upstream_ca besides);
 * sessions are resumed per host. trust: from trust_new(), once per process, before it gives up the file system. */
struct trust;
int trust_new(const char *upstream_ca, struct trust **ret, struct err *e) must_check;
void trust_free(struct trust *t);
int stream_connect_tls(struct stream *s, struct trust *t, const char *host,
		       struct err *e) must_check;

/* Go on with a handshake: 1 done, 0 poll for stream_wants(), -1 and e: what failed, in words for the record ("the certificate of
 * api.test has expired"). */
int stream_shake(struct stream *s, struct err *e) must_check;

#endif
