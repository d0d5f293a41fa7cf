/* SPDX-License-Identifier: Apache-2.0 */
#include "init/keep.h"

#include <stdlib.h>
#include <string.h>

void keep_init(struct keep *k, bool head, uint64_t cap)
{
	*k = (struct keep){.head = head, .cap = cap > KEEP_MAX ? KEEP_MAX : (size_t)cap};
}

void keep_done(struct keep *k)
{
	free(k->data);
	k->data = NULL;
	k->room = 0;
}

/* Byte n lies at n modulo room. While the block can still grow, nothing has been overwritten, so growing
 * moves nothing. Without memory what is there is the cap. */
static void make_room(struct keep *k, size_t more)
{
	size_t wanted = (size_t)(k->end - k->first) + more, room = k->room ? k->room : 1024;
	unsigned char *data;

	while (room < wanted && room < k->cap)
		room *= 2;
	if (room > k->cap)
		room = k->cap;
	if (room <= k->room)
		return;
	data = realloc(k->data, room);
	if (!data) {
		k->cap = k->room;
		return;
	}
	k->data = data;
	k->room = room;
}

void keep_append(struct keep *k, const unsigned char *data, size_t size)
{
	uint64_t kept = k->end - k->first;

	k->bytes += size;
	if (k->head && size > k->cap - kept)
		size = k->cap - (size_t)kept;
	if (k->room < k->cap && k->room < kept + size)
		make_room(k, size);
	if (k->head && size > k->room - kept)
		size = k->room - (size_t)kept;
	if (!k->head && size > k->room) { /* only its end can stay */
		k->end += size - k->room;
		data += size - k->room;
		size = k->room;
	}
	while (size > 0) {
		size_t at = (size_t)(k->end % k->room), n = k->room - at;

		n = n < size ? n : size;
		memcpy(k->data + at, data, n);
		k->end += n;
		data += n;
		size -= n;
	}
	if (k->end - k->first > k->room)
		k->first = k->end - k->room;
}

size_t keep_copy(const struct keep *k, uint64_t offset, unsigned char *to, size_t size)
{
	size_t done = 0;

	if (offset >= k->end)
		return 0;
	if (size > k->end - offset)
		size = (size_t)(k->end - offset);
	while (done < size) {
		size_t at = (size_t)((offset + done) % k->room), n = k->room - at;

		n = n < size - done ? n : size - done;
		memcpy(to + done, k->data + at, n);
		done += n;
	}
	return size;
}
