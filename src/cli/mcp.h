/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mcp.h - `cloche mcp` and `cloche tools call`: agent/worker.h on this machine.
 *
 * One process, one poll loop (mcp_loop.c): lines of the client, and one job per call. A run goes to the service
 * that answers, or, when none does, to a child that is this program's own supervisor (mcp_direct.c). Kept
 * sandboxes are the service's.
 *
 * Nothing outlives this process, however it ends: the service cancels a run whose connection is gone, a
 * child ends when its socket does, and a second process (mcp_guard.c) ends the kept sandboxes.
 */
#ifndef CLI_MCP_H
#define CLI_MCP_H

#include "agent/worker.h"
#include "cli/oneshot.h"

enum { QUEUE_BYTES = 8 << 20 /* answers not taken: no more is read until they are */ };

/* What the command line says, read once for runs here and once for the service. */
struct mcp_base {
	struct spec spec;
	struct settings settings;
	bool own_env[ARRAY_SIZE(oneshot_automatic)];
	const char *text, *max_text;
	const char *format, *name; /* of `cloche tools` */
	bool session, direct, json;
	char **operands;
	size_t operand_count;
};

struct server {
	struct worker w; /* first */
	struct places places;
	struct mcp_base here, there; /* `there` is finished */
	struct service service;
	int fds[CALL_FDS];
	int guard_pipe, guard_pidfd;
	json_t *answer; /* w.wants_result: the last message, instead of sending it */
	int out;
	char *queue;
	size_t queued, queue_room;
	bool client_gone;
};

/* mcp.c: read the command line into *s. -1 to go on, or the exit status. */
int server_read(struct server *s, const struct verb *verb, int argc, char **argv, size_t operands);
/* Choose what does the work, and make s->mcp. */
int server_start(struct server *s, struct err *e) must_check;
void server_done(struct server *s);
struct tool_view server_view(const struct server *s);

/* mcp_loop.c: wait for what jobs wait for, input (-1: none), signals and room for output, and serve it.
 * 1: the client or a signal wants the end. -1 with e. */
int server_turn(struct server *s, int input, int signals, struct rpc_lines *lines,
		struct err *e) must_check;
void server_send(struct server *s, json_t *message);
/* Say on stderr what the model is not told. */
void server_log(const struct err *e);
/* Of struct worker_ops. */
int server_choose(struct worker *w, struct err *e) must_check;

/* mcp_direct.c: a run in a child. */
int direct_start(struct job *j, struct err *e) must_check;
int direct_fd(const struct job *j);
int direct_pump(struct job *j) must_check;
json_t *direct_outcome(struct job *j, struct err *e) must_check;
void direct_end(struct job *j);

/* mcp_guard.c: a process that ends this session's sandboxes when we are gone. */
int guard_start(struct worker *w, struct err *e) must_check;
void guard_done(struct server *s);

#endif
