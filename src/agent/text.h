/* SPDX-License-Identifier: Apache-2.0 */
/*
 * text.h - the one string that a model reads about a run, from the result object.
 *
 * Always a string, whatever happened; never a host path (of what cloche itself has to say only
 * model_message is taken). The program's own output goes through, stderr and tracebacks too; bytes that are
 * no UTF-8 and NUL characters become U+FFFD.
 */
#ifndef AGENT_TEXT_H
#define AGENT_TEXT_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/cleanup.h"

enum text_form {
	TEXT_EXIT,  /* "exit=N", "stdout:", "stderr:" */
	TEXT_PLAIN, /* both joined, stripped, "(no output)" */
	TEXT_COUNT
};

extern const char *const text_form_names[TEXT_COUNT];
extern const size_t text_default_chars[TEXT_COUNT];

/* The form of this name, or TEXT_COUNT. */
enum text_form text_form_find(const char *name);

/* max_chars: characters of the joined output (plain) or of each stream (exit); what is cut is told. The
 * caller frees; NULL without memory. */
char *text_of_result(const json_t *result, enum text_form form, size_t max_chars) must_check;

/* Both streams of a result as bytes that are valid UTF-8 without NUL. The caller frees. */
char *text_of_stream(const json_t *result, const char *name, size_t *ret_size) must_check;

/* The same for any bytes: a copy with what is no text replaced. */
char *text_repair(const char *data, size_t size, size_t *ret_size) must_check;

/* Whether bytes are text as they are: valid UTF-8 without NUL. */
bool text_is_text(const char *data, size_t size);

#endif
