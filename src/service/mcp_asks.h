/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mcp_asks.h - `service: mcp:`, what is asked for with every sandbox that a model gets over /mcp, as the options of
 * `cloche mcp` are on stdin and stdout. The keys are the command line's; the file's defaults are below them, and its
 * policy above.
 */
#ifndef SERVICE_MCP_ASKS_H
#define SERVICE_MCP_ASKS_H

#include <jansson.h>

#include "base/err.h"
#include "settings/settings.h"

struct mcp_asks {
	json_t *body;     /* of POST /v1/runs, without what runs */
	double timeout_s; /* of one run, and the most that a model may ask for */
	bool has_network;
};

/* mcp is the mapping, or NULL; settings and spec are the file's, with its defaults in the spec, which gets the keys
 * beside them. -1: a key that is none, a value that its option refuses, or more than the policy allows. */
int mcp_asks_read(struct mcp_asks *a, const json_t *mcp, const struct settings *settings,
		  struct spec *spec, struct err *e) must_check;
void mcp_asks_done(struct mcp_asks *a);

#endif
