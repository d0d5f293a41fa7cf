/* SPDX-License-Identifier: Apache-2.0 */
/*
 * request.h - what is said to a prepared Python: one SEQPACKET message each, fixed structs with strings
 * packed behind them, no pointers.
 *
 * Two conversations. On the request socket (descriptor 3 of the interpreter) the pool says START once,
 * then FORK as often as it likes; answers carry the sequence number of their request, and ENDED comes
 * whenever a child was reaped (children that belong to their sandbox's init are not: it tells of them). On the control socket of a child (one of the descriptors of its FORK) the
 * child says WAITING, the pool says RUN or hangs up, and the child answers RUNNING or REFUSED: after
 * RUNNING the code will run, once, and the child holds no descriptor but its three streams any more.
 * A child whose control socket ends before RUN leaves with status 0 and has run nothing.
 *
 * How a child ends is said by ENDED, with the status of waitpid(2): the zygote reaps its children at once, or
 * their sandboxes could not end. Those that outlive it are reaped by PID 1 of its pid namespace, the nest
 * (native/nest.h: nest_wait). Whoever holds the other ends of its
 * pipes learns of the end of its output by their EOF, as with any process. At the end of the request
 * socket the zygote leaves; its children do not: they are their sandboxes' to end.
 *
 * Both sides come from one build; START carries the version. Every message is checked by its reader
 * (message.h): a wrong size, a string without its end, numbers that do not add up are refused.
 */
#ifndef ZYGOTE_REQUEST_H
#define ZYGOTE_REQUEST_H

#include <stdint.h>

enum {
	ZYGOTE_VERSION = 1,
	ZYGOTE_MESSAGE_MAX = 128 << 10, /* a longer command line or environment: cold path */
	ZYGOTE_MODULES_MAX = 256,
	ZYGOTE_CHILDREN_MAX = 8192, /* at a time */
	ZYGOTE_JOIN_FDS_MAX = 12,
	ZYGOTE_JOIN_DATA_MAX = 1024,
	ZYGOTE_LIMITS_MAX = 16, /* RLIM_NLIMITS */
};

/* The descriptors the interpreter is started with, besides its three streams (launch.h). */
enum { ZYGOTE_FD_REQUESTS = 3, ZYGOTE_FD_MODULE = 4 };

/* The descriptors of a FORK, in this order; the joiner's own follow. */
enum { ZYGOTE_CONTROL, ZYGOTE_STDIN, ZYGOTE_STDOUT, ZYGOTE_STDERR, ZYGOTE_FDS };

enum zygote_type {
	ZYGOTE_START = 1, /* struct zygote_start: answered by READY or FAILED, which ends it */
	ZYGOTE_FORK,      /* struct zygote_fork: answered by FORKED or REFUSED */
	ZYGOTE_RUN,       /* struct zygote_run, to a child: answered by RUNNING or REFUSED */
	ZYGOTE_READY,     /* struct zygote_pid: the process that forks and reaps */
	ZYGOTE_FORKED,    /* struct zygote_pid: the child */
	ZYGOTE_ENDED,     /* struct zygote_ended */
	ZYGOTE_WAITING,   /* struct zygote_header, from a child: it has joined and waits */
	ZYGOTE_RUNNING,   /* struct zygote_header, from a child */
	ZYGOTE_FAILED,    /* struct zygote_refused: there will be no (more) children */
	ZYGOTE_REFUSED,   /* struct zygote_refused: this one only; nothing was run: cold path */
};

struct zygote_header {
	uint32_t type;
	uint32_t sequence; /* the asker's, not 0; a child's answers repeat that of its RUN */
};

/*
 * Behind it: module_count names to import, in order, and the operator's warm-up code, if there is any, each
 * with its NUL. The code runs once after the imports, where its failure is one of the START, and in each warmed
 * child before it waits, behind a few lines of ours; what it prints is dropped there.
 */
struct zygote_start {
	struct zygote_header header;
	uint32_t version;
	uint32_t module_count;
};

enum { ZYGOTE_WARM = 1 }; /* run the warm-up before waiting: memory against time */

/* Behind it: join_size bytes for the joiner (joiner.h). With ZYGOTE_FDS + join_fds descriptors. */
struct zygote_fork {
	struct zygote_header header;
	uint32_t flags;
	uint32_t join_fds, join_size;
	uint32_t zero;
};

/*
 * Behind it: the working directory, argc arguments, envc entries NAME=VALUE, each with its NUL. The
 * arguments are those behind the interpreter's name: "-" and more (the code is on standard input, to its
 * end), or "-c", the code and more. An environment that differs from the interpreter's in what only
 * counts at its start is refused (fits.h).
 */
struct zygote_run {
	struct zygote_header header;
	uint32_t argc, envc;
	uint32_t umask;
	uint32_t limit_count;
	struct zygote_limit {
		uint32_t resource, zero; /* RLIMIT_*; can only be lowered */
		uint64_t soft, hard;
	} limits[ZYGOTE_LIMITS_MAX];
};

struct zygote_pid {
	struct zygote_header header;
	int32_t pid; /* in the zygote's pid namespace */
	uint32_t zero;
};

struct zygote_ended {
	struct zygote_header header; /* sequence: of its FORK */
	int32_t pid;
	uint32_t status; /* of waitpid(2) */
	uint64_t cpu_us; /* of the child and what it had reaped */
};

struct zygote_refused {
	struct zygote_header header;
	uint32_t errnum;
	uint32_t zero;
	char text[768];
};

#endif
