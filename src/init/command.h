/* SPDX-License-Identifier: Apache-2.0 */
/*
 * command.h - one command of a kept sandbox, for the files that share it: streams.c (what goes through its
 * descriptors), begin.c (START and TAKE), commands.c (its end, and what is asked about it).
 *
 * A command is running until it was reaped and what was in its pipes at that moment has been taken. That
 * amount is asked for once (FIONREAD): survivors that hold the pipe can neither delay the end nor add to
 * it, and what they write later is read and thrown away, so that they live on.
 */
#ifndef INIT_COMMAND_H
#define INIT_COMMAND_H

#include <unistd.h>

#include "init/keep.h"
#include "init/kept.h"

struct stream {
	int fd; /* -1: closed */
	struct keep keep;
	bool ended;       /* nothing more counts */
	uint64_t rest;    /* once the command is dead: what still counts */
	int64_t again_ms; /* a terminal that nobody holds: not to be asked before */
};

struct command {
	struct command *next;
	uint32_t number, flags;
	pid_t pid;     /* 0: reaped */
	pid_t session; /* 0: nobody can be in it any more */
	char tag[TAG_SIZE];
	bool fresh; /* reaped just now */
	bool over;  /* and its streams are at their end */
	int64_t started_us, deadline_ms;
	int64_t held_us; /* until then nobody hears of it, unless it ends; 0: no more */
	struct stream out[2];
	int in;                       /* stdin, or the terminal once more; -1: closed */
	struct conversation *writer;  /* in the middle of a frame */
	struct conversation *starter; /* KEEP_LOSSLESS: reading waits for it */
	uint32_t pid_was;
	struct ended_record ended;
};

static inline void close_fd(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

/* commands.c */
struct command *command_find(const struct kept *k, uint32_t number);
/* It may have ended without having been reaped yet. */
bool command_is_dead(pid_t pid);

/* adopt.c: what has joined becomes the command: it is told arguments, folder and environment, and then waits for
 * its code. Its pid, or -errno: then it has been killed, so that no other can run beside it. */
int command_adopt(struct kept *k, struct command *m, const struct start_record *start,
		  char *strings, size_t size, const char **ret_what);

/* begin.c */
void command_free(struct command *m);

/* streams.c. Its record of the end is made once it is dead and its streams are at their end. */
void command_finish(struct command *m);
void command_end_stream(struct command *m, struct stream *s, bool keep_open);
/* How much of output i may be read now, at most this. A terminal says only by EAGAIN that there is no more. */
size_t command_readable(const struct command *m, int i, size_t most);
/* One read; false when there is no use in another one now. */
bool command_take_output(struct command *m, int i);
/* What an attached conversation gets next. */
void command_more_output(struct kept *k, struct conversation *c);
/* Write what is left of the frame. True when all of it has been consumed, one way or another. */
bool command_write_input(struct command *m, struct conversation *c);
/* A terminal has no end; its line discipline takes ^D for one. False: not now. */
bool command_end_input(struct command *m);

#endif
