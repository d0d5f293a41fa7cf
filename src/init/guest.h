/* SPDX-License-Identifier: Apache-2.0 */
/* guest.h - the guest side of the protocol, once the sandbox is made. One command at a time. */
#ifndef INIT_GUEST_H
#define INIT_GUEST_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "protocol/protocol.h"
#include "native/isolate/isolate.h"

struct relay {
	int fd; /* our end of the command's pipe, -1: closed */
	unsigned stream;
};

struct guest {
	int control;
	int reaper; /* signalfd for SIGCHLD */
	uint32_t uid, gid;
	const char *profile;
	const struct plan *plan;    /* NULL: made by somebody else */
	bool without_seccomp;       /* test builds only */
	bool keep_capabilities;     /* test builds only */
	bool keep_descriptors;      /* test builds only */
	pid_t command;              /* 0: none is running */
	int64_t deadline_ms;        /* INT64_MAX: none */
	bool last;                  /* end when the command and everything else have ended */
	struct exited_record ended; /* how the last command did */
	struct relay out, err;
	int stdin_pipe; /* relayed stdin, -1: closed */
	unsigned char stdin_data[STDIN_WINDOW];
	size_t stdin_filled;
	bool stdin_ended;
	int seat;          /* a prepared sandbox that can be joined: where that is said; -1: none */
	int ruleset;       /* Landlock's, for who joins; -1: none */
	pid_t joined;      /* who has joined; 0: nobody */
	int joined_fds[4]; /* enum joined_fd, until it has become a command; -1 */
};

void guest_init(struct guest *g, int control);
int guest_ready(struct guest *g, const struct isolation *s);
void guest_report_failure(struct guest *g, const char *stage, int errnum, const char *what);

/* Serve the stream until it ends or the last command has; never returns. */
__attribute__((noreturn)) void guest_loop(struct guest *g);

/* kept.c: be a kept sandbox's init: answer DONE, let go of the stream, serve the listener; never returns. */
__attribute__((noreturn)) void guest_keep(struct guest *g, int listener);

/* start.c: start the command of an EXEC frame. strings: workdir, arguments, environment, as the frame
 * has them. 0 and our ends of its stdin, stdout and stderr; or -errno, at which stage, and the object. */
int guest_start(struct guest *g, const struct exec_record *exec, char *strings, size_t size,
		int ret_ours[3], const char **ret_stage, const char **ret_what);

/* start.c: the pieces of it. Pipes of the sandbox user's, so that /dev/stdout can be opened by name: the
 * command's ends and ours, which never block; what was made before a failure is in the arrays. Launch
 * returns the pid or -errno, and closes nothing. terminal: stdio is one, which becomes the session's. */
int guest_pipes(uint32_t uid, uint32_t gid, int ret_theirs[3], int ret_ours[3]);
void guest_close(int fds[3]);
int guest_launch(struct guest *g, const struct exec_record *exec, char *strings, size_t size,
		 const int stdio[3], bool terminal, const char **ret_stage, const char **ret_what);

/* guest.c: act as the sandbox user, with the way back to root inside left open. 0 or -errno. */
int guest_as_user(uint32_t uid, uint32_t gid);
int guest_as_root(void);

/* Undumpable, and tied to the life of the supervisor: every change of credentials undoes both. A kept
 * sandbox's init is tied to nobody: guest_outlive(), once and for all. */
void guest_protect(void);
void guest_outlive(void);

/* A prepared sandbox: dumpable until it is joined, or never can be any more (cell.c). */
void guest_open_seat(void);
void guest_close_seat(void);
void guest_seat(struct guest *g); /* seat.c: somebody has joined */

int64_t guest_now_us(void); /* CLOCK_MONOTONIC */

/* put.c: create one file, folder or link as the sandbox user; content is read from the stream. */
int guest_put(struct guest *g, const unsigned char *payload, uint32_t size);

#endif
