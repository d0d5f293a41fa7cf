/* SPDX-License-Identifier: Apache-2.0 */
/*
 * config.h - what an egress process is given at its start: JSON in a sealed memfd, written by the supervisor or the
 * spawner, never by the sandbox.
 *
 *	{"mode": "allow",
 *	 "rules": "allow pypi.org\n...",          the request's, presets put in
 *	 "ceiling": "deny ...\n",                 the operator's, "" none
 *	 "ceiling_mode": "open",
 *	 "resolve": {"api.test": ["127.0.0.1"]},  instead of asking DNS; operator's
 *	 "upstream_ca": "PEM..." or null,         trusted besides the system's when TLS is opened; operator's
 *	 "credentials": [{"name": "github", "host": "api.github.com", "header": "Authorization", "value": "Bearer ..."},
 *	                 {"name": "maps", "host": "maps.test", "query": "key", "value": "..."}],
 *	 "capture": "redirect"}                   or "ports": only 80, 443 and 53 are caught
 *
 * Values of credentials are secrets: locked in memory, wiped, in no log, error or core.
 */
#ifndef EGRESS_CONFIG_H
#define EGRESS_CONFIG_H

#include "network/policy.h"

enum { EGRESS_CONFIG_MAX = 1 << 20, CREDENTIALS_MAX = 32 };

struct credential {
	char name[NETWORK_NAME_SIZE];
	char host[HOST_SIZE]; /* exactly this one, canonical */
	uint16_t port;        /* 443 unless said */
	char header[64];      /* or "" */
	char query[64];       /* or "" */
	char *value;
	size_t size;
};

struct resolve_entry {
	char host[HOST_SIZE];
	struct sockaddr_storage *addresses;
	size_t count;
};

struct egress_settings {
	struct network_policy *request, *ceiling; /* ceiling may be NULL */
	struct resolve_entry *resolve;
	size_t resolve_count;
	struct credential credentials[CREDENTIALS_MAX];
	size_t credential_count;
	char *upstream_ca;
	bool opens_tls; /* a rule or a credential asks for it */
};

/* Read and check all of it. 0, or -1 and e; ret is to be freed in both cases. */
int egress_settings_read(int memfd, struct egress_settings *ret, struct err *e) must_check;
void egress_settings_done(struct egress_settings *s);

/* A changed policy: "mode" and "rules" only. */
int egress_policy_read(int memfd, struct network_policy **ret, struct err *e) must_check;
/* Does this policy need TLS to be opened, with the ceiling of s? */
bool egress_opens_tls(const struct egress_settings *s, const struct network_policy *request);

#endif
