/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mcp_worker.h - agent/worker.h on the service's loop. Apart from the rest of the service, because it is
 * the API's client: its requests go over one end of a socket pair whose other end the service serves, for the owner
 * that was admitted; so every rule of the API (rights, quotas, audit) holds for a model's calls.
 */
#ifndef SERVICE_MCP_WORKER_H
#define SERVICE_MCP_WORKER_H

#include <uv.h>

#include "agent/mcp.h"
#include "http/http.h"
#include "service/mcp_asks.h"

/* Where it lives. */
struct mcp_place {
	uv_loop_t *loop;
	struct http_server *http;
	const struct mcp_asks *asks;   /* what sandboxes get */
	void (*log)(const char *text); /* what the model is not told */
	void (*after)(void *context);  /* behind every step that answered something */
	void *context;
};

struct mcp_worker;

/* place must outlive it. NULL without memory. */
struct mcp_worker *mcp_worker_new(const struct mcp_place *place, const char *owner,
				  bool admin) must_check;
/* When its calls are answered or cancelled. */
void mcp_worker_free(struct mcp_worker *w);

/* agent/mcp.h's host, but for send. */
void mcp_worker_begin(struct mcp_worker *w, struct mcp_call *c);
void mcp_worker_cancel(struct mcp_call *c);
json_t *mcp_worker_resources(const struct mcp_worker *w);

/* How its tools are seen. */
struct tool_view mcp_worker_view(const struct mcp_worker *w);
bool mcp_worker_is_busy(const struct mcp_worker *w);
void mcp_worker_beat(struct mcp_worker *w);
/* The i-th sandbox it keeps, or NULL. */
const char *mcp_worker_kept(const struct mcp_worker *w, size_t i);

#endif
