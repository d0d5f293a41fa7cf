/* SPDX-License-Identifier: Apache-2.0 */
/* tar_unit.h - archives made by hand, block by block, right or wrong. */
#ifndef TESTS_TAR_UNIT_H
#define TESTS_TAR_UNIT_H

#include "unit.h"

#include "tar/tar.h"

struct archive {
	char data[64 << 10];
	size_t size;
};

static inline void set_sum(char *b)
{
	unsigned sum = 0;

	memset(b + 148, ' ', 8);
	for (int i = 0; i < TAR_BLOCK; i++)
		sum += (unsigned char)b[i];
	snprintf(b + 148, 8, "%06o", sum);
}

static inline char *add_header(struct archive *a, char type, const char *name, const char *target,
			       size_t size, unsigned mode)
{
	char *b = a->data + a->size;

	assert_true(a->size + TAR_BLOCK <= sizeof a->data);
	memset(b, 0, TAR_BLOCK);
	memcpy(b, name, strnlen(name, 100));
	snprintf(b + 100, 8, "%07o", mode & 07777);
	snprintf(b + 124, 12, "%011o", (unsigned)size);
	b[156] = type;
	memcpy(b + 157, target, strnlen(target, 100));
	memcpy(b + 257, "ustar\00000", 8);
	set_sum(b);
	a->size += TAR_BLOCK;
	return b;
}

static inline void add_bytes(struct archive *a, const void *data, size_t size)
{
	size_t room = (size + TAR_BLOCK - 1) / TAR_BLOCK * TAR_BLOCK;

	assert_true(a->size + room <= sizeof a->data);
	memset(a->data + a->size, 0, room);
	memcpy(a->data + a->size, data, size);
	a->size += room;
}

static inline void add_file(struct archive *a, const char *name, const char *text)
{
	add_header(a, '0', name, "", strlen(text), 0644);
	add_bytes(a, text, strlen(text));
}

static inline void add_end(struct archive *a)
{
	memset(a->data + a->size, 0, 2 * TAR_BLOCK);
	a->size += 2 * TAR_BLOCK;
}

static inline void add_pax(struct archive *a, const char *records, size_t size)
{
	add_header(a, 'x', "pax", "", size, 0644);
	add_bytes(a, records, size);
}

#endif
