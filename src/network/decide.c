/* SPDX-License-Identifier: Apache-2.0 */
/*
 * decide.c - the one place that says what may be connected to.
 *
 * Each of the two policies is asked alone (struct opinion), then they are put together. All fields of an opinion
 * that speak for a connection only grow by allow rules, and those against it by deny rules, so the order of rules
 * means nothing, an allow rule never forbids, and a deny rule never permits.
 */
#include <stdio.h>
#include <string.h>

#include "base/address.h"
#include "network/rule.h"

/* ---- does a rule fit ---- */

static bool fits_host(const struct network_rule *r, const char *host)
{
	size_t n = strlen(host), suffix = strlen(r->host);

	if (r->form == HOST_ANY)
		return true;
	if (r->form == HOST_EXACT)
		return strcmp(r->host, host) == 0;
	if (n < suffix + 2 || host[n - suffix - 1] != '.' ||
	    strcmp(host + n - suffix, r->host) != 0)
		return false;
	return r->form == HOST_ANY_LABELS || !memchr(host, '.', n - suffix - 1);
}

/* Port 0 asks for any: one that is allowed, all that are denied. */
static bool fits_port(const struct network_rule *r, uint16_t port)
{
	if (port == 0)
		return !r->deny || r->port_count == 0;
	for (size_t i = 0; i < r->port_count; i++)
		if (r->ports[i] == port)
			return true;
	return r->port_count == 0;
}

/* Whether there is TLS is known once a request is seen. */
static bool fits_scheme(const struct network_rule *r, const struct network_ask *ask)
{
	return r->scheme == SCHEME_ANY ||
	       (r->scheme == SCHEME_HTTP ? !ask->tls : ask->tls || !ask->method);
}

static bool names_method(const struct network_rule *r, const char *method)
{
	for (size_t i = 0; i < r->method_count; i++)
		if (strcmp(r->methods[i], method) == 0)
			return true;
	return false;
}

/* An upgrade begins as a GET, so it is denied as one, too. */
static bool fits_method(const struct network_rule *r, const char *method)
{
	return r->method_count == 0 || names_method(r, method) ||
	       (r->deny && strcmp(method, "WEBSOCKET") == 0 && names_method(r, "GET"));
}

static bool nets_have(const struct network_rule *r, const struct sockaddr *address)
{
	for (size_t i = 0; i < r->net_count; i++)
		if (network_net_has(&r->nets[i], address))
			return true;
	return false;
}

/* A network of a deny rule is looked at here only if the host is an address. */
static bool fits_where(const struct network_rule *r, const struct network_ask *ask)
{
	struct sockaddr_storage address;

	if (!fits_port(r, ask->port) || !fits_scheme(r, ask) || !fits_host(r, ask->host))
		return false;
	if (!r->deny || !r->net_count)
		return true;
	return network_host_address(ask->host, &address) &&
	       nets_have(r, (const struct sockaddr *)&address);
}

static bool fits(const struct network_rule *r, const struct network_ask *ask)
{
	return fits_where(r, ask) && (!ask->method || (fits_method(r, ask->method) &&
						       network_rule_fits_path(r, ask->path)));
}

/* ---- what one policy says ---- */

struct opinion {
	const struct network_rule *denies;       /* this rule */
	const struct network_rule *denies_later; /* some requests: they have to be seen */
	const struct network_rule *blind;        /* allows without a look at requests */
	const struct network_rule *passthrough;
	const struct network_rule *open;      /* allows, and its TLS may be opened */
	const struct network_rule *websocket; /* allows, and names it */
	bool anything; /* mode open, or a ceiling that names nothing: needs no rule */
};

static bool names_something(const struct network_policy *p)
{
	for (size_t i = 0; i < p->rule_count; i++)
		if (!p->rules[i].deny)
			return true;
	return false;
}

static void first(const struct network_rule **field, const struct network_rule *r)
{
	if (!*field)
		*field = r;
}

