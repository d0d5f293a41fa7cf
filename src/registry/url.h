/* SPDX-License-Identifier: Apache-2.0 */
/* url.h - the URLs a registry client meets, taken apart by libcurl's own parser and checked: http or https, a
 * host, no login inside, a sane length. */
#ifndef REGISTRY_URL_H
#define REGISTRY_URL_H

#include <stdbool.h>

#include "base/err.h"

enum { URL_MAX = 8192 }; /* signed links to object stores have two thousand */

struct url {
	char *text; /* the whole, without fragment */
	char *host; /* lower case, without brackets */
	unsigned port;
	bool tls;
};

/* text may be relative if base is not NULL. ret is untouched on failure; the error does not repeat the text's query. */
int url_read(const char *text, const struct url *base, struct url *ret, struct err *e) must_check;
int url_copy(const struct url *from, struct url *ret) must_check; /* -ENOMEM */
void url_done(struct url *u);
#define _cleanup_url_ _cleanup_(url_done)

/* Scheme, host and port: what an Authorization is for. */
bool url_same_origin(const struct url *a, const struct url *b);

/* "https://host:port/path", printable, without query, cut to fit: for errors. Returns room. */
enum { URL_SHOWN = 160 };
const char *url_show(const struct url *u, char room[static URL_SHOWN]);

/* What of somebody else's may stand in an error: printable ASCII, cut to fit. Returns room. */
const char *text_show(const char *text, char *room, size_t size);

#endif
