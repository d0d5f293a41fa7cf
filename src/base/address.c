/* SPDX-License-Identifier: Apache-2.0 */
/*
 * address.c - the special-purpose address registries of IANA (RFC 6890 and its updates) as two tables. The first
 * row that fits counts, so narrower rows stand before wider ones.
 */
#include "base/address.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <strings.h>

#include "base/cleanup.h"

static const struct {
	uint32_t net;
	unsigned bits;
	enum reach reach;
} v4[] = {
	{0x00000000, 8, REACH_NEVER},    /* 0.0.0.0/8: "this network" is this machine on Linux */
	{0x0a000000, 8, REACH_PRIVATE},  /* 10.0.0.0/8 */
	{0x646464c8, 32, REACH_NEVER},   /* 100.100.100.200: a cloud's metadata */
	{0x64400000, 10, REACH_PRIVATE}, /* 100.64.0.0/10: carrier NAT */
	{0xa83f8110, 32, REACH_NEVER}, /* 168.63.129.16: a cloud's metadata, at a public address */
	{0x7f000000, 8, REACH_LOCAL},  /* 127.0.0.0/8 */
	{0xa9fe0000, 16, REACH_NEVER}, /* 169.254.0.0/16 */
	{0xac100000, 12, REACH_PRIVATE}, /* 172.16.0.0/12 */
	{0xc0000000, 24, REACH_NEVER},   /* 192.0.0.0/24: protocol assignments */
	{0xc0000200, 24, REACH_NEVER},   /* 192.0.2.0/24: documentation */
	{0xc0586300, 24, REACH_NEVER},   /* 192.88.99.0/24: old 6to4 relays */
	{0xc0a80000, 16, REACH_PRIVATE}, /* 192.168.0.0/16 */
	{0xc6120000, 15, REACH_PRIVATE}, /* 198.18.0.0/15: test networks */
	{0xc6336400, 24, REACH_NEVER},   /* 198.51.100.0/24: documentation */
	{0xcb007100, 24, REACH_NEVER},   /* 203.0.113.0/24: documentation */
	{0xe0000000, 3, REACH_NEVER},    /* 224.0.0.0/3: multicast, reserved, broadcast */
};

/* carries: offset of an IPv4 address within, 0: none. JUDGED: it decides; INVERTED: its bits are. */
enum { PLAIN, JUDGED, INVERTED };
static const struct v6_row {
	uint8_t net[16];
	unsigned bits, carries, how;
	enum reach reach;
} v6[] = {
	{{0}, 128, 0, PLAIN, REACH_NEVER},                         /* :: */
	{{[15] = 1}, 128, 0, PLAIN, REACH_LOCAL},                  /* ::1 */
	{{[10] = 0xff, [11] = 0xff}, 96, 12, JUDGED, REACH_NEVER}, /* ::ffff:0:0/96 */
	{{[8] = 0xff, [9] = 0xff}, 96, 12, JUDGED, REACH_NEVER},   /* ::ffff:0:0:0/96: SIIT */
	{{0}, 96, 12, JUDGED, REACH_NEVER},                        /* ::a.b.c.d */
	{{0x00, 0x64, 0xff, 0x9b}, 96, 12, JUDGED, REACH_NEVER},   /* NAT64 */
	{{0x00, 0x64, 0xff, 0x9b, 0x00, 0x01}, 48, 0, PLAIN, REACH_PRIVATE}, /* local NAT64 */
	{{0x20, 0x01, 0x0d, 0xb8}, 32, 0, PLAIN, REACH_NEVER},               /* documentation */
	{{0x20, 0x01, 0x00, 0x00},
	 32,
	 12,
	 INVERTED,
	 REACH_NEVER},                              /* Teredo: a client's address, inverted */
	{{0x20, 0x01}, 23, 0, PLAIN, REACH_NEVER},  /* ORCHID, protocol assignments */
	{{0x20, 0x02}, 16, 2, JUDGED, REACH_NEVER}, /* 6to4 */
	{{0x3f, 0xff}, 20, 0, PLAIN, REACH_NEVER},  /* documentation */
	{{0x20}, 3, 0, PLAIN, REACH_PUBLIC},        /* global unicast */
	{{0xfd, 0x00, 0x0e, 0xc2},
	 32,
	 0,
	 PLAIN,
	 REACH_NEVER},                               /* fd00:ec2::/32: a cloud's metadata */
	{{0xfc}, 7, 0, PLAIN, REACH_PRIVATE},        /* unique local */
	{{0xfe, 0xc0}, 10, 0, PLAIN, REACH_PRIVATE}, /* old site-local */
};

