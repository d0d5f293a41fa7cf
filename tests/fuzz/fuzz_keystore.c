/* SPDX-License-Identifier: Apache-2.0 */
/* An image's bundle of certificates: the store is whole whatever the text is, and each certificate is one of the text's. */
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "native/isolate/keystore.h"

static uint32_t number(const unsigned char *p)
{
	return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	unsigned char *store;
	size_t n, at = 12;
	char *text = malloc(size + 1); /* no byte behind it may be read */

	CHECK(text);
	memcpy(text, data, size);
	CHECK(keystore_make(text, size, &store, &n) == 0);
	free(text);
	CHECK(n >= 32 && n <= size + 32 && number(store) == 0xfeedfeed && number(store + 4) == 2);
	for (uint32_t i = 0; i < number(store + 8); i++) {
		size_t name, length;

		CHECK(at + 6 < n && number(store + at) == 2);
		name = (size_t)store[at + 4] << 8 | store[at + 5];
		at += 6 + name + 8;
		CHECK(at + 11 < n && memcmp(store + at, "\0\5X.509", 7) == 0);
		length = number(store + at + 7);
		at += 11;
		CHECK(length >= 4 && at + length <= n && store[at] == 0x30);
		at += length;
	}
	CHECK(at + 20 == n);
	free(store);
	return 0;
}
