/* SPDX-License-Identifier: Apache-2.0 */
/*
 * address.h - how far inside an address lies. The order is the rule: whoever is at one place may lead us to
 * places that are no further inside, and nobody to the last kind.
 */
#ifndef BASE_ADDRESS_H
#define BASE_ADDRESS_H

#include <netinet/in.h>
#include <stdbool.h>
#include <sys/socket.h>

enum reach {
	REACH_PUBLIC,
	REACH_PRIVATE, /* a company's or a house's network */
	REACH_LOCAL,   /* this machine */
	REACH_NEVER,   /* link-local (cloud metadata), multicast, unspecified, reserved */
};

/* Of an IPv4 or IPv6 address; one that carries another (mapped, NAT64, 6to4) is judged by that, Teredo never reached. */
enum reach reach_of(const struct sockaddr *address);

/* Of a host as it stands in a URL, without brackets: literal addresses and localhost. Other names: public. */
enum reach reach_of_host(const char *host);

/* Does this IPv6 address stand for an IPv4 one (mapped, compatible, NAT64, 6to4, Teredo)? ret may be NULL. */
bool address_carries(const struct sockaddr *address, struct in_addr *ret);

/* "a public address", for errors. */
const char *reach_name(enum reach reach);

#endif
