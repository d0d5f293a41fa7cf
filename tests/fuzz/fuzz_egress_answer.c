/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the process that connects for a sandbox says, as cloched and a run without a service take it: it may have been taken over.
 * What is accepted keeps every promise of starter.h: whole texts without control characters, a host that is one.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "egress/starter.h"
#include "network/policy.h"

static void check_text(const char *text, size_t size)
{
	CHECK(memchr(text, '\0', size));
	for (; *text; text++)
		CHECK((unsigned char)*text >= 0x20 && *text != 0x7f);
}

static void check_record(const struct egress_record *r)
{
	char host[HOST_SIZE];

	CHECK(r->verdict <= EGRESS_FAILED && r->port <= 65535);
	check_text(r->host, sizeof r->host);
	check_text(r->address, sizeof r->address);
	check_text(r->rule, sizeof r->rule);
	check_text(r->why, sizeof r->why);
	check_text(r->credential, sizeof r->credential);
	check_text(r->method, sizeof r->method);
	check_text(r->path, sizeof r->path);
	CHECK(!*r->host || network_host(r->host, strlen(r->host), host) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static union egress_answer a;

	memset(&a, 0xff, sizeof a);
	if (size > sizeof a)
		size = sizeof a;
	memcpy(&a, data, size);
	if (egress_answer_is_valid(&a, size)) {
		CHECK(size >= sizeof a.header);
		if (a.header.type == EGRESS_RECORD) {
			CHECK(size == sizeof a.record);
			check_record(&a.record);
		}
		if (a.header.type == EGRESS_TOTALS)
			CHECK(size == sizeof a.totals);
	}
	return 0;
}
