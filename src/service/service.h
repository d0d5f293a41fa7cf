/* SPDX-License-Identifier: Apache-2.0 */
/*
 * service.h - cloched: one process without privileges, one thread, one loop.
 *
 * What it knows lasts in the store; what is alive is in `boxes`. Everything that changes the world goes
 * through the spawner (link.h), everything inside a sandbox through its init (talk.h).
 */
#ifndef SERVICE_SERVICE_H
#define SERVICE_SERVICE_H

#include <jansson.h>
#include <uv.h>

#include "service/config.h"
#include "service/mcp_asks.h"
#include "http/http.h"
#include "image/state.h"
#include "service/metrics.h"
#include "settings/settings.h"
#include "store/quota.h"
#include "store/store.h"

struct link;
struct box;
struct run;
struct subscriber;
struct budget;
struct batch;
struct call;

enum { EVENTS_KEPT = 4096 };

/* Made into JSON for who wants to hear of it. */
struct event {
	int64_t time_ms;
	const char *type, *reason; /* literals; reason may be NULL */
	char sandbox[40], run[40]; /* run may be "" */
	char owner[64];
};

struct service {
	uv_loop_t loop;
	struct service_config config;
	json_t *file; /* the whole configuration, or NULL */
	const char *file_name;
	struct places places;
	struct settings policy; /* its policy */
	struct mcp_asks mcp_asks;
	struct store *store;
	struct http_server *http;
	struct link *link;
	struct quota_table *quotas;
	struct quota owner_quota; /* the default */
	struct box *boxes[4096];  /* by id; chained */
	size_t box_count;
	struct mcp_gate *mcp; /* NULL: nobody has come for it yet */
	struct pool *pool;    /* NULL: not yet, or no memory for one */
	int store_folders
		[STORE_FOLDERS]; /* of the images, to look at only (image/state.h); -1: none */
	struct dying *dying;     /* killed behind the answers (dying.c) */
	size_t dying_count;
	struct box *forgetful; /* whose inits have something to forget (tell.c) */
	uv_timer_t forgetting;
	uv_timer_t tidying;     /* the store, when nothing has been committed for a moment */
	unsigned counters_open; /* sandboxes whose counters stay open */
	struct run *runs;       /* that are not ended */
	struct batch *batches;
	struct call *shared; /* that came to a port by a share (port_share.c) */
	uv_timer_t sharing;  /* until the first of them has expired */
	struct subscriber *subscribers;
	struct budget *budgets;           /* budget.c */
	struct event events[EVENTS_KEPT]; /* ring by seq */
	int64_t event_seq;                /* of the last one */
	struct metrics metrics;
	uv_prepare_t commit;
	uv_timer_t housekeeping;
	uid_t operator_uid; /* on the socket as good as root: whose service it is */
	char *openapi;      /* the document, or NULL */
	size_t openapi_size;
	char store_error[768]; /* why the last write failed; "" when it did not */
	bool store_wrote;
	bool store_missed;           /* a write of this turn failed */
	uint64_t store_losses;       /* turns whose writes failed */
	uv_timer_t again;            /* what could not be written is tried again */
	struct unwritten *unwritten; /* recover.c */
	bool stopping, ready, failed;
	bool orphaned; /* stopping, since cloche-serve has died */
	uint64_t stop_by_us;
	int64_t started_ms;
};

/* Milliseconds of the epoch. */
int64_t wall_ms(void);
/* RFC 3339 UTC with milliseconds, or null for 0. A new reference. */
json_t *time_json(int64_t ms);

/* "sbx_" and 32 hexadecimal digits from the kernel's random bytes. */
void make_object_id(char ret[40], const char *prefix);
/* Whether text is such an id. */
bool is_object_id(const char *text, const char *prefix);

/* What cannot be stored is said once on stderr and makes /healthz fail; the service goes on, begins nothing
 * new, and writes what is alive and what ended meanwhile as soon as there is room again. */
void store_failed(struct service *v, const struct err *e);

/* What was written in this turn is on its way to the disk after this: before an answer that says so. -1: it
 * was not written. */
int service_commit(struct service *v);
/* -1 and a problem: nothing may begin that is not written down. */
int service_record(struct service *v, struct err *e) must_check;

/* watch.c: tell everyone; counted, kept in the ring. run, reason: NULL if none. */
void event_emit(struct service *v, const char *type, const struct box *b, const char *run,
		const char *reason);
/* One audit row. details: stolen reference to an object, or NULL. */
void audit(struct service *v, const char *actor, const char *session, const char *action,
	   const char *object, json_t *details);

/* One structured log line on stderr: JSON whatever the values contain. details: stolen. */
void log_event(const char *event, json_t *details);

/* batch.c: this owner has given something of its quota back. */
void batch_try_again(struct service *v, const char *owner);

/* recover.c: after a start, find out what became of what the store calls alive. */
void recover(struct service *v);
/* recover.c: the store failed; write again what is in memory, until that succeeds. */
void recover_store(struct service *v);

#endif
