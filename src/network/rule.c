/* SPDX-License-Identifier: Apache-2.0 */
/* rule.c - one allow or deny rule, read strictly: what is not understood is an error that says what would be. */
#include "network/rule.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/address.h"
#include "base/units.h"

static const char target_grammar[] =
	"give a host such as pypi.org, *.example.org or [2001:4860::1], with :PORT, or as a URL "
	"such as https://host/path/*";

/* ---- ports, methods, networks ---- */

static int read_ports(struct network_rule *r, const char *text, struct err *e)
{
	char word[8];

	for (;;) {
		size_t n = strcspn(text, ",");
		uint64_t port;

		if (n == 0 || n >= sizeof word)
			return err_set(
				e, 0,
				"port \"%.40s\": give numbers from 1 to 65535, such as :443 or :80,443",
				text);
		memcpy(word, text, n);
		word[n] = '\0';
		if (parse_count(word, 1, 65535, &port) < 0)
			return err_set(e, 0, "port \"%.20s\": give a number from 1 to 65535", word);
		if (r->port_count == RULE_PORTS_MAX)
			return err_set(e, 0, "at most %d ports in a rule", RULE_PORTS_MAX);
		r->ports[r->port_count++] = (uint16_t)port;
		if (!text[n])
			return 0;
		text += n + 1;
	}
}

static int read_methods(struct network_rule *r, const char *text, struct err *e)
{
	for (;;) {
		size_t n = strcspn(text, ",");

		if (n == 0 || n >= METHOD_SIZE)
			return err_set(e, 0, "methods \"%.60s\": give names such as GET,HEAD",
				       text);
		if (r->method_count == RULE_METHODS_MAX)
			return err_set(e, 0, "at most %d methods in a rule", RULE_METHODS_MAX);
		memcpy(r->methods[r->method_count], text, n);
		if (strcmp(r->methods[r->method_count], "CONNECT") == 0 ||
		    strcmp(r->methods[r->method_count], "TRACE") == 0)
			return err_set(e, 0, "method %s: is never passed on",
				       r->methods[r->method_count]);
		r->method_count++;
		if (!text[n])
			return 0;
		text += n + 1;
	}
}

static int net_bytes(const struct sockaddr_storage *a, const unsigned char **ret)
{
	if (a->ss_family == AF_INET) {
		*ret = (const unsigned char *)&((const struct sockaddr_in *)a)->sin_addr;
		return 4;
	}
	*ret = (const unsigned char *)&((const struct sockaddr_in6 *)a)->sin6_addr;
	return 16;
}

bool network_net_has(const struct network_net *n, const struct sockaddr *address)
{
	struct sockaddr_storage other = {0};
	const unsigned char *a, *b;
	unsigned rest = n->bits % 8;
	int size;

	if (address->sa_family != n->address.ss_family)
		return false;
	memcpy(&other, address,
	       address->sa_family == AF_INET ? sizeof(struct sockaddr_in)
					     : sizeof(struct sockaddr_in6));
	size = net_bytes(&n->address, &a);
	net_bytes(&other, &b);
	if (memcmp(a, b, n->bits / 8) != 0)
		return false;
	return (int)(n->bits / 8) == size || rest == 0 ||
	       (a[n->bits / 8] ^ b[n->bits / 8]) >> (8 - rest) == 0;
}

/* Bits behind the prefix are zero: 10.1.2.3/8 may have meant something else. */
static bool is_whole(const struct network_net *n)
{
	const unsigned char *a;
	int size = net_bytes(&n->address, &a);

	for (unsigned bit = n->bits; bit < (unsigned)size * 8; bit++)
		if (a[bit / 8] & 0x80 >> bit % 8)
			return false;
	return true;
}

int network_net_read(const char *text, size_t size, struct network_net *ret, struct err *e)
{
	char host[HOST_SIZE], word[64] = "";
	uint64_t bits = 0;
	char *slash;

	if (size < sizeof word)
		memcpy(word, text, size);
	slash = strchr(word, '/');
	if (slash)
		*slash = '\0';
	*ret = (struct network_net){0};
	if (!slash || network_host(word, strlen(word), host) < 0 ||
	    !network_host_address(host, &ret->address) ||
	    parse_count(slash + 1, 0, ret->address.ss_family == AF_INET ? 32 : 128, &bits) < 0)
		return err_set(
			e, 0,
			"network \"%.*s\": give ADDRESS/BITS such as 10.0.0.0/8 or fd12:3456::/48",
			(int)(size < 60 ? size : 60), text);
	ret->bits = (unsigned)bits;
	if (!is_whole(ret))
		return err_set(
			e, 0,
			"network \"%.*s\": has bits behind its /%u; give the network's first address",
			(int)size, text, ret->bits);
	if (ret->bits < (ret->address.ss_family == AF_INET ? 8u : 7u))
		return err_set(e, 0,
			       "network \"%.*s\": is too wide; IPv4 from /8 on, IPv6 from /7 on",
			       (int)size, text);
	return 0;
}