static void count_rule(struct opinion *o, const struct network_rule *r, bool later)
{
	if (r->deny) {
		first(later ? &o->denies_later : &o->denies, r);
		return;
	}
	if (!later)
		first(&o->blind, r);
	first(r->passthrough ? &o->passthrough : &o->open, r);
	if (names_method(r, "WEBSOCKET"))
		first(&o->websocket, r);
}

static struct opinion opinion_of(const struct network_policy *p, bool is_ceiling,
				 const struct network_ask *ask)
{
	struct opinion o = {.anything = is_ceiling ? !names_something(p) : p->mode == NETWORK_OPEN};

	for (size_t i = 0; p->mode != NETWORK_NONE && i < p->rule_count; i++)
		if (fits(&p->rules[i], ask))
			count_rule(&o, &p->rules[i],
				   !ask->method && network_rule_looks(&p->rules[i]));
	if (p->mode == NETWORK_NONE)
		o.anything = false;
	return o;
}

static bool allows(const struct opinion *o)
{
	return o->anything || o->open || o->passthrough;
}

static bool allows_blind(const struct opinion *o)
{
	return !o->denies_later && (o->anything || o->blind);
}

static bool allows_opened(const struct opinion *o)
{
	return o->anything || o->open;
}

/* ---- both together ---- */

static const char *source_of(const struct network_rule *r, bool is_ceiling)
{
	if (r && r->source)
		return r->source;
	return is_ceiling ? "operator" : "request";
}

static void say(struct network_answer *ret, enum network_verdict verdict,
		const struct network_rule *r, bool is_ceiling, const char *why)
{
	ret->verdict = verdict;
	ret->missing = false;
	ret->rule = r ? r->text : NULL;
	ret->source = !r && !is_ceiling && verdict != VERDICT_DENY ? "mode open"
								   : source_of(r, is_ceiling);
	snprintf(ret->why, sizeof ret->why, "%s", why);
}

static void deny_by_rule(struct network_answer *ret, const struct network_rule *r, bool is_ceiling)
{
	char why[sizeof ret->why];

	snprintf(why, sizeof why, "a rule denies it: %.150s", r->text);
	say(ret, VERDICT_DENY, r, is_ceiling, why);
}

static void deny_without_rule(struct network_answer *ret, const struct network_ask *ask,
			      bool is_ceiling)
{
	char why[sizeof ret->why];

	if (ask->method)
		snprintf(why, sizeof why, "no rule%s allows %.16s of this path at %.100s:%u",
			 is_ceiling ? " of the operator's" : "", ask->method, ask->host, ask->port);
	else
		snprintf(why, sizeof why, "no rule%s allows %.130s:%u",
			 is_ceiling ? " of the operator's" : "", ask->host, ask->port);
	say(ret, VERDICT_DENY, NULL, is_ceiling, why);
	ret->missing = !is_ceiling;
}

static const struct network_credential *credential_of(const struct network_policy *p,
						      const struct network_ask *ask)
{
	for (size_t i = 0; i < p->credential_count; i++)
		if (p->credentials[i].port == ask->port &&
		    strcmp(p->credentials[i].host, ask->host) == 0)
			return &p->credentials[i];
	return NULL;
}

/* The rule to name for what is allowed. */
static const struct network_rule *main_rule(const struct opinion *o)
{
	return o->passthrough && o->blind ? o->passthrough : o->blind ? o->blind : o->open;
}

static void allow(struct network_answer *ret, const struct opinion *o,
		  const struct network_ask *ask, bool look)
{
	const struct network_rule *r = look && o->open ? o->open : main_rule(o);

	if (look)
		say(ret, VERDICT_LOOK, r, false, "each request in it has to be looked at");
	else if (ask->method)
		say(ret, VERDICT_ALLOW, r, false,
		    r ? "a rule allows this request" : "every public address is open");
	else
		say(ret, VERDICT_ALLOW, r, false,
		    r ? "a rule allows this host and port" : "every public address is open");
}

