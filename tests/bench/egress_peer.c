/* SPDX-License-Identifier: Apache-2.0 */
/*
 * egress-peer - both ends of what the bench sends through the proxy, and the least program that could stand between them.
 *
 *	egress-peer serve PORT [CERTIFICATE KEY]      HTTP/1.1: GET /N is answered with N bytes; a thread per connection
 *	egress-peer relay PORT TARGET                 two sockets for each connection, one buffer, nothing else
 *	egress-peer get WAY PORT SIZE COUNT [CA]      COUNT requests for SIZE bytes by one connection; seconds of each, one a line
 *
 * WAY: "direct"; "tunnel:PROXY" by CONNECT; "forward:PROXY" by absolute-form. All on 127.0.0.1; the host is bench.test. With CA the
 * connection is TLS, verified. Reads are of 256 KiB, so that the ends are faster than what is measured.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <openssl/ssl.h>

enum { BLOCK = 256 << 10, RELAY_BLOCK = 128 << 10, HEAD_MAX = 4096 };

static SSL_CTX *context;
static char zeros[BLOCK];

struct end {
	int fd;
	SSL *ssl;
};

static void die(const char *what)
{
	perror(what);
	exit(1);
}

static int number(const char *text)
{
	return (int)strtol(text, NULL, 10);
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static struct sockaddr_in at(int port)
{
	return (struct sockaddr_in){.sin_family = AF_INET,
				    .sin_port = htons((uint16_t)port),
				    .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
}

static int dial(int port)
{
	struct sockaddr_in a = at(port);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;

	if (fd < 0 || connect(fd, (struct sockaddr *)&a, sizeof a) < 0)
		die("connect");
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
	return fd;
}

static int listen_at(int port)
{
	struct sockaddr_in a = at(port);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;

	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
	if (bind(fd, (struct sockaddr *)&a, sizeof a) < 0 || listen(fd, 4096) < 0)
		die("listen");
	puts("ready");
	fflush(stdout);
	return fd;
}

static ssize_t get_some(struct end *e, char *data, size_t size)
{
	return e->ssl ? SSL_read(e->ssl, data, (int)size) : read(e->fd, data, size);
}

static bool put_all(struct end *e, const char *data, size_t size)
{
	for (size_t done = 0; done < size;) {
		ssize_t n = e->ssl ? SSL_write(e->ssl, data + done, (int)(size - done))
				   : write(e->fd, data + done, size - done);

		if (n <= 0)
			return false;
		done += (size_t)n;
	}
	return true;
}

/* Up to the empty line, no further: byte by byte would be slow in TLS, so nothing may come behind it unasked. */
static bool get_head(struct end *e, char head[static HEAD_MAX], size_t *ret_more, char **ret_end)
{
	size_t size = 0;

	for (;;) {
		ssize_t n = get_some(e, head + size, HEAD_MAX - 1 - size);

		if (n <= 0)
			return false;
		size += (size_t)n;
		head[size] = '\0';
		*ret_end = strstr(head, "\r\n\r\n");
		if (*ret_end) {
			*ret_end += 4;
			*ret_more = size - (size_t)(*ret_end - head);
			return true;
		}
		if (size == HEAD_MAX - 1)
			return false;
	}
}

/* ---- serve ---- */

