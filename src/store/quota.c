/* SPDX-License-Identifier: Apache-2.0 */
/*
 * quota.c - the table of owners and their sessions, in cloched's thread.
 *
 * Both levels are the same thing: an entry with sums and two buckets, in a small hash table. A request
 * is checked against the owner's entry and the session's, and taken from both or from neither.
 *
 * A bucket's level is in units times microseconds of a minute: adding limit * elapsed needs no division
 * and loses no fraction, and 64 bits of limit times 26 bits of a minute fit 128.
 */
#include "store/quota.h"

#include <string.h>

#include "sandbox/model.h"

#define MINUTE_US 60000000u

enum {
	CHAINS = 64,
	DEBT_MINUTES = 10,
	SUM_RETRY_S = 5, /* when a sandbox will end is not known */
};

const struct quota_table_limits quota_default_limits = {.owners = 4096, .sessions = 1024};

struct bucket {
	__int128 level; /* units * MINUTE_US */
	uint64_t at;    /* as of this time */
};

struct entries {
	struct entry *chain[CHAINS];
	size_t count;
};

struct entry {
	struct entry *next;
	uint64_t hash;
	struct quota limit;
	uint64_t sandboxes;
	struct quota_need used;
	uint64_t keeping; /* of an owner: bytes on their way into the store */
	struct bucket runs, output;
	struct entries *sessions; /* of an owner; made when it has one */
	char name[];
};

struct quota_table {
	struct quota owner_default, session_default;
	struct quota_table_limits limits;
	struct entries owners;
};

/* --------------------------------------------------------------------------------------- buckets */

static __int128 bucket_full(uint64_t limit)
{
	return (__int128)limit * MINUTE_US;
}

static void bucket_fill(struct bucket *b, uint64_t limit, uint64_t now)
{
	const uint64_t most = (uint64_t)(1 + DEBT_MINUTES) * MINUTE_US;
	uint64_t elapsed = now > b->at ? now - b->at : 0;

	b->level += (__int128)limit * (elapsed < most ? elapsed : most);
	if (b->level > bucket_full(limit))
		b->level = bucket_full(limit);
	if (now > b->at)
		b->at = now;
}

/* Seconds until the level is at least this, rounded up, at least 1. */
static unsigned bucket_wait(const struct bucket *b, uint64_t limit, __int128 wanted)
{
	const __int128 per_second = (__int128)limit * 1000000;
	__int128 seconds = (wanted - b->level + per_second - 1) / per_second;

	return seconds < 1 ? 1 : (unsigned)seconds;
}

/* --------------------------------------------------------------------------------------- entries */

static uint64_t hash_name(const char *name)
{
	uint64_t h = 0xcbf29ce484222325; /* FNV-1a */

	for (; *name; name++)
		h = (h ^ (unsigned char)*name) * 0x100000001b3;
	return h ^ h >> 32;
}

static struct entry *entries_find(const struct entries *list, const char *name)
{
	uint64_t hash = hash_name(name);
	struct entry *n = list ? list->chain[hash % CHAINS] : NULL;

	while (n && (n->hash != hash || strcmp(n->name, name) != 0))
		n = n->next;
	return n;
}

static void entries_free(struct entries *list)
{
	for (size_t i = 0; list && i < CHAINS; i++)
		for (struct entry *n = list->chain[i], *next; n; n = next) {
			next = n->next;
			entries_free(n->sessions);
			free(n->sessions);
			free(n);
		}
}

static void entries_sweep(struct entries *list, uint64_t now);

/* Nothing of it is in use and its buckets are full: a new entry would be the same. */
static bool entry_is_idle(struct entry *n, uint64_t now)
{
	if (n->sandboxes > 0 || n->keeping > 0)
		return false;
	bucket_fill(&n->runs, n->limit.runs_per_minute, now);
	bucket_fill(&n->output, n->limit.output_bytes_per_minute, now);
	if (n->runs.level < bucket_full(n->limit.runs_per_minute) ||
	    n->output.level < bucket_full(n->limit.output_bytes_per_minute))
		return false;
	if (n->sessions)
		entries_sweep(n->sessions, now);
	return !n->sessions || n->sessions->count == 0;
}

/* Two levels: owners, then sessions. */
static void entries_sweep(struct entries *list, uint64_t now)
{
	for (size_t i = 0; i < CHAINS; i++)
		for (struct entry **at = &list->chain[i]; *at;) {
			struct entry *n = *at;

			if (!entry_is_idle(n, now)) {
				at = &n->next;
				continue;
			}
			*at = n->next;
			list->count--;
			free(n->sessions);
			free(n);
		}
}

