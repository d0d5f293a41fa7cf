/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mcp_gate.h - conversations of MCP over HTTP.
 *
 * A channel is one: a session of the handshake revisions with a worker of its own, or one request of
 * 2026-07-28, whose worker is its owner's and stays while it keeps sandboxes or was used not long ago. What
 * nobody uses for GATE_IDLE_US is ended, and with it the sandboxes that were kept for it. The number of
 * sessions is bounded, in all and of one owner.
 */
#ifndef SERVICE_MCP_GATE_H
#define SERVICE_MCP_GATE_H

#include "agent/mcp.h"
#include "service/service.h"

enum { GATE_SESSIONS = 256, GATE_SESSIONS_OF_ONE = 32 };
#define GATE_IDLE_US (1800ull * 1000000)

struct mcp_post;
struct mcp_bench;

struct mcp_channel {
	struct mcp_channel *next;
	struct service *service;
	char id[40]; /* "": one request */
	char owner[64];
	struct mcp_bench *bench; /* its worker */
	struct mcp *mcp;
	struct mcp_post *posts;   /* mcp.c's: who waits for answers */
	struct mcp_post *current; /* whose message is being taken */
	uint64_t used_us;
	bool over; /* to be freed by gate_sweep() */
};

/* mcp.c: a message for this channel's client, taken over. */
void mcp_said(struct mcp_channel *ch, json_t *message);

/* NULL with e (and its code): too many, or no memory. */
struct mcp_channel *gate_open(struct service *v, const char *owner, bool admin, bool session,
			      struct err *e) must_check;
/* The owner's session of this id, or NULL. */
struct mcp_channel *gate_find(struct service *v, const char *owner, const char *id);

/* Free what is over: behind every call into a channel, and never within one. */
void gate_sweep(struct service *v);

#endif
