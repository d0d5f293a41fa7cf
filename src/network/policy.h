/* SPDX-License-Identifier: Apache-2.0 */
/*
 * policy.h - what a sandbox may connect to: rules as text, parsed once, and the one function that decides.
 *
 * The same text is what flags and JSON become, what preset files hold, what goes to the spawner and to the
 * egress process. A rule a line, "#" begins a comment:
 *
 *	allow pypi.org                                host, ports 80 and 443
 *	allow *.pythonhosted.org:443                  one label below it, never the apex; "**." any number of labels
 *	allow GET,HEAD https://api.github.com/repos*  method, scheme, path: TLS is opened to see them
 *	allow registry.corp:5000 within=10.0.0.0/8    may resolve to addresses in there, which are refused else
 *	allow 192.0.2.7:5432                          an address is a host, in its canonical form only
 *	allow passthrough *.example.org               its TLS is never opened (and gets no credential)
 *	allow https://api.test:8443                   only its port, and TLS where that is seen; not opened
 *	deny  telemetry.pypi.org                      deny wins, wherever it stands; without a port: every port
 *	deny  *:25                                    "*" alone, every host, stands in deny rules only
 *	deny  * within=203.0.113.0/24                 whatever resolves into this network
 *	preset pypi                                   that file's lines are put in (preset.h):
 *	preset pypi {                                     so that network_policy_parse() gets them
 *	allow pypi.org
 *	}
 *	credential github                             the operator's credential of this name is added (credential.h),
 *	credential github for api.github.com:443          and where, put in with the presets. It allows nothing
 *	max-bytes 1g                                  of all connections, both ways together
 *	max-connections 500                           in all; max-open 128: at a time
 *
 * Rules with a method or a path look at each request. Paths are compared after percent-decoding, "*" fits any bytes; one that
 * could be read in two ways ("..", "//", "%2f") fits no allow rule, and every deny rule with a path.
 *
 * Two policies hold at once: the operator's ceiling and the request's. A connection must be allowed by both (an
 * empty ceiling allows), and be denied by neither.
 *
 * Hosts are lower-cased, one trailing dot removed, letters, digits, "-" and "_" only (IDNs as A-labels), at most 253
 * bytes; "*" stands alone as the leftmost label. Anything else is an error that names the line.
 */
#ifndef NETWORK_POLICY_H
#define NETWORK_POLICY_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include "base/err.h"

enum {
	HOST_SIZE = 256,               /* of a name or an address, with its NUL */
	POLICY_TEXT_MAX = 24 << 10,    /* of a request's rules before presets are put in */
	POLICY_PARSED_MAX = 512 << 10, /* afterwards */
	POLICY_RULES_MAX = 1024,
	NETWORK_CONNECTIONS_MAX = 1000000000,
	NETWORK_OPEN_DEFAULT = 128, /* at a time */
	NETWORK_OPEN_MAX = 2048,
	RULE_TEXT_MAX = 512,
	RULE_PORTS_MAX = 8,
	NETWORK_NAME_SIZE = 64, /* of a preset or credential: [a-z0-9][a-z0-9_-]* */
};

enum network_mode {
	NETWORK_NONE,  /* a loopback of its own and nothing else */
	NETWORK_ALLOW, /* what the rules allow */
	NETWORK_OPEN,  /* every public address; deny rules still hold */
	NETWORK_MODE_COUNT,
};
/* "none", "allow", "open"; NETWORK_MODE_COUNT when it is none of them. */
enum network_mode network_mode_find(const char *name);
const char *network_mode_name(enum network_mode mode);

struct network_policy; /* read-only once parsed */

/* text need not end with NUL. where: what errors call it ("--allow", "preset pypi"). 0 and *ret, to be freed with
 * network_policy_free(); -1 and e naming the line, the cause, and what is right. */
int network_policy_parse(const char *text, size_t size, const char *where, enum network_mode mode,
			 struct network_policy **ret, struct err *e) must_check;
void network_policy_free(struct network_policy *p);

/* One rule without its first word ("allow" or "deny"), and the name of a preset or credential, as options have them. */
int network_rule_check(const char *verb, const char *text, struct err *e) must_check;
int network_name_check(const char *name, struct err *e) must_check;

/* May somebody else's "allow TEXT" lead to private addresses: are its within= networks, and its host if that is such an
 * address, inside of these ("10.0.0.0/8")? -1 and e with EPERM if not. */
int network_rule_check_private(const char *text, const char *const *nets, size_t count,
			       struct err *e) must_check;
int network_private_check(const char *net, struct err *e) must_check;

/* The i-th thing that whoever wrote the rules should know, a sentence: a wildcard below which anybody can have a name. */
bool network_warning(const struct network_policy *p, size_t i, char *text, size_t size);

/* What is asked. A connection is asked about before anything is resolved (stage CONNECT), then its addresses
 * (ADDRESS), and each request in it where it can be seen (REQUEST). */
struct network_ask {
	const char *host;   /* canonical (network_host), or an address */
	uint16_t port;      /* 0: any; what a question to the resolver is asked with */
	const char *method; /* NULL: not known yet; "WEBSOCKET": GET with an Upgrade to it */
	const char *path;   /* as sent, from "/" on, without query; NULL: not known */
	bool tls;           /* inside TLS */
};

enum network_verdict {
	VERDICT_DENY,
	VERDICT_ALLOW,
	VERDICT_LOOK, /* CONNECT stage: only rules with method or path, or a credential, fit: open it and ask for each request */
};

struct network_answer {
	enum network_verdict verdict;
	bool passthrough; /* TLS must not be opened */
	bool websocket;   /* a rule that allows it has WEBSOCKET among its methods */
	bool missing; /* denied, and an allow rule of the request for this host and port is what there is not */
	const char *rule;       /* its text, or NULL when none fits; lives as long as the policy */
	const char *source;     /* "operator", "request", "preset pypi", "mode open" */
	const char *credential; /* name, or NULL */
	char why[200];          /* a sentence, also for VERDICT_ALLOW */
};

/* ceiling may be NULL. */
void network_decide(const struct network_policy *request, const struct network_policy *ceiling,
		    const struct network_ask *ask, struct network_answer *ret);

/* May this address be connected to for this host and port? Private, loopback, link-local, metadata, CGNAT, mapped and
 * translated forms only if the rule that allowed it names a network ("within=") or the very address. */
bool network_address_allowed(const struct network_policy *request,
			     const struct network_policy *ceiling, const struct network_ask *ask,
			     const struct sockaddr *address, struct network_answer *ret);

/* UINT64_MAX: no limit. */
struct network_quota {
	uint64_t bytes, connections, open;
};
struct network_quota network_quota(const struct network_policy *request,
				   const struct network_policy *ceiling);

/* Has it a rule that needs TLS to be opened: with methods or a path, and not for http:// only? */
bool network_policy_looks(const struct network_policy *p);

/* The i-th credential named by it, or NULL. */
const char *network_policy_credential(const struct network_policy *p, size_t i);

/* A host as a client or server wrote it, canonical: a name, or an address in the form inet_ntop() gives ("[::1]"
 * loses its brackets). -EINVAL: neither (127.1, 0x7f000001, 0177.0.0.1, zones, bad characters, too long). */
int network_host(const char *text, size_t size, char ret[static HOST_SIZE]) must_check;
/* Is it an address? Fills ret with port 0. */
bool network_host_address(const char *host, struct sockaddr_storage *ret);

#endif
