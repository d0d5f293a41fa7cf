/* SPDX-License-Identifier: Apache-2.0 */
/*
 * network.h - what files say about the network: the operator's ceiling, names resolved by hand, credentials.
 *
 *	policy:                            the operator's file only; binds everyone
 *	  network: allow                   highest mode: none, allow, open
 *	  network_allow: ["*.example.org"] nothing but this, whatever a request says
 *	  network_deny: ["*:25"]
 *	  network_private: [10.0.0.0/8]    where requests may lead by within= or an address; a service without it: nowhere
 *	resolve:                           instead of asking DNS
 *	  registry.corp: [10.1.2.3]
 *	upstream_ca: /etc/cloche/ca.pem    trusted besides the system's when TLS is opened
 *	credentials:
 *	  github:
 *	    host: api.github.com
 *	    port: 443
 *	    header: Authorization          or query: key
 *	    value: "Bearer {}"
 *	    file: /etc/cloche/github       or env: NAME, or command: [PROGRAM, ARGUMENT]
 *	    owners: [ci]                   of a service: who may use it; not there: everyone
 */
#ifndef SETTINGS_NETWORK_H
#define SETTINGS_NETWORK_H

#include <jansson.h>

#include "network/policy.h"
#include "sandbox/spec.h"

struct network_settings {
	bool has_mode;
	enum network_mode mode; /* highest */
	json_t *allow, *deny;   /* lists of rules, or NULL */
	json_t *inside;         /* network_private, or NULL */
	json_t *resolve, *credentials;
	char *upstream_ca; /* path, or NULL */
	bool serves_others; /* set by a service: without network_private nothing private may be named */
};

/* Values of the keys under `policy:`, checked; and of those at the top, taken. */
int network_policy_key_check(const char *key, const json_t *value, struct err *e) must_check;
void network_policy_take(struct network_settings *n, const json_t *policy);
bool is_network_policy_key(const char *key);

/* 1: taken; 0: no key of ours; -1 and e. binding: the operator's file. */
int network_key_take(struct network_settings *n, const char *key, json_t *value, bool binding,
		     struct err *e) must_check;

/* Does the spec stay below the ceiling as far as that can be said of it: mode, and private addresses? Which hosts
 * it may reach is decided when it connects. */
int network_settings_check(const struct network_settings *n, const struct spec *s,
			   struct err *e) must_check;

/* One rule or list of somebody's, against network_private. */
int network_settings_check_rule(const struct network_settings *n, const char *rule,
				struct err *e) must_check;

void network_settings_done(struct network_settings *n);

#endif
