/* SPDX-License-Identifier: Apache-2.0 */
/*
 * proxy.h - which proxy of the environment a request goes through: HTTPS_PROXY, HTTP_PROXY, ALL_PROXY and
 * NO_PROXY, each in lower case first. Decided here and not by libcurl, because addresses can only be checked where no
 * proxy connects for us, so we have to know. As everywhere, this machine is never asked for through a proxy.
 */
#ifndef REGISTRY_PROXY_H
#define REGISTRY_PROXY_H

#include <stdbool.h>

#include "registry/url.h"

/* The proxy for u, or NULL. Belongs to the environment. */
const char *proxy_for(const struct url *u);

/* Does a NO_PROXY list (commas or blanks) name this host? "*", names with everything below them, addresses,
 * networks (10.0.0.0/8), each with or without :port. */
bool proxy_is_excepted(const char *list, const char *host, unsigned port);

#endif
