/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hello.c - a ClientHello (RFC 8446 §4.1.2, RFC 6066 §3, RFC 7301) from bytes that were peeked.
 *
 * It decides where a connection goes, while another reader (OpenSSL, or the server behind a tunnel) acts on it. So
 * whatever two readers could understand differently is refused: lengths that do not fit exactly, an extension
 * twice, several names, bytes behind the message in its last record.
 */
#include <errno.h>
#include <string.h>

#include "egress/stream.h"
#include "network/policy.h"

enum {
	HELLO_MAX = 16 << 10, /* with the headers of its records */
	RECORD_HEADER = 5,
	RECORD_MAX = 1 << 14,
	MESSAGE_HEADER = 4,
	RECORD_HANDSHAKE = 22,
	CLIENT_HELLO = 1,
	RANDOM = 32,
	SESSION_MAX = 32,
	NAME_HOST = 0,
};

/* Bytes not read yet; a read that goes past them is an error, and so is all that follows. */
struct bytes {
	const unsigned char *at;
	size_t left;
	bool bad;
};

static const unsigned char *take(struct bytes *b, size_t size)
{
	const unsigned char *p = b->at;

	if (b->bad || size > b->left) {
		b->bad = true;
		b->left = 0;
		return NULL;
	}
	b->at += size;
	b->left -= size;
	return p;
}

static unsigned take_number(struct bytes *b, unsigned width)
{
	const unsigned char *p = take(b, width);
	unsigned n = 0;

	for (unsigned i = 0; p && i < width; i++)
		n = n << 8 | p[i];
	return n;
}

/* What a length of so many bytes stands before. */
static struct bytes take_vector(struct bytes *b, unsigned width)
{
	size_t size = take_number(b, width);
	const unsigned char *p = take(b, size);

	return (struct bytes){.at = p, .left = p ? size : 0, .bad = b->bad};
}

/* One name, of a host, that is canonical but for its case and a last dot. */
static bool read_name(struct bytes b, struct hello *h)
{
	struct bytes list = take_vector(&b, 2), name;
	unsigned type = take_number(&list, 1);
	struct sockaddr_storage address;

	name = take_vector(&list, 2);
	return !name.bad && !list.left && !b.left && type == NAME_HOST &&
	       network_host((const char *)name.at, name.left, h->host) == 0 &&
	       !network_host_address(h->host, &address);
}

static bool read_protocols(struct bytes b, struct hello *h)
{
	static const char http1[] = "http/1.1";
	struct bytes list = take_vector(&b, 2);

	h->alpn_http1 = false;
	if (list.bad || !list.left || b.left)
		return false;
	while (list.left) {
		struct bytes one = take_vector(&list, 1);

		if (one.bad || !one.left)
			return false;
		if (one.left == sizeof http1 - 1 && memcmp(one.at, http1, one.left) == 0)
			h->alpn_http1 = true;
	}
	return true;
}

static bool read_encrypted(struct bytes b, struct hello *h)
{
	(void)b;
	h->encrypted = true;
	return true;
}

/* All others, GREASE among them, say nothing about where it goes. */
static const struct {
	unsigned type;
	bool (*read)(struct bytes b, struct hello *h);
} extensions[] = {
	{0x0000, read_name},      /* server_name */
	{0x0010, read_protocols}, /* application_layer_protocol_negotiation */
	{0xfe0d, read_encrypted}, /* encrypted_client_hello */
	{0xffce, read_encrypted}, /* encrypted_server_name, its draft of 2018 */
};

static bool read_extension(unsigned type, struct bytes body, unsigned *seen, struct hello *h)
{
	for (unsigned i = 0; i < ARRAY_SIZE(extensions); i++) {
		if (extensions[i].type != type)
			continue;
		if (*seen & 1u << i)
			return false;
		*seen |= 1u << i;
		return extensions[i].read(body, h);
	}
	return true;
}

static bool read_extensions(struct bytes b, struct hello *h)
{
	struct bytes list = take_vector(&b, 2);
	unsigned seen = 0;

	if (list.bad || b.left)
		return false;
	while (list.left) {
		unsigned type = take_number(&list, 2);
		struct bytes body = take_vector(&list, 2);

		if (body.bad || !read_extension(type, body, &seen, h))
			return false;
	}
	return true;
}

static int read_message(struct bytes b, struct hello *h)
{
	struct bytes session, ciphers, compressions;

	take(&b, 2 + RANDOM); /* a version that says nothing since 1.3, random */
	session = take_vector(&b, 1);
	ciphers = take_vector(&b, 2);
	compressions = take_vector(&b, 1);
	if (b.bad || session.left > SESSION_MAX || ciphers.left < 2 || ciphers.left % 2 ||
	    !compressions.left)
		return -EBADMSG;
	if (b.left && !read_extensions(b, h))
		return -EBADMSG;
	return 1;
}

/* The size of the message, once its header is there; 0 before; more than there may be if it is none. */
static size_t message_size(const unsigned char *message, size_t size)
{
	if (size > 0 && message[0] != CLIENT_HELLO)
		return SIZE_MAX;
	if (size < MESSAGE_HEADER)
		return 0;
	return MESSAGE_HEADER +
	       ((size_t)message[1] << 16 | (size_t)message[2] << 8 | (size_t)message[3]);
}

/* The size of the record's body, 0: its header is not whole; -EBADMSG. */
static ssize_t record_size(const unsigned char *data, size_t size)
{
	size_t body;

	if ((size > 0 && data[0] != RECORD_HANDSHAKE) || (size > 1 && data[1] != 3) ||
	    (size > 2 && data[2] > 4))
		return -EBADMSG;
	if (size < RECORD_HEADER)
		return 0;
	body = (size_t)data[3] << 8 | data[4];
	return body > 0 && body <= RECORD_MAX ? (ssize_t)body : -EBADMSG;
}

int hello_read(const void *data, size_t size, struct hello *ret)
{
	unsigned char message[HELLO_MAX];
	const unsigned char *p = data;
	size_t left = size < HELLO_MAX ? size : HELLO_MAX, have = 0, want = 0;
	struct hello h = {.alpn_http1 = true};
	int r;

	while (!want || have < want) {
		ssize_t body = record_size(p, left);
		size_t there;

		if (body <= 0)
			return body < 0 ? -EBADMSG : size < HELLO_MAX ? 0 : -EBADMSG;
		p += RECORD_HEADER;
		left -= RECORD_HEADER;
		there = (size_t)body < left ? (size_t)body : left;
		memcpy(message + have, p, there); /* fits: what was peeked does */
		have += there;
		p += there;
		left -= there;
		want = message_size(message, have);
		if (want > HELLO_MAX || (want && have > want))
			return -EBADMSG;
		if (there < (size_t)body && (!want || have < want))
			return size < HELLO_MAX ? 0 : -EBADMSG;
		if (there < (size_t)body)
			return -EBADMSG; /* its last record goes on behind it */
	}
	r = read_message(
		(struct bytes){.at = message + MESSAGE_HEADER, .left = want - MESSAGE_HEADER}, &h);
	if (r == 1)
		*ret = h;
	return r;
}
