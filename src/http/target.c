/* SPDX-License-Identifier: Apache-2.0 */
#include "http/target.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static int hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	if (c >= 'A' && c <= 'F')
		return c - 'A' + 10;
	return -1;
}

/* Length of the sequence at p, 0 when it is none. RFC 3629: no overlong forms, no surrogates. */
static size_t utf8_sequence(const unsigned char *p, size_t left)
{
	static const struct {
		unsigned char first, last, second_min, second_max, length;
	} forms[] = {
		{0xc2, 0xdf, 0x80, 0xbf, 2}, {0xe0, 0xe0, 0xa0, 0xbf, 3},
		{0xe1, 0xec, 0x80, 0xbf, 3}, {0xed, 0xed, 0x80, 0x9f, 3},
		{0xee, 0xef, 0x80, 0xbf, 3}, {0xf0, 0xf0, 0x90, 0xbf, 4},
		{0xf1, 0xf3, 0x80, 0xbf, 4}, {0xf4, 0xf4, 0x80, 0x8f, 4},
	};

	if (p[0] < 0x80)
		return 1;
	for (size_t i = 0; i < ARRAY_SIZE(forms); i++) {
		if (p[0] < forms[i].first || p[0] > forms[i].last)
			continue;
		if (left < forms[i].length || p[1] < forms[i].second_min ||
		    p[1] > forms[i].second_max)
			return 0;
		for (size_t k = 2; k < forms[i].length; k++)
			if ((p[k] & 0xc0) != 0x80)
				return 0;
		return forms[i].length;
	}
	return 0;
}

bool utf8_valid(const char *text, size_t size)
{
	for (size_t i = 0; i < size;) {
		size_t n = utf8_sequence((const unsigned char *)text + i, size - i);

		if (n == 0)
			return false;
		i += n;
	}
	return true;
}

/* Decode %XX into out, which has room; '+' as a space for queries. NULL with *why, else the end. */
static char *decode(const char *text, size_t size, bool plus, char *out, const char **why)
{
	for (size_t i = 0; i < size; i++) {
		if (text[i] != '%') {
			*out++ = plus && text[i] == '+' ? ' ' : text[i];
			continue;
		}

		int high = size - i > 2 ? hex_digit(text[i + 1]) : -1;
		int low = high >= 0 ? hex_digit(text[i + 2]) : -1;

		if (low < 0) {
			*why = "a '%' in the target that two hexadecimal digits do not follow";
			return NULL;
		}
		if (high == 0 && low == 0) {
			*why = "%00 in the target";
			return NULL;
		}
		*out++ = (char)(high << 4 | low);
		i += 2;
	}
	*out = '\0';
	return out;
}

static const char *component_fault(const char *text, size_t size, bool last)
{
	if (size == 0 && !last)
		return "an empty component in the path";
	if ((size == 1 && text[0] == '.') || (size == 2 && text[0] == '.' && text[1] == '.'))
		return "a \".\" or \"..\" component in the path";
	if (memchr(text, '/', size))
		return "an encoded slash in the path";
	for (size_t i = 0; i < size; i++)
		if ((unsigned char)text[i] < 0x20 || text[i] == 0x7f)
			return "a control character in the path";
	return utf8_valid(text, size) ? NULL : "a path that is not UTF-8";
}

static int decode_path(const char *text, size_t size, char *out, const char **why)
{
	size_t at = 1;

	*out++ = '/';
	for (;;) {
		const char *slash = memchr(text + at, '/', size - at);
		size_t n = slash ? (size_t)(slash - text) - at : size - at;
		char *end = decode(text + at, n, false, out, why);

		if (!end)
			return -EINVAL;
		*why = component_fault(out, (size_t)(end - out), !slash);
		if (*why)
			return -EINVAL;
		if (!slash)
			return 0;
		at += n + 1;
		*end++ = '/';
		*end = '\0';
		out = end;
	}
}

static int decode_query(struct target *t, const char *text, size_t size, char *out,
			const char **why)
{
	for (size_t at = 0; at < size;) {
		const char *amp = memchr(text + at, '&', size - at);
		size_t n = amp ? (size_t)(amp - text) - at : size - at;
		const char *equals = memchr(text + at, '=', n);
		size_t name = equals ? (size_t)(equals - text) - at : n;
		struct param *p = &t->params[t->param_count];

		if (n > 0) {
			if (t->param_count == TARGET_MAX_PARAMS) {
				*why = "too many query parameters";
				return -EINVAL;
			}
			p->name = out;
			out = decode(text + at, name, true, out, why);
			if (!out)
				return -EINVAL;
			p->value = equals ? ++out : out;
			if (equals)
				out = decode(equals + 1, n - name - 1, true, out, why);
			if (!out)
				return -EINVAL;
			out++;
			t->param_count++;
		}
		at += n + 1;
	}
	return 0;
}

static const char *byte_fault(const char *text, size_t size)
{
	for (size_t i = 0; i < size; i++) {
		unsigned char c = (unsigned char)text[i];

		if (c <= 0x20 || c >= 0x7f)
			return "a byte in the target that has to be encoded";
		if (c == '#')
			return "a fragment in the target";
	}
	return NULL;
}

int target_parse(const char *text, size_t size, struct target *ret, const char **ret_why)
{
	const char *mark = memchr(text, '?', size);
	size_t path = mark ? (size_t)(mark - text) : size, query = mark ? size - path - 1 : 0;
	struct target t = {0};
	char *at;
	int r;

	*ret_why = byte_fault(text, size);
	if (!*ret_why && (path == 0 || text[0] != '/'))
		*ret_why = "the target is no absolute path";
	if (*ret_why)
		return -EINVAL;
	/* path, raw path, raw query, decoded query: each no longer than its source and a NUL, and the
	 * decoded parameters two NULs for each of their separators */
	t.memory = malloc(2 * (path + 1) + (query + 1) + 2 * query + 2);
	if (!t.memory)
		return -ENOMEM;
	at = t.memory + path + 1;
	t.path = t.memory;
	t.raw_path = memcpy(at, text, path);
	at[path] = '\0';
	at += path + 1;
	t.raw_query = mark ? memcpy(at, mark + 1, query) : at;
	at[query] = '\0';
	at += query + 1;
	r = decode_path(text, path, t.memory, ret_why);
	if (r == 0 && query > 0)
		r = decode_query(&t, mark + 1, query, at, ret_why);
	if (r < 0) {
		free(t.memory);
		return r;
	}
	*ret = t;
	return 0;
}

void target_done(struct target *t)
{
	free(t->memory);
	*t = (struct target){0};
}

const char *target_param(const struct target *t, const char *name)
{
	for (size_t i = 0; i < t->param_count; i++)
		if (strcmp(t->params[i].name, name) == 0)
			return t->params[i].value;
	return NULL;
}

int target_check(const struct target *t, const char *const allowed[], const char **ret_bad)
{
	for (size_t i = 0; i < t->param_count; i++) {
		const char *name = t->params[i].name;
		size_t k = 0;

		while (allowed[k] && strcmp(allowed[k], name) != 0)
			k++;
		if (!allowed[k] || target_param(t, name) != t->params[i].value) {
			*ret_bad = name;
			return -1;
		}
	}
	return 0;
}
