/* SPDX-License-Identifier: Apache-2.0 */
/*
 * provider.h - a family of models' APIs: how it is asked, and what its answers mean. One file each, no I/O.
 *
 * The conversation is kept in the family's own messages, so that what it wants back unchanged (thinking, signatures)
 * goes back unchanged.
 */
#ifndef ASK_PROVIDER_H
#define ASK_PROVIDER_H

#include "ask/answer.h"

struct question {
	const char *model, *instructions; /* instructions "": none */
	double temperature;
	bool has_temperature;
	long long max_tokens; /* of this answer */
	bool elsewhere;       /* not at the provider's own address */
	json_t *messages;     /* the family's */
	json_t *tools;        /* in the family's format, or NULL */
};

/* What a call came to. */
struct outcome {
	const struct call *call;
	const char *text;
	bool is_error;
};

struct provider {
	const char *name;
	const char *url;         /* where it is, without a slash at the end */
	const char *const *keys; /* variables that may hold its key, ends with NULL */
	const char *key_field;   /* what stands before the key in its header */
	const char *field;       /* another header, or NULL */
	const char *format;      /* of agent/tool.h */
	const char *const *
		bare_names; /* fnmatch() patterns of models that are known to be its, ends with NULL */

	/* Where the question goes, behind the URL; the caller frees. NULL without memory. */
	char *(*target)(const struct question *q);
	/* New references, NULL without memory. */
	json_t *(*body)(const struct question *q);
	json_t *(*asked)(const char *prompt);
	/* One event of a stream, or the whole of an answer that was not streamed. An error it tells is one: -1. */
	int (*take)(struct answer *a, const json_t *event, size_t bytes, struct err *e);
	int (*take_whole)(struct answer *a, const json_t *body, size_t bytes, struct err *e);
	/* The answer as a message. */
	json_t *(*said)(const struct answer *a);
	/* Append what its calls came to. */
	int (*told)(json_t *messages, const struct outcome *outcomes, size_t count);
};

extern const struct provider provider_anthropic, provider_openai, provider_gemini;

/* What an error object of any of them says: {"error": {"message"}}, {"error": text}, {"message"}, {"detail"}, or a list
 * of one of these. "" if nothing. Belongs to the JSON. */
const char *provider_error(const json_t *body);

/* If this is an error, fail with it; words: error types that are gone after a while, ends with NULL. */
int provider_check(struct answer *a, const json_t *event, const char *const *words,
		   struct err *e) must_check;

/* Numbers of a usage object; what is not there changes nothing. */
void provider_count(long long *n, const json_t *value);

#endif
