/* SPDX-License-Identifier: Apache-2.0 */
/* base64.h - RFC 4648, standard alphabet, with padding: one text per value, also when it is read. */
#ifndef BASE_BASE64_H
#define BASE_BASE64_H

#include <stddef.h>

#include "base/cleanup.h"

/* NUL-terminated; the caller frees. NULL when memory is short. */
char *base64_encode(const void *data, size_t size, size_t *ret_size) must_check;

/* No blanks, no missing padding, no stray bits. NUL-terminated; the caller frees *ret_data. 0, -EINVAL, -ENOMEM. */
int base64_decode(const char *text, size_t size, char **ret_data, size_t *ret_size) must_check;

#endif
