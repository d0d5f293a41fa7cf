/* SPDX-License-Identifier: Apache-2.0 */
/*
 * spawner.h - the spawner's state. One thread, one epoll, one event at a time; nothing in it waits.
 *
 * A sandbox (struct box) is alive from the worker's report, or its adoption, until its pidfd tells of
 * its death; then it is counted and cleaned (which may take a few tries, as the kernel lets go of
 * cgroups late), and what remains is an end (struct end) until the client has RELEASEd it.
 */
#ifndef SPAWNER_SPAWNER_H
#define SPAWNER_SPAWNER_H

#include <limits.h>

#include "image/packages.h"
#include "spawner/worker.h"

enum {
	WORKERS_MAX = 8,
	QUEUE_MAX = 256,
	ENDS_MAX = 16384,
	DESCRIPTORS_OWN = 512, /* for all but sandboxes: messages, workers, cgroups */
	BOX_BUCKETS = 4096,
	CREATE_DEADLINE_MS = 30000,
	FREEZE_DEADLINE_MS = 10000,
	CLEAN_DEADLINE_MS = 10000,
	SWEEP_DELAY_MS = 500,
	SPARES_DELAY_MS = 10,
	STOP_WAITS_MS = 3000, /* for the client to go first; it takes less */
	LAST_WORDS_MS = 500,  /* to read what it had sent by then */
	NESTS_MAX = 16,
	CHANGES_MAX = 8,
	CHANGE_DEADLINE_MS = 20000,
	NEST_QUEUE_MAX = 16,
	PULLS_MAX = 4,
	PULL_WAITING_MAX = 128, /* for one image */
	PULL_DEADLINE_MS = 3600 * 1000,
	NEST_PLACES_MAX = 8,
};

/* What a descriptor in the epoll belongs to; the first member of its owner. */
enum source_kind {
	SOURCE_LISTENER,
	SOURCE_CLIENT,
	SOURCE_SIGNAL,
	SOURCE_WORKER,
	SOURCE_BOX,
	SOURCE_FREEZE,
	SOURCE_NEST,
	SOURCE_CHANGE
};
struct source {
	enum source_kind kind;
};

enum box_state { BOX_LIVE, BOX_CLEANING };

struct box {
	struct source source; /* its pidfd */
	struct source freeze_source;
	struct box *next;                    /* in its bucket */
	struct box *busy_next, *busy_before; /* in the list of those that wait for a time */
	bool busy;
	enum box_state state;
	struct meta meta;
	int pidfd, lock;
	bool killed, silent; /* silent: nobody knows of it, its end is no event */
	bool discarded;      /* its end is an event, and nothing that anybody asks for again */
	bool ours;           /* made by a worker of this spawner: its status will come to us */
	bool reaped, signaled;
	int status;
	struct nest_slot *nest;        /* whose cell it is, NULL: none's */
	struct cgroup_host *elsewhere; /* where its cgroup is, NULL: where ours are made */
	bool frozen;
	int freeze_fd;            /* cgroup.events while freezing, -1 */
	uint32_t freeze_sequence; /* 0: nobody waits */
	unsigned freeze_client;
	uint64_t deadline_ms, next_ms;
	struct spawner_counters counters; /* at its death */
};

struct end {
	struct spawner_ended ended;
	struct end *next;
};

struct worker {
	struct source source; /* its report */
	bool used, kill_when_made;
	int report;
	pid_t pid;
	unsigned client; /* whose request, by number of connection */
	uint64_t deadline_ms;
	struct job *job;
};

struct queued {
	struct job *job;
	unsigned client;
};

/* What a nest and its zygote have read when they were started, and go on with. */
struct nest_origin {
	uint64_t policy; /* which reading of it */
	struct packages_state packages;
};

