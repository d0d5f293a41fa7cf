/* SPDX-License-Identifier: Apache-2.0 */
/*
 * json.h - JSON by jansson, strictly: duplicate keys rejected, depth and size bounded, one value and
 * nothing behind it.
 */
#ifndef BASE_JSON_H
#define BASE_JSON_H

#include <jansson.h>
#include <stddef.h>

#include "base/err.h"

/* Most bytes of JSON text we read from anyone. */
#define JSON_MAX_BYTES (16u << 20)
/* Deepest nesting accepted. Jansson itself stops at 2048. */
#define JSON_MAX_DEPTH 32
/* Most values in one text: each costs some hundred bytes once it is read. A command may have 65,536 words. */
#define JSON_MAX_VALUES 100000

/* How all that is meant for programs is written: one line, times with as many digits as were measured. */
#define JSON_OUT (JSON_COMPACT | JSON_REAL_PRECISION(9))

static inline void json_unref(json_t **j)
{
	json_decref(*j);
}
#define _cleanup_json_ _cleanup_(json_unref)

/* Parse text (not NUL-terminated). A new reference, or NULL with e. */
json_t *json_read(const char *text, size_t size, struct err *e) must_check;

/* The same, where strings may hold NUL characters: a program's output does. */
json_t *json_read_output(const char *text, size_t size, struct err *e) must_check;

#endif
