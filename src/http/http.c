/* SPDX-License-Identifier: Apache-2.0 */
/*
 * http.c - the server: listeners, who may connect, and the end of it all.
 *
 * Beyond a cap a client is accepted, told so, and hung up on; a few such connections may linger, more are
 * just closed. Without descriptors a spare one is given up to do the same, so that the listening socket
 * does not stay readable for ever; when even that is gone, accepting waits a moment.
 */
#include "http/http.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "http/connection.h"

enum { ACCEPTS_PER_TURN = 64, ACCEPT_AGAIN_MS = 100 };

const struct http_limits http_default_limits = {
	.header_bytes = 32 * 1024,
	.fields = 64,
	.path_bytes = 8 * 1024,
	.connections = 4096,
	.per_peer = 1024,
	.header_seconds = 10,
	.idle_seconds = 75,
	.body_seconds = 20,
	.write_seconds = 30,
};

/* ---- peers ---- */

static struct peer_count **peer_bucket(struct http_server *s, const char *group)
{
	uint32_t hash = 2166136261u;

	for (const char *p = group; *p; p++)
		hash = (hash ^ (unsigned char)*p) * 16777619u;
	return &s->peers[(hash ^ hash >> 16) % PEER_BUCKETS];
}

static void name_group(const struct peer *peer, char group[64])
{
	struct in6_addr six;

	if (peer->kind == PEER_UNIX) {
		snprintf(group, 64, "uid %u", peer->uid);
	} else if (inet_pton(AF_INET6, peer->address, &six) == 1) {
		memset(&six.s6_addr[8], 0, 8);
		inet_ntop(AF_INET6, &six, group, 64);
	} else {
		snprintf(group, 64, "%s", peer->address);
	}
}

/* One more connection of this peer; *ret_before: how many its group had. */
static struct peer_count *peer_hold(struct http_server *s, const struct peer *peer,
				    size_t *ret_before)
{
	struct peer_count **bucket, *mine = NULL;
	char group[64];

	name_group(peer, group);
	bucket = peer_bucket(s, group);
	*ret_before = 0;
	for (struct peer_count *p = *bucket; p; p = p->next) {
		if (strcmp(p->group, group) != 0)
			continue;
		*ret_before += p->count;
		if (memcmp(&p->peer, peer, sizeof *peer) == 0)
			mine = p;
	}
	if (!mine) {
		mine = calloc(1, sizeof *mine);
		if (!mine)
			return NULL;
		mine->peer = *peer;
		memcpy(mine->group, group, sizeof group);
		mine->next = *bucket;
		*bucket = mine;
	}
	mine->count++;
	return mine;
}

static void peer_release(struct http_server *s, struct peer_count *p)
{
	struct peer_count **at = peer_bucket(s, p->group);

	if (--p->count)
		return;
	while (*at != p)
		at = &(*at)->next;
	*at = p->next;
	free(p);
}

static int peer_of(int fd, enum peer_kind kind, const struct sockaddr_storage *from,
		   struct peer *ret)
{
	const struct sockaddr_in6 *six = (const void *)from;
	const struct sockaddr_in *four = (const void *)from;
	struct ucred cred;
	socklen_t size = sizeof cred;

	memset(ret, 0, sizeof *ret); /* padding included: peers are compared whole */
	ret->kind = kind;
	if (kind == PEER_UNIX) {
		if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &size) < 0)
			return -errno;
		ret->uid = cred.uid;
		ret->gid = cred.gid;
		ret->pid = cred.pid;
		return 0;
	}
	if (from->ss_family == AF_INET)
		inet_ntop(AF_INET, &four->sin_addr, ret->address, sizeof ret->address);
	else if (IN6_IS_ADDR_V4MAPPED(&six->sin6_addr))
		inet_ntop(AF_INET, &six->sin6_addr.s6_addr[12], ret->address, sizeof ret->address);
	else
		inet_ntop(AF_INET6, &six->sin6_addr, ret->address, sizeof ret->address);
	return ret->address[0] ? 0 : -EINVAL;
}

/* ---- accepting ---- */

static void refuse_new(struct listener *l, int fd, struct peer_count *peer, int status)
{
	struct http_server *s = l->server;
	struct connection *c =
		s->refused < REFUSED_MAX && !l->tls ? connection_new(s, fd, NULL, peer) : NULL;

	if (!c) {
		peer_release(s, peer);
		close(fd);
		return;
	}
	c->refused = true;
	s->refused++;
	connection_refuse(c, status,
			  status == 429 ? "too many connections of one client"
					: "too many connections");
	connection_soon(c);
}