static enum reach reach_of_v4(uint32_t address)
{
	for (size_t i = 0; i < ARRAY_SIZE(v4); i++)
		if ((address ^ v4[i].net) >> (32 - v4[i].bits) == 0)
			return v4[i].reach;
	return REACH_PUBLIC;
}

static bool begins_with(const uint8_t *address, const uint8_t *net, unsigned bits)
{
	unsigned bytes = bits / 8, rest = bits % 8;

	return memcmp(address, net, bytes) == 0 &&
	       (rest == 0 || (address[bytes] ^ net[bytes]) >> (8 - rest) == 0);
}

static const struct v6_row *row_of(const uint8_t *address)
{
	for (size_t i = 0; i < ARRAY_SIZE(v6); i++)
		if (begins_with(address, v6[i].net, v6[i].bits))
			return &v6[i];
	return NULL;
}

static uint32_t carried(const uint8_t *address, const struct v6_row *row)
{
	uint32_t inner;

	memcpy(&inner, address + row->carries, sizeof inner);
	return row->how == INVERTED ? ~inner : inner;
}

static enum reach reach_of_v6(const uint8_t *address)
{
	const struct v6_row *row = row_of(address);

	if (!row) /* link-local, multicast, and what nobody was given */
		return REACH_NEVER;
	return row->how == JUDGED ? reach_of_v4(ntohl(carried(address, row))) : row->reach;
}

bool address_carries(const struct sockaddr *address, struct in_addr *ret)
{
	const uint8_t *bytes = ((const struct sockaddr_in6 *)address)->sin6_addr.s6_addr;
	const struct v6_row *row = address->sa_family == AF_INET6 ? row_of(bytes) : NULL;

	if (!row || !row->carries)
		return false;
	if (ret)
		ret->s_addr = carried(bytes, row);
	return true;
}

enum reach reach_of(const struct sockaddr *address)
{
	if (address->sa_family == AF_INET)
		return reach_of_v4(ntohl(((const struct sockaddr_in *)address)->sin_addr.s_addr));
	if (address->sa_family == AF_INET6)
		return reach_of_v6(((const struct sockaddr_in6 *)address)->sin6_addr.s6_addr);
	return REACH_NEVER;
}

enum reach reach_of_host(const char *host)
{
	static const char local[] = "localhost";
	struct in6_addr in6;
	struct in_addr in4;
	size_t n = strlen(host);

	if (inet_aton(host, &in4)) /* in all the forms the system takes: 127.1, 0x7f000001 */
		return reach_of_v4(ntohl(in4.s_addr));
	if (inet_pton(AF_INET6, host, &in6) == 1)
		return reach_of_v6(in6.s6_addr);
	if (strchr(host, '%')) /* an address with a zone is link-local */
		return REACH_NEVER;
	if (n > 0 && host[n - 1] == '.')
		n--;
	if (n >= sizeof local - 1 &&
	    strncasecmp(host + n - (sizeof local - 1), local, sizeof local - 1) == 0 &&
	    (n == sizeof local - 1 || host[n - sizeof local] == '.'))
		return REACH_LOCAL;
	return REACH_PUBLIC;
}

const char *reach_name(enum reach reach)
{
	static const char *const names[] = {"a public address", "a private address",
					    "this machine itself",
					    "an address that nobody may be led to"};

	return names[reach];
}
