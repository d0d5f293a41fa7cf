/* SPDX-License-Identifier: Apache-2.0 */
/*
 * secret.c - what lets somebody in: a prefix that says what it is for, and 256 random bits, so that its plain SHA-256 is
 * enough: there is nothing to guess from. It is seen once, when it is made; what lies in the database lets nobody in.
 */
#include "store/database.h"

#include <openssl/crypto.h>
#include <string.h>
#include <sys/random.h>

enum { SECRET_BYTES = 32, SECRET_CHARS = 43, PREFIX_CHARS = 4 };

static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

int random_bytes(void *data, size_t size, struct err *e)
{
	ssize_t n;

	do
		n = getrandom(data, size, 0); /* up to 256 bytes come whole */
	while (n < 0 && errno == EINTR);
	return n == (ssize_t)size ? 0 : err_set(e, n < 0 ? errno : EIO, "read random bytes");
}

/* base64url without padding */
static void encode(const unsigned char *data, size_t size, char *ret)
{
	unsigned bits = 0, count = 0;

	for (size_t i = 0; i < size; i++) {
		bits = bits << 8 | data[i];
		for (count += 8; count >= 6; count -= 6)
			*ret++ = alphabet[bits >> (count - 6) & 63];
	}
	if (count > 0)
		*ret++ = alphabet[bits << (6 - count) & 63];
	*ret = '\0';
}

int secret_make(const char *prefix, char ret[static SECRET_SIZE], struct err *e)
{
	unsigned char random[SECRET_BYTES];

	if (random_bytes(random, sizeof random, e) < 0)
		return -1;
	memcpy(ret, prefix, PREFIX_CHARS);
	encode(random, SECRET_BYTES, ret + PREFIX_CHARS);
	OPENSSL_cleanse(random, sizeof random);
	return 0;
}

bool secret_may_be(const char *prefix, const char *text)
{
	return strncmp(text, prefix, PREFIX_CHARS) == 0 &&
	       strspn(text + PREFIX_CHARS, alphabet) == SECRET_CHARS &&
	       !text[PREFIX_CHARS + SECRET_CHARS];
}

void secret_hash(const char *secret, unsigned char ret[static HASH_BYTES])
{
	sha256_begin();
	sha256_add(secret, strlen(secret));
	sha256_end(ret);
}
