/* SPDX-License-Identifier: Apache-2.0 */
/*
 * keystore.c - the kind JKS, which every Java reads whatever the name of the file says (JDK 8 and later:
 * keystore.type.compat): numbers are big-endian, texts have 16 bits of length.
 *
 *	0xFEEDFEED, 2, how many
 *	each: 2 (a trusted certificate), its name, when it came (ms, 64 bits), "X.509", its size, itself
 *	SHA-1 of the password in UTF-16, "Mighty Aphrodite", and all before
 *
 * (sun.security.provider.JavaKeyStore of OpenJDK.) The digest protects nothing: everybody knows the password. Programs
 * that give it are told that the store was tampered with when it is wrong.
 */
#include "native/isolate/keystore.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base64.h"

#define BEGIN    "-----BEGIN CERTIFICATE-----"
#define END      "-----END CERTIFICATE-----"
#define PASSWORD "\0c\0h\0a\0n\0g\0e\0i\0t"
#define WHITENER "Mighty Aphrodite"

enum { MAGIC_VALUE = (int)0xfeedfeed, VERSION = 2, TRUSTED = 2, HEAD = 12, DIGEST = 20 };

/* ---- SHA-1 (FIPS 180-4), of one piece after the other ---- */

struct sha1 {
	uint32_t h[5];
	uint64_t bytes;
	unsigned char block[64];
};

static uint32_t rotate(uint32_t x, int n)
{
	return x << n | x >> (32 - n);
}

static void sha1_block(struct sha1 *s)
{
	uint32_t w[80], a = s->h[0], b = s->h[1], c = s->h[2], d = s->h[3], e = s->h[4];

	for (int i = 0; i < 16; i++)
		w[i] = (uint32_t)s->block[4 * i] << 24 | (uint32_t)s->block[4 * i + 1] << 16 |
		       (uint32_t)s->block[4 * i + 2] << 8 | s->block[4 * i + 3];
	for (int i = 16; i < 80; i++)
		w[i] = rotate(w[i - 3] ^ w[i - 8] ^ w[i - 14] ^ w[i - 16], 1);
	for (int i = 0; i < 80; i++) {
		uint32_t f = i < 20   ? (b & c) | (~b & d)
			     : i < 40 ? b ^ c ^ d
			     : i < 60 ? (b & c) | (b & d) | (c & d)
				      : b ^ c ^ d;
		static const uint32_t k[] = {0x5a827999, 0x6ed9eba1, 0x8f1bbcdc, 0xca62c1d6};
		uint32_t next = rotate(a, 5) + f + e + k[i / 20] + w[i];

		e = d;
		d = c;
		c = rotate(b, 30);
		b = a;
		a = next;
	}
	s->h[0] += a;
	s->h[1] += b;
	s->h[2] += c;
	s->h[3] += d;
	s->h[4] += e;
}

static void sha1_add(struct sha1 *s, const void *data, size_t size)
{
	const unsigned char *p = data, *end = p + size;

	while (p < end) {
		size_t at = s->bytes % 64,
		       n = (size_t)(end - p) < 64 - at ? (size_t)(end - p) : 64 - at;

		memcpy(s->block + at, p, n);
		p += n;
		s->bytes += n;
		if (at + n == 64)
			sha1_block(s);
	}
}

static void sha1_end(struct sha1 *s, unsigned char ret[static DIGEST])
{
	uint64_t bits = s->bytes * 8;
	unsigned char length[8];

	for (int i = 0; i < 8; i++)
		length[i] = (unsigned char)(bits >> (56 - 8 * i));
	sha1_add(s, "\x80", 1);
	while (s->bytes % 64 != 56)
		sha1_add(s, "", 1);
	sha1_add(s, length, sizeof length);
	for (int i = 0; i < DIGEST; i++)
		ret[i] = (unsigned char)(s->h[i / 4] >> (24 - 8 * (i % 4)));
}

/* ---- the store ---- */

static unsigned char *put_number(unsigned char *to, uint64_t value, int bytes)
{
	for (int i = bytes - 1; i >= 0; i--)
		*to++ = (unsigned char)(value >> (8 * i));
	return to;
}

static unsigned char *put_text(unsigned char *to, const char *text)
{
	size_t n = strlen(text);

	to = put_number(to, n, 2);
	memcpy(to, text, n);
	return to + n;
}

/* One SEQUENCE that is all there is, and begins with another: Java takes none of the store where one certificate is cut. */
static bool is_der(const unsigned char *der, size_t size)
{
	size_t length = 0, head;

	if (size < 4 || der[0] != 0x30 || der[1] == 0x80)
		return false;
	head = der[1] < 0x80 ? 2 : 2 + (der[1] & 0x7fu);
	if (head > 5 || head >= size || der[head] != 0x30)
		return false;
	if (head == 2)
		length = der[1];
	for (size_t i = 2; i < head; i++)
		length = length << 8 | der[i];
	return length == size - head;
}

/* The bytes between the two lines; NULL: they are none, or there is no memory. */
static char *decode(const char *text, size_t size, size_t *ret_size)
{
	char *plain = malloc(size + 1), *der = NULL;
	size_t n = 0;

	for (size_t i = 0; plain && i < size; i++)
		if (!strchr(" \t\r\n", text[i]) || !text[i])
			plain[n++] = text[i];
	if (plain && base64_decode(plain, n, &der, ret_size) < 0)
		der = NULL;
	free(plain);
	if (der && !is_der((const unsigned char *)der, *ret_size)) {
		free(der);
		return NULL;
	}
	return der;
}

static unsigned char *put_certificate(unsigned char *to, uint32_t number, const char *der,
				      size_t size)
{
	char name[24];

	snprintf(name, sizeof name, "cloche-%u", (unsigned)number);
	to = put_number(to, TRUSTED, 4);
	to = put_text(to, name);
	to = put_number(to, 0, 8);
	to = put_text(to, "X.509");
	to = put_number(to, size, 4);
	memcpy(to, der, size);
	return to + size;
}

static unsigned char *put_digest(const unsigned char *data, unsigned char *to)
{
	struct sha1 s = {.h = {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476, 0xc3d2e1f0}};

	sha1_add(&s, PASSWORD, sizeof PASSWORD - 1);
	sha1_add(&s, WHITENER, sizeof WHITENER - 1);
	sha1_add(&s, data, (size_t)(to - data));
	sha1_end(&s, to);
	return to + DIGEST;
}

int keystore_make(const char *pem, size_t size, unsigned char **ret, size_t *ret_size)
{
	/* A certificate is shorter here than with its two lines: at most 42 bytes and itself, against 47 (whose dashes may be
	 * those of the next) and four thirds of it. */
	unsigned char *data = malloc(HEAD + size + DIGEST), *to = data ? data + HEAD : NULL;
	const char *at = pem, *end = pem + size, *from;
	uint32_t count = 0;

	if (!data)
		return -ENOMEM;
	while ((from = memmem(at, (size_t)(end - at), BEGIN, sizeof BEGIN - 1))) {
		size_t n;
		char *der;

		from += sizeof BEGIN - 1;
		at = memmem(from, (size_t)(end - from), END, sizeof END - 1);
		if (!at)
			break;
		der = decode(from, (size_t)(at - from), &n);
		if (der)
			to = put_certificate(to, count++, der, n);
		free(der);
	}
	put_number(put_number(put_number(data, (uint32_t)MAGIC_VALUE, 4), VERSION, 4), count, 4);
	*ret_size = (size_t)(put_digest(data, to) - data);
	*ret = data;
	return 0;
}
