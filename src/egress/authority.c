/* SPDX-License-Identifier: Apache-2.0 */
/*
 * authority.c - a certificate authority for one sandbox, and its certificates for hosts.
 *
 * Made anew in each process and never written anywhere: the private keys are in this process's memory only, and what trusts
 * the authority is inside of the one sandbox. So it has no name constraints: rules may change while the sandbox runs,
 * and whoever could use the key decides what this sandbox is told anyway. It may sign no further authority (pathlen 0).
 *
 * Certificates for hosts share one key, which is another than the authority's. They have no subject, and the name in a
 * critical subjectAltName (RFC 5280 §4.2.1.6), an address as an address. Both carry the key identifiers and usages that
 * strict verifiers ask for (Python 3.13's VERIFY_X509_STRICT).
 */
#include "egress/authority.h"

#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "network/policy.h"

enum {
	LEAVES_MAX = 64,
	SERIAL_BITS = 127, /* positive, below the 20 bytes of RFC 5280 */
	BEFORE_S = 3600,   /* for clocks that are behind */
	AFTER_S = 30 * 24 * 3600,
};

struct leaf {
	char host[HOST_SIZE]; /* "": free */
	X509 *certificate;
	uint64_t used;
};

struct authority {
	EVP_PKEY *key, *leaf_key;
	X509 *certificate;
	BIO *pem;
	SSL_CTX *server;
	struct leaf leaves[LEAVES_MAX];
	uint64_t uses;
};

static void done_x509(X509 **x)
{
	X509_free(*x);
}
#define _cleanup_x509_ _cleanup_(done_x509)

int openssl_error(struct err *e, const char *format, ...)
{
	unsigned long code = ERR_peek_error();
	const char *reason = code ? ERR_reason_error_string(code) : NULL;
	char what[512];
	va_list ap;

	ERR_clear_error();
	va_start(ap, format);
	vsnprintf(what, sizeof what, format, ap);
	va_end(ap);
	return err_set(e, 0, "%s: %s", what, reason ? reason : "no cause given");
}

/* ---------------------------------------------------------------------------------- certificates */

static bool set_serial(X509 *x)
{
	BIGNUM *n = BN_new();
	bool done = n && BN_rand(n, SERIAL_BITS, BN_RAND_TOP_ONE, BN_RAND_BOTTOM_ANY) &&
		    BN_to_ASN1_INTEGER(n, X509_get_serialNumber(x));

	BN_free(n);
	return done;
}

struct extension {
	int nid;
	const char *value;
};
static const struct extension authority_extensions[] = {
	{NID_basic_constraints, "critical,CA:TRUE,pathlen:0"},
	{NID_key_usage, "critical,keyCertSign,cRLSign"},
	{NID_subject_key_identifier, "hash"},
	{0},
};
static const struct extension leaf_extensions[] = {
	{NID_basic_constraints, "critical,CA:FALSE"},
	{NID_key_usage, "critical,digitalSignature"},
	{NID_ext_key_usage, "serverAuth"},
	{NID_authority_key_identifier, "keyid:always"},
	{NID_subject_key_identifier, "hash"},
	{0},
};

static bool add_extensions(X509 *x, X509 *issuer, const struct extension *list)
{
	X509V3_CTX context;

	X509V3_set_ctx_nodb(&context);
	X509V3_set_ctx(&context, issuer, x, NULL, NULL, 0);
	for (; list->value; list++) {
		X509_EXTENSION *one = X509V3_EXT_conf_nid(NULL, &context, list->nid, list->value);
		bool added = one && X509_add_ext(x, one, -1);

		X509_EXTENSION_free(one);
		if (!added)
			return false;
	}
	return true;
}

/* What both kinds have. Dates are the authority's for all that it signs. */
static bool begin_certificate(X509 *x, EVP_PKEY *key)
{
	return X509_set_version(x, X509_VERSION_3) && set_serial(x) && X509_set_pubkey(x, key);
}