static int read_within(struct network_rule *r, const char *text, struct err *e)
{
	for (;;) {
		size_t n = strcspn(text, ",");

		if (r->net_count == RULE_NETS_MAX)
			return err_set(e, 0, "within=: at most %d networks in a rule",
				       RULE_NETS_MAX);
		if (network_net_read(text, n, &r->nets[r->net_count], e) < 0)
			return err_prefix(e, "within=");
		r->net_count++;
		if (!text[n])
			return 0;
		text += n + 1;
	}
}

/* ---- hosts ---- */

static int read_wildcard(struct network_rule *r, const char **host, size_t *size, struct err *e)
{
	size_t stars = strspn(*host, "*");

	if (stars > *size)
		stars = *size;
	if (stars == *size && stars == 1) {
		r->form = HOST_ANY;
		if (!r->deny)
			return err_set(
				e, 0,
				"\"*\" would allow every host: say --network open (mode open) for that, or name hosts");
		return 1;
	}
	if (stars > 2 || (stars && (*host)[stars] != '.') ||
	    memchr(*host + stars, '*', *size - stars))
		return err_set(
			e, 0,
			"host \"%.*s\": \"*\" stands alone as the leftmost label: *.example.org (one label), **.example.org (any number)",
			(int)(*size < 100 ? *size : 100), *host);
	r->form = stars == 2 ? HOST_ANY_LABELS : stars == 1 ? HOST_ONE_LABEL : HOST_EXACT;
	if (stars) {
		*host += stars + 1;
		*size -= stars + 1;
	}
	return 0;
}

static int bad_host(const char *host, size_t size, struct err *e)
{
	for (size_t i = 0; i < size; i++)
		if ((unsigned char)host[i] >= 0x80)
			return err_set(
				e, 0,
				"host \"%.*s\": write it as DNS has it (xn--...), with ASCII letters only",
				(int)(size < 100 ? size : 100), host);
	return err_set(e, 0,
		       "host \"%.*s\": is neither a name nor an address in its canonical form; %s",
		       (int)(size < 100 ? size : 100), host, target_grammar);
}

static int read_host(struct network_rule *r, const char *host, size_t size, struct err *e)
{
	char canonical[HOST_SIZE];
	int any = read_wildcard(r, &host, &size, e);

	if (any < 0)
		return -1;
	if (any)
		size = 0;
	else if (network_host(host, size, canonical) < 0)
		return bad_host(host, size, e);
	r->host = strdup(size ? canonical : "");
	if (!r->host)
		return err_set(e, ENOMEM, "keep a rule");
	r->is_address = network_host_address(r->host, &r->address);
	if (!r->is_address)
		return 0;
	if (r->form != HOST_EXACT)
		return bad_host(host, size, e);
	if (strncmp(r->host, *host == '[' ? host + 1 : host, strlen(r->host)) != 0)
		return err_set(e, 0, "host \"%.*s\": write the address as %s", (int)size, host,
			       r->host);
	return 0;
}

/* HOST[:PORTS] up to end. An IPv6 address stands in brackets. */
static int read_authority(struct network_rule *r, const char *text, size_t size, struct err *e)
{
	const char *close = *text == '[' ? memchr(text, ']', size) : NULL;
	const char *colon =
		memchr(close ? close : text, ':', size - (close ? (size_t)(close - text) : 0));
	size_t host = colon ? (size_t)(colon - text) : size;
	char ports[64];

	if (memchr(text, '@', size))
		return err_set(e, 0,
			       "\"%.*s\": no user name or password in a rule (see --credential)",
			       (int)(size < 60 ? size : 60), text);
	if (!close && colon && memchr(colon + 1, ':', size - host - 1))
		return err_set(e, 0,
			       "\"%.*s\": an IPv6 address stands in brackets: [2001:4860::1]:443",
			       (int)(size < 60 ? size : 60), text);
	if (close && close[1] && (size_t)(close + 1 - text) < size && close + 1 != colon)
		return err_set(e, 0, "\"%.*s\": only :PORT may follow an address",
			       (int)(size < 60 ? size : 60), text);
	if (read_host(r, text, host, e) < 0)
		return -1;
	if (!colon)
		return 0;
	if (size - host - 1 >= sizeof ports)
		return err_set(e, 0, "too many ports");
	memcpy(ports, colon + 1, size - host - 1);
	ports[size - host - 1] = '\0';
	return read_ports(r, ports, e);
}

static int read_path(struct network_rule *r, const char *path, struct err *e)
{
	if (strcmp(path, "/") == 0)
		return err_set(
			e, 0,
			"path /: leave it out for the whole host, or say /* to look at each request");
	if (strpbrk(path, "?#\\%"))
		return err_set(
			e, 0,
			"path %.100s: is compared without query and after decoding; it has no ?, #, \\ or %%",
			path);
	if (strstr(path, "//") || strstr(path, "/./") || strstr(path, "/../"))
		return err_set(e, 0, "path %.100s: has an empty, \".\" or \"..\" part", path);
	r->path = strdup(path);
	return r->path ? 0 : err_set(e, ENOMEM, "keep a rule");
}