/* Find or make. NULL: *ret_error is -ENOMEM, or -EAGAIN when there are as many as may be (0: any number). */
static struct entry *entries_get(struct entries *list, const char *name, const struct quota *limit,
				 size_t most, uint64_t now, int *ret_error)
{
	struct entry *n = entries_find(list, name);
	size_t size = strlen(name) + 1;

	if (n)
		return n;
	if (most > 0 && list->count >= most)
		entries_sweep(list, now);
	if (most > 0 && list->count >= most) {
		*ret_error = -EAGAIN;
		return NULL;
	}
	n = calloc(1, sizeof *n + size);
	if (!n) {
		*ret_error = -ENOMEM;
		return NULL;
	}
	memcpy(n->name, name, size);
	n->hash = hash_name(name);
	n->limit = *limit;
	n->runs = (struct bucket){bucket_full(limit->runs_per_minute), now};
	n->output = (struct bucket){bucket_full(limit->output_bytes_per_minute), now};
	n->next = list->chain[n->hash % CHAINS];
	list->chain[n->hash % CHAINS] = n;
	list->count++;
	return n;
}

/* The entries that a request concerns: the owner's, and the session's if there is one. */
struct pair {
	struct entry *level[2];
};

/* bounded: refuse more names than may be. 0, -ENOMEM or -EAGAIN; *ret_session: whose names. */
static int get_pair(struct quota_table *t, const char *owner, const char *session, bool bounded,
		    uint64_t now, struct pair *ret, bool *ret_session)
{
	struct pair p = {{NULL, NULL}};
	int error = 0;

	*ret_session = false;
	p.level[0] = entries_get(&t->owners, owner, &t->owner_default,
				 bounded ? t->limits.owners : 0, now, &error);
	if (!p.level[0])
		return error;
	if (session) {
		*ret_session = true;
		if (!p.level[0]->sessions)
			p.level[0]->sessions = calloc(1, sizeof *p.level[0]->sessions);
		if (!p.level[0]->sessions)
			return -ENOMEM;
		p.level[1] = entries_get(p.level[0]->sessions, session, &t->session_default,
					 bounded ? t->limits.sessions : 0, now, &error);
		if (!p.level[1])
			return error;
	}
	*ret = p;
	return 0;
}

static struct pair find_pair(struct quota_table *t, const char *owner, const char *session)
{
	struct pair p = {{entries_find(&t->owners, owner), NULL}};

	if (p.level[0] && session)
		p.level[1] = entries_find(p.level[0]->sessions, session);
	return p;
}

/* ---------------------------------------------------------------------------------------- checks */

static int deny(struct quota_denial *ret, enum quota_kind kind, bool of_session, unsigned wait_s,
		struct err *e)
{
	*ret = (struct quota_denial){kind, of_session, wait_s, false};
	if (kind == QUOTA_NAMES)
		err_set(e, 0, "too many %s at a time", of_session ? "sessions" : "owners");
	else
		err_set(e, 0, "the %s's quota of %s is used up", of_session ? "session" : "owner",
			quota_name(kind));
	return err_code(e, CODE_SANDBOX_QUOTA_EXCEEDED);
}

static bool fits(uint64_t used, uint64_t more, uint64_t limit)
{
	return limit == QUOTA_NONE || (used <= limit && more <= limit - used);
}

/* QUOTA_COUNT: it fits. */
static enum quota_kind check_sums(const struct entry *n, const struct quota_need *need)
{
	if (!fits(n->sandboxes, 1, n->limit.sandboxes))
		return QUOTA_SANDBOXES;
	if (!fits(n->used.memory_bytes, need->memory_bytes, n->limit.memory_bytes))
		return QUOTA_MEMORY;
	if (!fits(n->used.cpus_millis, need->cpus_millis, n->limit.cpus_millis))
		return QUOTA_CPUS;
	if (!fits(n->used.disk_bytes, need->disk_bytes, n->limit.disk_bytes))
		return QUOTA_DISK;
	return QUOTA_COUNT;
}

/* Even if it had nothing yet. */
static bool never_fits(const struct entry *n, const struct quota_need *need)
{
	const struct entry empty = {.limit = n->limit};

	return check_sums(&empty, need) != QUOTA_COUNT;
}

static int check_output(struct entry *n, bool of_session, uint64_t now, struct quota_denial *ret,
			struct err *e)
{
	const uint64_t limit = n->limit.output_bytes_per_minute;

	bucket_fill(&n->output, limit, now);
	if (limit == QUOTA_NONE || n->output.level > 0)
		return 0;
	return deny(ret, QUOTA_OUTPUT, of_session, bucket_wait(&n->output, limit, 1), e);
}