static void decide_connection(const struct opinion *request, const struct opinion *ceiling,
			      const struct network_ask *ask, bool has_credential,
			      struct network_answer *ret)
{
	bool must_look = !allows_blind(request) || !allows_blind(ceiling);
	bool may_open = allows_opened(request) && allows_opened(ceiling);

	if (must_look && !may_open) {
		const struct opinion *o = allows_opened(request) ? ceiling : request;

		say(ret, VERDICT_DENY, o->passthrough, o == ceiling,
		    "its requests have to be looked at, but a passthrough rule says that its TLS is never opened");
		return;
	}
	ret->passthrough = !must_look && (request->passthrough || ceiling->passthrough);
	allow(ret, request, ask, must_look || (has_credential && !ret->passthrough && may_open));
}

void network_decide(const struct network_policy *request, const struct network_policy *ceiling,
		    const struct network_ask *ask, struct network_answer *ret)
{
	struct opinion r = opinion_of(request, false, ask);
	struct opinion c =
		ceiling ? opinion_of(ceiling, true, ask) : (struct opinion){.anything = true};
	const struct network_credential *credential = credential_of(request, ask);

	*ret = (struct network_answer){0};
	if (c.denies || r.denies) {
		deny_by_rule(ret, c.denies ? c.denies : r.denies, c.denies != NULL);
		return;
	}
	if (request->mode == NETWORK_NONE || (ceiling && ceiling->mode == NETWORK_NONE)) {
		say(ret, VERDICT_DENY, NULL, request->mode != NETWORK_NONE,
		    "there is no network (mode none)");
		return;
	}
	if (!allows(&r) || !allows(&c)) {
		deny_without_rule(ret, ask, allows(&r));
		return;
	}
	if (!ask->method) {
		decide_connection(&r, &c, ask, credential != NULL, ret);
	} else {
		allow(ret, &r, ask, false);
		ret->websocket = strcmp(ask->method, "WEBSOCKET") == 0 && r.websocket;
		if (!ask->tls || !allows_opened(&r) || !allows_opened(&c))
			credential = NULL;
	}
	if (credential && !ret->passthrough && ret->verdict != VERDICT_DENY)
		ret->credential = credential->name;
}

/* ---- addresses ---- */

/* An address as it is judged: also what it carries. */
struct target {
	const struct sockaddr *outer;
	struct sockaddr_in inner;
	bool carries;
	enum reach reach;
};

static struct target target_of(const struct sockaddr *address)
{
	struct target t = {
		.outer = address, .inner.sin_family = AF_INET, .reach = reach_of(address)};

	t.carries = address_carries(address, &t.inner.sin_addr);
	return t;
}

/* To no one: "this network", multicast, reserved, broadcast, and what is to be translated into something inside. */
static bool is_never(const struct target *t)
{
	if (t->outer->sa_family == AF_INET6) {
		const uint8_t *a = ((const struct sockaddr_in6 *)t->outer)->sin6_addr.s6_addr;

		return a[0] == 0xff ||
		       IN6_IS_ADDR_UNSPECIFIED(
			       &((const struct sockaddr_in6 *)t->outer)->sin6_addr) ||
		       (t->carries && t->reach != REACH_PUBLIC);
	}
	if (t->outer->sa_family == AF_INET) {
		uint32_t a = ntohl(((const struct sockaddr_in *)t->outer)->sin_addr.s_addr);

		return a >> 24 == 0 || a >> 29 == 7;
	}
	return true;
}

static bool same_address(const struct sockaddr_storage *a, const struct sockaddr *b)
{
	const struct network_net whole = {*a, a->ss_family == AF_INET ? 32 : 128};

	return network_net_has(&whole, b);
}

/* A deny rule that only an address tells about. */
static bool denies_address(const struct network_rule *r, const struct network_ask *ask,
			   const struct sockaddr *address)
{
	if (!r->deny || !fits_port(r, ask->port))
		return false;
	if (r->is_address) /* its own requests are looked at, when asked for by this address */
		return same_address(&r->address, address) &&
		       !(network_rule_looks(r) && strcmp(r->host, ask->host) == 0);
	return r->net_count && fits_host(r, ask->host) && nets_have(r, address);
}

