/* SPDX-License-Identifier: Apache-2.0 */
/*
 * roots.h - the system's trusted certificates, read as text at once and parsed one by one when a chain asks for them.
 *
 * OpenSSL's own way takes 30 to 60 ms and 8 MB for the 144 certificates of Debian, in every process.
 */
#ifndef EGRESS_ROOTS_H
#define EGRESS_ROOTS_H

#include <openssl/x509_vfy.h>

#include "base/err.h"

struct roots;

/* Reads the system's file. NULL with e where there is none. */
struct roots *roots_new(struct err *e);
/* The same with a text: what roots_new() does once it has read it. It is copied. */
struct roots *roots_new_text(const char *pem, size_t size, struct err *e);
/* Let store find its issuers here. roots has to outlive it. */
int roots_add_to(struct roots *r, X509_STORE *store) must_check;
void roots_free(struct roots *r);

#endif
