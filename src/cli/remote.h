/* SPDX-License-Identifier: Apache-2.0 */
/*
 * remote.h - what the verbs that talk to the service share: asking, showing bytes from a sandbox, tables,
 * and the body made of the sandbox's option table.
 */
#ifndef CLI_REMOTE_H
#define CLI_REMOTE_H

#include <jansson.h>

#include "cli/cli.h"
#include "client/call.h"
#include "client/lines.h"
#include "sandbox/result.h"

enum { TARGET_SIZE = 14000 };

struct remote {
	struct places places;
	struct service service;
};

/* Find the service. Free with remote_close(). */
int remote_open(struct remote *r, struct err *e) must_check;
void remote_close(struct remote *r);

struct answer {
	char *text; /* as it came */
	size_t size;
	json_t *json; /* NULL: no body */
	int status;   /* also when the call failed; 0: no answer at all */
};
void answer_done(struct answer *a);
#define _cleanup_answer_ _cleanup_(answer_done)

/* One request with JSON both ways; body (may be NULL) stays the caller's. Anything but 2xx is an error. */
int remote_ask(struct remote *r, const char *method, const char *target, json_t *body,
	       struct answer *a, struct err *e) must_check;

/* The same with passed descriptors. */
int remote_ask_fds(struct remote *r, const char *method, const char *target, json_t *body,
		   const int *fds, size_t fd_count, struct answer *a, struct err *e) must_check;

/* Read NDJSON from a GET until it ends, cancel_fd is readable (ECANCELED) or sink says -1. */
int remote_follow(struct remote *r, const char *target, int cancel_fd, line_sink sink,
		  void *context, struct err *e) must_check;

/* "/v1/sandboxes/ID" and more behind it. An id that is none is an error. */
int sandbox_target(char target[static TARGET_SIZE], const char *id, struct err *e,
		   const char *format, ...) must_check __attribute__((format(printf, 4, 5)));
bool is_id(const char *text);

/* Bytes from a sandbox on their way to a descriptor of ours, escaped for a terminal unless raw. When the
 * reader has gone, they are dropped. */
struct printer {
	int fd;
	bool escape, gone;
	char rest[8]; /* of a character that is not complete */
	size_t waiting;
};
void printer_init(struct printer *p, int fd, bool raw);
void printer_put(struct printer *p, const char *data, size_t size);
void printer_end(struct printer *p);

/* The answer, or any JSON, on one line of stdout. Returns the exit status: 0 or EXIT_CLOCHE. */
int print_answer(const struct answer *a);
int print_object(json_t *object);

/* Columns that fit what is in them; every cell is escaped. */
struct table;
struct table *table_new(const char *const *heads, size_t columns);
void table_cell(struct table *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
void table_print(const struct table *t); /* without rows: the heads alone */
void table_free(struct table *t);

/* "-" for what is not there. buf is used and returned when text has to be made. */
const char *text_of(json_t *object, const char *key);
const char *size_text(const json_t *bytes, char buf[static 32]);
const char *ago_text(const json_t *time, char buf[static 32]); /* "3m ago", "in 2h" */
const char *labels_text(json_t *labels, char *buf, size_t size);

/* {"key": value} from "key=value" items; numbers as numbers if asked. NULL with e. */
json_t *pairs_object(const struct strings *pairs, const char *what, bool numbers,
		     struct err *e) must_check;

/* A request's body from rows of the option table. First member of a verb's struct; body_set is its
 * args.set. Host paths are opened here, and their descriptors go along. */
struct body {
	struct spec spec; /* scratch: every value goes through its row's check */
	json_t *json;
	int fds[SPEC_MAX_VOLUMES];
	size_t fd_count;
};
int body_set(void *body, const struct option *o, const char *value, struct err *e);
/* environment: what was not said is taken from CLOCHE_NAME. local: descriptors can be passed. */
int body_finish(struct body *b, const struct verb *verb, bool environment, bool local,
		struct err *e) must_check;
void body_done(struct body *b);

/* Parts of it: "env", and "volume_fds" (descriptors are opened into fds) or "volume". */
int body_env(json_t *json, const struct spec *s, struct err *e) must_check;
int body_volumes(json_t *json, const struct spec *s, bool local, int *fds, size_t *fd_count,
		 struct err *e) must_check;

/* How a result object says that it ended, without what it owns; false: it is none. */
bool result_end(json_t *object, struct result *ret);
/* The exit status that a result object stands for (CONTRACT "Ends"). */
int result_status(json_t *result);

#endif
