/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tools.h - the calls of a model are made by `cloche mcp`, a child of ours: the same code, service or none, as for every
 * other agent. No key is in its environment, so none is in the process that makes sandboxes.
 *
 * The child ends everything it began when its stdin does, whatever ended us.
 */
#ifndef ASK_TOOLS_H
#define ASK_TOOLS_H

#include <stdint.h>
#include <sys/types.h>

#include "agent/rpc.h"
#include "ask/settings.h"
#include "base/bytes.h"

/* One call, from its wish to what it came to. */
struct use {
	const struct call *call;
	const char *approval; /* "not needed", "yes", "no", "nobody to ask"; a constant */
	json_t *arguments;    /* an object, or NULL */
	json_t *structured;   /* of a run, or NULL */
	char *text;           /* for the model; NULL: not there yet */
	bool is_error;
	long long id; /* of the request */
	uint64_t began_us, took_us;
};

struct tools {
	pid_t pid; /* 0: not started */
	int in, out;
	char session[64]; /* its name in the service's records; "" */
	struct rpc_lines lines;
	struct bytes queue; /* not sent yet */
	long long last_id;
	struct use *uses; /* under way */
	size_t count;
	void (*on_end)(void *context, const struct use *u);
	void *context;
	bool broken;
};

enum tools_end { TOOLS_DONE, TOOLS_LOST, TOOLS_CANCELLED, TOOLS_DEADLINE };

int tools_start(struct tools *t, const struct ask_settings *s, struct err *e) must_check;

/* Make all calls that have no text yet, at the same time, until all have one. signals: a descriptor that ends it. */
enum tools_end tools_run(struct tools *t, struct use *uses, size_t count, int signals,
			 uint64_t deadline_us, struct err *e);

/* Give a call its text: any bytes. */
void use_end(struct use *u, const char *text, bool is_error);
void use_done(struct use *u);

/* End the child and what it began. */
void tools_stop(struct tools *t);

#endif
