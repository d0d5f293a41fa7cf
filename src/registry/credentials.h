/* SPDX-License-Identifier: Apache-2.0 */
/*
 * credentials.h - logins made by `docker login`: config.json, and the helper programs it names.
 *
 * Asked in this order: the helper for this registry (credHelpers), the helper for all (credsStore), the entry in
 * `auths`. A helper that knows no login is not an error; one that is missing, hangs or talks nonsense is.
 */
#ifndef REGISTRY_CREDENTIALS_H
#define REGISTRY_CREDENTIALS_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum {
	CREDENTIALS_FILE_MAX = 1 << 20,
	CREDENTIALS_ANSWER_MAX = 64 << 10, /* of a helper */
};

struct credentials {
	char *user, *password; /* both or none */
	char *identity_token;  /* for the token server, in place of a password */
	char *registry_token;  /* for the registry itself */
};

/*
 * The login for registry (host[:port], or "docker.io"); all NULL when there is none. folder holds config.json; NULL:
 * $DOCKER_CONFIG, else ~/.docker; "": nowhere. cancel_fd ends the wait for a helper (errnum ECANCELED), or -1.
 * timeout_us is how long one may take.
 */
int credentials_find(const char *folder, const char *registry, int cancel_fd, uint64_t timeout_us,
		     struct credentials *ret, struct err *e) must_check;

/* Nothing of it stays in memory. */
void credentials_done(struct credentials *c);

/* Ask docker-credential-NAME for a server's login, as credentials_find() does. */
int credential_helper_ask(const char *name, const char *server, int cancel_fd, uint64_t timeout_us,
			  struct credentials *ret, struct err *e) must_check;

#endif
