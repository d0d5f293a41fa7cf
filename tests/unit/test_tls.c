/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Both ends of opened TLS against each other over a socket pair: who is believed, how it ends, what is said when it
 * fails. The upstream is an authority of ours that the client's trust knows. Real clients: tests/egress/test_opened.py.
 */
#include "unit.h"

#include <openssl/err.h>
#include <openssl/x509v3.h>
#include <signal.h>
#include <sys/socket.h>
#include <uv.h>

#include "egress/authority.h"

struct pair {
	struct authority *authority;
	struct trust *trust;
	struct stream server, client;
};

static void connect_pair(struct pair *p)
{
	int fds[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds),
			 0);
	p->server = (struct stream){.fd = fds[0]};
	p->client = (struct stream){.fd = fds[1]};
}

static void close_pair(struct pair *p)
{
	stream_close(&p->server);
	stream_close(&p->client);
	stream_close(&p->client);
}

static void setup(struct pair *p)
{
	struct err e = {0};
	_cleanup_free_ char *text = NULL;
	const char *pem;
	size_t size;

	signal(SIGPIPE, SIG_IGN);
	*p = (struct pair){0};
	assert_int_equal(authority_new(&p->authority, &e), 0);
	pem = authority_pem(p->authority, &size);
	text = strndup(pem, size);
	assert_int_equal(trust_new(text, &p->trust, &e), 0);
	connect_pair(p);
}

static void teardown(struct pair *p)
{
	close_pair(p);
	trust_free(p->trust);
	authority_free(p->authority);
}

/* Both go on until both are done or one fails; its error in e. 1, -1 the server's, -2 the client's. */
static int shake(struct pair *p, struct err *e)
{
	int server = 0, client = 0;

	for (int i = 0; i < 20 && (!server || !client); i++) {
		if (!client && (client = stream_shake(&p->client, e)) < 0)
			return -2;
		if (!server && (server = stream_shake(&p->server, e)) < 0)
			return -1;
	}
	return server && client;
}

static int shake_hosts(struct pair *p, const char *server, const char *client, struct err *e)
{
	assert_int_equal(stream_accept_tls(&p->server, p->authority, server, e), 0);
	assert_int_equal(stream_connect_tls(&p->client, p->trust, client, e), 0);
	return shake(p, e);
}

static void test_both_ways(void **state)
{
	struct pair p;
	struct err e;
	char data[16];

	(void)state;
	setup(&p);
	assert_int_equal(shake_hosts(&p, "api.test", "api.test", &e), 1);
	assert_int_equal(stream_read(&p.server, data, sizeof data), -EAGAIN);
	assert_int_equal(stream_wants(&p.server, true, false), UV_READABLE);
	assert_int_equal(stream_wants(&p.server, true, true), UV_READABLE | UV_WRITABLE);
	assert_int_equal(stream_wants(&p.server, false, false), 0);
	assert_int_equal(stream_write(&p.client, "question", 8), 8);
	assert_int_equal(stream_read(&p.server, data, 3), 3);
	assert_true(stream_pending(&p.server));
	assert_int_equal(stream_read(&p.server, data + 3, sizeof data - 3), 5);
	assert_memory_equal(data, "question", 8);
	assert_false(stream_pending(&p.server));

	/* half closed: the answer still comes */
	assert_int_equal(stream_end(&p.client), 0);
	assert_int_equal(stream_read(&p.server, data, sizeof data), 0);
	assert_true(p.server.peer_ended);
	assert_int_equal(stream_write(&p.server, "answer", 6), 6);
	assert_int_equal(stream_end(&p.client), 0); /* again: nothing */
	assert_int_equal(stream_read(&p.client, data, sizeof data), 6);
	assert_int_equal(stream_end(&p.server), 0);
	assert_int_equal(stream_read(&p.client, data, sizeof data), 0);
	assert_int_equal(stream_write(&p.client, "x", 1), -EPIPE);
	teardown(&p);
}

