/* SPDX-License-Identifier: Apache-2.0 */
/*
 * keep.h - what is kept of one output stream: its first or its last bytes, and the count of all.
 *
 * Memory grows with what is written, up to the cap. Offsets are absolute: the first byte ever written
 * has offset 0.
 */
#ifndef INIT_KEEP_H
#define INIT_KEEP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define KEEP_MAX (8u << 20)

struct keep {
	unsigned char *data;
	size_t room, cap;
	bool head;      /* the first bytes; else the last */
	uint64_t bytes; /* written in all */
	uint64_t first; /* offset of the first byte kept */
	uint64_t end;   /* and behind the last one */
};

void keep_init(struct keep *k, bool head, uint64_t cap);
void keep_append(struct keep *k, const unsigned char *data, size_t size);

/* Copy from offset (>= first) what is there, at most size bytes. */
size_t keep_copy(const struct keep *k, uint64_t offset, unsigned char *to, size_t size);
void keep_done(struct keep *k);

#endif
