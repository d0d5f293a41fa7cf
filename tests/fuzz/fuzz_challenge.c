/* SPDX-License-Identifier: Apache-2.0 */
/* Any text as WWW-Authenticate, then its realm as a URL, as the client does. */
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "base/address.h"
#include "registry/challenge.h"
#include "registry/url.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct challenge c = {0};
	char *copy = malloc(size + 1);
	struct url u;
	struct err e;

	CHECK(copy);
	memcpy(copy, data, size);
	copy[size] = '\0';
	if (challenge_read(copy, &c) == 0) {
		CHECK(memchr(c.realm, '\0', sizeof c.realm));
		CHECK(memchr(c.service, '\0', sizeof c.service));
		for (const char *p = c.realm; *p; p++)
			CHECK((unsigned char)*p >= ' ');
		if (url_read(c.realm, NULL, &u, &e) == 0) {
			CHECK(u.port > 0 && u.port < 65536 && *u.host &&
			      strlen(u.text) <= URL_MAX + 64);
			CHECK(strncmp(u.text, u.tls ? "https://" : "http://", u.tls ? 8 : 7) == 0);
			(void)reach_of_host(u.host);
			url_done(&u);
		}
	}
	free(copy);
	return 0;
}