static bool name_authority(X509 *x)
{
	unsigned char random[4];
	char name[64];
	X509_NAME *subject = X509_get_subject_name(x);

	if (RAND_bytes(random, sizeof random) != 1)
		return false;
	/* its own name: some stores keep one certificate per name */
	snprintf(name, sizeof name, "cloche sandbox %02x%02x%02x%02x", random[0], random[1],
		 random[2], random[3]);
	return X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC, (unsigned char *)name, -1,
					  -1, 0) &&
	       X509_set_issuer_name(x, subject);
}

static X509 *make_authority(EVP_PKEY *key)
{
	_cleanup_x509_ X509 *x = X509_new();

	if (!x || !begin_certificate(x, key) || !name_authority(x) ||
	    !X509_gmtime_adj(X509_getm_notBefore(x), -BEFORE_S) ||
	    !X509_gmtime_adj(X509_getm_notAfter(x), AFTER_S) ||
	    !add_extensions(x, x, authority_extensions) || !X509_sign(x, key, EVP_sha256()))
		return NULL;
	return TAKE_PTR(x);
}

/* What stands in the certificate for this host: a name, or the bytes of an address. */
static GENERAL_NAME *alt_name(const char *host)
{
	ASN1_OCTET_STRING *address = a2i_IPADDRESS(host);
	ASN1_IA5STRING *name = address ? NULL : ASN1_IA5STRING_new();
	GENERAL_NAME *g = GENERAL_NAME_new();

	if (g && (address || (name && ASN1_STRING_set(name, host, -1)))) {
		GENERAL_NAME_set0_value(g, address ? GEN_IPADD : GEN_DNS,
					address ? (void *)address : name);
		return g;
	}
	GENERAL_NAME_free(g);
	ASN1_IA5STRING_free(name);
	ASN1_OCTET_STRING_free(address);
	return NULL;
}

static bool add_alt_name(X509 *x, const char *host)
{
	GENERAL_NAMES *names = GENERAL_NAMES_new();
	GENERAL_NAME *name = alt_name(host);
	bool done = false;

	ERR_clear_error(); /* a name is no address: an error for OpenSSL */
	if (names && name && sk_GENERAL_NAME_push(names, name) > 0) {
		name = NULL;
		done = X509_add1_ext_i2d(x, NID_subject_alt_name, names, 1, X509V3_ADD_APPEND) > 0;
	}
	GENERAL_NAME_free(name);
	GENERAL_NAMES_free(names);
	return done;
}

static X509 *make_leaf(const struct authority *a, const char *host)
{
	_cleanup_x509_ X509 *x = X509_new();

	if (!x || !begin_certificate(x, a->leaf_key) || !add_alt_name(x, host) ||
	    !X509_set_issuer_name(x, X509_get_subject_name(a->certificate)) ||
	    !X509_set1_notBefore(x, X509_get0_notBefore(a->certificate)) ||
	    !X509_set1_notAfter(x, X509_get0_notAfter(a->certificate)) ||
	    !add_extensions(x, a->certificate, leaf_extensions) ||
	    !X509_sign(x, a->key, EVP_sha256()))
		return NULL;
	return TAKE_PTR(x);
}

/* ------------------------------------------------------------------------------------------ server */

/* http/1.1 and nothing else. A client that offers only other protocols is told so (RFC 7301 §3.2). */
static int select_protocol(SSL *ssl, const unsigned char **ret, unsigned char *ret_size,
			   const unsigned char *offered, unsigned size, void *arg)
{
	static const unsigned char ours[] = "\x08http/1.1";

	(void)ssl;
	(void)arg;
	if (SSL_select_next_proto((unsigned char **)ret, ret_size, ours, sizeof ours - 1, offered,
				  size) != OPENSSL_NPN_NEGOTIATED)
		return SSL_TLSEXT_ERR_ALERT_FATAL;
	return SSL_TLSEXT_ERR_OK;
}

