/* SPDX-License-Identifier: Apache-2.0 */
/* Any datagram as a question, and all answers to it: nothing outside of the buffers, a canonical host, the question as it was. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "base/cleanup.h"
#include "egress/dns.h"
#include "network/policy.h"

static void check_answers(const uint8_t *data, const struct dns_question *q)
{
	struct in_addr address = {.s_addr = 0x010012c6};
	char *answer = malloc(DNS_ANSWER_MAX);

	CHECK(answer);
	for (enum dns_result r = DNS_ADDRESS; r <= DNS_FAILED; r++) {
		size_t n = dns_write(data, q, r, address, answer);

		CHECK(n >= q->end && n <= DNS_ANSWER_MAX && n <= q->end + 16);
		CHECK(memcmp(answer, data, 2) == 0 && (answer[2] & 0x80));
		CHECK(memcmp(answer + 12, data + 12, q->end - 12) == 0);
		CHECK(answer[7] == (r == DNS_ADDRESS && q->type == 1));
	}
	free(answer);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char again[HOST_SIZE], formerr[DNS_ANSWER_MAX];
	struct dns_question q = {0};
	int r = dns_read(data, size, &q);

	CHECK(r == 0 || r == -EBADMSG || r == -EPROTO);
	if (r == -EPROTO)
		CHECK(size >= 12 && q.id == (data[0] << 8 | data[1]) &&
		      dns_write_formerr(q.id, formerr) == 12);
	if (r < 0)
		return 0;
	CHECK(q.end > 12 && q.end <= size && memchr(q.host, 0, sizeof q.host));
	if (q.host[0])
		CHECK(network_host(q.host, strlen(q.host), again) == 0 &&
		      strcmp(again, q.host) == 0);
	check_answers(data, &q);
	return 0;
}
