/* SPDX-License-Identifier: Apache-2.0 */
/* wipe.h - memory that may have held a secret is wiped when it is given back: what jansson reads, and what OpenSSL decrypts. */
#ifndef EGRESS_WIPE_H
#define EGRESS_WIPE_H

void wiping_free(void *p);

/* OpenSSL's memory, before its first use: its buffers hold answers as they came, with the secrets that they show. -1: it
 * was used before. */
int wipe_openssl(void);

#endif
