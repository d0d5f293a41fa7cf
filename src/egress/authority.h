/* SPDX-License-Identifier: Apache-2.0 */
/* authority.h - what tls.c needs of a sandbox's certificate authority (stream.h). */
#ifndef EGRESS_AUTHORITY_H
#define EGRESS_AUTHORITY_H

#include "egress/stream.h"

/* Gives ssl the certificate for exactly host, and its key. */
int authority_use(struct authority *a, SSL *ssl, const char *host, struct err *e) must_check;
/* The context of all its servers; the authority's. */
SSL_CTX *authority_context(const struct authority *a);

/* e: what was attempted, and what OpenSSL says was the first cause. Empties OpenSSL's list of errors. Returns -1. */
int openssl_error(struct err *e, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
