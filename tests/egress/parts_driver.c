/* SPDX-License-Identifier: Apache-2.0 */
/*
 * egress-parts hello|dns|redact SECRET: the parsers of cloche-egress for tests that compare them with others. Reads messages from stdin, each
 * behind its size (4 bytes, little endian); a line to stdout for each:
 *	hello	RESULT HOST ENCRYPTED HTTP1
 *	dns	RESULT ID TYPE HOST ANSWER	(the answer DNS_ADDRESS of 198.18.0.1, in hexadecimal)
 *	redact	BYTES	(in hexadecimal)
 */
#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

#include "egress/credential.h"
#include "egress/dns.h"
#include "egress/stream.h"

enum { MESSAGE_MAX = 1 << 20 };

static struct redactor *redactor;

static void put_hex(const char *data, size_t size)
{
	for (size_t i = 0; i < size; i++)
		printf("%02x", (unsigned char)data[i]);
	printf("\n");
}

static void do_hello(char *data, size_t size)
{
	struct hello h = {0};
	int r = hello_read(data, size, &h);

	printf("%d %s %d %d\n", r, h.host[0] ? h.host : "-", h.encrypted, h.alpn_http1);
}

static void do_dns(char *data, size_t size)
{
	struct dns_question q = {0};
	struct in_addr address = {.s_addr = htonl(0xc6120001)};
	char answer[DNS_ANSWER_MAX];
	int r = dns_read(data, size, &q);
	size_t n =
		r == 0 ? dns_write(data, &q, q.host[0] ? DNS_ADDRESS : DNS_REFUSED, address, answer)
		       : 0;

	printf("%d %u %u %s ", r, q.id, q.type, q.host[0] ? q.host : "-");
	put_hex(answer, n);
}

static void do_redact(char *data, size_t size)
{
	redact(redactor, data, size);
	put_hex(data, size);
}

static const struct {
	const char *name;
	void (*run)(char *data, size_t size);
} parts[] = {{"hello", do_hello}, {"dns", do_dns}, {"redact", do_redact}};

static void prepare(char *secret)
{
	static struct egress_settings s = {.credential_count = 1};

	s.credentials[0].value = secret;
	s.credentials[0].size = strlen(secret);
	redactor = redactor_new(&s);
}

int main(int argc, char **argv)
{
	static char message[MESSAGE_MAX];
	unsigned char size[4];

	if (argc > 2)
		prepare(argv[2]);
	for (size_t i = 0; argc > 1 && i < ARRAY_SIZE(parts); i++) {
		if (strcmp(parts[i].name, argv[1]) != 0)
			continue;
		while (fread(size, sizeof size, 1, stdin) == 1) {
			size_t n = size[0] | size[1] << 8 | size[2] << 16;

			if (n > MESSAGE_MAX || fread(message, 1, n, stdin) != n)
				return 1;
			parts[i].run(message, n);
			fflush(stdout);
		}
		redactor_free(redactor);
		return 0;
	}
	return 2;
}
