/* SPDX-License-Identifier: Apache-2.0 */
/*
 * zygote.h - the parts of the module that is loaded into a prepared Python.
 *
 * Three processes run this code, one after the other, all of them copies of one interpreter:
 *	the first	python3 itself: imports what it is told to, forks once, waits (start.c)
 *	the zygote	that fork: one thread, serves the request socket, forks and reaps (serve.c)
 *	a child		joins its sandbox, waits for its code, runs it, is gone (child.c, run.c, leave.c)
 * Written for the limited API of 3.8 and up, so that one build fits every later minor version; the few
 * functions beyond it are looked up by name when the interpreter starts (interp.h).
 */
#ifndef ZYGOTE_ZYGOTE_H
#define ZYGOTE_ZYGOTE_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/stat.h>

#include "base/err.h"
#include "zygote/message.h"

struct zygote {
	sigset_t mask;          /* as the interpreter had it: the children's */
	int tasks;              /* /proc/self/task: how many threads there are */
	int first;              /* pidfd of the first process: the zygote ends with it */
	struct stat streams[3]; /* the interpreter's; a child's are of the same kind */
};

/* start.c: everything, from the bootstrap's end on. */
_Noreturn void zygote_begin(void);

/* serve.c: in the zygote: says READY (to the START of that sequence) and serves. Leaves at the end of the
 * request socket. */
_Noreturn void zygote_serve(const struct zygote *z, uint32_t sequence);

/* huge.c: in the zygote, which has one thread: the interpreter's code moves into huge pages where there are some. -1: it may be
 * gone, and the zygote must end. */
int huge_code(struct err *e);

/* pools.c: in the zygote, last: what its children allocate comes from memory that nothing of the zygote's lies in. */
void pools_fill(void);

/* child.c: in a fresh child, from fork to exit. message: a checked FORK. */
_Noreturn void child_main(const struct zygote *z, const struct zygote_fork *message, const int *fds,
			  size_t fd_count);

/* apply.c: in a child: arguments, environment, directory, limits. -1: nothing of it counts, the child
 * must leave. */
int apply_run(const struct run_view *v, struct err *e);

/* fresh.c: what siblings would share by accident. Prepare in the first process, after the imports;
 * sibling in each child, after fork; moment just before the code runs. */
int fresh_prepare(struct err *e);
int fresh_sibling(struct err *e);
void fresh_moment(void);

/* run.c: prepare in the first process, and rehearse there, after the imports: a few lines of ours and the
 * operator's, through the functions that run the code, in scratch namespaces. Warm does the same in a
 * child, where no failure counts. The code is on stdin (NULL) or given; does not return. */
int run_prepare(struct err *e);
int run_rehearse(const char *code, struct err *e);
void run_warm(void);
_Noreturn void run_code(const char *code);

/* leave.c: prepare in the first process, after the imports; freeze last of all. Quickly: run what runs at exit (threads,
 * atexit, flush) and leave with status when nothing that lives could notice that the interpreter is not
 * taken down; else return, and the caller takes it down. */
int leave_prepare(struct err *e);
int leave_freeze(struct err *e);
void leave_quickly(int status);
/* Before an ordinary end: everything is subject to it again. */
void leave_thaw(void);

#endif
