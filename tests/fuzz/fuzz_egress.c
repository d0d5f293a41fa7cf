/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bytes of a client and of an upstream into the whole proxy: HTTP, CONNECT, SOCKS5, DNS by TCP, forwarding and
 * answers, over real sockets. connect() is replaced: what is connected to is the other end of a socket pair, which answers
 * with the second part of the input. First byte: where the client came in, and how its bytes are cut into writes; then
 * the client's, up to FF FE, and the upstream's. Checked: nothing stays open or queued; what went upstream in requests
 * can be read by our own strict parser and is for the host that is allowed; what came back begins as an answer does.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fuzz.h"
#include "egress/forward.h"

enum { ENDS_MAX = 16, ROUNDS = 12, SEEN_MAX = 1 << 16 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int __wrap_connect(int fd, const struct sockaddr *address, socklen_t size);

static struct egress g;
static int ends[ENDS_MAX];
static size_t end_count;
static char seen[ENDS_MAX][SEEN_MAX];
static size_t seen_size[ENDS_MAX];
static bool answered[ENDS_MAX];
static const uint8_t *answer;
static size_t answer_size;

int __wrap_connect(int fd, const struct sockaddr *address, socklen_t size)
{
	int pair[2];

	(void)address, (void)size;
	if (end_count == ENDS_MAX) {
		errno = ECONNREFUSED;
		return -1;
	}
	CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) == 0);
	CHECK(dup2(pair[0], fd) == fd && fcntl(fd, F_SETFL, O_NONBLOCK) == 0);
	close(pair[0]);
	seen_size[end_count] = 0;
	answered[end_count] = false;
	ends[end_count++] = pair[1];
	return 0;
}

static void begin_once(void)
{
	static const char rules[] = "allow api.test within=127.0.0.0/8\n"
				    "allow GET,WEBSOCKET http://look.test/a* within=127.0.0.0/8\n";
	static struct resolve_entry names[2] = {{.host = "api.test"}, {.host = "look.test"}};
	static struct sockaddr_storage home;
	struct err e = {0};

	if (g.names)
		return;
	CHECK(uv_loop_init(&g.loop) == 0);
	CHECK(network_policy_parse(rules, sizeof rules - 1, "rules", NETWORK_ALLOW,
				   &g.settings.request, &e) == 0);
	((struct sockaddr_in *)&home)->sin_family = AF_INET;
	((struct sockaddr_in *)&home)->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	for (size_t i = 0; i < 2; i++) {
		names[i].addresses = &home;
		names[i].count = 1;
	}
	g.settings.resolve = names;
	g.settings.resolve_count = 2;
	g.quota = network_quota(g.settings.request, NULL);
	g.names = names_new();
	g.control_fd = g.init_fd = -1;
	g.first = g.next = 1;
	CHECK(g.names && listen_begin(&g, NULL, NULL, 0, &e) == 0);
	uv_idle_init(&g.loop, &g.soon_idle);
}

static void turn(void)
{
	char buffer[4096];
	ssize_t n;

	uv_run(&g.loop, UV_RUN_NOWAIT);
	for (size_t i = 0; i < end_count; i++) {
		while (ends[i] >= 0 && (n = read(ends[i], buffer, sizeof buffer)) > 0) {
			if (seen_size[i] + (size_t)n <= SEEN_MAX) {
				memcpy(seen[i] + seen_size[i], buffer, (size_t)n);
				seen_size[i] += (size_t)n;
			}
			if (!answered[i] && answer_size)
				(void)!send(ends[i], answer, answer_size, MSG_NOSIGNAL);
			answered[i] = true;
		}
	}
}

static struct connection *come_in(int fd, uint8_t how)
{
	struct connection *c = connection_new(&g, fd, how & 1 ? LISTEN_HTTP : LISTEN_PROXY);

	CHECK(c);
	if ((how & 3) == 1) { /* caught at port 80 of a name */
		snprintf(c->host, sizeof c->host, "%s", how & 4 ? "look.test" : "api.test");
		c->port = 80;
		(void)forward_begin(c, false);
	} else if ((how & 3) == 3) {
		(void)resolver_begin(c);
	} else {
		(void)proxy_begin(c);
	}
	return c;
}

/* Every header that is whole, up to the first body: as strict as we are with clients. */
static void check_upstream(const char *text, size_t size)
{
	struct head_scan scan = {0};
	struct refusal why;
	struct head h = {0};
	llhttp_t parser;
	const char *host;

	if (size == 0 || head_scan(&scan, text, size, &forward_limits, &why) == HEAD_MORE)
		return;
	CHECK(scan.seen <= size && text[scan.seen - 1] == '\n');
	CHECK(head_parse(text, scan.seen, HEAD_PROXY, &forward_limits, &parser, &h, &why) == 0);
	host = head_field(&h, "host");
	CHECK(host && (strcmp(host, "api.test") == 0 || strcmp(host, "look.test") == 0 ||
		       strcmp(host, "api.test:443") == 0));
	CHECK(h.text[0] == '/' && strcmp(h.method, "TRACE") != 0 &&
	      strcmp(h.method, "CONNECT") != 0);
	head_done(&h);
}

static bool is_raw(const uint8_t *data, size_t size, uint8_t how)
{
	return (how & 3) != 1 && (memmem(data, size, "CONNECT", 7) || (size && data[0] == 5));
}

static void finish(int client)
{
	for (size_t i = 0; i < end_count; i++)
		close(ends[i]);
	end_count = 0;
	close(client);
	for (int i = 0; i < ROUNDS && g.connections; i++)
		uv_run(&g.loop, UV_RUN_NOWAIT);
	while (g.connections) /* waits for its time to be over: nothing else is left for it to do */
		(void)connection_close(g.connections, true);
	resolver_stop(&g);
	uv_run(&g.loop, UV_RUN_NOWAIT);
	uv_run(&g.loop, UV_RUN_NOWAIT);
	CHECK(g.open == 0 && g.waiting == 0 && !g.soon && g.question_count == 0);
	while (g.first != g.next)
		free(g.records[g.first++ % LIMIT_RECORDS_MAX]),
			g.records[(g.first - 1) % LIMIT_RECORDS_MAX] = NULL;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t how = size ? data[0] : 0;
	size_t cut = (how >> 3) ? how >> 3 : SIZE_MAX, got = 0;
	const uint8_t *middle;
	char back[8192];
	int pair[2];
	ssize_t n;

	if (size < 2 || size > SEEN_MAX / 2)
		return 0;
	begin_once();
	data++, size--;
	middle = memmem(data, size, "\xff\xfe", 2);
	answer = middle ? middle + 2 : data + size;
	answer_size = (size_t)(data + size - answer);
	if (middle)
		size = (size_t)(middle - data);
	CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) == 0);
	connection_run(come_in(pair[0], how));
	for (size_t at = 0; at < size; at += cut) {
		size_t part = size - at < cut ? size - at : cut;

		if (send(pair[1], data + at, part, MSG_NOSIGNAL) < 0)
			break;
		turn();
		if (cut == SIZE_MAX)
			break;
	}
	for (int i = 0; i < ROUNDS; i++)
		turn();
	while (got < sizeof back && (n = read(pair[1], back + got, sizeof back - got)) > 0)
		got += (size_t)n;
	if (got >= 9 && (how & 3) != 3 && !is_raw(data, size, how))
		CHECK(memcmp(back, "HTTP/1.1 ", 9) == 0);
	for (size_t i = 0; i < end_count; i++)
		if (!is_raw(data, size, how))
			check_upstream(seen[i], seen_size[i]);
	finish(pair[1]);
	return 0;
}
