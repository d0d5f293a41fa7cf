/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reference.c - the grammar is Docker's (the distribution project's "reference" package describes it):
 *
 *	name     [registry "/"] part *("/" part) [":" tag] ["@" digest]
 *	part     letters and digits, lower case, joined by one ".", one or two "_", or any number of "-"
 *	tag      a letter, digit or "_", then up to 127 of these, "." and "-"
 *
 * The text is cut from its end: digest, tag, registry; what remains is the repository.
 */
#include "image/reference.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#define HUB_OLD "index.docker.io"
#define LIBRARY "library/"

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

static bool is_lower(char c)
{
	return c >= 'a' && c <= 'z';
}

static bool is_upper(char c)
{
	return c >= 'A' && c <= 'Z';
}

static bool is_word(char c)
{
	return is_lower(c) || is_upper(c) || is_digit(c) || c == '_';
}

static bool is_hex(const char *text, size_t size)
{
	for (size_t i = 0; i < size; i++)
		if (!is_digit(text[i]) && !(text[i] >= 'a' && text[i] <= 'f'))
			return false;
	return true;
}

bool digest_is_valid(const char *text)
{
	return strlen(text) == DIGEST_TEXT && memcmp(text, "sha256:", 7) == 0 &&
	       is_hex(text + 7, 64);
}

static bool tag_is_valid(const char *text, size_t size)
{
	if (size == 0 || size > REFERENCE_TAG_MAX || !is_word(text[0]))
		return false;
	for (size_t i = 1; i < size; i++)
		if (!is_word(text[i]) && text[i] != '.' && text[i] != '-')
			return false;
	return true;
}

/* One separator of a part: ".", "_", "__", "--…". Its length, 0 if there is none. */
static size_t separator(const char *text, size_t size)
{
	size_t n = 0;

	if (text[0] == '.')
		return 1;
	if (text[0] == '_')
		return size > 1 && text[1] == '_' ? 2 : 1;
	while (n < size && text[n] == '-')
		n++;
	return n;
}

static bool part_is_valid(const char *text, size_t size)
{
	size_t i = 0;

	for (;;) {
		size_t begin = i, n;

		while (i < size && (is_lower(text[i]) || is_digit(text[i])))
			i++;
		if (i == begin)
			return false;
		if (i == size)
			return true;
		n = separator(text + i, size - i);
		if (n == 0)
			return false;
		i += n;
	}
}

static bool repository_is_valid(const char *text, size_t size)
{
	while (size > 0) {
		const char *slash = memchr(text, '/', size);
		size_t n = slash ? (size_t)(slash - text) : size;

		if (!part_is_valid(text, n))
			return false;
		if (!slash)
			return true;
		text += n + 1;
		size -= n + 1;
	}
	return false;
}

static bool host_is_valid(const char *text, size_t size)
{
	char address[INET6_ADDRSTRLEN];
	struct in6_addr in6;
	size_t label = 0;

	if (size > 2 && text[0] == '[' && text[size - 1] == ']') {
		if (size - 2 >= sizeof address)
			return false;
		memcpy(address, text + 1, size - 2);
		address[size - 2] = '\0';
		return inet_pton(AF_INET6, address, &in6) == 1;
	}
	for (size_t i = 0; i < size; i++) {
		bool letter = is_lower(text[i]) || is_digit(text[i]);
		bool edge = label == 0 || i + 1 == size || text[i + 1] == '.';

		if (text[i] == '.' && label > 0)
			label = 0;
		else if ((letter || (text[i] == '-' && !edge)) && label < 63)
			label++;
		else
			return false;
	}
	return label > 0;
}

/* host[:port]; text is lower case already. */
static bool registry_is_valid(const char *text)
{
	size_t size = strlen(text);
	const char *colon = strrchr(text, ':');
	unsigned port = 0;

	if (colon && !strchr(colon, ']')) {
		if (!colon[1] || colon[1] == '0' || strlen(colon + 1) > 5)
			return false;
		for (const char *p = colon + 1; *p; p++) {
			if (!is_digit(*p))
				return false;
			port = port * 10 + (unsigned)(*p - '0');
		}
		if (port > 65535)
			return false;
		size = (size_t)(colon - text);
	}
	return host_is_valid(text, size);
}

/* Does the first part name a registry? */
static bool names_registry(const char *text, size_t size)
{
	if (size == 9 && strncasecmp(text, "localhost", 9) == 0)
		return true;
	for (size_t i = 0; i < size; i++)
		if (text[i] == '.' || text[i] == ':')
			return true;
	return false;
}

static int bad(struct err *e, const char *text, const char *why)
{
	char shown[81];
	size_t n = 0;

	/* It may hold anything: a terminal must not be told to do something. */
	for (; text[n] && n < sizeof shown - 1; n++)
		shown[n] = text[n] > ' ' && text[n] < 0x7f ? text[n] : '?';
	shown[n] = '\0';
	return err_set(e, 0, "image name %s%s: %s", shown, text[n] ? "..." : "", why);
}

static int cut_digest(const char *text, size_t *size, struct reference *r, struct err *e)
{
	const char *at = memchr(text, '@', *size);

	if (!at)
		return 0;
	if (strncmp(at + 1, "sha256:", 7) != 0)
		return bad(
			e, text,
			"after the @ there must be a digest sha256:…, other kinds are not supported");
	if (!digest_is_valid(at + 1))
		return bad(e, text, "a digest is sha256: and 64 digits 0-9a-f");
	memcpy(r->digest, at + 1, DIGEST_TEXT);
	*size = (size_t)(at - text);
	return 0;
}

