/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pool.h - sandboxes that are made before they are asked for.
 *
 * A prepared sandbox belongs to nobody and is in no table but this one: it has no row in the store, holds
 * nothing of anybody's, and is handed over once. Its kind is everything that makes two sandboxes differ: the
 * whole request to the spawner but the id, and what is already started in it (an interpreter that waits for
 * its code), but for nothing else. What is not exactly a kind's is made as ever.
 *
 * One of an image is handed over only while the store is as it was before it was made (image/state.h): so the name
 * stands for the same image still, and the image has not been removed.
 */
#ifndef SERVICE_POOL_H
#define SERVICE_POOL_H

#include "service/box.h"

/* What a run wants to find started in its sandbox: START's payload behind the tag (start_strings()). */
struct pool_want {
	struct start_record start;
	char *strings; /* NULL: nothing; a zygote's child is told by START what it becomes */
	size_t size;
	/* What the strings were made of: an image adds its environment, which is known when there is a sandbox of it. */
	const struct spec *spec;
	/* Whose zygote may give it its interpreter: strings of one tenant hash alike then, and lie alike in memory.
	 * "": it shall be a new one. */
	char tenant[72];
};

/* One that is handed over. */
struct pool_handed {
	struct spawner_created created;
	char run_id[40];   /* of the run that will use what waits: init knows it by this tag */
	uint32_t number;   /* init's, of what waits; 0: nothing does */
	bool joined;       /* and it is a child of a zygote's */
	struct talk *talk; /* on which init takes an opening, for talk_hand_over(); NULL: none */
	struct counter_fds counters;
};

enum pool_miss { MISS_NEW_KIND, MISS_EMPTY, MISS_KINDS, MISS_OFF, MISS_COUNT };
extern const char *const pool_miss_names[MISS_COUNT];

/* A prepared sandbox of exactly this kind, which is the caller's from now on; false: there is none, and one
 * more will be made for the next. c without an id. Never waits. */
bool pool_take(struct service *v, const struct spawner_create *c, const struct pool_want *want,
	       struct pool_handed *ret);

/* There was none: is it better to have a zygote's child made with the sandbox, and to wait for that, than to
 * start an interpreter? And it was in vain: not for a while. */
bool pool_would_join(const struct service *v, const struct spawner_create *c,
		     const struct pool_want *want);
void pool_zygote_failed(struct service *v, const char *tenant);

/* Room was made, or time: make what is wanted. */
void pool_refill(struct service *v);

/* One has ended: true when it was the pool's. */
bool pool_on_ended(struct service *v, const char *id);

/* The spawner went away: what was prepared is not known to its successor's client. */
void pool_forget(struct service *v);

/* Begin to look after the pool; end all of it, for good. */
void pool_start(struct service *v);
void pool_stop(struct service *v);
bool pool_is_empty(const struct service *v);

struct pool_counts {
	size_t kinds, ready, making;
	uint64_t memory_bytes; /* of those that are ready, as of the last look */
	uint64_t hits, waiting_hits, joined_hits, misses[MISS_COUNT], made, failed, dropped;
};
void pool_count(const struct service *v, struct pool_counts *ret);

#endif
