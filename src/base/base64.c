/* SPDX-License-Identifier: Apache-2.0 */
#include "base/base64.h"

#include <errno.h>
#include <stdlib.h>

char *base64_encode(const void *data, size_t size, size_t *ret_size)
{
	static const char digits[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	const unsigned char *p = data;
	char *text = malloc((size + 2) / 3 * 4 + 1), *t = text;

	if (!text)
		return NULL;
	for (size_t i = 0; i < size; i += 3) {
		size_t left = size - i;
		unsigned v = (unsigned)p[i] << 16 | (left > 1 ? (unsigned)p[i + 1] << 8 : 0) |
			     (left > 2 ? p[i + 2] : 0u);

		*t++ = digits[v >> 18];
		*t++ = digits[v >> 12 & 63];
		*t++ = left > 1 ? digits[v >> 6 & 63] : '=';
		*t++ = left > 2 ? digits[v & 63] : '=';
	}
	*t = '\0';
	*ret_size = (size_t)(t - text);
	return text;
}

static int sextet(char c)
{
	if (c >= 'A' && c <= 'Z')
		return c - 'A';
	if (c >= 'a' && c <= 'z')
		return c - 'a' + 26;
	if (c >= '0' && c <= '9')
		return c - '0' + 52;
	return c == '+' ? 62 : c == '/' ? 63 : -1;
}

/* The padding of the last group: 0 to 2; what it leaves unused must be zero. */
static int padding(const char *group)
{
	if (group[3] != '=')
		return 0;
	if (group[2] != '=')
		return sextet(group[2]) >= 0 && !(sextet(group[2]) & 3) ? 1 : -1;
	return sextet(group[1]) >= 0 && !(sextet(group[1]) & 15) ? 2 : -1;
}

int base64_decode(const char *text, size_t size, char **ret_data, size_t *ret_size)
{
	int pad = size ? (size % 4 ? -1 : padding(text + size - 4)) : 0;
	_cleanup_free_ char *data = NULL;
	size_t n = 0, used;

	if (pad < 0)
		return -EINVAL;
	used = size - (size_t)pad;
	data = malloc(size / 4 * 3 + 1);
	if (!data)
		return -ENOMEM;
	for (size_t i = 0, bits = 0, have = 0; i < used; i++) {
		int v = sextet(text[i]);

		if (v < 0)
			return -EINVAL;
		bits = (bits << 6 | (size_t)v) & 0xffff;
		have += 6;
		if (have >= 8) {
			have -= 8;
			data[n++] = (char)(bits >> have);
		}
	}
	data[n] = '\0';
	*ret_data = TAKE_PTR(data);
	*ret_size = n;
	return 0;
}
