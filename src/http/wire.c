/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wire.c - bytes and descriptors over a socket of ours, plain or by TLS; one system call where one does.
 *
 * TLS keeps its own state: what SSL_write() was given once has to be given again, so everything goes
 * through c->out there (its start may move, it never shrinks). SSL_read() may want to write and SSL_write()
 * to read (key updates): the flags are for connection.c's poll mask.
 */
#include <errno.h>
#include <openssl/err.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "http/connection.h"

void fds_close(struct http_server *s, int *fds, unsigned count)
{
	for (unsigned i = 0; i < count; i++)
		fd_close(&fds[i]);
	s->fds_held -= count;
}

/* Of the request that is being read; a request that has its body already gets none that come now. */
static void keep_fd(struct connection *c, int fd)
{
	struct http_server *s = c->server;

	if (s->fds_held >= FDS_HELD_MAX || c->state != CONN_OPEN) {
		close(fd);
	} else if (c->x && c->body_open) {
		if (c->x->fd_count == FDS_MAX) {
			close(fd);
			return;
		}
		c->x->fds[c->x->fd_count++] = fd;
		s->fds_held++;
	} else {
		if (!c->fds)
			c->fds = malloc(FDS_MAX * sizeof *c->fds);
		if (!c->fds || c->fd_count == FDS_MAX) {
			close(fd);
			return;
		}
		c->fds[c->fd_count++] = fd;
		s->fds_held++;
	}
}

static void keep_fds(struct connection *c, struct msghdr *m)
{
	for (struct cmsghdr *h = CMSG_FIRSTHDR(m); h; h = CMSG_NXTHDR(m, h)) {
		size_t n;

		if (h->cmsg_level != SOL_SOCKET || h->cmsg_type != SCM_RIGHTS)
			continue;
		n = (h->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		for (size_t i = 0; i < n; i++) {
			int fd;

			memcpy(&fd, CMSG_DATA(h) + i * sizeof fd, sizeof fd);
			keep_fd(c, fd);
		}
	}
}

/* What does not fit into the control buffer the kernel does not give us. */
static ssize_t plain_read(struct connection *c, void *data, size_t size)
{
	union {
		struct cmsghdr align;
		char room[CMSG_SPACE(FDS_MAX * sizeof(int))];
	} control;
	struct iovec iov = {data, size};
	struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1};
	ssize_t n;

	if (c->peer->peer.kind == PEER_UNIX) {
		m.msg_control = &control;
		m.msg_controllen = sizeof control;
	}
	do
		n = recvmsg(c->fd, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return errno == EWOULDBLOCK ? -EAGAIN : -errno;
	if (m.msg_controllen > 0 && m.msg_control)
		keep_fds(c, &m);
	return n;
}

static ssize_t tls_read(struct connection *c, char *data, size_t size)
{
	size_t got = 0;

	c->tls_want_write = false;
	while (got < size) {
		size_t n = 0;
		int r, error;

		ERR_clear_error();
		r = SSL_read_ex(c->ssl, data + got, size - got, &n);
		got += n;
		if (r == 1)
			continue;
		error = SSL_get_error(c->ssl, r);
		if (error == SSL_ERROR_WANT_WRITE)
			c->tls_want_write = true;
		if (error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE)
			return got ? (ssize_t)got : -EAGAIN;
		if (got)
			return (ssize_t)got; /* the next call says it again */
		return error == SSL_ERROR_ZERO_RETURN ? 0 : -ECONNRESET;
	}
	return (ssize_t)got;
}

ssize_t wire_read(struct connection *c, void *data, size_t size)
{
	return c->ssl ? tls_read(c, data, size) : plain_read(c, data, size);
}

/* Of out and iov, taken bytes are gone: keep the rest. */
static void keep_rest(struct connection *c, const struct iovec *iov, size_t count, size_t taken)
{
	size_t skip = taken < c->out.size ? taken : c->out.size;

	if (skip)
		bytes_drop(&c->out, skip);
	taken -= skip;
	for (size_t i = 0; i < count; i++) {
		skip = taken < iov[i].iov_len ? taken : iov[i].iov_len;
		taken -= skip;
		if (skip < iov[i].iov_len &&
		    !bytes_add(&c->out, (char *)iov[i].iov_base + skip, iov[i].iov_len - skip))
			c->broken = true;
	}
}

static void plain_write(struct connection *c, const struct iovec *iov, size_t count)
{
	struct iovec all[5];
	struct msghdr m = {.msg_iov = all};
	size_t total = c->out.size;
	ssize_t n;

	if (total)
		all[m.msg_iovlen++] = (struct iovec){c->out.data + c->out.start, total};
	for (size_t i = 0; i < count && i < 4; i++) {
		if (iov[i].iov_len)
			all[m.msg_iovlen++] = iov[i];
		total += iov[i].iov_len;
	}
	if (total == 0)
		return;
	do
		n = sendmsg(c->fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL);
	while (n < 0 && errno == EINTR);
	if (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK) {
		c->broken = true;
		return;
	}
	n = n < 0 ? 0 : n;
	c->blocked = (size_t)n < total;
	if (n)
		deadline_disarm(&c->writing); /* it took some: from anew */
	keep_rest(c, iov, count, (size_t)n);
}

static void tls_write(struct connection *c)
{
	c->tls_want_read = c->blocked = false;
	while (c->out.size && !c->broken) {
		size_t n = 0;
		int error;

		ERR_clear_error();
		if (SSL_write_ex(c->ssl, c->out.data + c->out.start, c->out.size, &n) == 1) {
			bytes_drop(&c->out, n);
			deadline_disarm(&c->writing);
			continue;
		}
		error = SSL_get_error(c->ssl, 0);
		c->tls_want_read = error == SSL_ERROR_WANT_READ;
		c->blocked = error == SSL_ERROR_WANT_WRITE;
		if (!c->tls_want_read && !c->blocked)
			c->broken = true;
		return;
	}
}

static void keep(struct connection *c, const struct iovec *iov, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (iov[i].iov_len && !bytes_add(&c->out, iov[i].iov_base, iov[i].iov_len))
			c->broken = true;
}

void wire_write(struct connection *c, const struct iovec *iov, size_t count)
{
	if (c->broken)
		return;
	if (c->ssl || c->blocked)
		keep(c, iov, count);
	else
		plain_write(c, iov, count);
	if (c->ssl && !c->blocked && !c->tls_want_read)
		tls_write(c);
	if (c->out.size > OUT_MAX)
		c->broken = true;
}

void wire_flush(struct connection *c)
{
	if (c->broken || c->out.size == 0)
		return;
	if (c->ssl)
		tls_write(c);
	else
		plain_write(c, NULL, 0);
}
