/* SPDX-License-Identifier: Apache-2.0 */
/*
 * path.c - does a request's path fit a rule's pattern, however it was written.
 *
 * A server may read "/a/%2e%2e/b", "/a//b" or "/a;x/b" in another way than we do. So a path is compared only when
 * there is one way to read it; else it fits no allow rule and every deny rule.
 */
#include <ctype.h>
#include <string.h>

#include "network/rule.h"

enum { PATH_COMPARED_MAX = 8192 };

static int hex_value(char c)
{
	return isdigit((unsigned char)c) ? c - '0' : (c | 0x20) - 'a' + 10;
}

static bool is_escape(const char *p)
{
	return p[0] == '%' && isxdigit((unsigned char)p[1]) && isxdigit((unsigned char)p[2]);
}

/* Percent-decoded once. false: what comes out could be decoded or split in another way by others. */
static bool decode(const char *path, char ret[static PATH_COMPARED_MAX])
{
	size_t n = 0;

	for (const char *p = path; *p; p++) {
		bool escaped = *p == '%';
		char c = *p;

		if (escaped) {
			if (!is_escape(p))
				return false;
			c = (char)(hex_value(p[1]) << 4 | hex_value(p[2]));
			p += 2;
		}
		if ((unsigned char)c < 0x20 || c == 0x7f || c == '\\' || (escaped && c == '/') ||
		    n + 1 == PATH_COMPARED_MAX)
			return false;
		ret[n++] = c;
	}
	ret[n] = '\0';
	for (const char *p = ret; (p = strchr(p, '%')); p++)
		if (is_escape(p))
			return false;
	return *ret == '/';
}

/* No empty, "." or ".." part, also before ";". The last may be empty: "/a/". */
static bool has_plain_parts(const char *path)
{
	while (*path) {
		size_t whole = strcspn(++path, "/"), n = strcspn(path, "/;");

		if ((whole == 0 && *path) || (n == 1 && path[0] == '.') ||
		    (n == 2 && path[0] == '.' && path[1] == '.'))
			return false;
		path += whole;
	}
	return true;
}

static bool same(char a, char b, bool any_case)
{
	return a == b || (any_case && tolower((unsigned char)a) == tolower((unsigned char)b));
}

/* "*" fits any bytes, also none. */
static bool glob(const char *pattern, const char *text, bool any_case)
{
	const char *star = NULL, *back = NULL;

	while (*text) {
		if (*pattern == '*') {
			star = pattern++;
			back = text;
		} else if (same(*pattern, *text, any_case)) {
			pattern++;
			text++;
		} else if (star) {
			pattern = star + 1;
			text = ++back;
		} else {
			return false;
		}
	}
	return pattern[strspn(pattern, "*")] == '\0';
}

bool network_glob(const char *pattern, const char *text)
{
	return glob(pattern, text, false);
}

bool network_rule_fits_path(const struct network_rule *r, const char *path)
{
	char plain[PATH_COMPARED_MAX];

	if (!r->path)
		return true;
	if (strcmp(r->path, "/*") == 0 && path && *path == '/')
		return true;
	if (!path || (r->deny && strchr(path, ';')) || !decode(path, plain) ||
	    !has_plain_parts(plain))
		return r->deny;
	return glob(r->path, plain, r->deny);
}
