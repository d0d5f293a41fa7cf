/* SPDX-License-Identifier: Apache-2.0 */
/*
 * quota.h - who may have how much: sums over live sandboxes and rates, per owner and per session within it.
 *
 * Pure and in memory: the caller passes the monotonic clock (now_us()), and after a restart gives the
 * live sandboxes again with quota_adopt(). Sums are taken and given back; rates are buckets that hold one
 * minute's worth, start full and fill evenly. Output is counted after it was made, so its bucket may fall
 * below nothing (by ten minutes' worth at most); until it is above again no run and no sandbox begins.
 *
 * What is kept of ended runs is counted by the store, which outlives us; here are the limit of it, per owner
 * only, and the bytes that are on their way there.
 *
 * Names of sessions are chosen by clients. An entry is kept while it has live sandboxes or a bucket that
 * is not full, so forgetting it changes no answer; beyond the most entries a new name is refused.
 */
#ifndef STORE_QUOTA_H
#define STORE_QUOTA_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

#define QUOTA_NONE UINT64_MAX /* no limit */

struct quota {
#define QUOTA(NAME, field, json_name, unit) uint64_t field;
#include "store/quota.def"
#undef QUOTA
};

enum quota_kind {
#define QUOTA(NAME, field, json_name, unit) QUOTA_##NAME,
#include "store/quota.def"
#undef QUOTA
	QUOTA_COUNT,
	QUOTA_NAMES = QUOTA_COUNT, /* too many sessions, or owners, at a time */
};

/* "sandboxes", ... as in JSON; "sessions" for QUOTA_NAMES. */
const char *quota_name(enum quota_kind kind);

/* Every field QUOTA_NONE. */
void quota_none(struct quota *q);

/* Set the fields that the object has; others stay. null and "unlimited" are no limit, 0 is refused, and so
 * are unknown fields. On an error q is as it was. */
int quota_from_json(struct quota *q, const json_t *object, struct err *e) must_check;
int quota_from_text(struct quota *q, const char *text, size_t size, struct err *e) must_check;

/* An object with every field: bytes, thousandths as 1.5, null for no limit. NULL: no memory. */
json_t *quota_to_json(const struct quota *q) must_check;

/* ----------------------------------------------------------------------------------------- table */

struct quota_table_limits {
	size_t owners;   /* 4,096 */
	size_t sessions; /* of one owner: 1,024 */
};
extern const struct quota_table_limits quota_default_limits;

struct quota_table;

/* owner: what an owner without its own may have; session: what each session of any owner may have. */
struct quota_table *quota_table_new(const struct quota *owner, const struct quota *session,
				    const struct quota_table_limits *limits) must_check;
void quota_table_free(struct quota_table *t);

/* This owner's own quota (a key's), NULL: the default. Say it whenever the owner was authenticated: it is
 * forgotten with an idle owner. What is in use already stays. 0, -ENOMEM or -EAGAIN (too many owners). */
int quota_set_owner(struct quota_table *t, const char *owner, const struct quota *q,
		    uint64_t now) must_check;

/* What a sandbox takes, besides being one. */
struct quota_need {
	uint64_t memory_bytes, cpus_millis, disk_bytes;
};

struct quota_denial {
	enum quota_kind kind;
	bool of_session;        /* else of the owner */
	unsigned retry_after_s; /* at least 1; for sums a guess */
	bool never;             /* it is more than the whole limit: waiting does not help */
};

/* Take a sandbox's share, of the owner and of the session (NULL: none), or nothing. -1 with e (code
 * SANDBOX_QUOTA_EXCEEDED) and *ret_denial; with e->errnum ENOMEM there was no memory. */
int quota_acquire(struct quota_table *t, const char *owner, const char *session,
		  const struct quota_need *need, uint64_t now, struct quota_denial *ret_denial,
		  struct err *e) must_check;

/* The same without asking, for a sandbox that is there already. 0 or -ENOMEM. */
int quota_adopt(struct quota_table *t, const char *owner, const char *session,
		const struct quota_need *need, uint64_t now) must_check;

/* Give back exactly what was acquired. */
void quota_release(struct quota_table *t, const char *owner, const char *session,
		   const struct quota_need *need);

/* One run begins. As quota_acquire(). */
int quota_take_run(struct quota_table *t, const char *owner, const char *session, uint64_t now,
		   struct quota_denial *ret_denial, struct err *e) must_check;

/* Output of a run of these was seen. An owner or session that is not known any more is passed over. */
void quota_count_output(struct quota_table *t, const char *owner, const char *session,
			uint64_t bytes, uint64_t now);

/* How much may be kept of this owner's runs. */
uint64_t quota_kept_limit(const struct quota_table *t, const char *owner);
/* So much more is being written beside the `stored` bytes that the store counts: true, and taken, when it fits. */
bool quota_keep(struct quota_table *t, const char *owner, uint64_t stored, uint64_t bytes,
		uint64_t now);
/* It is in the store now, or will never be. */
void quota_keep_end(struct quota_table *t, const char *owner, uint64_t bytes);

/* Limits and use, for GET /v1/quota: {"limits":{…},"used":{…}} of the owner, and of the session as
 * "session":{…} if it is not NULL. Rates: what is taken of this minute's worth. stored: as for quota_keep(). */
json_t *quota_report(struct quota_table *t, const char *owner, const char *session, uint64_t stored,
		     uint64_t now) must_check;

size_t quota_owners(const struct quota_table *t);
size_t quota_sessions(const struct quota_table *t, const char *owner);

/* ----------------------------------------------------------------------------------------- queue */

/* What waits, by owner: owners take turns, each owner's items are in order. */
struct quota_queue;

struct quota_queue *quota_queue_new(size_t per_owner, size_t total) must_check;
/* The items are the caller's. */
void quota_queue_free(struct quota_queue *q);
/* 0, -EAGAIN when the owner, or the queue, has as many as it may, or -ENOMEM. item is not NULL. */
int quota_queue_push(struct quota_queue *q, const char *owner, void *item) must_check;
/* The next, or NULL when nothing waits. */
void *quota_queue_pop(struct quota_queue *q);
/* Take an item out that waits no longer. False: it was not there. */
bool quota_queue_remove(struct quota_queue *q, const void *item);
size_t quota_queue_length(const struct quota_queue *q);

#endif
