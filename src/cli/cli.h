/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cli.h - the command line: a table of verbs, one file per verb, nothing decided while parsing.
 *
 * Only programs print; everything below returns errors. Exit status: CONTRACT "Ends"; 2 for usage.
 */
#ifndef CLI_CLI_H
#define CLI_CLI_H

#include <stdbool.h>
#include <stdio.h>

#include "sandbox/places.h"
#include "sandbox/spec.h"
#include "settings/settings.h"

enum { EXIT_USAGE = 2, EXIT_CLOCHE = 125 };

struct verb {
	const char *name;
	const char *synopsis;
	const char *help;                                           /* one line */
	int (*run)(const struct verb *verb, int argc, char **argv); /* argv[0] is the verb */
	bool takes_options;                                         /* the option table applies */
};

/* An option of the command line alone; run-like verbs only. */
struct cli_option {
	const char *name;
	char letter;
	const char *placeholder; /* NULL: takes no value */
	const char *help;
};

extern const struct verb verbs[];
extern const size_t verb_count;
extern const struct cli_option cli_options[];
extern const size_t cli_option_count;

int verb_run(const struct verb *verb, int argc, char **argv);
int verb_language(const struct verb *verb, int argc, char **argv);
int verb_doctor(const struct verb *verb, int argc, char **argv);
int verb_config(const struct verb *verb, int argc, char **argv);
int verb_help(const struct verb *verb, int argc, char **argv);
int verb_version(const struct verb *verb, int argc, char **argv);
int verb_reference(const struct verb *verb, int argc, char **argv);

/* help.c: to stdout (--help) or stderr (wrong usage). */
void print_usage(FILE *out);
void print_verb_help(FILE *out, const struct verb *verb);

/* scope.c: set XDG_RUNTIME_DIR where su and cron leave it out. */
void scope_find_runtime_dir(void);

/* For an ordinary user outside a delegated cgroup, start again inside one. Returns when there
 * is nothing to do or nothing to ask. */
void scope_enter(const struct places *places, int argc, char **argv);

/* "cloche: text" on stderr, control characters escaped. Returns status. */
int fail(int status, const struct err *e);

#endif