static void admit(struct listener *l, int fd, const struct peer *peer)
{
	struct http_server *s = l->server;
	size_t same;
	struct peer_count *count = peer_hold(s, peer, &same);
	SSL *ssl = NULL;

	if (!count) {
		close(fd);
		return;
	}
	if (s->count >= s->limits.connections || same >= s->limits.per_peer) {
		refuse_new(l, fd, count, s->count >= s->limits.connections ? 503 : 429);
		return;
	}
	if (l->tls) {
		ssl = SSL_new(l->tls);
		if (!ssl || SSL_set_fd(ssl, fd) != 1)
			goto fail;
		SSL_set_accept_state(ssl);
	}
	if (!connection_new(s, fd, ssl, count))
		goto fail;
	s->count++;
	return;
fail:
	if (ssl)
		SSL_free(ssl);
	peer_release(s, count);
	close(fd);
}

/* Not counted among the connections that others may have: what it is for was admitted itself. */
int http_server_adopt(struct http_server *s, int fd, const struct peer *peer)
{
	struct peer whole;
	struct peer_count *count;
	size_t same;

	memset(&whole, 0, sizeof whole); /* padding included: peers are compared whole */
	whole.kind = PEER_INSIDE;
	whole.uid = peer->uid;
	snprintf(whole.address, sizeof whole.address, "%s", peer->address);
	count = peer_hold(s, &whole, &same);
	if (count && connection_new(s, fd, NULL, count)) {
		s->count++;
		return 0;
	}
	if (count)
		peer_release(s, count);
	close(fd);
	return -ENOMEM;
}

static void on_accept_again(uv_timer_t *timer);

static void accept_later(struct listener *l)
{
	uv_poll_stop(&l->poll);
	l->off = true;
	uv_timer_start(&l->server->accept_timer, on_accept_again, ACCEPT_AGAIN_MS, 0);
}

/* With no descriptor left: take one client off the queue by the spare one and say so. */
static bool refuse_by_spare(struct listener *l)
{
	static const char text[] = "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\n"
				   "Content-Length: 0\r\nConnection: close\r\n\r\n";
	struct http_server *s = l->server;
	int fd;

	if (s->spare_fd < 0)
		return false;
	fd_close(&s->spare_fd);
	fd = accept4(l->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	if (fd >= 0) {
		if (!l->tls)
			(void)!send(fd, text, sizeof text - 1, MSG_NOSIGNAL | MSG_DONTWAIT);
		close(fd);
	}
	s->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	return fd >= 0;
}

static void on_connections(uv_poll_t *poll, int status, int events)
{
	struct listener *l = poll->data;

	(void)status;
	(void)events;
	for (int i = 0; i < ACCEPTS_PER_TURN && !l->off; i++) {
		struct sockaddr_storage from = {0};
		socklen_t size = sizeof from;
		int fd = accept4(l->fd, (void *)&from, &size, SOCK_CLOEXEC | SOCK_NONBLOCK);
		struct peer peer;

		if (fd >= 0 && peer_of(fd, l->kind, &from, &peer) == 0) {
			admit(l, fd, &peer);
			continue;
		}
		if (fd >= 0) {
			close(fd);
			continue;
		}
		if (errno == EAGAIN || errno == EWOULDBLOCK)
			return;
		if ((errno == EMFILE || errno == ENFILE) && refuse_by_spare(l))
			continue;
		if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)
			accept_later(l);
	}
}

static void on_accept_again(uv_timer_t *timer)
{
	struct http_server *s = timer->data;

	if (s->spare_fd < 0)
		s->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	for (struct listener *l = s->listeners; l; l = l->next) {
		if (!l->off || s->stopped)
			continue;
		l->off = false;
		uv_poll_start(&l->poll, UV_READABLE, on_connections);
	}
}

/* ---- the server ---- */

void server_forget(struct connection *c)
{
	struct http_server *s = c->server;

	*(c->prev ? &c->prev->next : &s->connections) = c->next;
	if (c->next)
		c->next->prev = c->prev;
	if (c->refused)
		s->refused--;
	else
		s->count--;
	peer_release(s, c->peer);
	c->peer = NULL;
}

void server_handle_closed(struct http_server *s)
{
	void (*done)(void *) = s->done;
	void *context = s->done_context;

	if (--s->handles)
		return;
	while (s->listeners) {
		struct listener *next = s->listeners->next;

		if (s->listeners->tls)
			SSL_CTX_free(s->listeners->tls);
		free(s->listeners);
		s->listeners = next;
	}
	fd_close(&s->spare_fd);
	free(s);
	if (done)
		done(context);
}

static void on_handle_closed(uv_handle_t *handle)
{
	server_handle_closed(handle->data);
}

static void set_lengths(struct deadlines *ds, const struct http_limits *limits)
{
	ds->length_ms[DEADLINE_HEADER] = 1000ull * limits->header_seconds;
	ds->length_ms[DEADLINE_BODY] = 1000ull * limits->body_seconds;
	ds->length_ms[DEADLINE_WRITE] = 1000ull * limits->write_seconds;
	ds->length_ms[DEADLINE_IDLE] = 1000ull * limits->idle_seconds;
	ds->length_ms[DEADLINE_LINGER] = LINGER_MS;
}

