/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cli.h - the command line: a table of verbs, one file per verb or small group, nothing decided while
 * parsing.
 *
 * A verb has a table of options of its own and says which rows of the sandbox's option table it takes;
 * the parser (args.c), --help, the manual page and the completion walk these tables. Only programs print;
 * everything below returns errors. Exit status: CONTRACT "Ends"; 2 for usage.
 */
#ifndef CLI_CLI_H
#define CLI_CLI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "base/program.h"
#include "sandbox/places.h"
#include "sandbox/spec.h"
#include "settings/settings.h"

enum { EXIT_USAGE = 2, EXIT_CLOCHE = 125 };

/* An option of one verb. Where its value goes: offset into the verb's own struct, to a bool (no
 * placeholder), a const char * (the last one wins), or a struct strings (list). */
struct cli_option {
	const char *name; /* "" when there is only a letter */
	char letter;
	const char *placeholder; /* NULL: takes no value */
	const char *help;
	size_t offset;
	bool list;
	bool last; /* what follows are operands */
	/* The value may be left out, and is then the first of these words. A following argument is the value
	 * only if it is one of them, or several with commas between; or NULL. */
	const char *words;
};

/* How far options may stand behind operands. */
enum { OPERANDS_LAST = 0, OPERANDS_ANYWHERE = 1000 };

struct verb {
	const char *name;
	const char *synopsis;
	const char *help;                                           /* one line */
	int (*run)(const struct verb *verb, int argc, char **argv); /* argv[0] is the verb */
	const struct cli_option *options; /* ends with a row without name; or NULL */
	const char *const
		*sandbox_options; /* NULL-terminated names, or sandbox_options_all, or NULL */
	unsigned operands_before; /* options are still looked for behind that many operands */
	const char *words;        /* fixed first operands, for the completion; or NULL */
	const char *more;         /* further lines of help, or NULL */
};

extern const struct verb verbs[];
extern const size_t verb_count;
extern const char *const sandbox_options_all[];

/* Does this verb take this row? */
bool verb_takes(const struct verb *verb, const struct option *o);

/* Each verb's file has its table. `run` takes what the languages take, but for the first row, -c. */
extern const struct cli_option language_options[], json_options[], create_options[], ls_options[],
	exec_options[], ps_options[], logs_options[], cp_options[], renew_options[],
	events_options[], audit_options[], top_options[], key_options[], serve_options[],
	mcp_options[], tools_options[], ask_options[], image_options[], policy_options[],
	ports_options[], port_forward_options[], network_options[];

/* A parsed command line. */
struct args {
	const struct verb *verb;
	void *values; /* the verb's own struct */
	/* A row of the sandbox's option table; NULL when the verb takes none. */
	int (*set)(void *values, const struct option *o, const char *value, struct err *e);
	bool help;       /* --help was there */
	char **operands; /* inside argv, which is reordered */
	size_t count;
};

int args_parse(struct args *a, int argc, char **argv, struct err *e) must_check;

/* The same for a verb with min to max operands. Returns -1 to go on, or the exit status after having
 * said what is wrong, or printed the help. */
int args_ready(struct args *a, int argc, char **argv, size_t min, size_t max);

int verb_run(const struct verb *verb, int argc, char **argv);
int verb_language(const struct verb *verb, int argc, char **argv);
int verb_create(const struct verb *verb, int argc, char **argv);
int verb_ls(const struct verb *verb, int argc, char **argv);
int verb_exec(const struct verb *verb, int argc, char **argv);
int verb_ps(const struct verb *verb, int argc, char **argv);
int verb_logs(const struct verb *verb, int argc, char **argv);
int verb_cp(const struct verb *verb, int argc, char **argv);
int verb_network(const struct verb *verb, int argc, char **argv);
int verb_ports(const struct verb *verb, int argc, char **argv);
int verb_port_forward(const struct verb *verb, int argc, char **argv);
int verb_kill(const struct verb *verb, int argc, char **argv);
int verb_pause(const struct verb *verb, int argc, char **argv);
int verb_resume(const struct verb *verb, int argc, char **argv);
int verb_renew(const struct verb *verb, int argc, char **argv);
int verb_events(const struct verb *verb, int argc, char **argv);
int verb_audit(const struct verb *verb, int argc, char **argv);
int verb_top(const struct verb *verb, int argc, char **argv);
int verb_key(const struct verb *verb, int argc, char **argv);
int verb_mcp(const struct verb *verb, int argc, char **argv);
int verb_tools(const struct verb *verb, int argc, char **argv);
int verb_ask(const struct verb *verb, int argc, char **argv);
int verb_image(const struct verb *verb, int argc, char **argv);
int verb_serve(const struct verb *verb, int argc, char **argv);
int verb_doctor(const struct verb *verb, int argc, char **argv);
int verb_policy(const struct verb *verb, int argc, char **argv);
int verb_config(const struct verb *verb, int argc, char **argv);
int verb_help(const struct verb *verb, int argc, char **argv);
int verb_version(const struct verb *verb, int argc, char **argv);
int verb_reference(const struct verb *verb, int argc, char **argv);

/* config.c: every setting of the table with its value and where that comes from, into object or, if that is NULL, to stdout. */
void config_print(const struct spec *s, const struct settings *t, json_t *object);

/* image.c: get an image from its registry into the store, with progress on stderr. */
int image_pull(const char *name, bool quiet, struct err *e) must_check;

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
