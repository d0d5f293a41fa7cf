/* SPDX-License-Identifier: Apache-2.0 */
/*
 * open.c - a connection is made: is it relayed as it is, or looked into?
 *
 * Looked into where only the request can tell (VERDICT_LOOK). Then TLS has to be for the very host that was
 * connected to, said openly, and is answered with a certificate of this sandbox's own authority; what is no TLS has to be
 * HTTP. Nothing of the client's handshake goes upstream: that side has its own, verified against that same host.
 */
#include <stdarg.h>
#include <string.h>
#include <poll.h>
#include <sys/socket.h>

#include "egress/egress.h"

enum { HELLO_MAX = (16 << 10) + 512, HANDSHAKE = 0x16 };

static void cut(struct connection *c, const struct failure *f)
{
	(void)f;
	connection_close(c, true);
}

enum step open_refuse(struct connection *c, const char *format, ...)
{
	char why[sizeof c->record.why];
	va_list args;

	va_start(args, format);
	vsnprintf(why, sizeof why, format, args);
	va_end(args);
	record_end(c, EGRESS_DENIED, why);
	return connection_close(c, true);
}

/* So that a poll does not tell of the same bytes for ever. */
static void wake_above(int fd, int size)
{
	(void)setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &size, sizeof size);
}

static bool hung_up(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLRDHUP};

	return poll(&p, 1, 0) > 0;
}

enum first open_peek(struct connection *c, struct hello *ret)
{
	struct egress *g = c->egress;
	int fd = c->client->stream.fd, r;
	ssize_t n = recv(fd, g->buffer, HELLO_MAX, MSG_PEEK | MSG_DONTWAIT);

	c->client->want_read = true;
	if (n < 0)
		return errno == EAGAIN ? FIRST_WAIT : FIRST_BAD;
	if (n == 0 || g->buffer[0] != HANDSHAKE) {
		wake_above(fd, 1);
		return FIRST_OTHER;
	}
	r = hello_read(g->buffer, (size_t)n, ret);
	if (r < 0 || (r == 0 && (n == HELLO_MAX || hung_up(fd))))
		return FIRST_BAD;
	wake_above(fd, r == 0 ? (int)n + 1 : 1);
	return r == 0 ? FIRST_WAIT : FIRST_TLS;
}

void open_shake_upstream(struct connection *c)
{
	struct side *s = c->upstream;
	struct err e = {0};
	int r = !s || !s->stream.shaking || c->fault ? 1 : stream_shake(&s->stream, &e);

	if (r < 0)
		c->fault = strdup(e.text);
	if (s) {
		s->want_read = r == 0 && s->stream.want_read;
		s->want_write = r == 0 && s->stream.want_write;
	}
}

static enum step client_shake(struct connection *c)
{
	struct err e = {0};
	int r = stream_shake(&c->client->stream, &e);

	open_shake_upstream(c);
	c->client->want_read = c->client->want_write = false;
	if (r == 0) {
		c->client->want_read = c->client->stream.want_read;
		c->client->want_write = c->client->stream.want_write;
		return STEP_WAIT;
	}
	if (r > 0)
		return forward_begin(c, false);
	err_prefix(&e, "TLS with the client");
	record_end(c, EGRESS_FAILED, e.text);
	return connection_close(c, true);
}

static enum step judge_hello(struct connection *c, const struct hello *hello)
{
	struct sockaddr_storage address;
	struct err e = {0};

	if (hello->encrypted)
		return open_refuse(
			c, "TLS that hides its host (ECH), and a rule for %s needs it opened",
			c->host);
	if (!hello->host[0] && !network_host_address(c->host, &address))
		return open_refuse(c, "TLS that names no host, and a rule for %s needs it opened",
				   c->host);
	if (hello->host[0] && strcmp(hello->host, c->host) != 0)
		return open_refuse(c, "TLS for %s in a connection to %s", hello->host, c->host);
	if (!hello->alpn_http1)
		return open_refuse(
			c,
			"TLS for something else than HTTP/1.1, and a rule for %s needs it opened",
			c->host);
	if (!c->egress->authority)
		return open_refuse(
			c, "a rule for %s needs TLS opened, and this sandbox has no authority",
			c->host);
	c->tls = true;
	if (stream_accept_tls(&c->client->stream, c->egress->authority, c->host, &e) < 0) {
		record_end(c, EGRESS_FAILED, e.text);
		return connection_close(c, true);
	}
	/* The other side's handshake begins at once and goes on beside this one; forward.c brings it to its end. */
	if (stream_connect_tls(&c->upstream->stream, c->egress->trust, c->host, &e) < 0)
		c->fault = strdup(e.text);
	c->step = client_shake;
	connection_wait(c, WAIT_HANDSHAKE, NULL);
	return STEP_AGAIN;
}

static enum step look_step(struct connection *c)
{
	struct hello hello;

	switch (open_peek(c, &hello)) {
	case FIRST_WAIT:
		return STEP_WAIT;
	case FIRST_TLS:
		return judge_hello(c, &hello);
	case FIRST_OTHER:
		return forward_begin(c, false);
	default:
		return open_refuse(c, "TLS whose beginning cannot be read");
	}
}

enum step open_begin(struct connection *c)
{
	c->refuse = cut;
	if (c->verdict == VERDICT_ALLOW)
		return tunnel_begin(c, c->port == 443 && !c->passthrough, NULL);
	c->step = look_step;
	connection_wait(c, WAIT_HEADER, NULL);
	return STEP_AGAIN;
}
