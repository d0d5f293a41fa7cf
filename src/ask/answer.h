/* SPDX-License-Identifier: Apache-2.0 */
/*
 * answer.h - one answer of a model while it comes: its text, its calls of tools, and its content as the provider
 * wants to have it back.
 *
 * What a provider sends is hostile: all that is kept is charged, and an answer beyond ANSWER_BYTES, ANSWER_PARTS or
 * ANSWER_CALLS is an error.
 */
#ifndef ASK_ANSWER_H
#define ASK_ANSWER_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

enum { ANSWER_BYTES = 4 << 20, ANSWER_PARTS = 512, ANSWER_CALLS = 64 };

/* Bytes that grow; NUL-terminated once there are any. */
struct text {
	char *data;
	size_t size, room;
};

int text_add(struct text *t, const char *data, size_t size) must_check; /* -ENOMEM */
void text_done(struct text *t);

/* Why an answer ended, in the words of no provider. */
enum stop {
	STOP_NONE, /* it has not said so */
	STOP_END,
	STOP_TOOLS,
	STOP_LENGTH,
	STOP_REFUSED,
	STOP_PAUSE, /* ask again and it goes on */
	STOP_OTHER,
	STOP_COUNT
};
extern const char *const stop_names[STOP_COUNT];

struct stop_word {
	const char *word;
	enum stop stop;
};

/* One piece of content as it goes back; what grows is beside it. */
struct part {
	json_t *raw;
	struct text text, more;
	int call; /* of answer.calls, or -1 */
};

struct call {
	char *id, *name; /* never NULL; an id may be "" */
	struct text arguments;
};

struct answer {
	struct text text; /* what is meant to be read, flattened */
	struct part *parts;
	size_t part_count;
	struct call *calls;
	size_t call_count;
	long long input_tokens, output_tokens;
	enum stop stop;
	char stop_word[48]; /* the provider's */
	bool finished;      /* it has said all */
	bool begun;         /* something of it was kept */
	bool temporary;     /* it failed, and may not fail again */
	size_t charged;
	/* Told of text as it comes; may be NULL. */
	void (*on_text)(void *context, const char *data, size_t size);
	void *context;
};

void answer_done(struct answer *a);

/* Count size bytes more that are kept. */
int answer_charge(struct answer *a, size_t size, struct err *e) must_check;

/* Text for the reader. */
int answer_say(struct answer *a, const char *data, size_t size, struct err *e) must_check;
/* A string, or a list of strings and {"type":"text","text"}; null is nothing. */
int answer_say_content(struct answer *a, const json_t *content, struct err *e) must_check;

/* Add to one of the texts of a part or a call. */
int answer_grow(struct answer *a, struct text *t, const json_t *string, struct err *e) must_check;

/* A new part of this content (a reference is kept); NULL with e. Older pointers to parts are void. */
struct part *answer_part(struct answer *a, json_t *raw, size_t bytes, struct err *e) must_check;
/* A new call; its index, or -1. id may be NULL. */
int answer_call(struct answer *a, const json_t *id, const json_t *name, struct err *e) must_check;

/* What a call was given: an object, {} for nothing. NULL: e says why not, to the model. */
json_t *call_arguments(const struct call *c, struct err *e) must_check;
/* The same for what is echoed to the provider: {} in the place of what is no object. */
json_t *call_echo(const struct call *c) must_check;

/* The stop reason by its word, of a table that ends with NULL. */
void answer_stop(struct answer *a, const json_t *word, const struct stop_word *words);

#endif
