/* SPDX-License-Identifier: Apache-2.0 */
/*
 * spec.h - what is to run and under which limits: parsed once, checked, then read-only.
 *
 * Every setting is a row of `options` (options.c): its flag, its JSON key, its default, its help and
 * the one function that parses and checks a value. The command line, the JSON reader, the
 * configuration file, CLOCHE_* variables, --help, the man page and the completion all walk that
 * table. Impossible values are errors, unknown fields are errors, and zero never means unlimited.
 */
#ifndef SANDBOX_SPEC_H
#define SANDBOX_SPEC_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "network/policy.h"
#include "sandbox/model.h"

#define SPEC_UNLIMITED UINT64_MAX

enum {
	SPEC_MAX_TMPFS = 16,
	SPEC_MAX_VOLUMES = 32,
	SPEC_MAX_INPUTS = 256,
	SPEC_MAX_ARTIFACTS = 64,
	SPEC_MAX_ENV = 1024,
	SPEC_MAX_ARGS = 65536,
	SPEC_MAX_RULES = 512, /* of each, allow and deny */
	SPEC_MAX_PRESETS = 32,
	SPEC_MAX_CREDENTIALS = 32,
	SPEC_PATH_SIZE = 256,       /* of a path inside the sandbox, with its NUL */
	SPEC_ARGS_BYTES = 2 << 20,  /* all arguments and environment together */
	SPEC_ARG_BYTES = 128 << 10, /* one argument: MAX_ARG_STRLEN of execve(2) */
};

struct strings {
	char **item; /* NULL-terminated once it has one item */
	size_t count;
};

struct spec_tmpfs {
	char path[SPEC_PATH_SIZE];
	uint64_t size_bytes;
	uint64_t inodes;
	bool exec; /* else mounted noexec */
};

struct spec_volume {
	char *host;
	char box[SPEC_PATH_SIZE];
	bool writable;
};

struct spec_input {
	char *host;
	char box[SPEC_PATH_SIZE]; /* destination, absolute */
};

/* What may be connected to. Rules without their first word, each checked (network/policy.h). */
struct network_spec {
	enum network_mode mode;
	struct strings allow, deny, presets, credentials;
	uint64_t max_bytes, max_connections; /* SPEC_UNLIMITED: no limit */
};

/* TCP, on the loopback addresses inside, under every mode but none (egress/wire.h, EGRESS_PROXY_PORT). */
enum { NETWORK_PROXY_PORT = 3128 };

enum language { LANGUAGE_NONE, LANGUAGE_PYTHON, LANGUAGE_BASH, LANGUAGE_NODE, LANGUAGE_COUNT };

struct spec {
	struct strings command; /* what is executed inside; [0] is looked up in PATH */
	struct strings env;     /* K=V, later ones win; complete after spec_finish() */
	uint32_t default_env;   /* bits: which of its first entries nobody has chosen */
	char image[SPEC_PATH_SIZE];
	char runtime[32];
	char profile[32]; /* seccomp profile and what goes with it */
	char hostname[65];
	char workdir[SPEC_PATH_SIZE];
	uint64_t memory_bytes;
	uint64_t memory_swap_bytes; /* memory + swap; 0 until spec_finish(): = memory */
	uint64_t cpus_millis;
	uint64_t pids_limit;
	uint64_t timeout_us;       /* wall clock of the command */
	uint64_t cpu_time_us;      /* SPEC_UNLIMITED: off */
	uint64_t idle_timeout_us;  /* SPEC_UNLIMITED: off */
	uint64_t max_output_bytes; /* per stream; SPEC_UNLIMITED allowed */
	bool kill_on_output_limit;
	uint32_t uid, gid; /* inside */
	struct spec_tmpfs tmpfs[SPEC_MAX_TMPFS];
	size_t tmpfs_count;
	struct spec_volume *volumes;
	size_t volume_count;
	struct spec_input *inputs;
	size_t input_count;
	struct strings artifacts; /* globs below /workspace */
	char *out_dir;            /* host folder that receives /output; NULL: none */
	char *venv;               /* host folder, mounted read-only at the same path */
	struct network_spec network;
	bool no_pull;     /* a service shall not get the image if it is not there */
	bool best_effort; /* run although a limit cannot be enforced here */
};

/* Where a setting's value came from; later ones win, except that policy cannot be widened. */
enum origin { ORIGIN_DEFAULT, ORIGIN_FILE, ORIGIN_ENV, ORIGIN_FLAG, ORIGIN_POLICY, ORIGIN_COUNT };