static bool is_methods(const char *word)
{
	return isupper((unsigned char)*word) &&
	       strspn(word, "ABCDEFGHIJKLMNOPQRSTUVWXYZ-,") == strlen(word);
}

static int read_target(struct network_rule *r, const char *text, struct err *e)
{
	static const struct {
		const char *prefix;
		int scheme;
		uint16_t port;
	} schemes[] = {{"https://", SCHEME_HTTPS, 443}, {"http://", SCHEME_HTTP, 80}};
	const char *sep = strstr(text, "://");
	size_t i = 0;

	if (is_methods(text))
		return err_set(e, 0, "\"%.60s\": is a method without a host behind it; %s", text,
			       target_grammar);
	if (!sep) {
		if (strchr(text, '/'))
			return err_set(
				e, 0,
				"\"%.100s\": a path needs its scheme (https://%.100s); a network is no host (HOST within=%.50s)",
				text, text, text);
		return read_authority(r, text, strlen(text), e);
	}
	while (i < ARRAY_SIZE(schemes) &&
	       strncasecmp(text, schemes[i].prefix, strlen(schemes[i].prefix)) != 0)
		i++;
	if (i == ARRAY_SIZE(schemes))
		return err_set(
			e, 0,
			"\"%.100s\": only https:// and http:// are known; for other protocols give HOST:PORT",
			text);
	r->scheme = schemes[i].scheme;
	text = sep + 3;
	if (read_authority(r, text, strcspn(text, "/?#"), e) < 0)
		return -1;
	if (r->port_count == 0)
		r->ports[r->port_count++] = schemes[i].port;
	text += strcspn(text, "/?#");
	return *text ? read_path(r, text, e) : 0;
}

/* ---- the whole ---- */

/* Words that make no sense together. */
static int check_rule(const struct network_rule *r, struct err *e)
{
	if (r->passthrough && r->deny)
		return err_set(e, 0, "passthrough: belongs to allow rules");
	if (r->passthrough && (network_rule_looks(r) || r->scheme == SCHEME_HTTP))
		return err_set(
			e, 0,
			"passthrough: its TLS is never opened, so methods, paths and http:// cannot be seen");
	if (r->deny && r->net_count && network_rule_looks(r))
		return err_set(
			e, 0, "within=: a network is denied as a whole, without methods and paths");
	if (r->is_address && r->net_count)
		return err_set(e, 0, "within=: %s is an address already", r->host);
	return 0;
}

static int read_words(struct network_rule *r, char *words, struct err *e)
{
	char *save = NULL, *word = strtok_r(words, " \t", &save), *next;
	bool has_target = false;

	for (; word; word = next) {
		next = strtok_r(NULL, " \t", &save);
		if (strncmp(word, "within=", 7) == 0) {
			if (!has_target)
				return err_set(e, 0, "within=: stands behind the host");
			if (read_within(r, word + 7, e) < 0)
				return -1;
		} else if (has_target) {
			return err_set(e, 0,
				       "\"%.60s\": only within=NETWORK may stand behind the host",
				       word);
		} else if (strcmp(word, "passthrough") == 0 && next && !r->passthrough) {
			r->passthrough = true;
		} else if (next && is_methods(word) && !r->method_count) {
			if (read_methods(r, word, e) < 0)
				return -1;
		} else {
			if (read_target(r, word, e) < 0)
				return -1;
			has_target = true;
		}
	}
	return has_target ? check_rule(r, e) : err_set(e, 0, "names no host; %s", target_grammar);
}

int network_rule_read(struct network_rule *ret, bool deny, const char *rest, struct err *e)
{
	char words[RULE_TEXT_MAX];
	size_t n = strlen(rest);

	*ret = (struct network_rule){.deny = deny};
	if (n + sizeof "allow " > RULE_TEXT_MAX)
		return err_set(e, 0, "is longer than %d bytes", RULE_TEXT_MAX - 1);
	for (size_t i = 0; i < n; i++)
		if (((unsigned char)rest[i] < 0x20 && rest[i] != '\t') || rest[i] == 0x7f)
			return err_set(e, 0, "has a control character");
	memcpy(words, rest, n + 1);
	if (read_words(ret, words, e) < 0)
		return -1;
	if (!deny && ret->port_count == 0) {
		ret->ports[ret->port_count++] = 443;
		ret->ports[ret->port_count++] = 80;
	}
	if (asprintf(&ret->text, "%s %s", deny ? "deny" : "allow", rest) < 0) {
		ret->text = NULL;
		return err_set(e, ENOMEM, "keep a rule");
	}
	/* It is shown, and is part of records, which have no control characters. */
	for (char *p = ret->text; (p = strchr(p, '\t'));)
		*p = ' ';
	return 0;
}

void network_rule_done(struct network_rule *r)
{
	free(r->text);
	free(r->host);
	free(r->path);
	*r = (struct network_rule){0};
}

bool network_rule_looks(const struct network_rule *r)
{
	return r->method_count > 0 || r->path;
}