static void test_plain(void **state)
{
	struct pair p = {0};
	char data[8];

	(void)state;
	connect_pair(&p);
	assert_int_equal(stream_read(&p.server, data, sizeof data), -EAGAIN);
	assert_int_equal(stream_wants(&p.server, true, true), UV_READABLE | UV_WRITABLE);
	assert_int_equal(stream_write(&p.client, "abc", 3), 3);
	assert_int_equal(stream_end(&p.client), 0);
	assert_int_equal(stream_read(&p.server, data, sizeof data), 3);
	assert_false(p.server.peer_ended);
	assert_int_equal(stream_read(&p.server, data, sizeof data), 0);
	assert_true(p.server.peer_ended);
	assert_int_equal(stream_write(&p.server, "back", 4), 4);
	stream_close(&p.client);
	signal(SIGPIPE, SIG_DFL); /* a plain stream needs no ignoring */
	assert_int_equal(stream_write(&p.server, "back", 4), -EPIPE);
	close_pair(&p);
}

/* Cut off without close_notify is no end. */
static void test_truncated(void **state)
{
	struct pair p;
	struct err e;
	char data[8];

	(void)state;
	setup(&p);
	assert_int_equal(shake_hosts(&p, "api.test", "api.test", &e), 1);
	assert_int_equal(stream_write(&p.server, "half", 4), 4);
	stream_close(&p.server);
	assert_int_equal(stream_read(&p.client, data, sizeof data), 4);
	assert_int_equal(stream_read(&p.client, data, sizeof data), -ECONNABORTED);
	assert_false(p.client.peer_ended);
	teardown(&p);
}

static void test_garbage(void **state)
{
	struct pair p;
	struct err e;
	char data[8];

	(void)state;
	setup(&p);
	assert_int_equal(shake_hosts(&p, "api.test", "api.test", &e), 1);
	assert_int_equal(send(p.server.fd, "GET / HTTP/1.1\r\n\r\n", 18, 0), 18);
	assert_int_equal(stream_read(&p.client, data, sizeof data), -EPROTO);
	assert_int_equal(stream_end(&p.client), 0);
	close_pair(&p);
	connect_pair(&p);
	assert_int_equal(stream_accept_tls(&p.server, p.authority, "api.test", &e), 0);
	assert_int_equal(send(p.client.fd, "GET / HTTP/1.1\r\n\r\n", 18, 0), 18);
	assert_int_equal(stream_shake(&p.server, &e), -1);
	assert_string_equal(e.text, "TLS with the program inside: http request");
	teardown(&p);
}

/* More than the socket takes: a part, then -EAGAIN, then the rest when it was read; nothing lost. */
static void test_backpressure(void **state)
{
	enum { SIZE = 4 << 20 };
	unsigned char *sent = malloc(SIZE), *got = malloc(SIZE);
	size_t out = 0, in = 0;
	bool waited = false;
	struct pair p;
	struct err e;

	(void)state;
	setup(&p);
	assert_int_equal(shake_hosts(&p, "api.test", "api.test", &e), 1);
	for (size_t i = 0; i < SIZE; i++)
		sent[i] = (unsigned char)(i * 7919 >> 5);
	while (in < SIZE) {
		ssize_t n = out < SIZE ? stream_write(&p.client, sent + out, SIZE - out) : -EAGAIN;

		if (n > 0)
			out += (size_t)n;
		waited |= n == -EAGAIN && out < SIZE;
		if (n == -EAGAIN)
			while ((n = stream_read(&p.server, got + in, SIZE - in ? SIZE - in : 1)) >
			       0)
				in += (size_t)n;
		assert_int_equal(n < 0 ? n : -EAGAIN, -EAGAIN);
	}
	assert_true(waited);
	assert_memory_equal(sent, got, SIZE);
	free(sent);
	free(got);
	teardown(&p);
}

