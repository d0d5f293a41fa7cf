/* SPDX-License-Identifier: Apache-2.0 */
/*
 * map.h - `cloche python --map FILE`: each line of FILE in a sandbox of its own, the results as lines in their order.
 *
 * map.c reads, keeps the order, writes and shows how far it is; a way does the runs: there.c gives them to the
 * service as one batch, here.c to threads that run sandboxes as the one-shot does. What a line may be is decided in
 * map_line.c for both, so that what comes out does not depend on the way.
 */
#ifndef CLI_MAP_H
#define CLI_MAP_H

#include <jansson.h>
#include <poll.h>

#include "cli/oneshot.h"

struct map;

struct map_options {
	const char *file, *jobs, *results;
	bool resume;
};

struct map_order {
	struct map_options options;
	const struct places *places;
	struct spec
		*spec; /* without a command, not finished; finished by map_run() for the service */
	const struct settings *settings;
	struct service *service; /* NULL: here */
	const bool *own_env;     /* as struct oneshot has it */
	enum language language;
	bool quiet;
	int cancel_fd; /* a signalfd */
};

/* The whole of it; the exit status. 0: every line has a result that is ok, 1: every line has a result,
 * EXIT_CLOCHE: some have none, 130: interrupted. */
int map_run(const struct map_order *o);

/* ---- lines ---- */

enum map_outcome {
	MAP_OPEN,    /* on its way */
	MAP_OK,      /* a result */
	MAP_FAILED,  /* a result that is not ok */
	MAP_ERROR,   /* no result: its answer says why */
	MAP_DROPPED, /* no answer: it was interrupted */
};

struct map_line {
	struct map_line *next; /* map.c: in order */
	struct map_line *queued;
	uint64_t index;
	uint64_t end;    /* the input's bytes up to its end */
	json_t *request; /* what POST /v1/runs takes, without tag; NULL once it is given away */
	json_t *tag;     /* a string, or NULL */
	char *text;      /* there.c: as it is sent */
	size_t text_size;
	size_t sent;
	size_t held; /* map.c: its share of the window's bytes */
	bool ready;  /* outcome and answer are there; only after it map.c looks at them */
	enum map_outcome outcome;
	char *answer; /* with its "\n" */
	size_t answer_size;
};

/* Read what a line says into l->request and l->tag. -1 with e. language: NONE for `run`. */
int map_line_read(struct map_line *l, const char *text, size_t size, enum language language,
		  struct err *e) must_check;

/* Answer it, once. value is stolen; NULL: no memory, which ends the program's work (-1). */
int map_line_answer(struct map_line *l, enum map_outcome outcome, json_t *value,
		    struct err *e) must_check;
enum map_problem { MAP_INVALID, MAP_TOO_LARGE, MAP_INTERNAL };
int map_line_problem(struct map_line *l, enum map_problem p, const struct err *why,
		     struct err *e) must_check;

/* ---- results ---- */

/* Which lines have an answer already. */
struct map_seen {
	unsigned char *bits;
	uint64_t room; /* bits */
	uint64_t count;
};
bool map_seen_has(const struct map_seen *s, uint64_t index);
void map_seen_done(struct map_seen *s);

/* Where answers go: a descriptor, stdout or a file that is the caller's to close. A file that has something in it is
 * refused, but for --resume: then its lines are looked at, and one that was cut off is taken away. -1 with e. */
int map_results_open(const struct map_options *o, struct map_seen *ret, struct err *e) must_check;

/* ---- ways ---- */

/* How runs are done. All but `begin` are called with what it returned. */
struct map_way {
	void *(*begin)(const struct map_order *o, unsigned jobs, struct err *e);
	/* It can have another line now; and here it is. The line stays map.c's. */
	bool (*wants)(void *way);
	int (*give)(void *way, struct map_line *l, struct err *e);
	/* No more lines will come. now: those that were given and not begun are dropped. */
	void (*close)(void *way, bool now);
	/* What to poll; wait_ms: at most so long, -1 for ever. */
	struct pollfd (*poll)(void *way, int *wait_ms);
	/* Do what can be done; lines get their answers. 1: nothing more will come, -1: e. */
	int (*serve)(void *way, short revents, struct err *e);
	/* End what runs. Its lines are dropped. */
	void (*abort)(void *way);
	void (*done)(void *way);
};

extern const struct map_way map_here, map_there;

#endif
