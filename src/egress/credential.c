/* SPDX-License-Identifier: Apache-2.0 */
/* credential.c - whose credential it is, what it stands in place of, and a query parameter put into a target. */
#include "egress/credential.h"

#include <ctype.h>
#include <string.h>

/* What servers take for a proof of who asks; the credential's own field besides. */
static const char *const replaced[] = {"authorization", "cookie", "proxy-authorization",
				       "x-api-key"};

const struct credential *credential_for(const struct egress_settings *s, const char *host,
					uint16_t port)
{
	const char *name;

	for (size_t i = 0; (name = network_policy_credential(s->request, i)); i++)
		for (size_t k = 0; k < s->credential_count; k++) {
			const struct credential *c = &s->credentials[k];

			if (c->port == port && strcmp(c->name, name) == 0 &&
			    strcmp(c->host, host) == 0)
				return c;
		}
	return NULL;
}

bool field_is(const char *a, const char *b)
{
	for (; *a && *b; a++, b++) {
		char x = *a == '_' ? '-' : (char)tolower((unsigned char)*a);
		char y = *b == '_' ? '-' : (char)tolower((unsigned char)*b);

		if (x != y)
			return false;
	}
	return !*a && !*b;
}

bool credential_replaces(const struct credential *c, const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(replaced); i++)
		if (field_is(name, replaced[i]))
			return true;
	return c->header[0] && field_is(name, c->header);
}

/* ------------------------------------------------------------------------------------------- query */

static int hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	c = (char)tolower((unsigned char)c);
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* One character of a form's name, decoded; *at behind it. */
static char next_decoded(const char **at, const char *end)
{
	const char *p = (*at)++;

	if (*p == '+')
		return ' ';
	if (*p == '%' && end - p >= 3 && hex_digit(p[1]) >= 0 && hex_digit(p[2]) >= 0) {
		*at += 2;
		return (char)(hex_digit(p[1]) << 4 | hex_digit(p[2]));
	}
	return *p;
}

/* Is a parameter's name, up to "=" or end, this one? Blanks around it and a "[" behind it ("key[]") are what some
 * servers pass over, and so is case. */
static bool is_named(const char *at, const char *end, const char *name)
{
	const char *equals = memchr(at, '=', (size_t)(end - at));
	const char *stop = equals ? equals : end;
	char c = '\0';

	while (at < stop && (c = next_decoded(&at, stop)) && isspace((unsigned char)c))
		;
	for (;; c = at < stop ? next_decoded(&at, stop) : '\0') {
		if (!*name)
			return !c || c == '[' || isspace((unsigned char)c);
		if (tolower((unsigned char)c) != tolower((unsigned char)*name++))
			return false;
	}
}

/* The parameters of query without those of this name, each with the separator in front of it but the first. */
static char *put_others(char *to, const char *query, const char *end, const char *name)
{
	bool first = true;

	while (query < end) {
		size_t size = strcspn(query, "&;");
		char separator = query[-1] == ';' ? ';' : '&';

		if (size && !is_named(query, query + size, name)) {
			if (!first)
				*to++ = separator;
			memcpy(to, query, size);
			to += size;
			first = false;
		}
		query += size + 1;
	}
	if (!first)
		*to++ = '&';
	return to;
}

static char *put_encoded(char *to, const char *text, size_t size)
{
	static const char digits[] = "0123456789ABCDEF";

	for (size_t i = 0; i < size; i++) {
		unsigned char c = (unsigned char)text[i];

		if (isalnum(c) || strchr("-._~", c)) {
			*to++ = (char)c;
			continue;
		}
		*to++ = '%';
		*to++ = digits[c >> 4];
		*to++ = digits[c & 15];
	}
	return to;
}

/* A fragment is no part of a target (RFC 9112 §3.2): what stands behind "#" is left out, lest the parameter be in it. */
char *credential_target(const struct credential *c, const char *target)
{
	size_t size = strcspn(target, "#"), path = strcspn(target, "?#");
	_cleanup_free_ char *text = strndup(target, size);
	char *made, *to;

	if (!text || !c->query[0])
		return TAKE_PTR(text);
	made = malloc(size + 3 * strlen(c->query) + 3 * c->size + sizeof "?&=");
	if (!made)
		return NULL;
	memcpy(made, text, path);
	to = made + path;
	*to++ = '?';
	if (path < size)
		to = put_others(to, text + path + 1, text + size, c->query);
	to = put_encoded(to, c->query, strlen(c->query));
	*to++ = '=';
	to = put_encoded(to, c->value, c->size);
	*to = '\0';
	return made;
}
