/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pools.c - a child's first objects lie together, not in the holes that the imports have left.
 *
 * The interpreter's allocator gives out blocks of one size, a multiple of 16 up to 512 bytes, from a pool of
 * that size, and prefers pools that are partly used. After the imports those are spread over all of its memory:
 * a child that made a few hundred objects copied 80 pages for it. So the zygote takes every block that is free
 * in them and keeps it; a child then begins pools of its own (35), and what it frees goes back to those.
 *
 * By Objects/obmalloc.c of CPython 3.8 to 3.14. Where another allocator is in use (PYTHONMALLOC, builds without
 * a GIL) it keeps up to 4 MiB for nothing.
 */
#include <stdint.h>
#include <string.h>

#include "zygote/interp.h"
#include "zygote/zygote.h"

enum {
	STEP = 16,
	LARGEST = 512,
	HEADER = 48,  /* of a pool: the first block comes behind it */
	POOL = 16384, /* aligned to its size; before 3.10: */
	OLD_POOL = 4096,
	KEEP_BYTES_MAX = 128 << 10 /* of one size; Debian's 3.11 has less than 17 KiB */
};

/* The first block of a pool, whose header begins with how many of its blocks are in use: this one. */
static bool begins_a_pool(const unsigned char *block, uintptr_t pool)
{
	unsigned used;

	if ((uintptr_t)block % pool != HEADER)
		return false;
	memcpy(&used, block - HEADER,
	       sizeof used); /* in the block's page, whoever has allocated it */
	return used == 1;
}

void pools_fill(void)
{
	uintptr_t pool = interp_minor() >= 10 ? POOL : OLD_POOL;

	for (size_t size = STEP; size <= LARGEST; size += STEP)
		for (size_t kept = 0; kept < KEEP_BYTES_MAX; kept += size) {
			unsigned char *block = PyObject_Malloc(size);

			if (!block)
				break;
			if (begins_a_pool(block, pool)) {
				PyObject_Free(block);
				break;
			}
		}
}
