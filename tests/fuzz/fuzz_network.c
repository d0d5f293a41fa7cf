/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any text as a policy, with questions behind a NUL: "HOST PORT METHOD PATH". What is taken can be decided on; deny wins: with
 * "deny *" nothing is allowed, and nothing is allowed that mode open with the same deny rules refuses.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "network/policy.h"

static void check_host(const char *text, size_t size, char host[static HOST_SIZE])
{
	char again[HOST_SIZE];
	struct sockaddr_storage a;

	if (network_host(text, size, host) < 0) {
		snprintf(host, HOST_SIZE, "a.b");
		return;
	}
	CHECK(network_host(host, strlen(host), again) == 0 && strcmp(host, again) == 0);
	CHECK(strspn(host, "abcdefghijklmnopqrstuvwxyz0123456789-_.:") == strlen(host));
	CHECK(!strchr(host, ':') || network_host_address(host, &a));
}

static void ask(const struct network_policy *p, const struct network_policy *open,
		const struct network_policy *closed, const struct network_ask *q)
{
	struct network_answer answer, other;
	struct sockaddr_storage a;

	network_decide(p, NULL, q, &answer);
	CHECK(answer.verdict <= VERDICT_LOOK && answer.source &&
	      memchr(answer.why, 0, sizeof answer.why));
	network_decide(open, NULL, q, &other);
	CHECK(answer.verdict == VERDICT_DENY || other.verdict != VERDICT_DENY);
	network_decide(p, closed, q, &other);
	CHECK(other.verdict == VERDICT_DENY);
	CHECK(network_host_address("10.0.0.1", &a));
	if (!network_address_allowed(p, NULL, q, (struct sockaddr *)&a, &answer))
		CHECK(answer.verdict == VERDICT_DENY);
	CHECK(!network_address_allowed(p, closed, q, (struct sockaddr *)&a, &answer));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const char *text = (const char *)data, *end = memchr(data, 0, size);
	size_t n = end ? (size_t)(end - text) : size;
	struct network_policy *p, *open, *closed;
	char words[512] = "", host[HOST_SIZE], *save = NULL, *word, *method, *path;
	struct network_ask q = {.host = host, .port = 443};
	struct err e;

	if (end)
		memcpy(words, end + 1,
		       size - n - 1 < sizeof words - 1 ? size - n - 1 : sizeof words - 1);
	word = strtok_r(words, " ", &save);
	check_host(word ? word : "", word ? strlen(word) : 0, host);
	word = strtok_r(NULL, " ", &save);
	q.port = word ? (uint16_t)strtoul(word, NULL, 10) : 443;
	method = strtok_r(NULL, " ", &save);
	path = strtok_r(NULL, " ", &save);
	if (network_policy_parse(text, n, "fuzz", NETWORK_ALLOW, &p, &e) < 0) {
		CHECK(strncmp(e.text, "fuzz", 4) == 0);
		return 0;
	}
	CHECK(network_policy_parse(text, n, "fuzz", NETWORK_OPEN, &open, &e) == 0);
	CHECK(network_policy_parse("deny *", 6, "fuzz", NETWORK_OPEN, &closed, &e) == 0);
	ask(p, open, closed, &q);
	q.method = method;
	q.path = path;
	q.tls = q.port % 2;
	if (method)
		ask(p, open, closed, &q);
	network_policy_free(p);
	network_policy_free(open);
	network_policy_free(closed);
	return 0;
}
