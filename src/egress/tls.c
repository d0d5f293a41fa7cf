/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tls.c - both handshakes of opened TLS: as the server of the program inside, as a client of the real one.
 *
 * What the system trusts is read once and whole, since the process gives up the file system afterwards; OpenSSL's own
 * default would look certificates up in a folder when one is needed. There is no looking at revocation lists.
 * A session is kept for its host for ten minutes, so that a certificate is looked at again at least that often.
 */
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "egress/authority.h"
#include "network/policy.h"

enum { SESSIONS_MAX = 64, SESSION_S = 600, CHAIN_MAX = 8 };

struct session {
	char host[HOST_SIZE]; /* "": free */
	SSL_SESSION *session;
	uint64_t used;
};

struct trust {
	SSL_CTX *client;
	struct session sessions[SESSIONS_MAX];
	uint64_t uses;
};

/* Where distributions have all of them in one file: Debian and its kin, Fedora, SUSE, Alpine. */
static const char *const bundles[] = {
	"/etc/ssl/certs/ca-certificates.crt",
	"/etc/pki/tls/certs/ca-bundle.crt",
	"/etc/ssl/ca-bundle.pem",
	"/etc/ssl/cert.pem",
};

/* ---------------------------------------------------------------------------------------- sessions */

/* The one of this host, or else the place of the one unused for longest. */
static struct session *find_session(struct trust *t, const char *host)
{
	struct session *oldest = &t->sessions[0];

	for (size_t i = 0; i < SESSIONS_MAX; i++) {
		struct session *s = &t->sessions[i];

		if (strcmp(s->host, host) == 0)
			return s;
		if (s->used < oldest->used)
			oldest = s;
	}
	return oldest;
}

/* OpenSSL's: one could be resumed later. 1: the reference is ours. */
static int keep_session(SSL *ssl, SSL_SESSION *session)
{
	struct trust *t = SSL_CTX_get_app_data(SSL_get_SSL_CTX(ssl));
	const char *host = SSL_get_servername(ssl, TLSEXT_NAMETYPE_host_name);
	struct session *s;

	if (!host || SSL_get_verify_result(ssl) != X509_V_OK || !SSL_SESSION_is_resumable(session))
		return 0;
	s = find_session(t, host);
	SSL_SESSION_free(s->session);
	s->session = session;
	snprintf(s->host, sizeof s->host, "%s", host);
	s->used = ++t->uses;
	return 1;
}

static void resume(struct trust *t, SSL *ssl, const char *host)
{
	struct session *s = find_session(t, host);

	if (strcmp(s->host, host) != 0)
		return;
	s->used = ++t->uses;
	if (time(NULL) - SSL_SESSION_get_time(s->session) < SESSION_S)
		SSL_set_session(ssl, s->session);
}

/* ------------------------------------------------------------------------------------------- trust */

/* All certificates of a text. Their number, or -1 with OpenSSL's error. */
static int add_certificates(X509_STORE *store, const char *pem)
{
	BIO *b = BIO_new_mem_buf(pem, -1);
	int count = 0;
	X509 *x;

	if (!b)
		return -1;
	while ((x = PEM_read_bio_X509(b, NULL, NULL, NULL))) {
		int added = X509_STORE_add_cert(store, x);

		X509_free(x);
		if (!added) {
			count = -1;
			break;
		}
		count++;
	}
	BIO_free(b);
	if (count >= 0 && ERR_GET_REASON(ERR_peek_last_error()) != PEM_R_NO_START_LINE)
		count = -1; /* something else than its end */
	return count;
}

static bool add_system(X509_STORE *store)
{
	for (size_t i = 0; i < ARRAY_SIZE(bundles); i++)
		if (X509_STORE_load_file(store, bundles[i]))
			return true;
	return false;
}