/* The name that OpenSSL read is the one the certificate was chosen for: a second opinion on hello_read(). */
static int check_name(SSL *ssl, int *alert, void *arg)
{
	const char *text = SSL_get_servername(ssl, TLSEXT_NAMETYPE_host_name);
	char name[HOST_SIZE];

	(void)arg;
	if (!text)
		return SSL_TLSEXT_ERR_NOACK;
	if (network_host(text, strlen(text), name) == 0 &&
	    X509_check_host(SSL_get_certificate(ssl), name, 0, X509_CHECK_FLAG_NO_WILDCARDS,
			    NULL) == 1)
		return SSL_TLSEXT_ERR_OK;
	*alert = SSL_AD_UNRECOGNIZED_NAME;
	return SSL_TLSEXT_ERR_ALERT_FATAL;
}

/* No resumption: its tickets' keys would be one more secret, and a handshake here takes 0.2 ms. */
static SSL_CTX *make_server(void)
{
	SSL_CTX *c = SSL_CTX_new(TLS_server_method());

	if (!c)
		return NULL;
	SSL_CTX_set_options(c, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION | SSL_OP_NO_TICKET |
				       SSL_OP_CIPHER_SERVER_PREFERENCE);
	SSL_CTX_set_mode(c, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
				    SSL_MODE_RELEASE_BUFFERS);
	SSL_CTX_set_session_cache_mode(c, SSL_SESS_CACHE_OFF);
	SSL_CTX_set_alpn_select_cb(c, select_protocol, NULL);
	SSL_CTX_set_tlsext_servername_callback(c, check_name);
	if (!SSL_CTX_set_min_proto_version(c, TLS1_2_VERSION) || !SSL_CTX_set_num_tickets(c, 0)) {
		SSL_CTX_free(c);
		return NULL;
	}
	return c;
}

/* --------------------------------------------------------------------------------------- authority */

int authority_new(struct authority **ret, struct err *e)
{
	struct authority *a = calloc(1, sizeof *a);

	ERR_clear_error();
	if (!a)
		return err_set(e, ENOMEM, "make this sandbox's certificate authority");
	if (!(a->key = EVP_EC_gen("P-256")) || !(a->leaf_key = EVP_EC_gen("P-256")) ||
	    !(a->certificate = make_authority(a->key)) || !(a->server = make_server()) ||
	    !(a->pem = BIO_new(BIO_s_mem())) || !PEM_write_bio_X509(a->pem, a->certificate)) {
		authority_free(a);
		return openssl_error(e, "make this sandbox's certificate authority");
	}
	*ret = a;
	return 0;
}

void authority_free(struct authority *a)
{
	if (!a)
		return;
	for (size_t i = 0; i < LEAVES_MAX; i++)
		X509_free(a->leaves[i].certificate);
	SSL_CTX_free(a->server);
	BIO_free(a->pem);
	X509_free(a->certificate);
	EVP_PKEY_free(a->leaf_key);
	EVP_PKEY_free(a->key);
	free(a);
}

const char *authority_pem(const struct authority *a, size_t *ret_size)
{
	char *text;
	long size = BIO_get_mem_data(a->pem, &text);

	*ret_size = (size_t)size;
	return text;
}

SSL_CTX *authority_context(const struct authority *a)
{
	return a->server;
}

/* The leaf of this host, or else the place of the one unused for longest. */
static struct leaf *find_leaf(struct authority *a, const char *host)
{
	struct leaf *oldest = &a->leaves[0];

	for (size_t i = 0; i < LEAVES_MAX; i++) {
		struct leaf *l = &a->leaves[i];

		if (strcmp(l->host, host) == 0)
			return l;
		if (l->used < oldest->used)
			oldest = l;
	}
	return oldest;
}

int authority_use(struct authority *a, SSL *ssl, const char *host, struct err *e)
{
	struct leaf *l = find_leaf(a, host);

	if (!l->certificate || strcmp(l->host, host) != 0) {
		X509 *x = make_leaf(a, host);

		if (!x)
			return openssl_error(e, "make a certificate for %s", host);
		X509_free(l->certificate);
		l->certificate = x;
		snprintf(l->host, sizeof l->host, "%s", host);
	}
	l->used = ++a->uses;
	if (!SSL_use_certificate(ssl, l->certificate) || !SSL_use_PrivateKey(ssl, a->leaf_key))
		return openssl_error(e, "use the certificate for %s", host);
	return 0;
}
