/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rpc.h - JSON-RPC 2.0 messages, one per line: strictly read, bounded.
 *
 * A line is kept up to RPC_LINE_BYTES; what is longer is skipped to its end and told once. A message is
 * what the standard says and no more: "jsonrpc" is "2.0", an id is a text or a whole number, params an
 * object or an array, and a member that does not belong there is an error.
 */
#ifndef AGENT_RPC_H
#define AGENT_RPC_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

enum { RPC_LINE_BYTES = 12 << 20, RPC_ID_BYTES = 256, RPC_METHOD_BYTES = 128 };

enum {
	RPC_PARSE_ERROR = -32700,
	RPC_INVALID_REQUEST = -32600,
	RPC_METHOD_NOT_FOUND = -32601,
	RPC_INVALID_PARAMS = -32602,
	RPC_INTERNAL_ERROR = -32603,
	RPC_RESOURCE_NOT_FOUND = -32002,  /* MCP up to 2025-11-25 */
	RPC_HEADER_MISMATCH = -32020,     /* HTTP, from 2026-07-28 */
	RPC_UNSUPPORTED_VERSION = -32022, /* MCP from 2026-07-28 */
};

struct rpc_lines {
	char *data;
	size_t size, room;
	bool skipping; /* the rest of a line that is too long */
};

/* line NULL: one was too long. */
typedef void (*rpc_sink)(void *context, const char *line, size_t size);

/* Read on; every finished line that is not blank goes to sink. Without memory a line counts as too long. */
void rpc_feed(struct rpc_lines *l, const char *data, size_t size, rpc_sink sink, void *context);
void rpc_done(struct rpc_lines *l);

enum rpc_kind { RPC_REQUEST, RPC_NOTIFICATION, RPC_RESPONSE };

/* One message; all of it belongs to the JSON. */
struct rpc_message {
	enum rpc_kind kind;
	json_t *id; /* of a request or a response */
	const char *method;
	json_t *params; /* an object, or NULL */
};

/* Read a line into JSON: an object or an array. NULL: code and text are what to answer. */
json_t *rpc_parse(const char *line, size_t size, int *ret_code, struct err *e) must_check;

/* Read one message. -1: code and e are what to answer, m->id to whom (NULL: it cannot be told). */
int rpc_read(struct rpc_message *m, json_t *object, int *ret_code, struct err *e) must_check;

/* Answers; new references, NULL without memory. id NULL: null. They take result and data over. */
json_t *rpc_result(const json_t *id, json_t *result) must_check;
json_t *rpc_error(const json_t *id, int code, const char *message, json_t *data) must_check;
json_t *rpc_notification(const char *method, json_t *params) must_check;

#endif
