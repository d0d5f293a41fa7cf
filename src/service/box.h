/* SPDX-License-Identifier: Apache-2.0 */
/*
 * box.h - a kept sandbox as cloched sees it: its state, its clocks, and what waits for its end.
 *
 * The verdict (why it is to end) is in the store before the kill is asked for. What happens to a
 * sandbox in which state is the model's table (state_next).
 */
#ifndef SERVICE_BOX_H
#define SERVICE_BOX_H

#include "service/counters.h"
#include "service/link.h"
#include "service/network.h"
#include "service/service.h"
#include "service/talk.h"

/* One that wants to know when a sandbox is made, has changed, or is gone. Embedded in its owner. */
struct waiter {
	struct waiter *next;
	void (*tell)(struct waiter *w, struct box *b);
};

struct pool_want;

struct box {
	struct service *service;
	struct box *next; /* in its hash row */
	struct stored_sandbox stored;
	struct spec spec;   /* limits and defaults of its commands */
	bool texts_are_old; /* those of `stored`: they are made anew before they are written */
	uint64_t disk_bytes;
	uint64_t life_us; /* 0: never ends by itself */
	json_t *metadata;
	json_t *commands; /* of its background processes, by id; cut at COMMAND_SHOWN bytes */
	struct spawner_created created;
	struct enforced enforced; /* texts are in created */
	struct network *network;  /* NULL: it has none, or there was no memory to hear of it */
	struct network_flush last_flush; /* of one that is dead: what it said last */
	char ctl[384];
	struct strings image_env; /* of its image, for what runs in it */
	uv_timer_t clock;
	bool has_clock, counted, killing, admitted;
	unsigned talks;    /* open conversations: work */
	struct talk *idle; /* one that has said all, for the next; NULL: none */
	bool idle_ready;   /* and init takes another opening on it */
	uint64_t last_cpu; /* as of the last look */
	uint64_t asked_us, expires_us, idle_at_us, paused_us; /* monotonic; expires 0: never */
	bool pulling;                                         /* its image, before it is made */
	bool refused;                     /* by the spawner, for what was asked */
	bool unsure;                      /* the spawner went away while it was being made */
	char killer[64];                  /* who asked for its end, for the audit; "" nobody */
	int64_t pause_wanted;             /* +1, -1: asked for, not yet answered */
	char *not_changed;                /* while paused or resumed are told: why it was in vain */
	bool touched;                     /* used while it was being paused */
	struct spawner_counters counters; /* the last known */
	bool has_counters;
	uint32_t waiting;     /* init's number of the command that waits in it; 0: none */
	char waiting_run[40]; /* and the run that shall use it */
	bool joins;     /* a child of its caller's zygote is made with it, for its first command */
	uid_t fd_owner; /* who gave the descriptors of its volumes */
	char stage[16];
	int errnum;
	enum code failed_code;
	struct waiter *made, *resumed, *paused, *counted_again, *gone;
	struct counter_fds counter_fds; /* box_counters.c */
	uint32_t forget[FORGET_MAX];    /* numbers of commands that init may forget (tell.c) */
	unsigned forget_count;
	struct box *forgetful_next;
	bool forgetful;      /* waits in the service's list of those */
	unsigned references; /* runs and exchanges that hold it */
};

/* The one with this id that is alive, or NULL. */
struct box *box_find(struct service *v, const char *id);

/* Begin to make one. spec is taken over, also on failure. fds stay the caller's. The box is given back in
 * STATE_CREATING with one reference; `made` waiters are told when it runs or has failed. want: one that the
 * pool has prepared will do, and is given back in STATE_RUNNING; NULL: it will not. */
struct box *box_create(struct service *v, struct stored_sandbox *stored, struct spec *spec,
		       uint64_t disk_bytes, uint64_t life_us, json_t *metadata,
		       const struct pool_want *want, const char *const *fd_boxes, const int *fds,
		       size_t fd_count, uid_t fd_owner, struct err *e) must_check;

/* A one-shot whose processes are all dead but init, and whose counters are read: it has ended for whoever asks,
 * and is killed and removed behind the answer. Its `gone` waiters are told before this returns. */
void box_leave(struct box *b);

/* Its image is not there yet; it is being got before the sandbox is made. */
void box_on_pulling(struct service *v, const char *id);

/* End it for this reason. Idempotent: the first verdict stays. */
void box_end(struct box *b, enum reason verdict);

