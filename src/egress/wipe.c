/* SPDX-License-Identifier: Apache-2.0 */
#include "egress/wipe.h"

#include <malloc.h>
#include <openssl/crypto.h>
#include <stdlib.h>
#include <string.h>

void wiping_free(void *p)
{
	if (p)
		explicit_bzero(p, malloc_usable_size(p));
	free(p);
}

static void *allocate(size_t size, const char *file, int line)
{
	(void)file;
	(void)line;
	return malloc(size);
}

static void release(void *p, const char *file, int line)
{
	(void)file;
	(void)line;
	wiping_free(p);
}

/* realloc() would leave a copy behind. */
static void *resize(void *p, size_t size, const char *file, int line)
{
	size_t had = p ? malloc_usable_size(p) : 0;
	void *other;

	(void)file;
	(void)line;
	if (size == 0) {
		wiping_free(p);
		return NULL;
	}
	if (had >= size)
		return p;
	other = malloc(size);
	if (other && p) {
		memcpy(other, p, had);
		wiping_free(p);
	}
	return other;
}

int wipe_openssl(void)
{
	return CRYPTO_set_mem_functions(allocate, resize, release) == 1 ? 0 : -1;
}
