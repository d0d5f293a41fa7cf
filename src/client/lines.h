/* SPDX-License-Identifier: Apache-2.0 */
/* lines.h - NDJSON: one JSON object per line, no line above LINE_MAX_BYTES. */
#ifndef CLIENT_LINES_H
#define CLIENT_LINES_H

#include <jansson.h>
#include <stddef.h>

#include "base/err.h"
#include "base/splitter.h"

enum { LINE_MAX_BYTES = 16 << 20 /* a result that lists many artifacts */ };

/* Takes one object; -1 with e ends everything. */
typedef int (*line_sink)(void *context, json_t *object, struct err *e);

struct lines { /* begins as zeros */
	struct splitter splitter;
};

/* Read on; every finished line goes to sink. What is not a JSON object is an error. */
int lines_feed(struct lines *l, const char *data, size_t size, line_sink sink, void *context,
	       struct err *e) must_check;
void lines_done(struct lines *l);

/* An event's bytes: "data" by its "encoding" (utf-8 without one). The caller frees *ret_data. */
int event_data(json_t *event, char **ret_data, size_t *ret_size, struct err *e) must_check;

#endif
