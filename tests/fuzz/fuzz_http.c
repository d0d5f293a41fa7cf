/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bytes of one connection into the whole HTTP server, over a real socket, with a handler that chooses by
 * the path how it answers. The first byte is how the rest is cut into writes. Checked: what comes out is nothing
 * or begins with a status line; every exchange that began ends or is told that it is gone; nothing stays open.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "fuzz.h"
#include "http/http.h"

static uv_loop_t loop;
static long open_exchanges;
static struct sockaddr_un address = {.sun_family = AF_UNIX};
static socklen_t address_size;

static void over(struct exchange *x)
{
	(void)x;
	open_exchanges--;
}

static void on_body(struct exchange *x, const void *data, size_t size)
{
	if (!exchange_write(x, data, size))
		exchange_pause(x);
}

static void on_end(struct exchange *x)
{
	open_exchanges--;
	exchange_end(x, true);
}

static void collected(struct exchange *x, char *data, size_t size)
{
	CHECK(data[size] == '\0');
	open_exchanges--;
	exchange_reply(x, 200, "text/plain", NULL, data, size);
}

static const struct exchange_ops ops = {on_body, on_end, exchange_resume, over};
static const struct exchange_ops gone_only = {.on_gone = over};

static void look(struct exchange *x)
{
	const char *path = exchange_path(x), *name, *value;

	CHECK(path[0] == '/' && !strstr(path, "//") && !strstr(path, "/../"));
	for (size_t i = 0; exchange_field_at(x, i, &name, &value); i++) {
		CHECK(*name && !strpbrk(name, "\r\n: ABC") && !strpbrk(value, "\r\n"));
		CHECK(exchange_field(x, name));
	}
	CHECK(exchange_field(x, "host"));
	exchange_query(x, "a");
}

static void handler(struct exchange *x, void *context)
{
	(void)context;
	open_exchanges++;
	look(x);
	switch (exchange_path(x)[1]) {
	case 'c':
		exchange_set_ops(x, &gone_only, NULL);
		exchange_collect(x, 1000, collected);
		break;
	case 'e':
		exchange_set_ops(x, &ops, NULL);
		exchange_begin(x, 200, NULL, NULL, UINT64_MAX);
		break;
	case 'n':
		exchange_set_ops(x, &gone_only, NULL);
		break;
	case 't':
		exchange_set_ops(x, &ops, NULL);
		exchange_take_over(x, "HTTP/1.1 101 X\r\n\r\n", 18);
		break;
	default:
		open_exchanges--;
		exchange_reply(x, 200, NULL, NULL, "x", 1);
	}
}

static struct http_server *server;

static void set_up(void)
{
	struct err e;
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	/* an abstract name of the kernel's choice */
	CHECK(fd >= 0 && bind(fd, (void *)&address, sizeof(sa_family_t)) == 0);
	address_size = sizeof address;
	CHECK(getsockname(fd, (void *)&address, &address_size) == 0 && listen(fd, 16) == 0);
	CHECK(uv_loop_init(&loop) == 0);
	server = http_server_new(&loop, &http_default_limits, handler, NULL, &e);
	CHECK(server && http_server_listen(server, fd, NULL, &e) == 0);
}

static void drain(int fd, char *first, size_t *had)
{
	static char out[65536];
	ssize_t n;

	while ((n = recv(fd, out, sizeof out, MSG_DONTWAIT)) > 0)
		for (ssize_t i = 0; i < n && *had < 9; i++)
			first[(*had)++] = out[i];
}

static void turn(int fd, char *first, size_t *had)
{
	for (int i = 0; i < 3; i++)
		uv_run(&loop, UV_RUN_NOWAIT);
	drain(fd, first, had);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char first[10] = "";
	size_t had = 0, cut, at = 1;
	int fd;

	if (!server)
		set_up();
	if (size < 2)
		return 0;
	cut = data[0] ? data[0] : size;
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	CHECK(fd >= 0 && connect(fd, (void *)&address, address_size) == 0);
	while (at < size) {
		size_t n = size - at < cut ? size - at : cut;
		ssize_t r = send(fd, data + at, n, MSG_DONTWAIT | MSG_NOSIGNAL);

		if (r < 0)
			break;
		at += (size_t)r;
		turn(fd, first, &had);
	}
	shutdown(fd, SHUT_WR);
	turn(fd, first, &had);
	CHECK(had == 0 || memcmp(first, "HTTP/1.1 ", had) == 0);
	close(fd);
	for (int i = 0; i < 100 && http_server_connections(server); i++)
		uv_run(&loop, UV_RUN_NOWAIT);
	CHECK(http_server_connections(server) == 0 && open_exchanges == 0);
	return 0;
}
