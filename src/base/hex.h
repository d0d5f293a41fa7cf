/* SPDX-License-Identifier: Apache-2.0 */
/* hex.h - bytes as lowercase hexadecimal digits. */
#ifndef BASE_HEX_H
#define BASE_HEX_H

#include <stddef.h>

/* ret has room for 2 * size + 1. */
static inline void hex_encode(const unsigned char *data, size_t size, char *ret)
{
	static const char digits[] = "0123456789abcdef";

	for (size_t i = 0; i < size; i++) {
		*ret++ = digits[data[i] >> 4];
		*ret++ = digits[data[i] & 15];
	}
	*ret = '\0';
}

#endif