enum option_kind {
	OPTION_VALUE, /* takes one value, the last one wins */
	OPTION_LIST,  /* takes one value, adds it to a list */
	OPTION_FLAG,  /* takes none; "true" or "false" from JSON and files */
};

struct option {
	const char *name; /* long flag without dashes; also the configuration key, with _ */
	char letter;      /* short flag, or 0 */
	enum option_kind kind;
	const char *placeholder;  /* of the value, for help */
	const char *default_text; /* what applies when nothing is said, for help and config show */
	int (*set)(struct spec *s, const char *value, struct err *e);
	bool configurable; /* may stand in the configuration file and in CLOCHE_NAME */
	bool docker;       /* accepted because it asks for what is already so */
	uint64_t (*amount)(const struct spec *s); /* comparable amount for policy maxima, or NULL */
	const char *help;
};

extern const struct option options[];
extern const size_t option_count;

/* The row of this long name (dashes or underscores), or NULL. */
const struct option *option_find(const char *name);
const struct option *option_find_letter(char letter);

/* A spec with the documented defaults. Free with spec_done(). */
int spec_init(struct spec *s, struct err *e) must_check;
void spec_done(struct spec *s);

/* Set one option from text. The error names the option and the value. */
int spec_set(struct spec *s, const struct option *o, const char *value, struct err *e) must_check;

/* Append one argument of the command; one environment entry "K=V". */
int spec_add_argument(struct spec *s, const char *argument, struct err *e) must_check;
int spec_add_env(struct spec *s, const char *entry, struct err *e) must_check;

/* Copy a host file or folder to this absolute path inside. */
int spec_add_input(struct spec *s, const char *host, const char *box, struct err *e) must_check;

/* How code reaches an interpreter. */
enum code_source { CODE_STDIN, CODE_STRING, CODE_FILE };

/* Make the command that runs code of this language. text: the code itself (CODE_STRING), or the
 * path as the interpreter shall see it (CODE_FILE). Arguments are added afterwards. */
int spec_language(struct spec *s, enum language language, enum code_source source, const char *text,
		  struct err *e) must_check;
enum language language_find(const char *name);
const char *language_name(enum language language);

/* Cross-field checks and derived values; after it the spec is read-only. */
int spec_finish(struct spec *s, struct err *e) must_check;

/* The same for a sandbox whose commands come later. */
int spec_finish_sandbox(struct spec *s, struct err *e) must_check;

/* All of it. ret is to be freed. */
int spec_copy(struct spec *ret, const struct spec *s, struct err *e) must_check;

/* What describes the sandbox: everything but the command and what moves files. ret is to be freed. */
int spec_copy_limits(struct spec *ret, const struct spec *s, struct err *e) must_check;

/* Read a spec from JSON text: the same option names with underscores, numbers in bytes and seconds,
 * plus "command" (array, or a string for `sh -c`) or "language" + "code" (+ "args"). Duplicate and
 * unknown keys are errors. `s` must be initialised. When the code arrives as "code", it is given
 * in *ret_stdin (owned by the caller, NULL if none). host_paths: the writer is trusted with paths of this
 * machine and best_effort, which are refused else. was_set (may be NULL): by option row, what was said. */
int spec_from_json(struct spec *s, const char *text, size_t size, bool host_paths, bool *was_set,
		   char **ret_stdin, size_t *ret_stdin_size, struct err *e) must_check;

/* One option from JSON, by its key with underscores, under the same rules. */
int spec_set_json(struct spec *s, const char *key, json_t *value, bool host_paths, bool *was_set,
		  struct err *e) must_check;

/* The command from "command", or "language" and "code" (and "args") of this object; code comes out as
 * stdin. is_command_key(): one of the four. */
int spec_command_from_json(struct spec *s, const json_t *root, char **ret_stdin,
			   size_t *ret_stdin_size, struct err *e) must_check;
bool is_command_key(const char *key);

/* The request's policy as text (network/policy.h), presets and credentials by name. The caller's; NULL at ENOMEM. */
char *spec_network_rules(const struct spec *s);

/* A path inside the sandbox: absolute, no empty, "." or ".." components, shorter than SPEC_PATH_SIZE. */
int box_path_check(const char *what, const char *path, struct err *e) must_check;

/* Nothing but mode none. The quotas stay. */
void network_spec_done(struct network_spec *n);

/* Lists of owned strings. */
int strings_add(struct strings *list, const char *text, size_t max, struct err *e) must_check;
void strings_done(struct strings *list);

#endif
