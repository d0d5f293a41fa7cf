/* SPDX-License-Identifier: Apache-2.0 */
#include "egress/wire.h"

#include <string.h>

#include "network/policy.h"

static bool is_text(const char *field, size_t size)
{
	size_t n = strnlen(field, size);

	for (size_t i = 0; i < n; i++)
		if ((unsigned char)field[i] < 0x20 || (unsigned char)field[i] == 0x7f)
			return false;
	return n < size;
}

#define IS_TEXT(field) is_text(field, sizeof field)

bool egress_record_is_valid(const struct egress_record *r)
{
	char host[HOST_SIZE];

	if (r->verdict > EGRESS_FAILED || r->port > UINT16_MAX || !IS_TEXT(r->host) ||
	    !IS_TEXT(r->address) || !IS_TEXT(r->rule) || !IS_TEXT(r->why) ||
	    !IS_TEXT(r->credential) || !IS_TEXT(r->method) || !IS_TEXT(r->path))
		return false;
	return !*r->host ||
	       (network_host(r->host, strlen(r->host), host) == 0 && strcmp(host, r->host) == 0);
}
