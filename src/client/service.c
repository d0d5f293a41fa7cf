/* SPDX-License-Identifier: Apache-2.0 */
#include "client/service.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/un.h>

#include "base/fd.h"

#define SYSTEM_SOCKET "/run/cloche/cloche.sock"

enum {
	CONNECT_MS = 10000,
	/* The service hangs up on idle connections after 75 s: well before, so that no request is lost. */
	KEEP_US = 20000000,
};

static int set_path(struct service *s, const char *path, struct err *e)
{
	struct sockaddr_un *a = (struct sockaddr_un *)&s->address;

	if (strlen(path) >= sizeof a->sun_path)
		return err_set(e, 0, "socket %.200s: path is longer than %zu bytes", path,
			       sizeof a->sun_path - 1);
	*a = (struct sockaddr_un){.sun_family = AF_UNIX};
	memcpy(a->sun_path, path, strlen(path) + 1);
	s->address_size = sizeof *a;
	s->local = true;
	snprintf(s->name, sizeof s->name, "%s", path);
	snprintf(s->host, sizeof s->host, "localhost");
	return 0;
}

static int resolve(struct service *s, const char *host, const char *port, struct err *e)
{
	const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
	struct addrinfo *list;
	int r = getaddrinfo(host, port, &hints, &list);

	if (r != 0)
		return err_set(e, 0, "CLOCHE_SOCKET %.200s: %s", s->name, gai_strerror(r));
	memcpy(&s->address, list->ai_addr, list->ai_addrlen);
	s->address_size = list->ai_addrlen;
	freeaddrinfo(list);
	return 0;
}

/* HOST:PORT, [ADDRESS]:PORT. */
static int set_host(struct service *s, const char *text, struct err *e)
{
	const char *colon = strrchr(text, ':');
	char host[256];
	size_t n = colon ? (size_t)(colon - text) : 0, skip = 0;

	snprintf(s->name, sizeof s->name, "%.290s", text);
	if (n > 2 && text[0] == '[' && text[n - 1] == ']')
		skip = 1;
	if (n == 0 || n >= sizeof host || !colon[1] || strspn(colon + 1, "0123456789") > 5 ||
	    colon[1 + strspn(colon + 1, "0123456789")])
		return err_set(e, 0,
			       "CLOCHE_SOCKET %.200s: give a path, HOST:PORT or http://HOST:PORT",
			       text);
	for (size_t i = 0; i < n; i++)
		if ((unsigned char)text[i] <= ' ' || strchr("/@?#\\", text[i]))
			return err_set(e, 0, "CLOCHE_SOCKET %.200s: not a host name", text);
	memcpy(host, text + skip, n - 2 * skip);
	host[n - 2 * skip] = '\0';
	snprintf(s->host, sizeof s->host, "%.290s", text);
	return resolve(s, host, colon + 1, e);
}

static int check_key(const char *key, struct err *e)
{
	for (const char *p = key; *p; p++)
		if (*p <= ' ' || *p >= 0x7f)
			return err_set(e, 0, "CLOCHE_API_KEY is not a key");
	return strlen(key) > 256 ? err_set(e, 0, "CLOCHE_API_KEY is not a key") : 0;
}

static int set_named(struct service *s, const char *text, struct err *e)
{
	const char *key = getenv("CLOCHE_API_KEY");
	char rest[300];
	size_t n;

	if (strncmp(text, "https://", 8) == 0)
		return err_set(
			e, 0,
			"CLOCHE_SOCKET %.200s: this command speaks no TLS: use the unix socket, "
			"an ssh tunnel, or curl",
			text);
	if (strncmp(text, "http://", 7) != 0 && (strchr(text, '/') || !strchr(text, ':')))
		return set_path(s, text, e);
	snprintf(rest, sizeof rest, "%.290s", text + (strncmp(text, "http://", 7) ? 0 : 7));
	n = strlen(rest);
	if (n > 0 && rest[n - 1] == '/')
		rest[n - 1] = '\0';
	if (key && *key) {
		if (check_key(key, e) < 0)
			return -1;
		s->key = key;
	}
	return set_host(s, rest, e);
}

static int wait_connected(int fd)
{
	struct pollfd p = {fd, POLLOUT, 0};
	socklen_t size = sizeof(int);
	int error = 0, r;

	do
		r = poll(&p, 1, CONNECT_MS);
	while (r < 0 && errno == EINTR);
	if (r == 0)
		return -ETIMEDOUT;
	if (r < 0 || getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) < 0)
		return -errno;
	return -error;
}

