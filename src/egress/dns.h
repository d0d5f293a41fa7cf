/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dns.h - a question of the sandbox's, taken apart strictly, and the answer to it: no I/O, so that it can be fuzzed.
 *
 * One question, class IN. A: the name's address (names.h). AAAA, HTTPS, SVCB, MX, TXT, and all other types: an empty
 * answer for an allowed name, never forwarded. A name that is not allowed: REFUSED. Not a question, or malformed: FORMERR,
 * or no answer at all when even its header is not whole.
 */
#ifndef EGRESS_DNS_H
#define EGRESS_DNS_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { DNS_QUESTION_MAX = 512, DNS_ANSWER_MAX = 576 };

enum dns_result { DNS_ADDRESS, DNS_EMPTY, DNS_REFUSED, DNS_NO_NAME /* NXDOMAIN */, DNS_FAILED };

struct dns_question {
	uint16_t id, type;
	char host[256]; /* canonical; "" when it is none: refused */
	size_t end;     /* of the question section */
	bool recursion;
};

/* 0; -EBADMSG: send no answer; -EPROTO: send FORMERR (ret->id is set). */
int dns_read(const void *data, size_t size, struct dns_question *ret);
/* Size of the answer to the message that was read. */
size_t dns_write(const void *question, const struct dns_question *q, enum dns_result result,
		 struct in_addr address, char ret[static DNS_ANSWER_MAX]);
size_t dns_write_formerr(uint16_t id, char ret[static DNS_ANSWER_MAX]);

#endif
