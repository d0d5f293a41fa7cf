/* SPDX-License-Identifier: Apache-2.0 */
/* transfer_inside.h - between transfer.c (requests, redirects, the loop) and transfer_answer.c (what comes back). */
#ifndef REGISTRY_TRANSFER_INSIDE_H
#define REGISTRY_TRANSFER_INSIDE_H

#include "registry/transfer.h"

/* Callbacks of libcurl. */
size_t transfer_take_header(char *data, size_t size, size_t count, void *context);
size_t transfer_take_body(char *data, size_t size, size_t count, void *context);

/* A code of libcurl's as a cause with a sentence. */
void transfer_explain(struct transfer *t, CURLcode code);

/* The answer has ended: was it all? */
void transfer_judge_end(struct transfer *t);

/* Set the cause; t->err is filled already. Returns -1. */
int transfer_fail(struct transfer *t, enum registry_cause cause);

#endif