static const struct network_rule *address_denial(const struct network_policy *p,
						 const struct network_ask *ask,
						 const struct target *t)
{
	for (size_t i = 0; i < p->rule_count; i++)
		if (denies_address(&p->rules[i], ask, t->outer) ||
		    (t->carries &&
		     denies_address(&p->rules[i], ask, (const struct sockaddr *)&t->inner)))
			return &p->rules[i];
	return NULL;
}

/* Link-local, metadata and the like have to be meant: a network as wide as 169.0.0.0/8 does not mean them. */
static bool means(const struct network_net *n, enum reach reach)
{
	return reach != REACH_NEVER || n->bits >= (n->address.ss_family == AF_INET ? 24 : 120);
}

static bool names_address(const struct network_rule *r, const struct target *t)
{
	if (r->is_address)
		return same_address(&r->address, t->outer);
	for (size_t i = 0; i < r->net_count; i++)
		if (means(&r->nets[i], t->reach) && network_net_has(&r->nets[i], t->outer))
			return true;
	return false;
}

/* Of one policy: 1 allowed, and *rule the one that names it; 0 not. */
static bool address_fits(const struct network_policy *p, bool is_ceiling,
			 const struct network_ask *ask, const struct target *t,
			 const struct network_rule **rule)
{
	bool anything = is_ceiling ? !names_something(p) : p->mode == NETWORK_OPEN;
	bool known = anything;

	if (p->mode == NETWORK_NONE)
		return false;
	for (size_t i = 0; i < p->rule_count; i++) {
		const struct network_rule *r = &p->rules[i];

		if (r->deny || !fits_port(r, ask->port) || !fits_host(r, ask->host))
			continue;
		known = true;
		first(rule, r);
		if (names_address(r, t)) {
			*rule = r;
			return true;
		}
	}
	/* A ceiling that names nothing leaves it to the request. */
	return known && (t->reach == REACH_PUBLIC || (is_ceiling && anything));
}

bool network_address_allowed(const struct network_policy *request,
			     const struct network_policy *ceiling, const struct network_ask *ask,
			     const struct sockaddr *address, struct network_answer *ret)
{
	const struct target t = target_of(address);
	const struct network_policy *const both[] = {ceiling, request};
	const struct network_rule *rule = NULL;
	char why[sizeof ret->why];

	*ret = (struct network_answer){0};
	for (size_t i = 0; i < ARRAY_SIZE(both); i++) {
		const struct network_rule *r = both[i] ? address_denial(both[i], ask, &t) : NULL;

		if (r) {
			deny_by_rule(ret, r, i == 0);
			return false;
		}
	}
	for (size_t i = 0; i < ARRAY_SIZE(both); i++) {
		rule = NULL;
		if (both[i] && (is_never(&t) || !address_fits(both[i], i == 0, ask, &t, &rule))) {
			snprintf(why, sizeof why, "%.100s is at %s%s", ask->host,
				 reach_name(t.reach),
				 is_never(&t) ? ""
				 : i == 0     ? ", which no rule of the operator's names (within=)"
					      : ", which no rule names (within=)");
			say(ret, VERDICT_DENY, rule, i == 0, why);
			return false;
		}
	}
	say(ret, VERDICT_ALLOW, rule, false,
	    rule ? "a rule allows this address" : "every public address is open");
	return true;
}

/* ---- quotas ---- */

static uint64_t least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

struct network_quota network_quota(const struct network_policy *request,
				   const struct network_policy *ceiling)
{
	struct network_quota r = request->quota, c = {UINT64_MAX, UINT64_MAX, UINT64_MAX};

	if (ceiling)
		c = ceiling->quota;
	if (r.open == UINT64_MAX)
		r.open = NETWORK_OPEN_DEFAULT;
	return (struct network_quota){
		least(r.bytes, c.bytes),
		least(r.connections, c.connections),
		least(r.open, c.open),
	};
}
