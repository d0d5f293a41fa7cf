/* SPDX-License-Identifier: Apache-2.0 */
/*
 * oneshot.h - `run`, `python`, `bash` and `node` by a service: the same outcome as native_run() here.
 *
 * The service's defaults and policy hold, so only what was said goes along; what a path of the caller's
 * means is decided here, by the caller's rights. Nothing is ever run a second time: when the service is
 * lost on the way, the error says the run's id and where its result can be read.
 */
#ifndef CLI_ONESHOT_H
#define CLI_ONESHOT_H

#include "cli/remote.h"

struct oneshot {
	struct service *service;
	const struct spec *spec;    /* after spec_finish() */
	const enum origin *origins; /* by option row */
	bool own_env[2];            /* oneshot_automatic: the caller has set it */
	bool keep;                  /* output stays here for the result, and is not passed on */
	bool raw;
	int cancel_fd; /* a signalfd */
};

/* Variables that spec_finish() adds by the limit, which is the service's to say. */
extern const char *const oneshot_automatic[2];

enum { ONESHOT_CANCELLED = 1 };

/* 0: *ret_json is the result (a new reference), and *ret what it says, with texts that live as long as that and
 * are not to be freed but for ret->artifacts. ONESHOT_CANCELLED: it was to end before there was one. -1: e. */
int oneshot_run(const struct oneshot *o, struct result *ret, json_t **ret_json,
		struct err *e) must_check;

/* oneshot_body.c: the body of POST /v1/runs, and descriptors that go along (the caller closes them). */
json_t *oneshot_body(const struct oneshot *o, int fds[CALL_FDS], size_t *fd_count,
		     struct err *e) must_check;

/* oneshot_files.c: "files" from --in; and artifacts of the result into --out. What cannot be written is
 * marked in the result, and false returned. */
int oneshot_files(json_t *body, const struct spec *s, struct err *e) must_check;
bool oneshot_artifacts(const struct oneshot *o, const char *run, json_t *result);

/* The object of a result made here, to take parts from. */
json_t *oneshot_plain(struct result *r) must_check;

/* Add to what e says that it works without the service. Returns -1. */
int oneshot_hint(struct err *e);

#endif