/* A fresh connection, or -errno. */
static int dial(const struct service *s)
{
	_cleanup_close_ int fd =
		socket(s->address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	const int on = 1;
	int r = 0;

	if (fd < 0)
		return -errno;
	if (!s->local)
		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
	if (connect(fd, (const struct sockaddr *)&s->address, s->address_size) < 0) {
		/* A unix socket whose queue is full says EAGAIN and cannot be waited for without blocking. */
		if (errno == EAGAIN && s->local) {
			fcntl(fd, F_SETFL, 0);
			r = connect(fd, (const struct sockaddr *)&s->address, s->address_size) < 0
				    ? -errno
				    : 0;
			fcntl(fd, F_SETFL, O_NONBLOCK);
		} else {
			r = errno == EINPROGRESS ? wait_connected(fd) : -errno;
		}
	}
	return r < 0 ? r : TAKE_FD(fd);
}

int service_connect(struct service *s, struct err *e)
{
	_cleanup_close_ int fd = TAKE_FD(s->idle_fd);
	struct pollfd p = {fd, POLLIN, 0};

	if (s->dial) {
		fd = s->dial(s->dial_context);
		return fd < 0 ? err_set(e, -fd, "connect to the service") : TAKE_FD(fd);
	}

	/* Readable without a request: the service hung up. */
	if (fd >= 0 && now_us() - s->idle_since_us < KEEP_US && poll(&p, 1, 0) == 0)
		return TAKE_FD(fd);
	fd_close(&fd);
	fd = dial(s);
	if (fd < 0)
		return err_set(e, -fd, "connect to the service at %s", s->name);
	return TAKE_FD(fd);
}

void service_keep(struct service *s, int fd)
{
	if (s->dial) {
		fd_close(&fd);
		return;
	}
	fd_close(&s->idle_fd);
	s->idle_fd = fd;
	s->idle_since_us = now_us();
}

static bool is_ours(int fd)
{
	struct ucred c;
	socklen_t size = sizeof c;

	return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &c, &size) == 0 &&
	       (c.uid == geteuid() || c.uid == 0);
}

/* True when this socket answers; what was tried is added to the list. */
static bool try_path(struct service *s, const char *path, bool private, char *tried, size_t size)
{
	struct err e = {0};
	size_t n = strlen(tried);
	char reason[96];
	int fd;

	if (set_path(s, path, &e) < 0) {
		snprintf(tried + n, size - n, "%s%.250s", n ? ", " : "", e.text);
		return false;
	}
	/* Where there is none, to say so costs a fifth of a socket that finds out. */
	fd = access(path, F_OK) < 0 ? -errno : dial(s);
	if (fd >= 0 && private && !is_ours(fd)) {
		fd_close(&fd);
		fd = -EPERM;
	}
	if (fd >= 0) {
		service_keep(s, fd);
		return true;
	}
	snprintf(tried + n, size - n, "%s%.250s (%s)", n ? ", " : "", path,
		 strerror_r(-fd, reason, sizeof reason));
	return false;
}

int service_find(struct service *s, const struct places *places, struct err *e)
{
	const char *named = getenv("CLOCHE_SOCKET");
	char path[1100], tried[640] = "";
	int fd;

	*s = (struct service){.idle_fd = -1};
	if (named && *named) {
		if (set_named(s, named, e) < 0)
			return -1;
		fd = service_connect(s, e);
		if (fd < 0)
			return err_prefix(e, "no service answers where CLOCHE_SOCKET says");
		service_keep(s, fd);
		return 0;
	}
	snprintf(path, sizeof path, "%s/cloche.sock", places->runtime);
	if (try_path(s, path, places->rootless, tried, sizeof tried) ||
	    (places->rootless && try_path(s, SYSTEM_SOCKET, false, tried, sizeof tried)))
		return 0;
	return err_set(e, 0, "no service answers: tried %s; `cloche serve` starts one", tried);
}

bool service_is_unwanted(void)
{
	const char *direct = getenv("CLOCHE_DIRECT");

	return direct && *direct && strcmp(direct, "0") != 0 && strcmp(direct, "false") != 0;
}

void service_done(struct service *s)
{
	fd_close(&s->idle_fd);
}