static int cut_tag(const char *text, size_t *size, struct reference *r, struct err *e)
{
	const char *slash = memrchr(text, '/', *size);
	const char *last = slash ? slash + 1 : text;
	const char *colon = memchr(last, ':', *size - (size_t)(last - text));
	size_t length;

	if (!colon) {
		if (!*r->digest)
			memcpy(r->tag, "latest", 7);
		return 0;
	}
	length = *size - (size_t)(colon + 1 - text);
	if (!tag_is_valid(colon + 1, length))
		return bad(e, text,
			   "a tag has 1 to 128 letters, digits, and not at its beginning . and -");
	memcpy(r->tag, colon + 1, length);
	*size = (size_t)(colon - text);
	return 0;
}

/* The registry, or Docker Hub. *ret_rest is how much of the text belongs to it. */
static int cut_registry(const char *text, size_t size, struct reference *r, size_t *ret_rest,
			struct err *e)
{
	const char *slash = memchr(text, '/', size);
	size_t n = slash ? (size_t)(slash - text) : 0;

	*ret_rest = 0;
	if (!slash || !names_registry(text, n)) {
		memcpy(r->registry, REFERENCE_HUB, sizeof REFERENCE_HUB);
		return 0;
	}
	if (n > REFERENCE_REGISTRY_MAX)
		return bad(e, text, "the registry's name is longer than 255 characters");
	for (size_t i = 0; i < n; i++)
		r->registry[i] = is_upper(text[i]) ? (char)(text[i] - 'A' + 'a') : text[i];
	r->registry[n] = '\0';
	if (!registry_is_valid(r->registry))
		return bad(e, text,
			   "what stands before the first / is no host name with or without :port");
	if (strcmp(r->registry, HUB_OLD) == 0) {
		memset(r->registry, 0, sizeof r->registry); /* equal references are equal bytes */
		memcpy(r->registry, REFERENCE_HUB, sizeof REFERENCE_HUB);
	}
	*ret_rest = n + 1;
	return 0;
}

static int take_repository(const char *whole, const char *text, size_t size, struct reference *r,
			   struct err *e)
{
	bool hub = strcmp(r->registry, REFERENCE_HUB) == 0;
	size_t prefix = hub && !memchr(text, '/', size) ? sizeof LIBRARY - 1 : 0;

	for (size_t i = 0; i < size; i++)
		if (is_upper(text[i]))
			return bad(e, whole, "a repository's name is lower case");
	if (!repository_is_valid(text, size))
		return bad(
			e, whole,
			"a repository is words of a-z 0-9, joined by . _ __ or -, between slashes");
	if (prefix + size > REFERENCE_REPOSITORY_MAX)
		return bad(e, whole, "the repository's name is longer than 255 characters");
	if (prefix && size == 64 && is_hex(text, size))
		return bad(
			e, whole,
			"64 digits 0-9a-f are an image's id, not a name; put sha256: and a name@ before them");
	if (prefix && size == 7 && memcmp(text, "scratch", 7) == 0)
		return bad(e, whole, "scratch is the name of the empty image and cannot be had");
	memcpy(r->repository, LIBRARY, prefix);
	memcpy(r->repository + prefix, text, size);
	return 0;
}

int reference_parse(const char *text, struct reference *ret, struct err *e)
{
	struct reference r = {0};
	size_t size = strnlen(text, REFERENCE_TEXT), rest;

	if (size == 0)
		return err_set(e, 0, "image name: is empty; write one like python:3.12-slim");
	if (size == REFERENCE_TEXT)
		return bad(e, text, "is too long");
	if (cut_digest(text, &size, &r, e) < 0 || cut_tag(text, &size, &r, e) < 0 ||
	    cut_registry(text, size, &r, &rest, e) < 0 ||
	    take_repository(text, text + rest, size - rest, &r, e) < 0)
		return -1;
	*ret = r;
	return 0;
}

static void format(const char *registry, const char *repository, const struct reference *r,
		   char *ret)
{
	snprintf(ret, REFERENCE_TEXT, "%s%s%s%s%s%s%s", registry, *registry ? "/" : "", repository,
		 *r->tag ? ":" : "", r->tag, *r->digest ? "@" : "", r->digest);
}

void reference_format(const struct reference *r, char ret[static REFERENCE_TEXT])
{
	format(r->registry, r->repository, r, ret);
}

/* "docker.io/library/a/b" is not "a/b", and "docker.io/library/localhost/b" neither. */
void reference_familiar(const struct reference *r, char ret[static REFERENCE_TEXT])
{
	const char *name = r->repository;
	size_t prefix = sizeof LIBRARY - 1;

	if (strcmp(r->registry, REFERENCE_HUB) != 0) {
		reference_format(r, ret);
		return;
	}
	if (strncmp(name, LIBRARY, prefix) == 0 && !strchr(name + prefix, '/') &&
	    strcmp(name + prefix, "scratch") != 0 &&
	    !(strlen(name + prefix) == 64 && is_hex(name + prefix, 64)))
		name += prefix;
	else if (names_registry(name, strcspn(name, "/")))
		return reference_format(r, ret);
	format("", name, r, ret);
}