static int get_or_deny(struct quota_table *t, const char *owner, const char *session, uint64_t now,
		       struct pair *ret, struct quota_denial *ret_denial, struct err *e)
{
	bool of_session;
	int r = get_pair(t, owner, session, true, now, ret, &of_session);

	if (r == -EAGAIN)
		return deny(ret_denial, QUOTA_NAMES, of_session, SUM_RETRY_S, e);
	return r < 0 ? err_set(e, -r, "count the use of %.80s", owner) : 0;
}

/* A sum of more than 2^64 bytes stays at the most instead of beginning again at nothing. */
static void add(uint64_t *sum, uint64_t value)
{
	if (__builtin_add_overflow(*sum, value, sum))
		*sum = UINT64_MAX;
}

static void take(struct pair *p, const struct quota_need *need)
{
	for (int i = 0; i < 2 && p->level[i]; i++) {
		struct entry *n = p->level[i];

		n->sandboxes++;
		add(&n->used.memory_bytes, need->memory_bytes);
		add(&n->used.cpus_millis, need->cpus_millis);
		add(&n->used.disk_bytes, need->disk_bytes);
	}
}

/* ---------------------------------------------------------------------------------------- public */

struct quota_table *quota_table_new(const struct quota *owner, const struct quota *session,
				    const struct quota_table_limits *limits)
{
	struct quota_table *t = calloc(1, sizeof *t);

	if (!t)
		return NULL;
	t->owner_default = *owner;
	t->session_default = *session;
	t->limits = *limits;
	return t;
}

void quota_table_free(struct quota_table *t)
{
	if (t)
		entries_free(&t->owners);
	free(t);
}

static void bucket_bound_debt(struct bucket *b, uint64_t limit)
{
	const __int128 least = -bucket_full(limit) * DEBT_MINUTES;

	if (b->level < least)
		b->level = least;
}

/* What was taken of this minute's worth stays taken. */
static void bucket_change(struct bucket *b, uint64_t from, uint64_t to, uint64_t now)
{
	__int128 taken;

	bucket_fill(b, from, now);
	taken = from == QUOTA_NONE ? 0 : bucket_full(from) - b->level;
	b->level = bucket_full(to) - taken;
	bucket_bound_debt(b, to);
}

int quota_set_owner(struct quota_table *t, const char *owner, const struct quota *q, uint64_t now)
{
	const struct quota *to = q ? q : &t->owner_default;
	struct entry *n = entries_find(&t->owners, owner);
	int error = 0;

	if (!n && !q)
		return 0;
	if (!n)
		n = entries_get(&t->owners, owner, to, t->limits.owners, now, &error);
	if (!n)
		return error;
	if (memcmp(&n->limit, to, sizeof *to) == 0)
		return 0;
	bucket_change(&n->runs, n->limit.runs_per_minute, to->runs_per_minute, now);
	bucket_change(&n->output, n->limit.output_bytes_per_minute, to->output_bytes_per_minute,
		      now);
	n->limit = *to;
	return 0;
}

int quota_acquire(struct quota_table *t, const char *owner, const char *session,
		  const struct quota_need *need, uint64_t now, struct quota_denial *ret_denial,
		  struct err *e)
{
	struct pair p;

	if (get_or_deny(t, owner, session, now, &p, ret_denial, e) < 0)
		return -1;
	for (int i = 0; i < 2 && p.level[i]; i++) {
		enum quota_kind kind = check_sums(p.level[i], need);

		if (kind != QUOTA_COUNT) {
			deny(ret_denial, kind, i == 1, SUM_RETRY_S, e);
			ret_denial->never = never_fits(p.level[i], need);
			return -1;
		}
		if (check_output(p.level[i], i == 1, now, ret_denial, e) < 0)
			return -1;
	}
	take(&p, need);
	return 0;
}

int quota_adopt(struct quota_table *t, const char *owner, const char *session,
		const struct quota_need *need, uint64_t now)
{
	bool of_session;
	struct pair p;
	int r = get_pair(t, owner, session, false, now, &p, &of_session);

	if (r == 0)
		take(&p, need);
	return r;
}

static void give(uint64_t *sum, uint64_t value)
{
	*sum = *sum > value ? *sum - value : 0;
}

void quota_release(struct quota_table *t, const char *owner, const char *session,
		   const struct quota_need *need)
{
	struct pair p = find_pair(t, owner, session);

	for (int i = 0; i < 2 && p.level[i]; i++) {
		struct entry *n = p.level[i];

		give(&n->sandboxes, 1);
		give(&n->used.memory_bytes, need->memory_bytes);
		give(&n->used.cpus_millis, need->cpus_millis);
		give(&n->used.disk_bytes, need->disk_bytes);
	}
}

