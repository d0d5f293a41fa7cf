/* SPDX-License-Identifier: Apache-2.0 */
/*
 * run.h - one command in a sandbox, from its request to its result.
 *
 * A run is written down before its command is started and after it has ended; who asked for it may be
 * gone by then. Its result is judged from what init reports, from the verdict that was written down
 * before a kill, and from the counters (docs/ends.md).
 */
#ifndef SERVICE_RUN_H
#define SERVICE_RUN_H

#include "sandbox/judge.h"
#include "service/box.h"

struct run;

/* What whoever asked is told. All may be NULL. */
struct run_ops {
	void (*on_started)(struct run *r);
	void (*on_output)(struct run *r, unsigned stream, const void *data, size_t size);
	void (*on_end)(struct run *r); /* result is complete; r is freed after it */
};

struct run_request {
	struct spec *spec; /* command, env (complete), workdir, timeout, max_output; taken over */
	char *input;       /* stdin, taken over, or NULL */
	size_t input_size;
	bool stdin_open;    /* more of it comes by input_feed(); not with input */
	bool streamed;      /* lossless, for on_output; nothing is kept */
	bool owns_box;      /* one-shot: the sandbox ends with it */
	bool artifacts;     /* keep what matches the spec's globs */
	bool output_folder; /* and all of /output */
	json_t *files;      /* borrowed: checked array of files to put in first */
	const char *owner, *session;
	const char *kind; /* "run" or "exec" */
	const char *input_sha256;
	uint64_t input_bytes;
};

struct run {
	struct service *service;
	struct run *next;
	struct box *box;
	struct spec spec;
	struct result result;
	struct evidence evidence;
	const struct run_ops *ops;
	void *data;
	struct talk *talk; /* the conversation of the step it is at */
	struct waiter made, gone;
	struct network_listener connections; /* of its sandbox, from its beginning */
	struct network_flush flush;
	uv_timer_t clock;
	bool streamed, owns_box, want_artifacts, output_folder, stdin_open;
	bool started, command_over, ending, cancelled, input_ended;
	bool taking;    /* what waits in its sandbox was asked to become it, and has not answered */
	bool alone;     /* when it ended, nothing but init was alive */
	bool busy;      /* nothing was begun for want of something here */
	bool unwritten; /* ended and told, but not in the store */
	char *input;
	size_t input_size, input_sent, input_taken;
	json_t *files;
	size_t file_index;
	struct collection *collection; /* artifacts.c */
	uint64_t kept_bytes, keeping;  /* by its artifacts; of that not in the store yet */
	json_t *json;                  /* the result, once it is complete */
	char *text; /* and as it is stored and answered; NULL: no memory for it */
	uint64_t oom_before, cpu_before;
	bool oom_known, cpu_known;
	uint64_t asked_us, started_us, last_output_us, hung_up_us;
	uint64_t cpu_command_us;
	char *owner, *session, *kind, *input_sha256;
	char *limits; /* as stored */
	uint64_t input_bytes;
	int64_t created_ms;
	uint32_t number; /* init's */
};

/* The result as the API gives it: with where artifacts are. */
json_t *run_result_json(const struct run *r) must_check;

/* What init is told to start. The caller frees *ret_strings. */
int run_start_record(const struct run *r, struct start_record *ret, char **ret_strings,
		     size_t *ret_size, struct err *e) must_check;

/* Working directory, arguments and environment as START wants them, and their counts. The caller frees *ret. */
int run_start_strings(const struct spec *spec, struct start_record *s, char **ret, size_t *ret_size,
		      struct err *e) must_check;

/* The same for the command that waits in its box. */
void run_take_record(const struct run *r, const struct start_record *s, struct take_record *ret);

/* Start when the box is made (or at once). NULL: nothing was begun. */
struct run *run_new(struct box *b, struct run_request *q, const struct run_ops *ops, void *data,
		    struct err *e) must_check;

/* It shall end, if it has not. */
void run_cancel(struct run *r);
/* Nobody listens any more. cancel: and it shall end. */
void run_forget(struct run *r, bool cancel);
/* Stop and go on with reading the command's output. */
void run_pause_output(struct run *r);
void run_resume_output(struct run *r);

/* After a restart: find a run of the store again by its tag. */
void run_adopt(struct box *b, const struct stored_run *stored, const struct command_record *c);
/* Its own limits, for whoever takes it up after us, and back. NULL: no memory. */
char *run_limits_text(const struct run *r, uint64_t cpu_before_us) must_check;
void run_take_limits(struct run *r, const char *text);
/* Its input came in the request: nobody can say the rest of it again. */
bool run_limits_have_input(const char *text);
/* Why it was being killed when we were, if it was: from its result in the store, or NULL. */
void run_take_stored_verdict(struct run *r, const char *text);
/* It was alive in the store, and no sandbox knows it: it gets the result that was written down before its end
 * was brought about, else one of this reason (why its sandbox ended). */
void run_lost(struct service *v, struct stored_run *stored, enum reason why);

/* The store failed. Write its row again, and when that has succeeded, let go of one that has ended. */
void run_write_again(struct run *r);
void run_written(struct run *r);

#endif
