/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dns.c - RFC 1035 §4 as far as a stub resolver's question needs it, RFC 6891 as far as to pass over it.
 *
 * Nothing is lenient here: what a resolver of today does not send is no question. There is nothing to be compressed in
 * a single question, so a pointer in its name is malformed. An OPT record is read over and not answered, as
 * servers without EDNS do; answers are far below 512 bytes anyway.
 */
#include "egress/dns.h"

#include <errno.h>
#include <string.h>

#include "network/policy.h"

enum {
	HEADER = 12,
	LABEL_MAX = 63,
	NAME_MAX_BYTES = 255, /* with lengths and the root */
	TYPE_A = 1,
	TYPE_OPT = 41,
	CLASS_IN = 1,
	RECORD_FIXED = 10,  /* type, class, TTL, length */
	TTL_S = 60,         /* far below the ten minutes that an address rests */
	QR = 0x8000,        /* an answer */
	OPCODE_TC = 0x7a00, /* other than QUERY, or cut off */
	RD = 0x0100,
	RA = 0x0080,
};

static const uint16_t rcodes[] = {
	[DNS_ADDRESS] = 0, [DNS_EMPTY] = 0, [DNS_REFUSED] = 5, [DNS_NO_NAME] = 3, [DNS_FAILED] = 2,
};
enum { RCODE_FORMERR = 1 };

static uint16_t get16(const unsigned char *p)
{
	return (uint16_t)(p[0] << 8 | p[1]);
}

static void put16(char *p, uint16_t value)
{
	p[0] = (char)(value >> 8);
	p[1] = (char)value;
}

/* The name at *at as text with dots, *at behind it. A byte that no host has becomes a space, which no canonical name has:
 * a dot inside of a label, above all. */
static int read_name(const unsigned char *data, size_t size, size_t *at, char text[static 256])
{
	size_t begin = *at, used = 0;

	for (;;) {
		size_t label;

		if (*at >= size || data[*at] > LABEL_MAX)
			return -EPROTO;
		label = data[(*at)++];
		if (label == 0)
			break;
		if (label > size - *at || *at + label + 1 - begin > NAME_MAX_BYTES)
			return -EPROTO;
		if (used)
			text[used++] = '.';
		for (size_t i = 0; i < label; i++) {
			char c = (char)data[*at + i];

			text[used++] = c > ' ' && c != '.' && c != 0x7f ? c : ' ';
		}
		*at += label;
	}
	text[used] = '\0';
	return 0;
}

/* One OPT record at most, and then the end. */
static int read_additional(const unsigned char *data, size_t size, size_t at, unsigned count)
{
	if (count == 0)
		return at == size ? 0 : -EPROTO;
	if (count > 1 || size - at < 1 + RECORD_FIXED || data[at] != 0 ||
	    get16(data + at + 1) != TYPE_OPT)
		return -EPROTO;
	return get16(data + at + 9) == size - at - 1 - RECORD_FIXED ? 0 : -EPROTO;
}

/* "": nothing that a policy could allow. */
static void canonical(const char *text, uint16_t class, char ret[static HOST_SIZE])
{
	struct sockaddr_storage address;

	if (class != CLASS_IN || !text[0] || network_host(text, strlen(text), ret) < 0 ||
	    network_host_address(ret, &address))
		ret[0] = '\0';
}

int dns_read(const void *message, size_t size, struct dns_question *ret)
{
	const unsigned char *data = message;
	struct dns_question q = {0};
	char text[256];
	size_t at = HEADER;
	uint16_t flags;

	if (size < HEADER || get16(data + 2) & QR)
		return -EBADMSG;
	*ret = (struct dns_question){.id = get16(data)};
	flags = get16(data + 2);
	if (size > DNS_QUESTION_MAX || flags & OPCODE_TC)
		return -EPROTO;
	/* one question, no answers, no authorities */
	if (get16(data + 4) != 1 || get16(data + 6) || get16(data + 8) ||
	    read_name(data, size, &at, text) < 0 || size - at < 4)
		return -EPROTO;
	q.id = ret->id;
	q.type = get16(data + at);
	q.end = at + 4;
	q.recursion = flags & RD;
	canonical(text, get16(data + at + 2), q.host);
	if (read_additional(data, size, q.end, get16(data + 10)) < 0)
		return -EPROTO;
	*ret = q;
	return 0;
}

static void put_header(char *ret, uint16_t id, uint16_t flags, uint16_t questions, uint16_t answers)
{
	memset(ret, 0, HEADER);
	put16(ret, id);
	put16(ret + 2, flags);
	put16(ret + 4, questions);
	put16(ret + 6, answers);
}

size_t dns_write(const void *question, const struct dns_question *q, enum dns_result result,
		 struct in_addr address, char ret[static DNS_ANSWER_MAX])
{
	bool answered = result == DNS_ADDRESS && q->type == TYPE_A;
	uint16_t flags = (uint16_t)(QR | RA | (q->recursion ? RD : 0) | rcodes[result]);
	char *p = ret + q->end;

	put_header(ret, q->id, flags, 1, answered);
	memcpy(ret + HEADER, (const char *)question + HEADER, q->end - HEADER);
	if (!answered)
		return q->end;
	put16(p, 0xc000 | HEADER); /* the question's name */
	put16(p + 2, TYPE_A);
	put16(p + 4, CLASS_IN);
	put16(p + 6, 0);
	put16(p + 8, TTL_S);
	put16(p + 10, sizeof address);
	memcpy(p + 12, &address, sizeof address);
	return q->end + 12 + sizeof address;
}

size_t dns_write_formerr(uint16_t id, char ret[static DNS_ANSWER_MAX])
{
	put_header(ret, id, QR | RA | RCODE_FORMERR, 0, 0);
	return HEADER;
}
