/* SPDX-License-Identifier: Apache-2.0 */
/*
 * worker.h - agent/mcp.h's host: does what tools are called for by requests to the service, one job per call.
 *
 * It neither waits nor chooses: a job has a descriptor and events, and job_pump() does what can be done now.
 * Whoever has the loop (cli/mcp_loop.c, service/mcp.c) fills in the ops. Freeing a job ends its run: the
 * stream's reader is gone. Kept sandboxes are those that were made here, and no others can be reached.
 */
#ifndef AGENT_WORKER_H
#define AGENT_WORKER_H

#include "agent/mcp.h"
#include "agent/text.h"
#include "client/call.h"
#include "client/lines.h"
#include "sandbox/result.h"

enum {
	KEPT_MAX = 8,
	IMAGES_MAX = 8,
	IMAGE_BYTES = 3 << 20,    /* one; a model's provider takes 5 MB as base64 */
	IMAGES_BYTES = 8 << 20,   /* all of one run */
	RESOURCE_BYTES = 8 << 20, /* what can be read as a resource */
	SHELF_ROWS = 256,         /* artifacts that can be read */
	SHELF_BYTES = 32 << 20,   /* of those that are kept here */
	OUTPUT_MAX = 1 << 20,     /* of each stream of a run */
	TARGET_BYTES = 14000,     /* of a request's target */
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

struct job;
struct worker;

struct worker_ops {
	/* Whether a service answers now (w->has_service); -1: there must be one, and there is none. */
	int (*choose)(struct worker *w, struct err *e);
	/* Say what the model is not told. */
	void (*log)(const struct err *e);
	/* Before the first sandbox is kept; NULL: nothing to do. */
	int (*keep)(struct worker *w, struct err *e);
	/* A request has begun, or was pumped: its descriptor and events; before it is gone. NULL: the loop looks. */
	void (*watch)(struct job *j);
	void (*unwatch)(struct job *j);
	/* A run without a service: begin it; 1 when it is over; what it came to; end it. NULL: there is always one. */
	int (*start_here)(struct job *j, struct err *e);
	int (*pump_here)(struct job *j);
	json_t *(*outcome_here)(struct job *j, struct err *e);
	void (*end_here)(struct job *j);
};

struct worker {
	const struct worker_ops *ops;
	struct service *service;
	bool has_service, unwanted; /* it answered when last asked; it shall not be used */
	enum text_form form;
	size_t max_chars;
	json_t *run_body; /* of POST /v1/runs, without what runs */
	int *fds;         /* that go along */
	size_t fd_count;
	char session[40], session_field[80];
	char kept[KEPT_MAX][65]; /* ids */
	size_t kept_count;
	char session_sandbox[65]; /* one of them, or "" */
	struct shelf shelf;
	struct job *jobs;
	struct mcp *mcp; /* to be told of new resources, or NULL */
	bool wants_result;
	json_t *result; /* of the last run, then */
	bool ending;
};

/* A name for the session, of random bytes. */
int worker_name(struct worker *w, struct err *e) must_check;
void worker_done(struct worker *w); /* when its jobs are gone */

/* The host's functions of agent/mcp.h, but for send. */
void worker_begin(struct worker *w, struct mcp_call *c);
void worker_cancel(struct mcp_call *c);
json_t *worker_resources(const struct worker *w);

/* Tell who asked how long their runs have been running: once a second, while worker_beats(). */
void worker_beat(struct worker *w);
bool worker_beats(const struct worker *w);

/* ---- one call ---- */

struct job {
	struct worker *w;
	struct mcp_call *c;
	struct job *next;
	struct call *http;
	char *target, *body; /* of the request that is under way */
	char fields[160];
	/* What follows when it is answered. e NULL: with success; status 0: not at all. */
	void (*then)(struct job *j, int status, struct err *e);
	void *here;  /* a run without a service, the host's */
	void *watch; /* the host's */
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

/* The job is answered and gone. */
void job_text(struct job *j, const char *text, bool is_error);
void job_answer(struct job *j, json_t *content, json_t *structured, bool is_error);
/* A failure that the model cannot mend, in general words; what it was goes to ops->log. */
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

/* job_run.c: begin a run in a new sandbox. */
void run_begin(struct job *j);
/* A response_sink for a run's stream; context is the job. */
int run_take(void *job, const char *data, size_t size, struct err *e) must_check;
void run_done(struct job *j);
/* A run's answer is there: answer with it. */
void job_ran(struct job *j, int status, struct err *e);
/* Whether there was no such program in the sandbox. */
bool job_is_unstarted(const struct job *j);
/* What runs, of a run's body: "language" and "code", or "command". */
int job_command(const struct job *j, json_t *body, struct err *e) must_check;

/* job_kept.c: the calls that need kept sandboxes. */
void files_begin(struct job *j);
/* Go on with in_kept in the sandbox that this call means, or answer instead. */
void kept_enter(struct job *j, void (*in_kept)(struct job *j));
/* Run what body says in that sandbox. Takes body over; NULL: there was no memory for it. */
void kept_exec(struct job *j, json_t *body);
/* A job that makes the session's sandbox is over: whoever waits goes on. */
void kept_leave(struct job *j);

/* job_install.c */
void install_begin(struct job *j);
/* What a kept sandbox's environment needs for it, put into the body that asks for one. */
void install_prepare(const struct worker *w, json_t *body);
/* What an installation that is over came to, for the model; NULL without memory. */
char *install_text(const struct job *j) must_check;

/* shelf.c */
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

/* "-" for what is not there. */
const char *job_word(const json_t *object, const char *key);
/* An id as the service makes them. */
bool job_is_id(const char *text);

#endif
