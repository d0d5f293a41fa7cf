/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cloche.h - run code nobody has read, in a sandbox that is new, strict and thrown away.
 *
 *	struct cloche_error e;
 *	struct cloche_spec *spec = cloche_spec_new(&e);
 *	struct cloche_result *result;
 *
 *	cloche_spec_language(spec, "python", &e);
 *	cloche_spec_set(spec, "timeout", "3s", &e);
 *	if (cloche_run(spec, "print(2 + 2)", 12, &result, &e) == 0)
 *		printf("%.*s", (int)cloche_result_stdout_size(result), cloche_result_stdout(result));
 *
 * Every call is synchronous and independent of the others; several threads may run sandboxes at the
 * same time. The library prints nothing, installs no signal handler, changes no working directory and
 * leaves no child behind. While it runs a sandbox it has children, so the program's SIGCHLD handler may
 * be called; SIGCHLD must not be ignored, and no other thread may wait for all children. Functions that can fail return 0 or a pointer for
 * success, -1 or NULL for failure with *e filled; e may be NULL.
 *
 * Limits and their defaults are those of the command line (cloche run --help); the operator's and the
 * user's configuration files apply, CLOCHE_* variables do not. What a sandbox is made
 * of is written down in docs/ and in SECURITY.md. Link with -lcloche (pkg-config cloche).
 */
#ifndef CLOCHE_CLOCHE_H
#define CLOCHE_CLOCHE_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

#define CLOCHE_API __attribute__((visibility("default")))

struct cloche_spec;   /* what is to run, and under which limits */
struct cloche_result; /* what it came to; read-only */

/* Filled by a function that failed; owned by the caller, nothing to free. */
struct cloche_error {
	int errnum;     /* errno of the failing call, or 0 */
	char code[40];  /* error code of the API ("SANDBOX_IMAGE_MISSING"), or "" for wrong usage */
	char text[768]; /* one line: what was attempted on which object, and why not */
};

/* The library's version, "major.minor.patch". */
CLOCHE_API const char *cloche_version(void);

/* A spec with the documented defaults. Free with cloche_spec_free(), which takes NULL. */
CLOCHE_API struct cloche_spec *cloche_spec_new(struct cloche_error *e);
CLOCHE_API void cloche_spec_free(struct cloche_spec *spec);

/* Set one option by its long name on the command line, without dashes: "memory" to "256m", "cpus" to
 * "0.5", "volume" to "/data:/data:ro". List options (env, tmpfs, volume, in, artifact) add. Flags take
 * "true". Unknown names and impossible values are errors. */
CLOCHE_API int cloche_spec_set(struct cloche_spec *spec, const char *name, const char *value,
			       struct cloche_error *e);

/* What to execute: a NULL-terminated list; [0] is looked up in PATH inside. Copied. */
CLOCHE_API int cloche_spec_command(struct cloche_spec *spec, const char *const argv[],
				   struct cloche_error *e);

/* Instead: run code of a language ("python", "bash", "node"), which is given as stdin to cloche_run(). */
CLOCHE_API int cloche_spec_language(struct cloche_spec *spec, const char *language,
				    struct cloche_error *e);

/*
 * Run it, once, in a new sandbox; blocks until every process of it is dead. stdin_data (may be NULL) is
 * the command's standard input. A spec is used up by a run: make a new one for the next.
 *
 * Returns 0 whenever there is a result, whatever its reason - a command that fails, a limit that was
 * met, a sandbox that could not be made. -1 only for wrong usage or when nothing could be tried. The
 * result is the caller's: cloche_result_free().
 */
CLOCHE_API int cloche_run(struct cloche_spec *spec, const void *stdin_data, size_t stdin_size,
			  struct cloche_result **ret_result, struct cloche_error *e);

/* The same with JSON in and out: "command", or "language" and "code" (and "args"), and options with
 * underscores; the result object comes as text, to be freed with free(). What names paths of this
 * machine (volume, in, out, venv) or weakens (best_effort) is refused unless flags say that whoever
 * wrote the JSON may do as much as this program. */
enum { CLOCHE_TRUST_HOST_PATHS = 1 };
CLOCHE_API int cloche_run_json(const char *json, size_t size, unsigned flags, char **ret_json,
			       struct cloche_error *e);

CLOCHE_API void cloche_result_free(struct cloche_result *result);

/* Why it ended: "exited", "signaled", "timeout", "oom", ... (docs/ends.md). Static text. */
CLOCHE_API const char *cloche_result_reason(const struct cloche_result *result);

/* The error code, or NULL after success. Static text. */
CLOCHE_API const char *cloche_result_error_code(const struct cloche_result *result);

/* 1 if the command exited with 0 and its artifacts were exported. */
CLOCHE_API int cloche_result_ok(const struct cloche_result *result);

/* 0-255, or -1 if the command did not exit by itself. */
CLOCHE_API int cloche_result_exit_code(const struct cloche_result *result);

/* The signal that ended the command, or 0. */
CLOCHE_API int cloche_result_signal(const struct cloche_result *result);

/* One line for people about what happened; "" after success. Valid as long as the result. */
CLOCHE_API const char *cloche_result_message(const struct cloche_result *result);

/* Output that was kept: bytes as they were written, not NUL-terminated, valid as long as the result;
 * how many were kept, and how many the command wrote. */
CLOCHE_API const char *cloche_result_stdout(const struct cloche_result *result);
CLOCHE_API size_t cloche_result_stdout_size(const struct cloche_result *result);
CLOCHE_API unsigned long long cloche_result_stdout_bytes(const struct cloche_result *result);
CLOCHE_API const char *cloche_result_stderr(const struct cloche_result *result);
CLOCHE_API size_t cloche_result_stderr_size(const struct cloche_result *result);
CLOCHE_API unsigned long long cloche_result_stderr_bytes(const struct cloche_result *result);

/* The whole result as JSON text (the contract's object), to be freed with free(); NULL when memory is
 * short. */
CLOCHE_API char *cloche_result_json(const struct cloche_result *result);

#ifdef __cplusplus
}
#endif

#endif
