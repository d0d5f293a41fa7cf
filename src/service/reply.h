/* SPDX-License-Identifier: Apache-2.0 */
/* reply.h - JSON as an answer, and lines of it. */
#ifndef SERVICE_REPLY_H
#define SERVICE_REPLY_H

#include <jansson.h>

#include "http/http.h"

/* End the exchange with this object, which is stolen; NULL (no memory) is a 500. */
void reply_json(struct exchange *x, int status, json_t *j);
void reply_json_as(struct exchange *x, int status, const char *type, const char *fields, json_t *j);

/* The same with what was made already; NULL is a 500. */
void reply_json_text(struct exchange *x, int status, const char *type, const char *fields,
		     const char *text);

/* One NDJSON line; j is stolen. False: wait for on_room. */
bool reply_line(struct exchange *x, json_t *j);
void reply_lines_begin(struct exchange *x);
/* The line itself, with its end; j is stolen. The caller frees it. NULL: no memory. */
char *reply_text(json_t *j, size_t *ret_size);

/* Bytes as "data" and "encoding", the way results have them: UTF-8 or base64. 0 or -1. */
int json_set_bytes(json_t *object, const void *data, size_t size);

#endif
