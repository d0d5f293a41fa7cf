/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mcp.h - `cloche mcp` and `cloche tools call`: agent/mcp.h's host on this machine.
 *
 * One process, one poll loop (mcp_loop.c): lines of the client, and one job per call (mcp_job.c). A run goes
 * to the service that answers, or, when none does, to a child that is this program's own supervisor
 * (mcp_direct.c). Kept sandboxes (mcp_files.c) are the service's.
 *
 * Nothing outlives this process, however it ends: the service cancels a run whose connection is gone, a
 * child ends when its socket does, and a second process (mcp_guard.c) ends the kept sandboxes.
 */
#ifndef CLI_MCP_H
#define CLI_MCP_H

#include "agent/mcp.h"
#include "agent/text.h"
#include "cli/oneshot.h"

enum {
	KEPT_MAX = 8,
	IMAGES_MAX = 8,
	IMAGE_BYTES = 3 << 20,    /* one; a model's provider takes 5 MB as base64 */
	IMAGES_BYTES = 8 << 20,   /* all of one run */
	RESOURCE_BYTES = 8 << 20, /* what can be read as a resource */
	SHELF_ROWS = 256,         /* artifacts that can be read */
	SHELF_BYTES = 32 << 20,   /* of those that are kept here */
	OUTPUT_MAX = 1 << 20,     /* of --max-output */
	QUEUE_BYTES = 8 << 20,    /* answers not taken: no more is read until they are */
};

/* What can be read as a resource: a file of a run that is over. */
struct shelved {
	char *uri, *name;
	const char *mime;
	size_t size;
	char *target; /* at the service, or NULL */
	char *data;   /* kept here, or NULL */
};

struct shelf {
	struct shelved rows[SHELF_ROWS];
	size_t first, count, bytes;
};

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

struct job;
struct server {
	struct places places;
	struct mcp_base here, there; /* `there` is finished */
	enum text_form form;
	size_t max_chars;
	struct service service;
	bool has_service; /* it answered when it was last asked */
	json_t *run_body; /* of POST /v1/runs, without what runs */
	int fds[CALL_FDS];
	size_t fd_count;
	char session[40], session_field[80];
	int guard_pipe, guard_pidfd;
	char kept[KEPT_MAX][65]; /* ids */
	size_t kept_count;
	char session_sandbox[65]; /* one of them, or "" */
	struct shelf shelf;
	struct job *jobs;
	struct mcp *mcp;
	bool wants_result;
	json_t *result; /* of the last run, then */
	json_t *answer; /* the last message, instead of sending it, then */
	int out;
	char *queue;
	size_t queued, queue_room;
	bool client_gone, ending;
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
/* Whether a service answers now; -1: there must be one, and there is none. */
int server_choose(struct server *s, struct err *e) must_check;

/* ---- one call ---- */

struct direct {
	pid_t pid; /* 0: none */
	int fd;
	char *data;
	size_t size, room;
};

struct job {
	struct server *s;
	struct mcp_call *c;
	struct job *next;
	struct call *http;
	char *target, *body; /* of the request that is under way */
	char fields[160];
	/* What follows when it is answered. e NULL: with success; status 0: not at all. */
	void (*then)(struct job *j, int status, struct err *e);
	struct direct direct;
	uint64_t began_us;
	double limit_s, told_s; /* how long it may run; when it was told how long it does */
	char sandbox[65];       /* the kept one it works in */
	bool makes_kept;        /* it makes the session's, others wait for it */
	bool waits_for_kept;
	void (*in_kept)(struct job *j);
	struct lines lines; /* of a run's stream */
	struct captured out, err;
	json_t *result, *content; /* of a run, and what is shown of it */
	json_t *files;            /* of a run here: what was in /output */
	size_t next_artifact, images, image_bytes;
	long long file_size;
};

extern const struct mcp_host mcp_job_host;

/* The job is answered and gone. */
void job_text(struct job *j, const char *text, bool is_error);
void job_answer(struct job *j, json_t *content, json_t *structured, bool is_error);
/* A failure that the model cannot mend, in general words; what it was goes to stderr. */
void job_failed(struct job *j, int status, const struct err *e);
/* Gone without an answer. */
void job_free(struct job *j);

/* A request to the service. target and body (may be NULL) are taken over; volumes: with the
 * descriptors. What answers to "…?stream" goes to run_take(). */
void job_ask(struct job *j, const char *method, char *target, const char *type, char *body,
	     size_t size, bool volumes, void (*then)(struct job *j, int status, struct err *e));
/* Do what can be done now, for a descriptor that is ready. */
void job_pump(struct job *j);
/* The answer as JSON; NULL: it is none. */
json_t *job_json(struct job *j) must_check;

/* mcp_run.c: begin a run in a new sandbox. */
void run_begin(struct job *j);
/* A response_sink for a run's stream; context is the job. */
int run_take(void *job, const char *data, size_t size, struct err *e) must_check;
void run_done(struct job *j);
/* A run's answer is there: answer with it. */
void job_ran(struct job *j, int status, struct err *e);
/* What runs, of a run's body: "language" and "code", or "command". */
int job_command(const struct job *j, json_t *body, struct err *e) must_check;

/* mcp_files.c: the calls that need kept sandboxes. */
void files_begin(struct job *j);
/* Go on with in_kept in the sandbox that this call means, or answer instead. */
void kept_enter(struct job *j, void (*in_kept)(struct job *j));
/* A job that makes the session's sandbox is over: whoever waits goes on. */
void kept_leave(struct job *j);

/* mcp_direct.c: a run in a child. direct_pump: 1 when it is over, then direct_outcome: {"result","files"}. */
int direct_start(struct job *j, struct err *e) must_check;
int direct_pump(struct direct *d) must_check;
json_t *direct_outcome(struct direct *d, struct err *e) must_check;
/* End it if it is not over. */
void direct_end(struct direct *d);

/* mcp_shelf.c */
const char *mime_of(const char *name, const char *data, size_t size);
bool mime_is_image(const char *mime);
/* Keep a file; data (copied) is NULL when it is the service's. NULL: it was not kept. */
const struct shelved *shelf_put(struct shelf *s, const char *run, const char *path, size_t size,
				const char *data);
const struct shelved *shelf_find(const struct shelf *s, const char *uri);
json_t *shelf_list(const struct shelf *s);
void shelf_done(struct shelf *s);
/* Content items; new references. */
json_t *resource_contents(const char *uri, const char *mime, const char *data, size_t size);
json_t *image_content(const char *mime, const char *data, size_t size);

/* mcp_guard.c: a process that ends this session's sandboxes when we are gone. */
int guard_start(struct server *s, struct err *e) must_check;
void guard_done(struct server *s);

#endif
