/* SPDX-License-Identifier: Apache-2.0 */
/* rule.h - a rule taken apart: shared by the files of this folder only. */
#ifndef NETWORK_RULE_H
#define NETWORK_RULE_H

#include "network/policy.h"

enum {
	RULE_METHODS_MAX = 16,
	RULE_NETS_MAX = 8,
	METHOD_SIZE = 24,
	NETWORK_LINE_MAX = RULE_TEXT_MAX - 1
};

enum host_form {
	HOST_EXACT,      /* a name, or an address */
	HOST_ONE_LABEL,  /* "*.": one label below */
	HOST_ANY_LABELS, /* "**.": one or more */
	HOST_ANY,        /* "*", in deny rules */
};

struct network_net {
	struct sockaddr_storage address;
	unsigned bits;
};

struct network_rule {
	char *text;         /* the line without blanks around and comment */
	const char *source; /* "preset NAME", or NULL: the policy's own */
	bool deny, passthrough;
	enum host_form form;
	char *host; /* canonical; of a wildcard: what is behind it */
	bool is_address;
	struct sockaddr_storage address;
	uint16_t ports[RULE_PORTS_MAX];
	size_t port_count; /* 0, of deny: all; of allow: 80 and 443 are put in */
	char methods[RULE_METHODS_MAX][METHOD_SIZE];
	size_t method_count; /* 0: all */
	enum { SCHEME_ANY, SCHEME_HTTP, SCHEME_HTTPS } scheme;
	char *path; /* pattern, "*" fits all; NULL: any */
	struct network_net nets[RULE_NETS_MAX];
	size_t net_count;
};

struct network_credential {
	char name[NETWORK_NAME_SIZE];
	char host[HOST_SIZE]; /* "": not known here */
	uint16_t port;
};

struct network_policy {
	enum network_mode mode;
	struct network_rule *rules;
	size_t rule_count;
	struct network_credential *credentials;
	size_t credential_count;
	struct network_quota quota;
	char **sources; /* owned texts that rules refer to */
	size_t source_count;
};

/* A line that begins with "allow" or "deny". rest: what is behind that word. ret is to be freed in both cases. */
int network_rule_read(struct network_rule *ret, bool deny, const char *rest,
		      struct err *e) must_check;
void network_rule_done(struct network_rule *r);

/* Can only be judged where requests are seen. */
bool network_rule_looks(const struct network_rule *r);

/* path: as a request has it, without query; NULL: it has none ("*"). */
bool network_rule_fits_path(const struct network_rule *r, const char *path);

/* "*" fits any bytes. */
bool network_glob(const char *pattern, const char *text);

/* "10.0.0.0/8" */
int network_net_read(const char *text, size_t size, struct network_net *ret,
		     struct err *e) must_check;
bool network_net_has(const struct network_net *n, const struct sockaddr *address);

#endif