/* A host of a nest (nest_host.h), and what is asked of it. */
struct nest_slot {
	struct source source; /* its jobs' socket */
	bool used;
	bool retired; /* gets no new jobs, and ends when nothing of it waits or is alive */
	bool kill_when_made;
	bool followed; /* near its end: it has a successor */
	int jobs;
	pid_t pid; /* 0: reaped */
	char tenant[sizeof(((struct spawner_create *)0)->tenant)];
	struct queued queue[NEST_QUEUE_MAX]; /* the first one is being worked on */
	size_t queue_count;
	size_t made, made_max, live;
	struct nest_origin origin;
	/* Of its dead sandboxes, for its next ones: slots that are held, and their cgroups. */
	struct nest_place {
		uint32_t slot, realm;
		int lock;
	} places[NEST_PLACES_MAX];
	size_t place_count;
	uint64_t started_ms, busy_ms, deadline_ms;
};

/* An image that is being got (pulls.c), and what waits for it. */
struct pull {
	bool used, given_up;
	pid_t pid;
	int words; /* what it says on stderr */
	uint64_t deadline_ms;
	char name[sizeof(((struct spawner_create *)0)->image)];
	struct queued waiting[PULL_WAITING_MAX];
	size_t waiting_count;
};

/* A NETWORK that a child of ours carries out: it may wait for a credential's source, and for an answer. */
struct change {
	struct source source; /* its report */
	bool used;
	int report;
	pid_t pid;
	unsigned client;
	uint32_t sequence;
	uint64_t deadline_ms;
};

struct outgoing {
	struct outgoing *next;
	size_t size;
	char data[];
};

struct spawner {
	struct worker_place place;
	struct places places;
	char disks[PATH_MAX];
	struct policy policy;
	struct cgroup_host host;
	uint32_t service_uid;
	int epoll, signals;
	struct source signal_source, listener_source, client_source;
	int listener;
	/* the client */
	int client;             /* -1: none */
	unsigned client_number; /* of connections so far */
	bool greeted, writing;
	struct outgoing *out, **out_end;
	/* sandboxes */
	struct box *buckets[BOX_BUCKETS], *busy;
	size_t box_count, box_max; /* as many as there are descriptors for */
	struct end *ends, **ends_end;
	size_t end_count;
	struct worker workers[WORKERS_MAX];
	struct nest_slot nests[NESTS_MAX];
	struct pull pulls[PULLS_MAX];
	struct spares spares;
	uint64_t spares_ms; /* the next is not started before */
	struct change changes[CHANGES_MAX];
	size_t worker_count;            /* how many of them may work at a time */
	struct queued queue[QUEUE_MAX]; /* a ring */
	size_t queue_first, queue_count;
	uint64_t sweep_ms; /* 0: no sweep is due */
	pid_t sweeper;     /* 0: none runs */
	bool stop;
	uint64_t stop_by_ms;
	bool ending; /* until no sandbox is left */
};

uint64_t now_ms(void);

/* serve.c */
int spawner_run(struct spawner *s, struct err *e) must_check;
int spawner_watch(struct spawner *s, int fd, struct source *source, uint32_t events);
/* Close it, and hear no more of it: a worker just forked may still hold a copy, which alone would keep it
 * in the epoll. */
void spawner_unwatch(struct spawner *s, int *fd);

/* client_side.c: what goes to the client, and what comes from it */
void client_accept(struct spawner *s);
void client_event(struct spawner *s, uint32_t events);
void client_close(struct spawner *s);
/* Send, or queue. number: of the connection it is for; another by now: dropped. */
void client_send(struct spawner *s, unsigned number, const void *message, size_t size);
void client_done(struct spawner *s, unsigned number, uint32_t sequence);
void client_refuse(struct spawner *s, unsigned number, uint32_t sequence, const struct err *e);

