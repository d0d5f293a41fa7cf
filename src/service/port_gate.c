/* SPDX-License-Identifier: Apache-2.0 */
#include "service/port_gate.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/units.h"

enum { ID_DIGITS = 32, PORT_DIGITS = 5, DESTINATION_MAX = 9000, COOKIES_MAX = 200 };
#define QUERY_NAME "cloche_token="

/* ---- names ---- */

/* "sbx_" or "sbx-" (not every client takes "_" in a host), whatever its case. */
static bool take_id(const char *p, char *ret)
{
	if (strncasecmp(p, "sbx", 3) != 0 || (p[3] != '_' && p[3] != '-'))
		return false;
	memcpy(ret, "sbx_", 4);
	for (int i = 0; i < ID_DIGITS; i++) {
		char c = (char)tolower((unsigned char)p[4 + i]);

		if (!isdigit((unsigned char)c) && !(c >= 'a' && c <= 'f'))
			return false;
		ret[4 + i] = c;
	}
	ret[4 + ID_DIGITS] = '\0';
	return true;
}

bool port_host_parse(const char *domain, const char *host, char ret_id[static 64],
		     char ret_port[static 64])
{
	size_t n = host ? strspn(host, "0123456789") : 0, all = strlen(domain);
	char id[64], port[PORT_DIGITS + 1];
	uint64_t number;
	const char *p;

	if (n < 1 || n > PORT_DIGITS || host[0] == '0' || host[n] != '-' ||
	    !take_id(host + n + 1, id))
		return false;
	memcpy(port, host, n);
	port[n] = '\0';
	p = host + n + 1 + 4 + ID_DIGITS;
	if (parse_count(port, 1, 65535, &number) < 0 || *p++ != '.' ||
	    strncasecmp(p, domain, all) != 0)
		return false;
	p += all;
	if (*p && (*p != ':' || p[1 + strspn(p + 1, "0123456789")]))
		return false;
	memcpy(ret_id, id, sizeof id);
	memcpy(ret_port, port, sizeof port);
	return true;
}

/* ---- secrets ---- */

/* The value of the next piece with this name in a list that sep parts, which moves on behind it; false: there is none. What is
 * too long for a secret is "". */
static bool next_piece(const char **list, const char *name, char sep, char ret[static SECRET_SIZE])
{
	size_t named = strlen(name);
	const char *p = *list;

	while (p && *p) {
		const char *end = strchrnul(p, sep);
		size_t n;

		p += strspn(p, " ");
		*list = *end ? end + 1 : end;
		if (strncmp(p, name, named) == 0) {
			n = (size_t)(end - p) - named;
			n = n < SECRET_SIZE ? n : 0;
			memcpy(ret, p + named, n);
			ret[n] = '\0';
			return true;
		}
		p = *list;
	}
	return false;
}

/* Everything but the pieces of this name; false: it does not fit. */
static bool without_piece(const char *list, const char *name, char sep, char *ret, size_t size)
{
	size_t named = strlen(name), at = 0;

	for (const char *end; *list; list = *end ? end + 1 : end) {
		size_t n;

		end = strchrnul(list, sep);
		list += strspn(list, " ");
		n = list < end ? (size_t)(end - list) : 0;
		if (n == 0 || strncmp(list, name, named) == 0)
			continue;
		if (at + n + 3 > size)
			return false;
		if (at) {
			ret[at++] = sep;
			if (sep == ';')
				ret[at++] = ' ';
		}
		memcpy(ret + at, list, n);
		at += n;
	}
	ret[at] = '\0';
	return true;
}

bool port_gate_cookies(const char *cookies, char *ret, size_t size)
{
	return cookies && without_piece(cookies, PORT_TOKEN_COOKIE "=", ';', ret, size) && *ret;
}

bool port_gate_query(const char *query, char *ret, size_t size)
{
	char ignored[SECRET_SIZE];
	const char *list = query;

	if (next_piece(&list, QUERY_NAME, '&', ignored))
		return without_piece(query, QUERY_NAME, '&', ret, size);
	return snprintf(ret, size, "%s", query ? query : "") < (int)size;
}

bool port_gate_may_set(const char *cookie)
{
	size_t named = sizeof PORT_TOKEN_COOKIE - 1;
	const char *p = cookie + strspn(cookie, " \t");

	if (strncasecmp(p, PORT_TOKEN_COOKIE, named) == 0 &&
	    strchr("= \t;", p[named])) /* also without a value */
		return false;
	while ((p = strchr(p, ';'))) {
		p++;
		p += strspn(p, " \t");
		if (strncasecmp(p, "domain", 6) == 0 && strchr("= \t;", p[6]))
			return false;
	}
	return true;
}

/* ---- who comes in ---- */

static bool is_visit(const struct exchange *x)
{
	const char *mode = exchange_field(x, "sec-fetch-mode");
	const char *method = exchange_method(x);

	return mode && strcmp(mode, "navigate") == 0 &&
	       (strcmp(method, "GET") == 0 || strcmp(method, "HEAD") == 0);
}

/* What a page of another origin can make a browser send, with the cookie or (on loopback) without, is not heard. */
static int check_origin(const struct exchange *x, struct err *e)
{
	const char *site = exchange_field(x, "sec-fetch-site");

	if (!call_has_own_origin(x))
		return problem_set(e, PROBLEM_FORBIDDEN,
				   "requests of pages from elsewhere are not served");
	if (site && strcmp(site, "none") != 0 && strcmp(site, "same-origin") != 0 && !is_visit(x))
		return problem_set(e, PROBLEM_FORBIDDEN,
				   "requests of pages from elsewhere are not served");
	return 0;
}

