/* SPDX-License-Identifier: Apache-2.0 */
/*
 * challenge.c - challenges and their parameters stand in one list with commas, so a word is a parameter if a
 * "=" follows it, and otherwise the scheme of the next challenge.
 */
#include "registry/challenge.h"

#include <stdbool.h>
#include <string.h>
#include <strings.h>

struct cursor {
	const char *at;
};

static bool is_token(char c)
{
	return c > ' ' && c < 0x7f && !strchr("\"(),/:;<=>?@[\\]{}", c);
}

static void skip_blanks(struct cursor *c)
{
	c->at += strspn(c->at, " \t");
}

static size_t token(struct cursor *c, const char **ret)
{
	const char *begin = c->at;

	while (is_token(*c->at))
		c->at++;
	*ret = begin;
	return (size_t)(c->at - begin);
}

static int quoted(struct cursor *c, char *ret, size_t size)
{
	size_t n = 0;

	for (c->at++; *c->at != '"'; c->at++) {
		if (*c->at == '\\')
			c->at++;
		if ((unsigned char)*c->at < ' ' || *c->at == 0x7f || n + 1 >= size)
			return -EINVAL;
		ret[n++] = *c->at;
	}
	c->at++;
	ret[n] = '\0';
	return 0;
}

/* The value after "=", a word or a quoted text. */
static int value(struct cursor *c, char *ret, size_t size)
{
	const char *begin;
	size_t n;

	skip_blanks(c);
	if (*c->at == '"')
		return quoted(c, ret, size);
	/* Not quite a token: a URL without quotes is seen in the wild. */
	for (begin = c->at; *c->at > ' ' && *c->at < 0x7f && !strchr(",\"\\", *c->at);)
		c->at++;
	n = (size_t)(c->at - begin);
	if (n == 0 || n >= size)
		return -EINVAL;
	memcpy(ret, begin, n);
	ret[n] = '\0';
	return 0;
}

static bool is(const char *word, size_t n, const char *name)
{
	return n == strlen(name) && strncasecmp(word, name, n) == 0;
}

static int parameter(struct cursor *c, const char *name, size_t n, struct challenge *now)
{
	char room[CHALLENGE_REALM];

	if (value(c, room, sizeof room) < 0)
		return -EINVAL;
	if (is(name, n, "realm") && !*now->realm) {
		memcpy(now->realm, room, strlen(room) + 1);
	} else if (is(name, n, "service") && !*now->service) {
		if (strlen(room) >= sizeof now->service)
			return -EINVAL;
		memcpy(now->service, room, strlen(room) + 1);
	}
	return 0;
}

static void keep_better(struct challenge *best, const struct challenge *now)
{
	if (now->scheme > best->scheme)
		*best = *now;
}

static int begin_challenge(struct cursor *c, const char *word, size_t n, struct challenge *now)
{
	*now = (struct challenge){0};
	if (is(word, n, "Bearer"))
		now->scheme = CHALLENGE_BEARER;
	else if (is(word, n, "Basic"))
		now->scheme = CHALLENGE_BASIC;
	/* "Negotiate abc==": one word of base64 instead of parameters */
	if (*c->at == ' ') {
		struct cursor ahead = *c;

		skip_blanks(&ahead);
		while (is_token(*ahead.at) || *ahead.at == '/')
			ahead.at++;
		while (*ahead.at == '=')
			ahead.at++;
		skip_blanks(&ahead);
		if (*ahead.at == ',' || !*ahead.at)
			*c = ahead;
	} else if (*c->at && *c->at != ',') {
		return -EINVAL;
	}
	return 0;
}

int challenge_read(const char *text, struct challenge *ret)
{
	struct challenge best = *ret, now = {0};
	struct cursor c = {text};
	bool in_challenge = false;

	if (strnlen(text, CHALLENGE_MAX + 1) > CHALLENGE_MAX)
		return -EINVAL;
	for (;;) {
		const char *word;
		size_t n;

		c.at += strspn(c.at, " \t,");
		if (!*c.at)
			break;
		n = token(&c, &word);
		if (n == 0)
			return -EINVAL;
		if (in_challenge && c.at[strspn(c.at, " \t")] == '=') {
			skip_blanks(&c);
			c.at++;
			if (parameter(&c, word, n, &now) < 0)
				return -EINVAL;
			skip_blanks(&c);
			if (*c.at && *c.at != ',')
				return -EINVAL;
		} else {
			keep_better(&best, &now);
			if (begin_challenge(&c, word, n, &now) < 0)
				return -EINVAL;
			in_challenge = true;
		}
	}
	keep_better(&best, &now);
	*ret = best;
	return 0;
}
