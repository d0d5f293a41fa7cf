/* SPDX-License-Identifier: Apache-2.0 */
/* challenge.h - WWW-Authenticate (RFC 9110, section 11.6.1): what a server wants before it answers. */
#ifndef REGISTRY_CHALLENGE_H
#define REGISTRY_CHALLENGE_H

#include "base/cleanup.h"

enum challenge_scheme { CHALLENGE_NONE, CHALLENGE_BASIC, CHALLENGE_BEARER };

enum { CHALLENGE_MAX = 8192, CHALLENGE_REALM = 2048, CHALLENGE_SERVICE = 512 };

struct challenge {
	enum challenge_scheme scheme;
	char realm[CHALLENGE_REALM];
	char service[CHALLENGE_SERVICE];
};

/* Read a header's value, which may hold several challenges, into ret: Bearer before Basic, the first of a
 * kind; others are passed over. A value of an earlier header in ret is kept when it is better. 0, or -EINVAL for
 * what is malformed or longer than the above (ret is then as before). scope is not read: we know what we want. */
int challenge_read(const char *value, struct challenge *ret) must_check;

#endif
