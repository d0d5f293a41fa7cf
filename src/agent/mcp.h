/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mcp.h - the Model Context Protocol's server side for one client, without transport and without
 * sandboxes: lines come in, messages go out, and a host does the work.
 *
 * Two eras are spoken on the same connection, each request by its own: the handshake revisions 2024-11-05 to
 * 2025-11-25 (initialize first), and 2026-07-28, where a request carries its revision in "_meta" and nothing is
 * remembered between requests - there a kept sandbox is always named by its id.
 *
 * Bounded: MCP_MAX_CALLS under way; what comes beyond is refused. A request whose id is still under way is
 * refused without touching the first. A cancelled request is never answered.
 */
#ifndef AGENT_MCP_H
#define AGENT_MCP_H

#include "agent/rpc.h"
#include "agent/tool.h"

enum { MCP_MAX_CALLS = 16, MCP_MAX_BATCH = 64 };

enum mcp_revision {
	MCP_2024_11_05,
	MCP_2025_03_26,
	MCP_2025_06_18,
	MCP_2025_11_25,
	MCP_2026_07_28,
	MCP_REVISIONS
};
extern const char *const mcp_revisions[MCP_REVISIONS];

struct mcp;
struct mcp_batch;

/* A tools/call or resources/read under way, from begin() until it is answered or cancelled. */
struct mcp_call {
	struct mcp *mcp;
	enum mcp_revision revision;
	const char *uri;       /* of resources/read; NULL: a tool */
	struct tool_call tool; /* strings belong to params */
	void *job;             /* the host's */
	bool wants_progress;
	/* ours */
	json_t *id, *params, *token;
	double told;
	struct mcp_batch *batch;
	struct mcp_call *next;
};

/* Who does the work. None of these may call back into mcp_line(). */
struct mcp_host {
	/* Takes the message over. */
	void (*send)(void *context, json_t *message);
	/* Answers with mcp_answer() or mcp_refuse(), now or later. */
	void (*begin)(void *context, struct mcp_call *c);
	/* End the work; the call is gone afterwards. */
	void (*cancel)(void *context, struct mcp_call *c);
	/* An array of what can be read: {"uri", "name", …}. */
	json_t *(*resources)(void *context);
};

struct mcp_options {
	struct tool_view view; /* by_id is set by the era */
	const char *instructions;
	const char *
		session; /* its name in the service's records, told in _meta of initialize; or NULL */
	bool asked_only; /* nothing reaches the client that is no answer to it: no list_changed */
};

struct mcp *mcp_new(const struct mcp_options *o, const struct mcp_host *host,
		    void *context) must_check;

/* Cancels what is under way. */
void mcp_free(struct mcp *m);

/* An rpc_sink; context is the struct mcp. */
void mcp_line(void *mcp, const char *line, size_t size);
/* The same for what was read as JSON elsewhere: an object or an array, which stays the caller's. */
void mcp_message(struct mcp *m, json_t *j);
/* As notifications/cancelled does it. */
void mcp_cancel(struct mcp *m, const json_t *id);

size_t mcp_calls(const struct mcp *m);

/* What a request of 2026-07-28 has wrong in its "_meta", or NULL; another revision is not looked at further. */
const char *mcp_meta_wrong(const json_t *params);

/* How a tool call of this revision sees the tools. */
struct tool_view mcp_view(const struct mcp_call *c);

/* The answer to a tool call; takes over content (an array) and structured (an object or NULL). */
void mcp_answer(struct mcp_call *c, json_t *content, json_t *structured, bool is_error);
/* The same of one text. */
void mcp_answer_text(struct mcp_call *c, const char *text, bool is_error);
/* The answer to resources/read; takes over contents. */
void mcp_answer_resource(struct mcp_call *c, json_t *contents);
/* No such resource. */
void mcp_refuse_resource(struct mcp_call *c);

/* Tell how far it is, if the client asked; what does not increase is not told. */
void mcp_progress(struct mcp_call *c, double progress, double total, const char *message);

/* Tell that the list of resources has changed, where that can be told unasked. */
void mcp_resources_changed(struct mcp *m);

#endif
