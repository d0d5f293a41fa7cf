/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stream.c - reading, writing and ending a connection, plain or TLS.
 *
 * After a handshake a read of TLS may wait for writing and a write for reading (key updates): want_write says that the
 * last read did, want_read that the last write did. During a handshake they are what it waits for.
 */
#include "egress/stream.h"

#include <openssl/err.h>
#include <sys/socket.h>
#include <unistd.h>
#include <uv.h>

static int size_int(size_t size)
{
	return size < INT_MAX ? (int)size : INT_MAX;
}

/* Why an operation of TLS's did nothing. *ret_wait becomes true if it waits for the direction that is not its own. */
static int tls_failed(struct stream *s, int result, int other, bool *ret_wait)
{
	int saved = errno;
	int why = SSL_get_error(s->ssl, result);

	if (why == SSL_ERROR_WANT_READ || why == SSL_ERROR_WANT_WRITE) {
		*ret_wait = why == other;
		return -EAGAIN;
	}
	if (why == SSL_ERROR_ZERO_RETURN) {
		s->peer_ended = true;
		return 0;
	}
	s->ended = true;
	if (why == SSL_ERROR_SYSCALL)
		return saved ? -saved : -ECONNABORTED;
	why = ERR_GET_REASON(ERR_peek_error());
	ERR_clear_error();
	return why == SSL_R_UNEXPECTED_EOF_WHILE_READING ? -ECONNABORTED : -EPROTO;
}

static ssize_t tls_read(struct stream *s, void *data, size_t size)
{
	int n;

	ERR_clear_error();
	errno = 0;
	s->want_write = false;
	n = SSL_read(s->ssl, data, size_int(size));
	return n > 0 ? n : tls_failed(s, n, SSL_ERROR_WANT_WRITE, &s->want_write);
}

static ssize_t tls_write(struct stream *s, const void *data, size_t size)
{
	int n;

	ERR_clear_error();
	errno = 0;
	s->want_read = false;
	n = SSL_write(s->ssl, data, size_int(size));
	if (n > 0)
		return n;
	n = tls_failed(s, n, SSL_ERROR_WANT_READ, &s->want_read);
	return n ? n : -EPIPE;
}

ssize_t stream_read(struct stream *s, void *data, size_t size)
{
	ssize_t n;

	if (size == 0)
		return -EINVAL; /* 0 is the end */
	if (s->ssl)
		return tls_read(s, data, size);
	do
		n = recv(s->fd, data, size, 0);
	while (n < 0 && errno == EINTR);
	if (n == 0)
		s->peer_ended = true;
	return n < 0 ? -errno : n;
}

ssize_t stream_write(struct stream *s, const void *data, size_t size)
{
	ssize_t n;

	if (size == 0)
		return 0;
	if (s->ended)
		return -EPIPE;
	if (s->ssl)
		return tls_write(s, data, size);
	do
		n = send(s->fd, data, size, MSG_NOSIGNAL);
	while (n < 0 && errno == EINTR);
	return n < 0 ? -errno : n;
}

/* close_notify. A second SSL_shutdown() after it was sent would read, and stumble over data: so not again. */
static int tls_end(struct stream *s)
{
	bool ignored;
	int n;

	if (s->ended || SSL_in_init(s->ssl))
		return 0;
	ERR_clear_error();
	errno = 0;
	n = SSL_shutdown(s->ssl);
	if (n < 0) {
		n = tls_failed(s, n, SSL_ERROR_WANT_WRITE, &ignored);
		if (n < 0)
			return n;
	}
	s->ended = true;
	return 0;
}

int stream_end(struct stream *s)
{
	int r = s->ssl ? tls_end(s) : 0;

	if (r < 0)
		return r;
	s->ended = true;
	return shutdown(s->fd, SHUT_WR) == 0 || errno == ENOTCONN ? 0 : -errno;
}

void stream_close(struct stream *s)
{
	if (s->ssl) {
		/* else OpenSSL would take the session for broken, and not resume it */
		if (!SSL_in_init(s->ssl))
			SSL_set_shutdown(s->ssl, SSL_SENT_SHUTDOWN | SSL_RECEIVED_SHUTDOWN);
		SSL_free(s->ssl);
		s->ssl = NULL;
	}
	fd_close(&s->fd);
	s->want_read = s->want_write = s->shaking = false;
}

int stream_wants(const struct stream *s, bool read, bool write)
{
	bool readable = read, writable = write;

	if (s->shaking) {
		readable = read && s->want_read;
		writable = write && s->want_write;
	} else if (s->ssl) {
		readable = (read && !s->want_write) || (write && s->want_read);
		writable = (write && !s->want_read) || (read && s->want_write);
	}
	return (readable ? UV_READABLE : 0) | (writable ? UV_WRITABLE : 0);
}

bool stream_pending(const struct stream *s)
{
	return s->ssl && SSL_pending(s->ssl) > 0;
}
