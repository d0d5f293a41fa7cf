/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes through the redactor: where they are cut must not matter, nothing gets longer or other than "*", and what was
 * covered once stays so. The same against a plain implementation that tries every pattern's escapes at every place.
 *
 * Input: one byte of a seed for the cuts, then the text.
 */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "egress/credential.h"

/* What may not stand anywhere afterwards, escaped or not: the secrets, and what base64 makes of them alone. */
static const char *const secrets[] = {"Bearer a%b/", "a%b/",   "k\\u+", "Basic dTpwYXNz",
				      "dTpwYXNz",    "u:pass", "pass"};

static void settings_make(struct egress_settings *s)
{
	static char bearer[] = "Bearer a%b/", odd[] = "k\\u+", basic[] = "Basic dTpwYXNz";
	char *const values[] = {bearer, odd, basic};

	*s = (struct egress_settings){.credential_count = 3};
	for (size_t i = 0; i < 3; i++) {
		s->credentials[i] = (struct credential){.header = "Authorization", .port = 443};
		s->credentials[i].value = values[i];
		s->credentials[i].size = strlen(values[i]);
	}
}

static bool plain_hex(const uint8_t *t, char c)
{
	static const char digits[] = "0123456789abcdef";

	return tolower(t[0]) == digits[(unsigned char)c >> 4] && tolower(t[1]) == digits[c & 15];
}

/* How wide the pattern's byte stands at t, in this way of escaping it; 0: it does not. */
static size_t plain_width(int way, char c, const uint8_t *t, size_t left)
{
	switch (way) {
	case 0:
		return left > 0 && t[0] == (uint8_t)c;
	case 1:
		return left > 0 && t[0] == '+' && c == ' ';
	case 2:
		return left > 2 && t[0] == '%' && plain_hex(t + 1, c) ? 3 : 0;
	case 3:
		return left > 5 && memcmp(t, "\\u00", 4) == 0 && plain_hex(t + 4, c) ? 6 : 0;
	default:
		return left > 1 && t[0] == '\\' && t[1] == (uint8_t)c && strchr("\"\\/", c) ? 2 : 0;
	}
}

/* Marks every byte of every match that begins at at; pattern is what is left of it. */
static bool plain_match(const char *pattern, const uint8_t *t, size_t at, size_t size,
			uint8_t *marks)
{
	bool found = false;

	if (!*pattern)
		return true;
	for (int way = 0; way < 5; way++) {
		size_t width = plain_width(way, *pattern, t + at, size - at);

		if (width && plain_match(pattern + 1, t, at + width, size, marks)) {
			memset(marks + at, 1, width);
			found = true;
		}
	}
	return found;
}

static void check_plain(const uint8_t *t, const char *out, size_t size)
{
	uint8_t *marks = calloc(size + 1, 1);

	CHECK(marks);
	for (size_t i = 0; i < sizeof secrets / sizeof *secrets; i++)
		for (size_t at = 0; at < size; at++)
			plain_match(secrets[i], t, at, size, marks);
	for (size_t i = 0; i < size; i++)
		CHECK(marks[i] ? out[i] == '*' : true);
	free(marks);
}

static void feed_cut(const struct redactor *all, const uint8_t *text, size_t size, unsigned seed,
		     char *to)
{
	struct redactor *r = redactor_dup(all);
	size_t used = 0, at = 0;

	CHECK(r);
	for (;;) {
		size_t n, got;
		const char *out;
		bool last;

		seed = seed * 1103515245 + 12345;
		n = seed >> 16 & ((seed >> 24 & 1) ? 3 : 63);
		if (n > size - at)
			n = size - at;
		last = at + n == size;
		CHECK(redactor_feed(r, text + at, n, last, &out, &got) == 0);
		CHECK(used + got <= size);
		memcpy(to + used, out, got);
		used += got;
		at += n;
		if (last)
			break;
	}
	CHECK(used == size);
	redactor_free(r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct egress_settings settings;
	static struct redactor *all;
	char *whole, *cut;

	if (size < 1 || size > 1 << 16)
		return 0;
	if (!all) {
		settings_make(&settings);
		all = redactor_new(&settings);
	}
	whole = malloc(size);
	cut = malloc(size);
	CHECK(all && whole && cut);
	memcpy(whole, data + 1, size - 1);
	redact(all, whole, size - 1);
	feed_cut(all, data + 1, size - 1, data[0], cut);
	CHECK(memcmp(whole, cut, size - 1) == 0);
	for (size_t i = 0; i < size - 1; i++)
		CHECK(whole[i] == (char)data[i + 1] || whole[i] == '*');
	check_plain(data + 1, whole, size - 1);
	free(whole);
	free(cut);
	return 0;
}
