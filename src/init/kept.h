/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kept.h - the init of a kept sandbox: conversations (protocol/conversation.h) on one listening socket.
 *
 * One loop, which never blocks on a peer. A conversation belongs to a slot. Its opening frame decides: it
 * is answered here (commands.c), or a worker is forked that has become the sandbox user for good, holds
 * nothing but the connection, and is simple blocking code (files.c, trees.c, links.c, processes.c).
 *
 * Invariants: a peer that sends half a frame, or takes nothing, costs its slot and what its slot holds
 * (one frame in, OUT_SIZE out). Init reads no more of a connection than the frame it is at, so that the
 * rest is the worker's. A worker is never a command, and its death is only a hang-up.
 */
#ifndef INIT_KEPT_H
#define INIT_KEPT_H

#include "init/guest.h"
#include "protocol/conversation.h"

enum {
	CONVERSATIONS_MAX = 256,
	COMMANDS_MAX = 1024,
	OUT_SIZE = 32768,
	OPENING_MS = 10000, /* for the opening frame to be complete */
};

struct kept;
struct command;

struct conversation {
	int fd;       /* -1: free, or a worker has it */
	pid_t worker; /* 0: none */
	bool opened;  /* the opening frame was taken */
	bool over;    /* hang up once everything is out */
	bool lasts; /* nothing is said on it beside its opening: after its end there may be another */
	bool again;            /* another opening is waited for once everything is out */
	bool half;             /* the peer has ended its direction */
	int64_t opening_until; /* ms; NO_LIMIT: nothing was said yet after the command before */

	/* the frame that is being read, or waits to be taken */
	unsigned char header[FRAME_HEADER_SIZE];
	size_t header_filled;
	struct frame frame;
	unsigned char *payload;
	size_t filled, room;
	bool whole;

	unsigned char *out; /* OUT_SIZE, from the first byte on */
	size_t out_from, out_to;

	/* more output when out is empty; NULL: none */
	void (*more)(struct kept *k, struct conversation *c);
	bool takes_input;        /* DATA and EOF are for the command's stdin */
	bool takes_finish;       /* and FINISH ends it */
	size_t input_done;       /* of the frame */
	uint32_t credit;         /* consumed, not yet said */
	struct command *command; /* NULL: none */
	uint64_t position[2];    /* next byte to send */
	uint64_t until[2];       /* stop there */
	bool eof_sent[2];
	bool follow;
	uint32_t listed; /* LIST: the last number */
};

struct kept {
	struct guest *g;
	int listener;
	bool accept_later; /* no descriptors just now */
	int64_t born_us;
	unsigned open_count; /* slots in use */
	unsigned used;       /* slots that ever were: no other is touched */
	struct conversation slots[CONVERSATIONS_MAX];
	struct command *commands; /* by number */
	unsigned command_count;
	uint32_t last_number;
	int64_t look_ms; /* when the room in the writable places is looked at next */
};

#define EACH_CONVERSATION(k, c) \
	for (__typeof__(&(k)->slots[0]) c = (k)->slots; c < (k)->slots + (k)->used; c++)

/* kept.c: put a frame in line; false: no room (never for the first frames after out was empty). */
bool conversation_put(struct conversation *c, enum frame_type type, unsigned stream,
		      const void *payload, uint32_t size);
/* The peer has hung up altogether: whatever is answered, nobody hears it. */
bool conversation_is_cut(const struct conversation *c);
void conversation_fail(struct conversation *c, const char *stage, int errnum, const char *what);
void conversation_done(struct conversation *c);

/* commands.c: openings. */
void command_start(struct kept *k, struct conversation *c, char *payload, uint32_t size);
void command_take(struct kept *k, struct conversation *c, char *payload, uint32_t size);
void command_attach(struct kept *k, struct conversation *c, char *payload, uint32_t size);
void command_input(struct kept *k, struct conversation *c, char *payload, uint32_t size);
void command_kill(struct kept *k, struct conversation *c, char *payload, uint32_t size);
void command_resize(struct kept *k, struct conversation *c, char *payload, uint32_t size);
void command_forget(struct kept *k, struct conversation *c, char *payload, uint32_t size);
void command_list(struct kept *k, struct conversation *c, char *payload, uint32_t size);

/* A whole frame of a conversation that takes input. True: it was taken. */
bool command_take_frame(struct kept *k, struct conversation *c);
/* What is to be said of its command waits for a moment: it may end at once. */
bool command_is_held(const struct conversation *c);
/* The conversation has ended. */
void command_leave(struct kept *k, struct conversation *c);

struct pollfd;
struct rusage;
/* The descriptors of commands: add those to wait for (at most room), returns how many; then do what
 * they told. Ends by the clock; *until becomes the earliest. */
size_t commands_poll(struct kept *k, struct pollfd *p, size_t room, int64_t now_ms);
void commands_ready(struct kept *k, const struct pollfd *p, size_t count);
void commands_clock(struct kept *k, int64_t now_us, int64_t *until_us);
/* What was held back for long enough is told. */
void commands_let_go(struct kept *k, int64_t now_us);
/* A child was reaped: true if it was a command. Then, when all are, their ends. */
bool commands_reaped(struct kept *k, pid_t pid, int status, const struct rusage *used);
void commands_ended(struct kept *k);
/* The number of the command whose session this is, 0: none. */
uint32_t commands_session(const struct kept *k, pid_t session);

/* session.c: signal every process of a session but one; returns how many there were. Those that have made
 * themselves undumpable cannot be found: /proc shows no process that one may not inspect. */
unsigned session_signal(const struct guest *g, pid_t session, pid_t but, int signal);
bool session_is_alive(const struct guest *g, pid_t session);

#endif
