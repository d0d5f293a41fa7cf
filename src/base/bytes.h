/* SPDX-License-Identifier: Apache-2.0 */
/* bytes.h - bytes that wait for a reader: added at the end, dropped from the start. Empty it holds no memory. */
#ifndef BASE_BYTES_H
#define BASE_BYTES_H

#include <stdbool.h>
#include <stddef.h>

#include "base/cleanup.h"

/* From data + start on; begins as zeros. The owner has the limit. */
struct bytes {
	char *data;
	size_t start, size, room;
	bool secret; /* no memory of it is given back unwiped; stays so */
};

/* Copies data. False at ENOMEM, and nothing has changed. */
bool bytes_add(struct bytes *b, const void *data, size_t size) must_check;
void bytes_drop(struct bytes *b, size_t size);
void bytes_done(struct bytes *b);

#endif