static void *serve_one(void *argument)
{
	struct end e = {.fd = (int)(intptr_t)argument};
	char head[HEAD_MAX], text[128], *end;
	size_t more;
	int on = 1;

	setsockopt(e.fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
	if (context) {
		e.ssl = SSL_new(context);
		SSL_set_fd(e.ssl, e.fd);
	}
	if (!e.ssl || SSL_accept(e.ssl) == 1) {
		while (get_head(&e, head, &more, &end)) {
			uint64_t size =
				strncmp(head, "GET /", 5) == 0 ? strtoull(head + 5, NULL, 10) : 0;
			int n = snprintf(text, sizeof text,
					 "HTTP/1.1 200 OK\r\nContent-Length: %llu\r\n\r\n",
					 (unsigned long long)size);
			bool ok = put_all(&e, text, (size_t)n);

			for (; ok && size > 0; size -= size < BLOCK ? size : BLOCK)
				ok = put_all(&e, zeros, size < BLOCK ? size : BLOCK);
			if (!ok)
				break;
		}
	}
	SSL_free(e.ssl);
	close(e.fd);
	return NULL;
}

static int serve(int port, const char *certificate, const char *key)
{
	int fd = listen_at(port), c;
	pthread_attr_t small;

	if (certificate) {
		context = SSL_CTX_new(TLS_server_method());
		if (SSL_CTX_use_certificate_chain_file(context, certificate) != 1 ||
		    SSL_CTX_use_PrivateKey_file(context, key, SSL_FILETYPE_PEM) != 1)
			return 1;
	}
	pthread_attr_init(&small);
	pthread_attr_setstacksize(&small, 128 << 10);
	while ((c = accept4(fd, NULL, NULL, SOCK_CLOEXEC)) >= 0) {
		pthread_t t;

		if (pthread_create(&t, &small, serve_one, (void *)(intptr_t)c) != 0)
			die("thread");
		pthread_detach(t);
	}
	return 1;
}

/* ---- relay ---- */

static bool move(int from, int to, char *buffer)
{
	ssize_t n = recv(from, buffer, RELAY_BLOCK, 0), done = 0;

	while (done < n) {
		ssize_t w = send(to, buffer + done, (size_t)(n - done), MSG_NOSIGNAL);

		if (w < 0)
			return false;
		done += w;
	}
	return n > 0;
}

static void relay_one(int a, int target)
{
	static char buffer[RELAY_BLOCK];
	int b = dial(target), on = 1;
	struct pollfd p[2] = {{a, POLLIN, 0}, {b, POLLIN, 0}};

	setsockopt(a, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
	while (poll(p, 2, -1) > 0)
		if ((p[0].revents && !move(a, b, buffer)) || (p[1].revents && !move(b, a, buffer)))
			break;
	close(a);
	close(b);
}

static int relay(int port, int target)
{
	int fd = listen_at(port), c;

	while ((c = accept4(fd, NULL, NULL, SOCK_CLOEXEC)) >= 0)
		relay_one(c, target);
	return 1;
}

/* ---- get ---- */

static struct end come_to(const char *way, int port, const char *ca)
{
	const char *proxy = strchr(way, ':');
	struct end e = {.fd = dial(proxy ? number(proxy + 1) : port)};
	char head[HEAD_MAX], *end;
	size_t more;

	if (strncmp(way, "tunnel", 6) == 0) {
		int n = snprintf(head, sizeof head,
				 "CONNECT bench.test:%d HTTP/1.1\r\nHost: bench.test:%d\r\n\r\n",
				 port, port);

		if (!put_all(&e, head, (size_t)n) || !get_head(&e, head, &more, &end) ||
		    strncmp(head, "HTTP/1.1 200", 12) != 0) {
			fputs(head, stderr);
			exit(1);
		}
	}
	if (!ca)
		return e;
	context = SSL_CTX_new(TLS_client_method());
	SSL_CTX_set_verify(context, SSL_VERIFY_PEER, NULL);
	if (SSL_CTX_load_verify_locations(context, ca, NULL) != 1)
		die(ca);
	e.ssl = SSL_new(context);
	SSL_set_fd(e.ssl, e.fd);
	SSL_set_tlsext_host_name(e.ssl, "bench.test");
	SSL_set1_host(e.ssl, "bench.test");
	if (SSL_connect(e.ssl) != 1)
		die("TLS");
	return e;
}

static void get_one(struct end *e, const char *request, size_t size)
{
	static char buffer[BLOCK];
	char head[HEAD_MAX], *end;
	size_t more;

	if (!put_all(e, request, strlen(request)) || !get_head(e, head, &more, &end) ||
	    strncmp(head, "HTTP/1.1 200", 12) != 0) {
		fputs(head, stderr);
		exit(1);
	}
	while (more < size) {
		ssize_t n = get_some(e, buffer, sizeof buffer);

		if (n <= 0)
			die("body");
		more += (size_t)n;
	}
}

static int get(const char *way, int port, size_t size, int count, const char *ca)
{
	bool forward = strncmp(way, "forward", 7) == 0;
	struct end e = come_to(way, port, ca);
	char request[256], prefix[64];

	snprintf(prefix, sizeof prefix, forward ? "http://bench.test:%d" : "", port);
	snprintf(request, sizeof request, "GET %s/%zu HTTP/1.1\r\nHost: bench.test:%d\r\n\r\n",
		 prefix, size, port);
	for (int i = 0; i < count; i++) {
		double began = now();

		get_one(&e, request, size);
		printf("%.9f\n", now() - began);
	}
	return 0;
}

int main(int argc, char **argv)
{
	signal(SIGPIPE, SIG_IGN);
	if (argc >= 3 && strcmp(argv[1], "serve") == 0)
		return serve(number(argv[2]), argc > 4 ? argv[3] : NULL, argc > 4 ? argv[4] : NULL);
	if (argc == 4 && strcmp(argv[1], "relay") == 0)
		return relay(number(argv[2]), number(argv[3]));
	if (argc >= 6 && strcmp(argv[1], "get") == 0)
		return get(argv[2], number(argv[3]), strtoull(argv[4], NULL, 10), number(argv[5]),
			   argc > 6 ? argv[6] : NULL);
	fprintf(stderr, "usage: egress-peer serve|relay|get ...\n");
	return 2;
}
