/* SPDX-License-Identifier: Apache-2.0 */
/*
 * names.h - addresses of 198.18.0.0/15 (RFC 2544, never on the Internet) that stand for names, one each.
 *
 * The resolver inside answers an allowed name with such an address and no other, so that whoever connects to it is
 * known to want that name, whatever the protocol; what it resolves to is looked up, checked and connected to outside.
 * At most 4,096 at a time; the one unused for longest, with no connection open, makes room. An address is not given to
 * another name for ten minutes after its last use.
 */
#ifndef EGRESS_NAMES_H
#define EGRESS_NAMES_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct names;

struct names *names_new(void);
void names_free(struct names *n);
/* The address for it, now in use. false: there is no room. host is canonical. */
bool names_address(struct names *n, const char *host, uint64_t now_ms, struct in_addr *ret);
/* The name it stands for, or NULL. Valid until the next names_address(). */
const char *names_host(struct names *n, struct in_addr address, uint64_t now_ms);
/* A connection to it has been opened (+1) or closed (-1). */
void names_hold(struct names *n, struct in_addr address, int change);

#endif
