/* SPDX-License-Identifier: Apache-2.0 */
#include "base/bytes.h"

#include <string.h>

bool bytes_add(struct bytes *b, const void *data, size_t size)
{
	if (b->start && b->start + b->size + size > b->room) {
		memmove(b->data, b->data + b->start, b->size);
		b->start = 0;
	}
	if (b->size + size > b->room) {
		size_t room = b->room ? b->room : 1024;
		char *bigger;

		while (room < b->size + size)
			room *= 2;
		bigger = realloc(b->data, room);
		if (!bigger)
			return false;
		b->data = bigger;
		b->room = room;
	}
	memcpy(b->data + b->start + b->size, data, size);
	b->size += size;
	return true;
}

void bytes_done(struct bytes *b)
{
	free(b->data);
	*b = (struct bytes){0};
}

void bytes_drop(struct bytes *b, size_t size)
{
	b->start += size;
	b->size -= size;
	if (b->size == 0)
		bytes_done(b);
}
