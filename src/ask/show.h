/* SPDX-License-Identifier: Apache-2.0 */
/*
 * show.h - what a person sees. What a model and programs write is hostile: it reaches a terminal through
 * terminal_escape() only. Standard output has the answer, standard error all else.
 *
 * On a terminal the model's text comes as it is made: on standard output, or on standard error if only that is one. Where
 * neither is, what it says beside its calls goes to standard error once that is known.
 */
#ifndef ASK_SHOW_H
#define ASK_SHOW_H

#include "ask/settings.h"
#include "ask/tools.h"

struct show {
	bool quiet, json;
	int live;     /* where text goes as it comes, or -1 */
	bool colour;  /* of standard error */
	char rest[4]; /* the beginning of a character */
	size_t rest_size;
	bool in_line; /* the last byte was no line's end */
};

void show_init(struct show *w, const struct ask_settings *s);

/* Text of the model as it comes; how it ended: with calls, or as the answer. */
void show_text(void *show, const char *data, size_t size);
void show_said(struct show *w, const struct answer *a);

/* A call, before it is made and after it. */
void show_call(struct show *w, const struct use *u, size_t number);
void show_outcome(struct show *w, const struct use *u, size_t number);

/* One line on standard error, unless quiet. */
void show_note(struct show *w, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* "cloche: text" on standard error. */
void show_error(struct show *w, const struct err *e);

/* Text for a terminal, all of it or its first lines; f is one. */
void show_block(FILE *f, const char *text, size_t size, const char *indent, size_t lines);

/* The answer on standard output. */
int show_answer(struct show *w, const char *text, size_t size);

#endif