static void test_certificate(void **state)
{
	struct pair p;
	struct err e;
	X509 *x;

	(void)state;
	setup(&p);
	assert_int_equal(shake_hosts(&p, "api.test", "api.test", &e), 1);
	x = SSL_get1_peer_certificate(p.client.ssl);
	assert_int_equal(X509_check_host(x, "api.test", 0, 0, NULL), 1);
	assert_int_equal(X509_check_host(x, "www.api.test", 0, 0, NULL), 0);
	assert_int_equal(X509_check_host(x, "xapi.test", 0, 0, NULL), 0);
	assert_int_equal(X509_NAME_entry_count(X509_get_subject_name(x)), 0);
	assert_int_equal(X509_get_extended_key_usage(x), XKU_SSL_SERVER);
	assert_true(X509_cmp_current_time(X509_get0_notBefore(x)) < 0);
	assert_int_equal(X509_check_ca(x), 0);
	X509_free(x);
	teardown(&p);
}

static void test_addresses(void **state)
{
	static const char *const hosts[] = {"127.0.0.1", "2001:db8::1"};
	struct pair p;
	struct err e;

	(void)state;
	setup(&p);
	for (size_t i = 0; i < ARRAY_SIZE(hosts); i++) {
		close_pair(&p);
		connect_pair(&p);
		assert_int_equal(shake_hosts(&p, hosts[i], hosts[i], &e), 1);
		assert_null(SSL_get_servername(p.server.ssl, TLSEXT_NAMETYPE_host_name));
	}
	close_pair(&p);
	connect_pair(&p);
	assert_int_equal(shake_hosts(&p, "127.0.0.1", "127.0.0.2", &e), -2);
	assert_string_equal(e.text, "the certificate of 127.0.0.2 is for another address");
	/* an address inside of a name is none */
	close_pair(&p);
	connect_pair(&p);
	assert_int_equal(shake_hosts(&p, "api.test", "127.0.0.2", &e), -2);
	teardown(&p);
}

/* The server has a certificate for another host than the client names: its own second look ends it. */
static void test_other_name(void **state)
{
	struct pair p;
	struct err e;

	(void)state;
	setup(&p);
	assert_int_equal(shake_hosts(&p, "api.test", "other.test", &e), -1);
	assert_contains(e.text, "TLS with the program inside");
	teardown(&p);
}

static void test_stranger(void **state)
{
	struct pair p;
	struct err e;
	struct authority *other;

	(void)state;
	setup(&p);
	assert_int_equal(authority_new(&other, &e), 0);
	assert_int_equal(stream_accept_tls(&p.server, other, "api.test", &e), 0);
	assert_int_equal(stream_connect_tls(&p.client, p.trust, "api.test", &e), 0);
	assert_int_equal(shake(&p, &e), -2);
	assert_string_equal(
		e.text, "the certificate of api.test is of an authority that is not trusted here "
			"(the operator may add it as upstream_ca)");
	assert_int_equal(stream_shake(&p.server, &e), -1);
	assert_contains(e.text, "does not trust this sandbox's certificate authority");
	authority_free(other);
	teardown(&p);
}

static void test_old_protocol(void **state)
{
	struct pair p;
	struct err e;

	(void)state;
	setup(&p);
	assert_int_equal(stream_accept_tls(&p.server, p.authority, "api.test", &e), 0);
	assert_int_equal(stream_connect_tls(&p.client, p.trust, "api.test", &e), 0);
	SSL_set_security_level(p.client.ssl, 0);
	SSL_set_min_proto_version(p.client.ssl, TLS1_1_VERSION);
	SSL_set_max_proto_version(p.client.ssl, TLS1_1_VERSION);
	assert_int_equal(shake(&p, &e), -1);
	assert_string_equal(e.text, "TLS with the program inside: unsupported protocol");
	close_pair(&p);
	connect_pair(&p);
	assert_int_equal(stream_accept_tls(&p.server, p.authority, "api.test", &e), 0);
	assert_int_equal(stream_connect_tls(&p.client, p.trust, "api.test", &e), 0);
	SSL_set_security_level(p.server.ssl, 0);
	SSL_set_min_proto_version(p.server.ssl, TLS1_1_VERSION);
	SSL_set_max_proto_version(p.server.ssl, TLS1_1_VERSION);
	assert_int_equal(shake(&p, &e), -1); /* it cannot go as low as the server wants */
	teardown(&p);
}

