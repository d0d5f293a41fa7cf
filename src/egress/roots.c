/* SPDX-License-Identifier: Apache-2.0 */
/*
 * roots.c - a lookup for OpenSSL's store: certificates by subject, out of one PEM text.
 *
 * The first question has the text decoded and the subjects taken out, by the outer shape of a certificate only (RFC 5280
 * §4.1). What matches is parsed by OpenSSL, put into its store, and found there from then on. A block that cannot be
 * decoded is passed over: then less is trusted.
 */
#include "egress/roots.h"

#include <fcntl.h>
#include <openssl/asn1.h>
#include <openssl/err.h>
#include <openssl/x509.h>
#include <string.h>

#include "base/base64.h"
#include "base/fd.h"

enum { BUNDLE_MAX = 8 << 20, ROOTS_MAX = 2048, ROOT_MAX = 64 << 10 };

/* Where distributions have all of them in one file: Debian and its kin, Fedora, SUSE, Alpine. */
static const char *const bundles[] = {
	"/etc/ssl/certs/ca-certificates.crt",
	"/etc/pki/tls/certs/ca-bundle.crt",
	"/etc/ssl/ca-bundle.pem",
	"/etc/ssl/cert.pem",
};

struct root {
	char *der;
	size_t size;
	X509_NAME *subject;
};

struct roots {
	X509_LOOKUP_METHOD *method;
	char *pem; /* NULL once decoded */
	struct root *item;
	size_t count;
};

/* The base64 of one block without line ends, decoded. */
static int decode_block(const char *text, size_t size, struct root *ret)
{
	_cleanup_free_ char *joined = malloc(size + 1);
	size_t used = 0;

	if (!joined || size > ROOT_MAX)
		return -1;
	for (size_t i = 0; i < size; i++)
		if (text[i] != '\n' && text[i] != '\r')
			joined[used++] = text[i];
	return base64_decode(joined, used, &ret->der, &ret->size);
}

/* Go into the next element (of ASN.1) or, into false, past it. */
static bool step(const unsigned char **at, const unsigned char *end, bool into)
{
	long size;
	int tag, class;

	if (*at >= end || ASN1_get_object(at, &size, &tag, &class, end - *at) & 0x80 ||
	    size > end - *at)
		return false;
	if (!into)
		*at += size;
	return true;
}

static X509_NAME *subject_of(const struct root *r)
{
	const unsigned char *at = (const unsigned char *)r->der, *end = at + r->size;
	enum { VERSION = 0xa0, BEFORE = 4 /* serial, algorithm, issuer, validity */ };

	if (!step(&at, end, true) || !step(&at, end, true))
		return NULL;
	if (at < end && *at == VERSION && !step(&at, end, false))
		return NULL;
	for (int i = 0; i < BEFORE; i++)
		if (!step(&at, end, false))
			return NULL;
	return d2i_X509_NAME(NULL, &at, end - at);
}

static void done_root(struct root *r)
{
	free(r->der);
	X509_NAME_free(r->subject);
	*r = (struct root){0};
}

static void decode_all(struct roots *r)
{
	static const char begin[] = "-----BEGIN CERTIFICATE-----",
			  end[] = "-----END CERTIFICATE-----";
	_cleanup_free_ char *pem = TAKE_PTR(r->pem);
	const char *at = pem;

	r->item = calloc(ROOTS_MAX, sizeof *r->item);
	while (r->item && r->count < ROOTS_MAX && (at = strstr(at, begin))) {
		struct root *one = &r->item[r->count];
		const char *stop = strstr(at += sizeof begin - 1, end);

		if (!stop)
			break;
		if (decode_block(at, (size_t)(stop - at), one) == 0 &&
		    (one->subject = subject_of(one)))
			r->count++;
		else
			done_root(one);
		at = stop;
	}
	ERR_clear_error();
}

/* OpenSSL asks for a certificate with this subject that is not in its store yet. */
static int by_subject(X509_LOOKUP *lookup, X509_LOOKUP_TYPE type, const X509_NAME *name,
		      X509_OBJECT *ret)
{
	struct roots *r = X509_LOOKUP_get_method_data(lookup);
	int found = 0;

	if (type != X509_LU_X509)
		return 0;
	if (r->pem)
		decode_all(r);
	for (size_t i = 0; i < r->count; i++) {
		const unsigned char *der = (const unsigned char *)r->item[i].der;
		X509 *x;

		if (X509_NAME_cmp(r->item[i].subject, name) != 0)
			continue;
		x = d2i_X509(NULL, &der, (long)r->item[i].size);
		/* All of them go into the store, which tries each. The caller takes no reference over: the one it
		 * gets is the store's. */
		if (x && X509_STORE_add_cert(X509_LOOKUP_get_store(lookup), x) && !found &&
		    X509_OBJECT_set1_X509(ret, x)) {
			X509_free(x);
			found = 1;
		}
		X509_free(x);
	}
	return found;
}

struct roots *roots_new_text(const char *pem, size_t size, struct err *e)
{
	struct roots *r = calloc(1, sizeof *r);

	if (!r || !(r->pem = strndup(pem, size)) ||
	    !(r->method = X509_LOOKUP_meth_new("the system's certificates")) ||
	    !X509_LOOKUP_meth_set_get_by_subject(r->method, by_subject)) {
		roots_free(r);
		err_set(e, ENOMEM, "read the system's trusted certificates");
		return NULL;
	}
	return r;
}

struct roots *roots_new(struct err *e)
{
	_cleanup_close_ int fd = -1;
	_cleanup_free_ char *text = NULL;
	size_t size, i;
	int r;

	for (i = 0; fd < 0 && i < ARRAY_SIZE(bundles); i++)
		fd = open(bundles[i], O_RDONLY | O_CLOEXEC | O_NOCTTY);
	if (fd < 0) {
		err_set(e, 0,
			"no file of trusted certificates: %s is not there (install ca-certificates)",
			bundles[0]);
		return NULL;
	}
	r = fd_slurp(fd, BUNDLE_MAX, &text, &size);
	if (r < 0) {
		err_set(e, -r, "read %s", bundles[i - 1]);
		return NULL;
	}
	return roots_new_text(text, size, e);
}

int roots_add_to(struct roots *r, X509_STORE *store)
{
	X509_LOOKUP *lookup = X509_STORE_add_lookup(store, r->method);

	if (!lookup)
		return -ENOMEM;
	X509_LOOKUP_set_method_data(lookup, r);
	return 0;
}

void roots_free(struct roots *r)
{
	if (!r)
		return;
	for (size_t i = 0; i < r->count; i++)
		done_root(&r->item[i]);
	free(r->item);
	free(r->pem);
	X509_LOOKUP_meth_free(r->method);
	free(r);
}
