/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sha256.c - SHA-256 by OpenSSL, fetched once: looking an algorithm up costs several times what hashing a
 * short text does. One context for the process, whose store lives in one thread. Once prepared nothing
 * here allocates, so that a failure is a broken library; then there is no answer, not a wrong one.
 */
#include "store/database.h"

#include <openssl/evp.h>

#include "base/hex.h"

static EVP_MD *algorithm;
static EVP_MD_CTX *context;

int sha256_prepare(struct err *e)
{
	if (!algorithm)
		algorithm = EVP_MD_fetch(NULL, "SHA256", NULL);
	if (!context)
		context = EVP_MD_CTX_new();
	if (!algorithm || !context || EVP_DigestInit_ex2(context, algorithm, NULL) != 1)
		return err_set(e, 0, "SHA-256: OpenSSL cannot provide it");
	return 0;
}

void sha256_begin(void)
{
	if (EVP_DigestInit_ex2(context, NULL, NULL) != 1)
		abort();
}

void sha256_add(const void *data, size_t size)
{
	if (EVP_DigestUpdate(context, data, size) != 1)
		abort();
}

void sha256_end(unsigned char ret[static HASH_BYTES])
{
	if (EVP_DigestFinal_ex(context, ret, NULL) != 1)
		abort();
}

void sha256_hex(const void *data, size_t size, char ret[65])
{
	unsigned char hash[HASH_BYTES];
	struct err e;

	if (!context && sha256_prepare(&e) < 0)
		abort();
	sha256_begin();
	sha256_add(data, size);
	sha256_end(hash);
	hex_encode(hash, sizeof hash, ret);
}