struct http_server *http_server_new(uv_loop_t *loop, const struct http_limits *limits,
				    http_handler handler, void *context, struct err *e)
{
	struct http_server *s = calloc(1, sizeof *s);

	if (!s) {
		err_set(e, ENOMEM, "make the HTTP server");
		return NULL;
	}
	s->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	if (s->spare_fd < 0) {
		err_set(e, errno, "open /dev/null");
		free(s);
		return NULL;
	}
	s->loop = loop;
	s->limits = *limits;
	s->handler = handler;
	s->context = context;
	deadlines_init(&s->deadlines, loop, connection_expired);
	set_lengths(&s->deadlines, limits);
	uv_idle_init(loop, &s->soon_idle);
	uv_timer_init(loop, &s->accept_timer);
	s->soon_idle.data = s->accept_timer.data = s;
	s->handles = 3;
	return s;
}

static void prepare_tls(SSL_CTX *tls)
{
	SSL_CTX_up_ref(tls);
	SSL_CTX_set_min_proto_version(tls, TLS1_2_VERSION);
	SSL_CTX_set_options(tls, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION |
					 SSL_OP_IGNORE_UNEXPECTED_EOF);
	SSL_CTX_set_mode(tls, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
				      SSL_MODE_RELEASE_BUFFERS);
	/* OpenSSL writes without MSG_NOSIGNAL */
	signal(SIGPIPE, SIG_IGN);
}

/* What is set on a listening socket its connections inherit. */
static int prepare_socket(int fd, enum peer_kind *ret_kind, struct err *e)
{
	struct sockaddr_storage here = {0};
	socklen_t size = sizeof here;
	int one = 1, idle = 60;

	if (getsockname(fd, (void *)&here, &size) < 0)
		return err_set(e, errno, "listen for HTTP");
	if (here.ss_family != AF_UNIX && here.ss_family != AF_INET && here.ss_family != AF_INET6)
		return err_set(e, 0, "listen for HTTP: neither a unix socket nor TCP");
	*ret_kind = here.ss_family == AF_UNIX ? PEER_UNIX : PEER_TCP;
	if (*ret_kind == PEER_TCP) {
		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
		setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one);
		setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
	}
	return 0;
}

int http_server_listen(struct http_server *s, int fd, void *tls, struct err *e)
{
	_cleanup_close_ int owned = fd;
	_cleanup_free_ struct listener *l = calloc(1, sizeof *l);
	int r;

	if (!l)
		return err_set(e, ENOMEM, "listen for HTTP");
	if (prepare_socket(fd, &l->kind, e) < 0)
		return -1;
	l->server = s;
	l->fd = fd;
	r = uv_poll_init(s->loop, &l->poll, fd);
	if (r < 0)
		return err_set(e, -r, "listen for HTTP");
	if (tls)
		prepare_tls(tls);
	l->tls = tls;
	l->poll.data = l;
	l->next = s->listeners;
	s->handles++;
	s->listeners = TAKE_PTR(l);
	TAKE_FD(owned);
	r = uv_poll_start(&s->listeners->poll, UV_READABLE, on_connections);
	return r < 0 ? err_set(e, -r, "listen for HTTP") : 0;
}

static void on_listener_closed(uv_handle_t *handle)
{
	struct listener *l = handle->data;

	server_handle_closed(l->server);
}

void http_server_stop(struct http_server *s)
{
	if (s->stopped)
		return;
	s->stopped = true;
	uv_timer_stop(&s->accept_timer);
	for (struct listener *l = s->listeners; l; l = l->next) {
		l->off = true;
		uv_close((uv_handle_t *)&l->poll, on_listener_closed);
		fd_close(&l->fd);
	}
	/* idle ones end; those that are answering do so behind their answer */
	for (struct connection *c = s->connections; c; c = c->next)
		connection_soon(c);
}

static void on_close(uv_timer_t *timer)
{
	struct http_server *s = timer->data;

	while (s->connections)
		connection_close(s->connections);
	s->deadlines.timer.data = s;
	uv_close((uv_handle_t *)&s->deadlines.timer, on_handle_closed);
	uv_close((uv_handle_t *)&s->soon_idle, on_handle_closed);
	uv_close((uv_handle_t *)&s->accept_timer, on_handle_closed);
}

/* By the loop: the caller may be a handler, whose exchange goes too. */
void http_server_close(struct http_server *s, void (*done)(void *context), void *context)
{
	if (s->closing)
		return;
	http_server_stop(s);
	s->closing = true;
	s->done = done;
	s->done_context = context;
	uv_timer_start(&s->accept_timer, on_close, 0, 0);
}

size_t http_server_connections(const struct http_server *s)
{
	return s->count;
}