static int fill(struct trust *t, const char *upstream_ca, struct err *e)
{
	X509_STORE *store = SSL_CTX_get_cert_store(t->client);
	int n;

	/* without it only what the operator gave is trusted */
	if (!add_system(store) && !upstream_ca)
		return err_set(
			e, ENOENT,
			"no certificates to verify servers with: read %s (install ca-certificates, or "
			"give upstream_ca)",
			bundles[0]);
	ERR_clear_error();
	if (!upstream_ca)
		return 0;
	n = add_certificates(store, upstream_ca);
	if (n < 0)
		return openssl_error(e, "read the certificates of upstream_ca");
	ERR_clear_error();
	return n > 0 ? 0 : err_set(e, 0, "upstream_ca has no certificate (PEM is expected)");
}

static SSL_CTX *make_client(void)
{
	static const unsigned char protocols[] = "\x08http/1.1";
	SSL_CTX *c = SSL_CTX_new(TLS_client_method());

	if (!c)
		return NULL;
	SSL_CTX_set_options(c, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
	SSL_CTX_set_mode(c, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
				    SSL_MODE_RELEASE_BUFFERS);
	SSL_CTX_set_verify(c, SSL_VERIFY_PEER, NULL);
	SSL_CTX_set_verify_depth(c, CHAIN_MAX);
	SSL_CTX_set_session_cache_mode(c, SSL_SESS_CACHE_CLIENT | SSL_SESS_CACHE_NO_INTERNAL);
	SSL_CTX_sess_set_new_cb(c, keep_session);
	if (!SSL_CTX_set_min_proto_version(c, TLS1_2_VERSION) ||
	    SSL_CTX_set_alpn_protos(c, protocols, sizeof protocols - 1) != 0) {
		SSL_CTX_free(c);
		return NULL;
	}
	return c;
}

int trust_new(const char *upstream_ca, struct trust **ret, struct err *e)
{
	struct trust *t = calloc(1, sizeof *t);

	if (!t)
		return err_set(e, ENOMEM, "prepare TLS");
	ERR_clear_error();
	t->client = make_client();
	if (!t->client) {
		free(t);
		return openssl_error(e, "prepare TLS");
	}
	SSL_CTX_set_app_data(t->client, t);
	if (fill(t, upstream_ca, e) < 0) {
		trust_free(t);
		return -1;
	}
	*ret = t;
	return 0;
}

void trust_free(struct trust *t)
{
	if (!t)
		return;
	for (size_t i = 0; i < SESSIONS_MAX; i++)
		SSL_SESSION_free(t->sessions[i].session);
	SSL_CTX_free(t->client);
	free(t);
}

/* -------------------------------------------------------------------------------------- handshakes */

static int take_ssl(struct stream *s, SSL *ssl)
{
	s->ssl = ssl;
	s->shaking = true;
	s->want_read = s->want_write = true; /* until the first stream_shake() */
	return 0;
}

int stream_accept_tls(struct stream *s, struct authority *a, const char *host, struct err *e)
{
	SSL *ssl;

	ERR_clear_error();
	ssl = SSL_new(authority_context(a));
	if (!ssl || !SSL_set_fd(ssl, s->fd)) {
		SSL_free(ssl);
		return openssl_error(e, "open the TLS of a connection to %s", host);
	}
	if (authority_use(a, ssl, host, e) < 0) {
		SSL_free(ssl);
		return -1;
	}
	SSL_set_accept_state(ssl);
	return take_ssl(s, ssl);
}

/* Whose certificate it has to be. No common names, no wildcard within a label. */
static bool expect_host(SSL *ssl, const char *host)
{
	struct sockaddr_storage address;

	SSL_set_hostflags(ssl, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS |
				       X509_CHECK_FLAG_NEVER_CHECK_SUBJECT);
	if (network_host_address(host, &address))
		return X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), host);
	return SSL_set1_host(ssl, host) && SSL_set_tlsext_host_name(ssl, host);
}

