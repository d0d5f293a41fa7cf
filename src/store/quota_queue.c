/* SPDX-License-Identifier: Apache-2.0 */
/*
 * quota_queue.c - a queue in which owners take turns. Owners that wait are in a list, each with its own
 * list of items; pop takes the first item of the first owner and puts that owner last. An owner is there
 * only while something of it waits, so memory is bounded by the items.
 */
#include "store/quota.h"

#include <string.h>
#include <sys/queue.h>

struct item {
	TAILQ_ENTRY(item) link;
	void *item;
};

struct waiting {
	TAILQ_ENTRY(waiting) link;
	TAILQ_HEAD(, item) items;
	size_t count;
	char owner[];
};

struct quota_queue {
	TAILQ_HEAD(, waiting) owners;
	size_t count, per_owner, total;
};

struct quota_queue *quota_queue_new(size_t per_owner, size_t total)
{
	struct quota_queue *q = calloc(1, sizeof *q);

	if (!q)
		return NULL;
	TAILQ_INIT(&q->owners);
	q->per_owner = per_owner;
	q->total = total;
	return q;
}

/* The item, out of the queue; its owner too when that was the last. */
static void *unlink_item(struct quota_queue *q, struct waiting *w, struct item *i)
{
	void *item = i->item;

	TAILQ_REMOVE(&w->items, i, link);
	free(i);
	q->count--;
	if (--w->count == 0) {
		TAILQ_REMOVE(&q->owners, w, link);
		free(w);
	}
	return item;
}

void quota_queue_free(struct quota_queue *q)
{
	while (q && quota_queue_pop(q))
		;
	free(q);
}

static struct waiting *find(struct quota_queue *q, const char *owner)
{
	struct waiting *w;

	TAILQ_FOREACH(w, &q->owners, link)
	if (strcmp(w->owner, owner) == 0)
		return w;
	return NULL;
}

static struct waiting *add_owner(struct quota_queue *q, const char *owner)
{
	size_t size = strlen(owner) + 1;
	struct waiting *w = calloc(1, sizeof *w + size);

	if (!w)
		return NULL;
	TAILQ_INIT(&w->items);
	memcpy(w->owner, owner, size);
	TAILQ_INSERT_TAIL(&q->owners, w, link);
	return w;
}

int quota_queue_push(struct quota_queue *q, const char *owner, void *item)
{
	struct waiting *w = find(q, owner);
	struct item *i;

	if (q->count >= q->total || (w ? w->count : 0) >= q->per_owner)
		return -EAGAIN;
	i = calloc(1, sizeof *i);
	if (!i)
		return -ENOMEM;
	if (!w)
		w = add_owner(q, owner);
	if (!w) {
		free(i);
		return -ENOMEM;
	}
	i->item = item;
	TAILQ_INSERT_TAIL(&w->items, i, link);
	w->count++;
	q->count++;
	return 0;
}

void *quota_queue_pop(struct quota_queue *q)
{
	struct waiting *w = TAILQ_FIRST(&q->owners);

	if (!w)
		return NULL;
	TAILQ_REMOVE(&q->owners, w, link);
	TAILQ_INSERT_TAIL(&q->owners, w, link);
	return unlink_item(q, w, TAILQ_FIRST(&w->items));
}

bool quota_queue_remove(struct quota_queue *q, const void *item)
{
	struct waiting *w;
	struct item *i;

	TAILQ_FOREACH(w, &q->owners, link)
	TAILQ_FOREACH(i, &w->items, link)
	if (i->item == item) {
		unlink_item(q, w, i);
		return true;
	}
	return false;
}

size_t quota_queue_length(const struct quota_queue *q)
{
	return q->count;
}
