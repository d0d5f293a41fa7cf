/* SPDX-License-Identifier: Apache-2.0 */
#include "base/bytes.h"

#include <string.h>

static void wipe(struct bytes *b)
{
	if (b->secret && b->data)
		explicit_bzero(b->data, b->room);
}

/* realloc() would leave a copy behind. */
static bool grow(struct bytes *b, size_t room)
{
	char *bigger = b->secret ? malloc(room) : realloc(b->data, room);

	if (!bigger)
		return false;
	if (b->secret && b->data) {
		memcpy(bigger, b->data, b->start + b->size);
		wipe(b);
		free(b->data);
	}
	b->data = bigger;
	b->room = room;
	return true;
}

bool bytes_add(struct bytes *b, const void *data, size_t size)
{
	if (b->start && b->start + b->size + size > b->room) {
		memmove(b->data, b->data + b->start, b->size);
		b->start = 0;
	}
	if (b->size + size > b->room) {
		size_t room = b->room ? b->room : 1024;

		while (room < b->size + size)
			room *= 2;
		if (!grow(b, room))
			return false;
	}
	memcpy(b->data + b->start + b->size, data, size);
	b->size += size;
	return true;
}

void bytes_done(struct bytes *b)
{
	wipe(b);
	free(b->data);
	*b = (struct bytes){.secret = b->secret};
}

void bytes_drop(struct bytes *b, size_t size)
{
	b->start += size;
	b->size -= size;
	if (b->size == 0)
		bytes_done(b);
}
