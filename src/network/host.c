/* SPDX-License-Identifier: Apache-2.0 */
/*
 * host.c - one form for each host: names as DNS has them, addresses as inet_ntop() gives them.
 *
 * Whatever a resolver or a client library would read as an address in another way (127.1, 0x7f000001, 0177.0.0.1,
 * a zone, an IPv6 address that carries an IPv4 one) is no host, so that no two parties read one text differently.
 */
#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <string.h>

#include "base/address.h"
#include "base/cleanup.h"
#include "network/policy.h"

enum { NAME_MAX_BYTES = 253, LABEL_MAX_BYTES = 63 };

static int address_v4(const char *text, char ret[static HOST_SIZE])
{
	char canonical[INET_ADDRSTRLEN];
	struct in_addr address;

	if (inet_pton(AF_INET, text, &address) != 1 ||
	    !inet_ntop(AF_INET, &address, canonical, sizeof canonical) ||
	    strcmp(canonical, text) != 0)
		return -EINVAL;
	memcpy(ret, canonical, sizeof canonical);
	return 0;
}

static int address_v6(const char *text, char ret[static HOST_SIZE])
{
	char canonical[INET6_ADDRSTRLEN];
	struct sockaddr_in6 in6 = {.sin6_family = AF_INET6};

	if (inet_pton(AF_INET6, text, &in6.sin6_addr) != 1 ||
	    address_carries((const struct sockaddr *)&in6, NULL) ||
	    !inet_ntop(AF_INET6, &in6.sin6_addr, canonical, sizeof canonical))
		return -EINVAL;
	memcpy(ret, canonical, sizeof canonical);
	return 0;
}

/* Ends in what the URL standard and inet_aton() read as a number: then all of it would be an address. */
static bool is_number(const char *label, size_t size)
{
	size_t hex = size >= 2 && label[0] == '0' && label[1] == 'x' ? 2 : 0;

	for (size_t i = hex; i < size; i++)
		if (hex ? !isxdigit((unsigned char)label[i]) : !isdigit((unsigned char)label[i]))
			return false;
	return true;
}

static int check_label(const char *label, size_t size)
{
	if (size == 0 || size > LABEL_MAX_BYTES || label[0] == '-' || label[size - 1] == '-')
		return -EINVAL;
	for (size_t i = 0; i < size; i++)
		if (!islower((unsigned char)label[i]) && !isdigit((unsigned char)label[i]) &&
		    label[i] != '-' && label[i] != '_')
			return -EINVAL;
	return 0;
}

static int check_name(const char *name)
{
	for (;;) {
		size_t n = strcspn(name, ".");

		if (check_label(name, n) < 0)
			return -EINVAL;
		if (!name[n])
			return is_number(name, n) ? -EINVAL : 0;
		name += n + 1;
	}
}

int network_host(const char *text, size_t size, char ret[static HOST_SIZE])
{
	char name[HOST_SIZE];
	int r;

	if (size == 0 || size > NAME_MAX_BYTES + 1 || memchr(text, 0, size))
		return -EINVAL;
	for (size_t i = 0; i < size; i++)
		name[i] = text[i] >= 'A' && text[i] <= 'Z' ? (char)(text[i] | 0x20) : text[i];
	name[size] = '\0';
	if (name[0] == '[') {
		if (name[size - 1] != ']')
			return -EINVAL;
		name[size - 1] = '\0';
		return address_v6(name + 1, ret);
	}
	if (strchr(name, ':'))
		return address_v6(name, ret);
	if (address_v4(name, ret) == 0)
		return 0;
	if (name[size - 1] == '.')
		name[--size] = '\0';
	r = size <= NAME_MAX_BYTES ? check_name(name) : -EINVAL;
	if (r == 0)
		memcpy(ret, name, size + 1);
	return r;
}

bool network_host_address(const char *host, struct sockaddr_storage *ret)
{
	struct sockaddr_in in4 = {.sin_family = AF_INET};
	struct sockaddr_in6 in6 = {.sin6_family = AF_INET6};

	if (inet_pton(AF_INET, host, &in4.sin_addr) == 1) {
		*ret = (struct sockaddr_storage){0};
		memcpy(ret, &in4, sizeof in4);
		return true;
	}
	if (inet_pton(AF_INET6, host, &in6.sin6_addr) == 1) {
		*ret = (struct sockaddr_storage){0};
		memcpy(ret, &in6, sizeof in6);
		return true;
	}
	return false;
}
