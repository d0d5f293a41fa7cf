/* SPDX-License-Identifier: Apache-2.0 */
/* keystore.h - certificates as a store that Java reads. */
#ifndef NATIVE_ISOLATE_KEYSTORE_H
#define NATIVE_ISOLATE_KEYSTORE_H

#include <stddef.h>

/* Every certificate of a text in PEM (RFC 7468), in its order, as a store of the kind JKS with Java's usual password
 * (changeit). What is no certificate is left out. The caller frees *ret. 0 or -ENOMEM. */
int keystore_make(const char *pem, size_t size, unsigned char **ret, size_t *ret_size);

#endif