/* creation.c */
void creation_request(struct spawner *s, const struct spawner_create *m, int *fds, size_t fd_count);
void creation_report(struct spawner *s, struct worker *w);
void creation_next(struct spawner *s);
/* A worker whose time is up is killed; returns when the next one's is. */
uint64_t creation_deadlines(struct spawner *s, uint64_t now);
/* Waiting or being made. cancel: it shall not come to be, or die at once. */
bool creation_pending(struct spawner *s, const char *id, bool cancel);
bool creation_runs(const struct spawner *s); /* a worker is at it */
void creation_collect(struct spawner *s);    /* all reports that have come */
void creation_worker_ended(struct spawner *s, pid_t pid);

void job_free(struct job *j);
/* One that has not been begun shall not be: its client is told, and the job freed. */
void creation_cancelled(struct spawner *s, const struct queued *q);
/* A worker's report has come: the box, or NULL when it could not be kept. */
struct box *creation_made(struct spawner *s, unsigned client, uint32_t sequence, bool kill,
			  const struct worker_report *r, int pidfd, int lock, bool ours);
void creation_refused(struct spawner *s, unsigned client, uint32_t sequence,
		      const struct worker_report *r);

/* Once more to the workers; -1: too many wait. */
int creation_again(struct spawner *s, const struct queued *q, struct err *e) must_check;

/* pulls.c: images that are not there. */
/* A worker has found no image for j. True: j is taken, and made when the image has come, or refused. */
bool pulls_take(struct spawner *s, struct job *j, unsigned client, const struct err *missing);
bool pulls_pending(struct spawner *s, const char *id, bool cancel);
void pulls_forget(struct spawner *s); /* the client has gone: nobody waits any more */
void pulls_ended(struct spawner *s, pid_t pid, bool worked);
uint64_t pulls_deadlines(struct spawner *s, uint64_t now);

/* nests.c: prepared Python. */
void nests_request(struct spawner *s, struct job *j);
void nests_event(struct spawner *s, struct nest_slot *n);
void nests_worker_ended(struct spawner *s, pid_t pid);
bool nests_pending(struct spawner *s, const char *id, bool cancel);
void nests_box_gone(struct spawner *s, struct nest_slot *n);
/* A dead one's slot and cgroup stay for the next: true, and the lock is taken. */
bool nests_keep_place(struct box *b);
uint64_t nests_deadlines(struct spawner *s, uint64_t now);
/* Blocks until their hosts are gone, a few seconds at most. Whether there was any. */
bool nests_stop(struct spawner *s);

/* changes.c: rules of a sandbox's network. */
void changes_request(struct spawner *s, const struct spawner_change *m);
void changes_event(struct spawner *s, struct change *c);
void changes_worker_ended(struct spawner *s, pid_t pid);
uint64_t changes_deadlines(struct spawner *s, uint64_t now);

/* box.c */
struct box *box_find(const struct spawner *s, const char *id);
struct box *box_find_pid(const struct spawner *s, pid_t pid);
/* Takes the descriptors, also on failure (then the sandbox is killed). */
struct box *box_add(struct spawner *s, const struct meta *m, int pidfd, int lock);
void box_kill(struct box *b, const struct spawner *s);
/* Some were told to go, or are dead and not cleaned away yet. */
bool boxes_are_dying(const struct spawner *s);
/* Nothing but init is alive in it, or what has run nobody's code: with init it ends. */
void box_discard(struct box *b);
void box_pause(struct spawner *s, struct box *b, uint32_t sequence);
void box_resume(struct spawner *s, struct box *b, uint32_t sequence);
void box_stats(struct spawner *s, struct box *b, uint32_t sequence);
void box_dead(struct spawner *s, struct box *b);
void box_freeze_event(struct spawner *s, struct box *b);
uint64_t box_deadlines(struct spawner *s, uint64_t now);
struct end *end_find(const struct spawner *s, const char *id);
void end_release(struct spawner *s, const char *id);
/* Everything that an earlier spawner left: adopted, or removed. */
int boxes_adopt(struct spawner *s, struct err *e) must_check;
/* What one folder is about: adopted, or cleaned. silent: and killed if it lives. */
void box_adopt(struct spawner *s, const char *id, bool silent);

#endif
