/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as a ClientHello: a canonical name or none, and the same answer whatever part was peeked before: as long as
 * more is needed it says so, and what is refused stays refused.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "egress/stream.h"
#include "network/policy.h"

static int read_exact(const uint8_t *data, size_t size, struct hello *h)
{
	uint8_t *copy = malloc(size ? size : 1);
	int r;

	CHECK(copy);
	memcpy(copy, data, size);
	r = hello_read(copy, size, h);
	free(copy);
	return r;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct hello h = {0}, before = {0};
	char again[HOST_SIZE];
	struct sockaddr_storage address;
	int r = read_exact(data, size, &h);

	CHECK(r == 1 || r == 0 || r == -EBADMSG);
	for (size_t cut = 0; cut < size; cut += 1 + cut / 16) {
		int b = read_exact(data, cut, &before);

		CHECK(b != -EBADMSG || r == -EBADMSG);
		if (b == 1)
			CHECK(r == 1 && strcmp(before.host, h.host) == 0 &&
			      before.encrypted == h.encrypted && before.alpn_http1 == h.alpn_http1);
	}
	if (r != 1 || !h.host[0])
		return 0;
	CHECK(network_host(h.host, strlen(h.host), again) == 0 && strcmp(again, h.host) == 0);
	CHECK(!network_host_address(h.host, &address));
	return 0;
}
