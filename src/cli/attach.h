/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attach.h - a background process of a sandbox in the foreground: its output here, our stdin and signals
 * there, until it ends. With a terminal, ours is raw meanwhile and always put back.
 */
#ifndef CLI_ATTACH_H
#define CLI_ATTACH_H

#include "cli/remote.h"

struct attach_options {
	bool input;    /* pass stdin */
	bool terminal; /* it has a terminal of its own */
	bool raw;      /* do not escape for our terminal */
	bool quiet;
};

/* Events of output, here and in exec's own stream: bytes to the printers, and what ended it. */
struct output {
	struct printer out, err;
	bool exited;
	json_t *result;  /* the run's, or NULL */
	int exit_status; /* without a result; -1: not said */
	bool offsets;    /* events carry them */
	uint64_t next[2], lost[2];
	uint64_t bytes[2]; /* that came so far */
};
void output_init(struct output *o, bool raw, bool offsets);
/* A line_sink; context is the struct output. */
int output_event(void *output, json_t *event, struct err *e) must_check;
void output_done(struct output *o);

/* body: of POST .../processes, to which tty, rows, columns and stdin are added. Returns the exit status;
 * what is wrong has been said. */
int attach(struct remote *r, const char *sandbox, json_t *body, const struct attach_options *how);

/* The exit status of an ended process object, -1 when it has none. */
int process_status(json_t *process);

#endif