int quota_take_run(struct quota_table *t, const char *owner, const char *session, uint64_t now,
		   struct quota_denial *ret_denial, struct err *e)
{
	struct pair p;

	if (get_or_deny(t, owner, session, now, &p, ret_denial, e) < 0)
		return -1;
	for (int i = 0; i < 2 && p.level[i]; i++) {
		const uint64_t limit = p.level[i]->limit.runs_per_minute;
		struct bucket *b = &p.level[i]->runs;

		bucket_fill(b, limit, now);
		if (limit != QUOTA_NONE && b->level < MINUTE_US)
			return deny(ret_denial, QUOTA_RUNS, i == 1,
				    bucket_wait(b, limit, MINUTE_US), e);
		if (check_output(p.level[i], i == 1, now, ret_denial, e) < 0)
			return -1;
	}
	for (int i = 0; i < 2 && p.level[i]; i++)
		if (p.level[i]->limit.runs_per_minute != QUOTA_NONE)
			p.level[i]->runs.level -= MINUTE_US;
	return 0;
}

void quota_count_output(struct quota_table *t, const char *owner, const char *session,
			uint64_t bytes, uint64_t now)
{
	struct pair p = find_pair(t, owner, session);

	for (int i = 0; i < 2 && p.level[i]; i++) {
		const uint64_t limit = p.level[i]->limit.output_bytes_per_minute;
		struct bucket *b = &p.level[i]->output;

		if (limit == QUOTA_NONE)
			continue;
		bucket_fill(b, limit, now);
		b->level -= (__int128)bytes * MINUTE_US;
		bucket_bound_debt(b, limit);
	}
}

uint64_t quota_kept_limit(const struct quota_table *t, const char *owner)
{
	const struct entry *n = entries_find(&t->owners, owner);

	return (n ? &n->limit : &t->owner_default)->kept_bytes;
}

bool quota_keep(struct quota_table *t, const char *owner, uint64_t stored, uint64_t bytes,
		uint64_t now)
{
	int error = 0;
	struct entry *n = entries_get(&t->owners, owner, &t->owner_default, 0, now, &error);
	uint64_t used = n ? n->keeping : 0;

	add(&used, stored);
	if (!n || !fits(used, bytes, n->limit.kept_bytes))
		return false;
	add(&n->keeping, bytes);
	return true;
}

void quota_keep_end(struct quota_table *t, const char *owner, uint64_t bytes)
{
	struct entry *n = entries_find(&t->owners, owner);

	if (n)
		n->keeping -= bytes < n->keeping ? bytes : n->keeping;
}

/* Units taken of a full bucket, rounded up. */
static uint64_t bucket_taken(struct bucket *b, uint64_t limit, uint64_t now)
{
	if (limit == QUOTA_NONE)
		return 0;
	bucket_fill(b, limit, now);
	return (uint64_t)((bucket_full(limit) - b->level + MINUTE_US - 1) / MINUTE_US);
}

/* {"limits","used"} of an entry, or of one that would be made. */
static json_t *report_entry(struct entry *n, const struct quota *limit, uint64_t stored,
			    uint64_t now)
{
	struct quota used = {.kept_bytes = stored};
	json_t *limits = quota_to_json(n ? &n->limit : limit), *uses;

	if (n) {
		used.sandboxes = n->sandboxes;
		used.memory_bytes = n->used.memory_bytes;
		used.cpus_millis = n->used.cpus_millis;
		used.disk_bytes = n->used.disk_bytes;
		add(&used.kept_bytes, n->keeping);
		used.runs_per_minute = bucket_taken(&n->runs, n->limit.runs_per_minute, now);
		used.output_bytes_per_minute =
			bucket_taken(&n->output, n->limit.output_bytes_per_minute, now);
	}
	uses = quota_to_json(&used);
	return json_pack("{s:o,s:o}", "limits", limits, "used", uses);
}

json_t *quota_report(struct quota_table *t, const char *owner, const char *session, uint64_t stored,
		     uint64_t now)
{
	struct pair p = find_pair(t, owner, session);
	json_t *report = report_entry(p.level[0], &t->owner_default, stored, now);

	if (report && session &&
	    json_object_set_new(report, "session",
				report_entry(p.level[1], &t->session_default, 0, now)) < 0) {
		json_decref(report);
		return NULL;
	}
	return report;
}

size_t quota_owners(const struct quota_table *t)
{
	return t->owners.count;
}

size_t quota_sessions(const struct quota_table *t, const char *owner)
{
	const struct entry *n = entries_find(&t->owners, owner);

	return n && n->sessions ? n->sessions->count : 0;
}
