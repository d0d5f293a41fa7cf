/* SPDX-License-Identifier: Apache-2.0 */
/*
 * body.h - the JSON bodies that describe what is to run: one table of keys, each allowed in some of
 * them. What is an option of the command line is checked by the option table; the rest here.
 */
#ifndef SERVICE_BODY_H
#define SERVICE_BODY_H

#include "service/service.h"

enum body_kind { BODY_RUN = 1, BODY_SANDBOX = 2, BODY_EXEC = 4, BODY_PROCESS = 8 };

enum { MAX_LABELS = 32, MAX_FILES = 1024 };

struct body {
	enum body_kind kind;
	bool has_max_output; /* it was said */
	struct spec spec;
	char *input; /* stdin or the code, or NULL */
	size_t input_size;
	json_t *files; /* borrowed from the JSON, or NULL */
	json_t *labels, *metadata;
	json_t *volume_fds;
	char input_sha256[65]; /* of code, else of the command's JSON */
	uint64_t input_bytes;
	bool output_folder;
	uint64_t disk_bytes;
	uint64_t life_us; /* 0: never */
	uint64_t idle_us; /* of a sandbox; 0: off */
	bool pause_on_timeout, resume_on_touch;
	/* Code in a language, and nothing that its interpreter could see before it reads the code. */
	bool may_wait;
	bool may_join; /* and a child of its language's zygote will do */
	/* A command line and an environment that such a child can still be given. */
	bool may_become;
	bool fresh; /* fresh_interpreter */
	bool tty, stdin_open;
	unsigned rows, columns;
};

/* Read and check; the policy is applied. base: whose commands' defaults apply (EXEC, PROCESS), or NULL.
 * Free with body_done(), also after failure. */
int body_read(struct body *b, enum body_kind kind, struct service *v, const struct spec *base,
	      json_t *json, struct err *e) must_check;
void body_done(struct body *b);

/* "30s", "never" or a number; unlimited: what "never" gives. */
int body_duration(const json_t *value, uint64_t unlimited, uint64_t *ret_us,
		  struct err *e) must_check;

#endif
