/* SPDX-License-Identifier: Apache-2.0 */
/* proxy.c - the port that programs know as their proxy: SOCKS5 or HTTP by the first byte, and CONNECT. */
#include <string.h>

#include "egress/egress.h"

static const char established[] = "HTTP/1.1 200 Connection established\r\n\r\n";

static void refuse(struct connection *c, const struct failure *f)
{
	(void)problem_answer(c, f, true);
}

static enum step on_connected(struct connection *c)
{
	(void)side_write(c->client, established, sizeof established - 1);
	return open_begin(c);
}

static enum step bad_request(struct connection *c, const char *detail)
{
	struct failure f = {400, "bad_request", 0, ""};

	snprintf(f.detail, sizeof f.detail, "%s", detail);
	return problem_answer(c, &f, true);
}

/* A Host beside it has to say the same, with or without the port. */
static bool same_authority(const struct connection *c, const char *host, uint16_t port)
{
	char canonical[HOST_SIZE];
	size_t size;
	uint16_t its;

	return aim_split(host, strlen(host), port, &size, &its) && its == port &&
	       network_host(host, size, canonical) == 0 && strcmp(canonical, c->host) == 0;
}

enum step proxy_connect(struct connection *c, const struct head *request)
{
	const char *host = head_field(request, "host");
	struct failure f;
	size_t size;
	uint16_t port;

	if (request->body_size > 0)
		return bad_request(c, "CONNECT with a body");
	if (c->in.size > 0)
		return bad_request(c, "bytes behind CONNECT before it was answered");
	if (!aim_split(request->text, strlen(request->text), 0, &size, &port))
		return bad_request(c, "the target of CONNECT is not HOST:PORT");
	if (!aim_at(c, request->text, size, port, &f))
		return problem_answer(c, &f, true);
	if (host && !c->name.s_addr && !same_authority(c, host, port))
		return bad_request(c, "the Host field names another host than CONNECT");
	c->refuse = refuse;
	c->connected = on_connected;
	forward_free(c); /* and request with it */
	return connect_begin(c);
}

static enum step first_step(struct connection *c)
{
	ssize_t n = side_read_into(c->client, &c->in, 1);

	c->client->want_read = true;
	if (n == -EAGAIN)
		return STEP_WAIT;
	if (n <= 0)
		return connection_close(c, n < 0);
	if (c->in.data[c->in.start] != 5)
		return forward_begin(c, true);
	c->step = socks_step;
	return STEP_AGAIN;
}

enum step proxy_begin(struct connection *c)
{
	c->step = first_step;
	connection_wait(c, WAIT_HEADER, NULL);
	return STEP_AGAIN;
}