int stream_connect_tls(struct stream *s, struct trust *t, const char *host, struct err *e)
{
	SSL *ssl;

	ERR_clear_error();
	ssl = SSL_new(t->client);
	if (!ssl || !SSL_set_fd(ssl, s->fd) || !expect_host(ssl, host)) {
		SSL_free(ssl);
		return openssl_error(e, "connect to %s by TLS", host);
	}
	resume(t, ssl, host);
	SSL_set_connect_state(ssl);
	return take_ssl(s, ssl);
}

#define UNTRUSTED \
	"is of an authority that is not trusted here (the operator may add it as upstream_ca)"
#define NO_CHAIN "comes without a chain to an authority that is trusted here"

/* What is wrong with a certificate; others in OpenSSL's words. */
static const struct {
	long result;
	const char *text;
} faults[] = {
	{X509_V_ERR_CERT_HAS_EXPIRED, "has expired"},
	{X509_V_ERR_CERT_NOT_YET_VALID, "is not valid yet"},
	{X509_V_ERR_HOSTNAME_MISMATCH, "is for another name"},
	{X509_V_ERR_IP_ADDRESS_MISMATCH, "is for another address"},
	{X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT, "is signed by itself"},
	{X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN, UNTRUSTED},
	{X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT, NO_CHAIN},
	{X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY, UNTRUSTED},
	{X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE, UNTRUSTED},
};

static const char *fault_text(long result)
{
	for (size_t i = 0; i < ARRAY_SIZE(faults); i++)
		if (faults[i].result == result)
			return faults[i].text;
	return NULL;
}

/* The alerts by which clients say that they do not know our authority. */
static bool is_distrust(int reason)
{
	return reason == SSL_R_TLSV1_ALERT_UNKNOWN_CA ||
	       reason == SSL_R_SSLV3_ALERT_CERTIFICATE_UNKNOWN ||
	       reason == SSL_R_SSLV3_ALERT_BAD_CERTIFICATE;
}

static int server_error(int reason, struct err *e)
{
	if (is_distrust(reason)) {
		ERR_clear_error();
		return err_set(
			e, 0,
			"the program does not trust this sandbox's certificate authority (SSL_CERT_FILE "
			"names it; a rule with passthrough leaves its TLS closed)");
	}
	return openssl_error(e, "TLS with the program inside");
}

static int client_error(SSL *ssl, struct err *e)
{
	X509_VERIFY_PARAM *wanted = SSL_get0_param(ssl);
	char *address = X509_VERIFY_PARAM_get1_ip_asc(wanted);
	const char *host = address ? address : X509_VERIFY_PARAM_get0_host(wanted, 0);
	long result = SSL_get_verify_result(ssl);

	if (!host)
		host = "the server";
	if (result == X509_V_OK) {
		openssl_error(e, "TLS with %s", host);
	} else if (fault_text(result)) {
		err_set(e, 0, "the certificate of %s %s", host, fault_text(result));
	} else {
		err_set(e, 0, "the certificate of %s is refused: %s", host,
			X509_verify_cert_error_string(result));
	}
	OPENSSL_free(address);
	ERR_clear_error();
	return -1;
}

int stream_shake(struct stream *s, struct err *e)
{
	int r, why, reason;

	ERR_clear_error();
	errno = 0;
	s->want_read = s->want_write = false;
	r = SSL_do_handshake(s->ssl);
	if (r == 1) {
		s->shaking = false;
		return 1;
	}
	why = SSL_get_error(s->ssl, r);
	s->want_read = why == SSL_ERROR_WANT_READ;
	s->want_write = why == SSL_ERROR_WANT_WRITE;
	if (s->want_read || s->want_write)
		return 0;
	s->ended = true;
	reason = ERR_GET_REASON(ERR_peek_error());
	if (why == SSL_ERROR_SYSCALL && !reason)
		return err_set(e, errno, "%s: the connection broke off",
			       SSL_is_server(s->ssl) ? "TLS with the program inside"
						     : "TLS with the server");
	return SSL_is_server(s->ssl) ? server_error(reason, e) : client_error(s->ssl, e);
}
