/* SPDX-License-Identifier: Apache-2.0 */
/*
 * egress-front - what the proxy makes of bytes that a client sends, by its own code, many at once: for test_egress_h11.py.
 *
 * On standard input: a length of 4 bytes, little endian, and so many bytes, again and again. For each one line: the requests
 * that were understood whole, "METHOD TARGET FIELDS BODY" in hexadecimal and parted by ";", and behind them why it
 * ended: "end" (all was used), "more" (the last is not whole), "last" (the client wants no more, or CONNECT), "bad".
 */
#include <stdio.h>
#include <string.h>

#include "base/fd.h"
#include "egress/forward.h"

enum { INPUT_MAX = 1 << 20 };

static void hex(const char *data, size_t size)
{
	static const char digits[] = "0123456789abcdef";

	if (size == 0)
		putchar('-');
	for (size_t i = 0; i < size; i++) {
		putchar(digits[(unsigned char)data[i] >> 4]);
		putchar(digits[(unsigned char)data[i] & 15]);
	}
}

/* The body, or -1: it is broken, -2: it is not whole. */
static long read_body(const struct head *h, llhttp_t *parser, const char *data, size_t size,
		      struct bytes *body)
{
	struct framing f;
	size_t at = 0;

	framing_begin(&f, h->body_size);
	for (;;) {
		const char *piece = NULL;
		size_t used = 0, n = 0;

		switch (framing_step(&f, parser, data + at, size - at, &used, &piece, &n)) {
		case FRAMING_BAD:
			return -1;
		case FRAMING_MORE:
			return -2;
		case FRAMING_END:
			return (long)(at + used);
		case FRAMING_PIECE:
			if (!bytes_add(body, piece, n))
				return -1;
			break;
		case FRAMING_ON:
			break;
		}
		at += used;
	}
}

static bool understood(const struct head *h)
{
	struct request_aim aim;
	char host[HOST_SIZE];
	size_t size;
	uint16_t port;

	if (strcmp(h->method, "CONNECT") == 0)
		return h->body_size == 0 && aim_split(h->text, strlen(h->text), 0, &size, &port) &&
		       network_host(h->text, size, host) == 0;
	return request_aim(h, true, &aim) == NULL &&
	       network_host(aim.host, aim.host_size, host) == 0 &&
	       request_host_agrees(h, host, aim.port, false);
}

static void show(const struct head *h, const struct bytes *body)
{
	struct bytes fields = {0};
	bool ok = true;

	for (size_t i = 0; ok && i < h->field_count; i++)
		ok = text_add(&fields, h->fields[i].name) && text_add(&fields, ":") &&
		     text_add(&fields, h->fields[i].value) && text_add(&fields, "\n");
	printf("%s ", h->method);
	hex(h->text, strlen(h->text));
	putchar(' ');
	hex(fields.data, fields.size);
	putchar(' ');
	hex(body->data, body->size);
	putchar(';');
	bytes_done(&fields);
}

/* Bytes of one request, 0 and why: there is none (any more). */
static size_t one(const char *data, size_t size, const char **why)
{
	_cleanup_(bytes_done) struct bytes body = {0};
	_cleanup_(head_done) struct head h = {0};
	struct head_scan scan = {0};
	struct refusal refusal;
	llhttp_t parser;
	long n;

	*why = "bad";
	switch (head_scan(&scan, data, size, &forward_limits, &refusal)) {
	case HEAD_MORE:
		*why = "more";
		return 0;
	case HEAD_BAD:
		return 0;
	case HEAD_COMPLETE:
		break;
	}
	if (head_parse(data, scan.seen, HEAD_PROXY, &forward_limits, &parser, &h, &refusal) < 0 ||
	    !understood(&h))
		return 0;
	n = read_body(&h, &parser, data + scan.seen, size - scan.seen, &body);
	if (n < 0) {
		*why = n == -1 ? "bad" : "more";
		return 0;
	}
	show(&h, &body);
	*why = h.close || strcmp(h.method, "CONNECT") == 0 ? "last" : "end";
	return scan.seen + (size_t)n;
}

static void all(const char *data, size_t size)
{
	const char *why = "end";

	for (size_t at = 0, n; at < size && strcmp(why, "end") == 0; at += n)
		n = one(data + at, size - at, &why);
	printf("%s\n", why);
}

int main(void)
{
	static char input[INPUT_MAX];
	unsigned char length[4];

	while (fd_read_all(0, length, 4) == 4) {
		size_t size = length[0] | (size_t)length[1] << 8 | (size_t)length[2] << 16 |
			      (size_t)length[3] << 24;
		char *exact;

		if (size > INPUT_MAX || fd_read_all(0, input, size) != (ssize_t)size)
			return 1;
		/* Of its own size, so that a sanitizer sees who reads beyond it. */
		exact = malloc(size ? size : 1);
		if (!exact)
			return 1;
		memcpy(exact, input, size);
		all(exact, size);
		free(exact);
	}
	return 0;
}