/* NULL: the handshake has to fail. */
static void check_protocol(const char *offer, unsigned size, const char *chosen)
{
	const unsigned char *got;
	unsigned got_size;
	struct pair p;
	struct err e;

	setup(&p);
	assert_int_equal(stream_accept_tls(&p.server, p.authority, "api.test", &e), 0);
	assert_int_equal(stream_connect_tls(&p.client, p.trust, "api.test", &e), 0);
	SSL_set_alpn_protos(p.client.ssl, (const unsigned char *)offer, size);
	assert_int_equal(shake(&p, &e), chosen ? 1 : -1);
	SSL_get0_alpn_selected(p.client.ssl, &got, &got_size);
	assert_int_equal(got_size, chosen ? strlen(chosen) : 0);
	assert_memory_equal(got_size ? (const char *)got : "", chosen ? chosen : "", got_size);
	teardown(&p);
}

static void test_alpn(void **state)
{
	(void)state;
	check_protocol("\x02h2\x08http/1.1", 12, "http/1.1");
	check_protocol("\x08http/1.1", 9, "http/1.1");
	check_protocol(NULL, 0, "");
	check_protocol("\x02h2", 3, NULL);
}

/* A session of one host is resumed for it and for no other. */
static void test_resumed(void **state)
{
	SSL_CTX *c;
	struct pair p;
	struct err e;
	char byte;

	(void)state;
	setup(&p);
	c = authority_context(p.authority); /* as a real server would be */
	SSL_CTX_clear_options(c, SSL_OP_NO_TICKET);
	SSL_CTX_set_session_id_context(c, (const unsigned char *)"x", 1);
	SSL_CTX_set_num_tickets(c, 2);
	assert_int_equal(shake_hosts(&p, "api.test", "api.test", &e), 1);
	assert_false(SSL_session_reused(p.client.ssl));
	assert_int_equal(stream_read(&p.client, &byte, 1), -EAGAIN); /* takes the tickets */
	for (int i = 0; i < 3; i++) {
		close_pair(&p);
		connect_pair(&p);
		assert_int_equal(shake_hosts(&p, "api.test", "api.test", &e), 1);
		assert_true(SSL_session_reused(p.client.ssl));
		assert_int_equal(SSL_get_verify_result(p.client.ssl), X509_V_OK);
		assert_int_equal(stream_read(&p.client, &byte, 1), -EAGAIN);
	}
	close_pair(&p);
	connect_pair(&p);
	assert_int_equal(shake_hosts(&p, "other.test", "other.test", &e), 1);
	assert_false(SSL_session_reused(p.client.ssl));
	teardown(&p);
}

/* More hosts than are kept, there and back. */
static void test_many_hosts(void **state)
{
	struct pair p;
	struct err e;
	char host[32];

	(void)state;
	setup(&p);
	for (int i = 0; i < 150; i++) {
		close_pair(&p);
		connect_pair(&p);
		snprintf(host, sizeof host, "h%d.test", i % 75);
		assert_int_equal(shake_hosts(&p, host, host, &e), 1);
	}
	teardown(&p);
}

static void test_upstream_ca(void **state)
{
	struct trust *t = NULL;
	struct err e;

	(void)state;
	assert_int_equal(trust_new("", &t, &e), -1);
	assert_contains(e.text, "upstream_ca has no certificate");
	assert_int_equal(trust_new("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
				   &t, &e),
			 -1);
	assert_contains(e.text, "read the certificates of upstream_ca");
	assert_null(t);
	assert_int_equal(ERR_peek_error(), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_both_ways),    cmocka_unit_test(test_plain),
		cmocka_unit_test(test_truncated),    cmocka_unit_test(test_garbage),
		cmocka_unit_test(test_backpressure), cmocka_unit_test(test_certificate),
		cmocka_unit_test(test_addresses),    cmocka_unit_test(test_other_name),
		cmocka_unit_test(test_stranger),     cmocka_unit_test(test_old_protocol),
		cmocka_unit_test(test_alpn),         cmocka_unit_test(test_resumed),
		cmocka_unit_test(test_many_hosts),   cmocka_unit_test(test_upstream_ca),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
