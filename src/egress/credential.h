/* SPDX-License-Identifier: Apache-2.0 */
/*
 * credential.h - a secret added to a request outside of the sandbox, and taken out of the answer.
 *
 * Added only inside TLS that was opened (or to an address that the operator's rule allows without TLS), only to the
 * credential's own host and port, and instead of whatever the client said in that field.
 *
 * Taken out of header and body of the answer: each byte of it becomes "*", wherever it stands as it is, in base64 (all three
 * alignments, both alphabets, without line breaks), percent-encoded or escaped as JSON does it, in part or whole, and
 * these on top of base64. So are the parts of a value that servers take out of it: behind the scheme ("Bearer x": x), user and
 * password of "Basic", each cookie's value; from four bytes on. Not found: compressed bodies (the proxy asks for
 * identity and refuses others), pieces (Range is not passed on), hexadecimal, hashes, a spelling of the server's own.
 */
#ifndef EGRESS_CREDENTIAL_H
#define EGRESS_CREDENTIAL_H

#include <stdbool.h>
#include <stddef.h>

#include "egress/config.h"

/* Which of those that the policy names is for this host and port, or NULL. */
const struct credential *credential_for(const struct egress_settings *s, const char *host,
					uint16_t port);

/* Fields of a client's that are dropped from a request that gets a credential: Authorization, Cookie,
 * Proxy-Authorization, X-Api-Key, and the credential's own. name: lower case. */
bool credential_replaces(const struct credential *c, const char *name);

/* Is a field's name this one, whatever its case? "_" is "-": CGI and its heirs (HTTP_X_API_KEY) cannot tell them apart. */
bool field_is(const char *name, const char *known);

/* The request target with the credential's query parameter in it (an existing one of that name, however it is encoded, is
 * taken out, and a fragment as well). Allocated, and it holds the secret: wiped by the caller. NULL at ENOMEM. */
char *credential_target(const struct credential *c, const char *target);

/* Takes secrets out of a sequence of bytes as it passes, also where they are cut in two. */
struct redactor;
/* NULL: no memory, or none that can be locked. */
struct redactor *redactor_new(const struct egress_settings *s);
/* For one more sequence with the same secrets, which are kept once: cheap. */
struct redactor *redactor_dup(const struct redactor *r);
void redactor_free(struct redactor *r);
/* data becomes what may go out now, *ret_size of it in *ret (owned by the redactor, until the next call); the last few
 * bytes may stay behind until more comes, or last: only what a secret could begin with. 0, -ENOMEM. */
int redactor_feed(struct redactor *r, const void *data, size_t size, bool last, const char **ret,
		  size_t *ret_size);
/* In place, for texts that are whole (fields). True when there was something. */
bool redact(const struct redactor *r, char *text, size_t size);

#endif
