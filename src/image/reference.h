/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reference.h - names of images as people type them, by Docker's rules, and digests.
 *
 *	python:3.12-slim                   docker.io/library/python:3.12-slim
 *	me/tool                            docker.io/me/tool:latest
 *	[::1]:5000/a/b@sha256:0f…          registry [::1]:5000, repository a/b, no tag
 *
 * The first part is a registry when it holds a dot or a colon, or is "localhost"; else the name is Docker
 * Hub's. A struct reference is flat, has been checked whole, and every field of it is safe in a
 * URL path and as a file name, except that a repository holds slashes and a registry colons and brackets. No
 * part of a repository begins with a dot, so "." and ".." cannot be in one.
 */
#ifndef IMAGE_REFERENCE_H
#define IMAGE_REFERENCE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

#define REFERENCE_HUB "docker.io"

enum {
	REFERENCE_REGISTRY_MAX = 255, /* a DNS name, with a port */
	REFERENCE_REPOSITORY_MAX = 255,
	REFERENCE_TAG_MAX = 128,
	DIGEST_TEXT = 7 + 64, /* "sha256:" and lower-case hexadecimal digits */
	/* registry/repository:tag@digest and the final NUL */
	REFERENCE_TEXT = REFERENCE_REGISTRY_MAX + 1 + REFERENCE_REPOSITORY_MAX + 1 +
			 REFERENCE_TAG_MAX + 1 + DIGEST_TEXT + 1,
};

struct reference {
	char registry[REFERENCE_REGISTRY_MAX + 1];     /* host[:port], lower case; "docker.io" */
	char repository[REFERENCE_REPOSITORY_MAX + 1]; /* "library/python" */
	char tag[REFERENCE_TAG_MAX + 1]; /* "latest" when neither tag nor digest was given; or "" */
	char digest[DIGEST_TEXT + 1]; /* or "". With one, the tag is only a remark, as in Docker */
};

/* Check text and complete it. ret is untouched on failure. */
int reference_parse(const char *text, struct reference *ret, struct err *e) must_check;

/* The whole name: "docker.io/library/python:3.12-slim", "host/a@sha256:…", both tag and digest if both are set. */
void reference_format(const struct reference *r, char ret[static REFERENCE_TEXT]);

/* As people write it: "docker.io/library/" and "docker.io/" left out. Parses to the same reference. */
void reference_familiar(const struct reference *r, char ret[static REFERENCE_TEXT]);

/* "sha256:" and 64 lower-case hexadecimal digits, nothing else. */
bool digest_is_valid(const char *text);

/* What a manifest is asked for by: the digest, else the tag. */
static inline const char *reference_selector(const struct reference *r)
{
	return *r->digest ? r->digest : r->tag;
}

#endif