bool port_gate_is_key(const char *authorization)
{
	return authorization && strncasecmp(authorization, "Bearer clk_", 11) == 0;
}

/* Which secret it brought in a field or the query; false: none. */
static bool find_secret(struct call *c, char ret[static SECRET_SIZE])
{
	const char *field = exchange_field(c->x, PORT_TOKEN_FIELD);
	const char *query = exchange_raw_query(c->x);

	if (field) {
		snprintf(ret, SECRET_SIZE, "%s", strlen(field) < SECRET_SIZE ? field : "");
		return true;
	}
	c->gate.in_query = next_piece(&query, QUERY_NAME, '&', ret);
	return c->gate.in_query;
}

static int admit_secret(struct call *c, const char *secret, struct err *e)
{
	struct box *b = box_find(c->service, c->id);
	struct stored_share share;
	uint64_t port;
	int r = parse_count(c->sub, 1, 65535, &port) < 0
			? 1
			: store_share_find(c->service->store, c->id, (unsigned)port, secret, &share,
					   e);

	if (r < 0) {
		e->code = PROBLEM_UNAVAILABLE;
		return -1;
	}
	if (r > 0 || !b)
		return problem_set(
			e, PROBLEM_UNAUTHENTICATED,
			"this share of the port has expired, was revoked, or never was one: ask "
			"whoever gave it to you for a new one");
	snprintf(c->owner, sizeof c->owner, "%s", b->stored.owner);
	snprintf(c->gate.secret, sizeof c->gate.secret, "%s", secret);
	c->gate.expires_ms = share.expires_ms;
	return 0;
}

/* A page of another sandbox under the same domain may set cookies of this name for all names there, which the browser sends
 * first: any that is a share's will do. 0, 1 there is none, -1. */
static int admit_cookie(struct call *c, struct err *e)
{
	const char *list = exchange_field(c->x, "cookie");
	char secret[SECRET_SIZE];
	int r = 1;

	/* An old cookie is no hindrance to who has a key. */
	if (port_gate_is_key(exchange_field(c->x, "authorization")))
		return 1;
	for (int i = 0;
	     i < COOKIES_MAX && r != 0 && next_piece(&list, PORT_TOKEN_COOKIE "=", ';', secret);
	     i++) {
		r = admit_secret(c, secret, e);
		if (r < 0 && e->code == PROBLEM_UNAVAILABLE)
			return -1;
	}
	return r;
}

int port_gate_check(struct call *c, struct err *e)
{
	char secret[SECRET_SIZE];
	int r;

	if (check_origin(c->x, e) < 0)
		return -1;
	if (exchange_peer(c->x)->kind != PEER_TCP)
		return 1;
	r = find_secret(c, secret) ? admit_secret(c, secret, e) : admit_cookie(c, e);
	if (r != 0)
		return r;
	if (c->gate.in_query && strcmp(exchange_method(c->x), "GET") != 0)
		return err_set(e, 0,
			       "cloche_token: in the query of a GET only, else in the field %s",
			       "X-Cloche-Port-Token");
	port_shared_enter(c);
	return 0;
}

/* As it came, but for what some take for a slash, and so for the beginning of another host. */
static bool write_path(const char *path, char *ret, size_t size)
{
	size_t at = 0;

	for (; *path && at + 4 <= size; path++) {
		if (*path == '\\') {
			memcpy(ret + at, "%5C", 3);
			at += 3;
		} else {
			ret[at++] = *path;
		}
	}
	ret[at] = '\0';
	return !*path;
}

/* SameSite=Lax, not Strict: who follows a link to it from another page, as the one that shows the URL is, would come to a
 * redirect without its cookie. What Lax lets through besides is what check_origin() looks at. */
void port_gate_redirect(struct call *c)
{
	char fields[2 * DESTINATION_MAX + 512], query[DESTINATION_MAX], path[DESTINATION_MAX];
	const char *raw = exchange_raw_query(c->x);
	int64_t seconds = (c->gate.expires_ms - wall_ms()) / 1000;
	struct exchange *x = c->x;
	int n = -1;

	if (raw && without_piece(raw, QUERY_NAME, '&', query, sizeof query) &&
	    write_path(exchange_raw_path(x), path, sizeof path))
		n = snprintf(fields, sizeof fields,
			     "Location: %s%s%s\r\n"
			     "Set-Cookie: %s=%s; Path=/; Max-Age=%lld; HttpOnly; SameSite=Lax%s\r\n"
			     "Cache-Control: no-store\r\nReferrer-Policy: no-referrer\r\n",
			     path, *query ? "?" : "", query, PORT_TOKEN_COOKIE, c->gate.secret,
			     (long long)(seconds > 0 ? seconds : 0),
			     c->service->config.tls_certificate[0] ? "; Secure" : "");
	if (n < 0 || n >= (int)sizeof fields) {
		struct err e = {0};

		err_set(&e, 0, "the address is too long");
		call_problem(c, &e);
		return;
	}
	c->service->metrics.requests[3]++;
	call_free(c);
	exchange_reply(x, 303, NULL, fields, NULL, 0);
}