/* What a background process was started with: init does not keep it. box_command() gives a new reference. */
void box_remember_command(struct box *b, const char *id, const struct strings *command);
void box_forget_command(struct box *b, const char *id);
json_t *box_command(const struct box *b, const char *id);

/* Freeze or thaw; `paused` or `resumed` waiters are told, also when it was in vain (b->not_changed). While the
 * other one is under way, waiting is enough: it is asked for behind it. */
void box_pause(struct box *b);
void box_resume(struct box *b);

/* Something uses it: the idle clock starts again, and a paused one goes on if it may. -1: it may not. */
int box_touch(struct box *b, struct err *e) must_check;

/* Its life begins again with these; UINT64_MAX leaves one as it is, 0 is never. */
void box_renew(struct box *b, uint64_t life_us, uint64_t idle_us);

/* box_talk.c. A conversation with its init, which counts as use until box_hang_up(). */
struct talk *box_talk(struct box *b, const struct talk_ops *ops, void *data,
		      struct err *e) must_check;
void box_hang_up(struct box *b, struct talk *t);
/* The same, for one whose command has ended: the next conversation may be held on it. */
void box_lay_down(struct box *b, struct talk *t);
/* One on which init has said DONE is the box's. */
void box_take_idle(struct box *b, struct talk *t);
void box_drop_idle(struct box *b);

/* box_request.c: the request for it. n and c are zero. */
int box_fill_network(struct spawner_network *n, const struct spec *s, const char *owner,
		     struct err *e) must_check;
int box_fill_create(struct spawner_create *c, const struct box *b, const char *const *fd_boxes,
		    size_t fd_count, struct err *e) must_check;
/* Send it, for a sandbox that `joins` with whose zygote; once more, when that does not do it. -1: not sent. */
int box_ask(struct box *b, struct spawner_create *c, const int *fds, size_t fd_count,
	    link_answer done) must_check;
int box_ask_without_zygote(struct box *b, link_answer done) must_check;

/* box_json.c: the rules, as the API takes them. */
json_t *box_network_json(const struct spec *s) must_check;
/* box_json.c: what the store keeps of it as text is made anew from what is in memory, or read back. What
 * holds (`enforced`) is in `created`, which the spawner filled. */
void box_keep_texts(struct box *b);
void box_keep_enforced(struct box *b);
void box_keep_enforced_text(struct box *b);
int box_restore_spec(struct box *b, struct err *e) must_check;

/* Tell who waits for new counters, and nobody else. */
void box_tell_counted(struct box *b);

void waiter_add(struct waiter **list, struct waiter *w);
void waiter_remove(struct waiter **list, struct waiter *w);

void box_hold(struct box *b);
void box_release(struct box *b);

/* Move expires_at when the clock on the wall was set meanwhile. */
void box_follow_wall_clock(struct box *b);

/* The sandbox object of the API; live: NULL when it is gone. */
json_t *sandbox_json(const struct stored_sandbox *s, struct box *live) must_check;

/* From the spawner, and after a restart. */
void box_on_ended(struct service *v, const struct spawner_ended *ended);
struct box *box_adopt(struct service *v, struct stored_sandbox *stored,
		      const struct spawner_live *live, struct err *e) must_check;
/* In the store it is alive, and nowhere else; it ended for its verdict, or for this reason. */
void box_lost(struct service *v, struct stored_sandbox *stored, enum reason why);
enum reason box_judge_end(const struct stored_sandbox *s, const struct spawner_ended *ended);
/* The end is in the store: the spawner may forget it. */
void box_release_end(struct service *v, const char *id);
/* The store failed: its row once more. */
void box_write_again(struct box *b);

/* Counters read where they are world-readable; false when they cannot be. */
bool box_oom_count(struct box *b, uint64_t *ret);
bool box_cpu_us(struct box *b, uint64_t *ret);
/* All that is counted, into b->counters; it stands still when only init is left. */
bool box_read_counters(struct box *b);
/* Now, as there is time: they will be read. */
void box_open_counters(struct box *b);
/* The same for one that has no box yet, when not too many are open; and close them. */
void counters_open_ahead(struct service *v, const struct spawner_created *s, struct counter_fds *c);
void counters_let_go(struct service *v, struct counter_fds *c);
/* They stay open for as long as the sandbox is busy, until this. */
void box_close_counters(struct box *b);

/* box_image.c: it is made; learn what its image wants. */
void box_take_image(struct box *b);
/* The environment that the image of the sandbox with this control socket wants. */
int box_read_image_env(const char *ctl, struct strings *ret, struct err *e) must_check;

#endif
