/* SPDX-License-Identifier: Apache-2.0 */
/*
 * names.c - made-up addresses, one for each name.
 *
 * Entries are in a tree by name and in a table by address. Those that no connection holds are in a list as well, the one
 * unused for longest at its end. An address whose name has made room rests: the table keeps the second from which on
 * it may be given again. Addresses are given in turn, so that the one to be tried next has rested longest.
 */
#include "egress/names.h"

#include <arpa/inet.h>
#include <search.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"

enum {
	NAMES_MAX = 4096,
	ADDRESSES = 1 << 17, /* of 198.18.0.0/15; the first and the last are never given */
	REST_S = 600,
	IN_USE = INT32_MIN, /* flag of a place: the rest of it is the entry's index */
};

static const uint32_t network_base = 0xc6120000; /* 198.18.0.0 */
static const uint64_t just_now = UINT64_MAX;

struct name {
	char host[256];
	uint32_t place;   /* of its address: offset from 198.18.0.0 */
	uint32_t held;    /* connections that are open */
	uint64_t last_ms; /* use; just_now: since the last time anybody said what time it is */
	struct name *newer, *older;
};

struct names {
	void *tree;
	struct name *entries[NAMES_MAX];
	size_t count;
	struct name *newest, *oldest; /* of those that are not held */
	uint32_t next;                /* place to try */
	/* 0: free. With IN_USE: an entry's index. Else the second from which on it is free. */
	uint32_t places[ADDRESSES];
};

static int compare(const void *a, const void *b)
{
	return strcmp(((const struct name *)a)->host, ((const struct name *)b)->host);
}

static void list_remove(struct names *n, struct name *x)
{
	*(x->newer ? &x->newer->older : &n->newest) = x->older;
	*(x->older ? &x->older->newer : &n->oldest) = x->newer;
	x->newer = x->older = NULL;
}

static void list_add(struct names *n, struct name *x)
{
	x->older = n->newest;
	*(n->newest ? &n->newest->newer : &n->oldest) = x;
	n->newest = x;
}

static void touch(struct names *n, struct name *x, uint64_t now_ms)
{
	x->last_ms = now_ms;
	if (x->held == 0) {
		list_remove(n, x);
		list_add(n, x);
	}
}

struct names *names_new(void)
{
	struct names *n = calloc(1, sizeof *n); /* large: pages come as places are used */

	if (n)
		n->next = 1;
	return n;
}

void names_free(struct names *n)
{
	if (!n)
		return;
	for (size_t i = 0; i < n->count; i++) {
		tdelete(n->entries[i], &n->tree, compare);
		free(n->entries[i]);
	}
	free(n);
}

static bool is_free(const struct names *n, uint32_t place, uint64_t now_ms)
{
	return !(n->places[place] & (uint32_t)IN_USE) && n->places[place] <= now_ms / 1000;
}

/* 0: all are in use or rest. */
static uint32_t find_place(struct names *n, uint64_t now_ms)
{
	for (uint32_t tried = 0; tried < ADDRESSES; tried++) {
		uint32_t place = n->next;

		n->next = place + 2 < ADDRESSES ? place + 1 : 1;
		if (is_free(n, place, now_ms))
			return place;
	}
	return 0;
}

/* The index that is free now; -1: all are held. */
static int make_room(struct names *n, uint64_t now_ms)
{
	struct name *x = n->oldest;
	uint32_t index;
	uint64_t last_ms;

	if (n->count < NAMES_MAX)
		return (int)n->count++;
	if (!x)
		return -1;
	last_ms = x->last_ms == just_now ? now_ms : x->last_ms;
	index = n->places[x->place] & ~(uint32_t)IN_USE;
	n->places[x->place] = (uint32_t)(last_ms / 1000) + REST_S + 1;
	list_remove(n, x);
	tdelete(x, &n->tree, compare);
	free(x);
	return (int)index;
}

static struct in_addr address_of(const struct name *x)
{
	return (struct in_addr){.s_addr = htonl(network_base + x->place)};
}

/* NULL: no memory, or no room. */
static struct name *add(struct names *n, const char *host, uint64_t now_ms)
{
	_cleanup_free_ struct name *x = calloc(1, sizeof *x);
	int index;

	if (!x || strlen(host) >= sizeof x->host)
		return NULL;
	memcpy(x->host, host, strlen(host) + 1);
	x->last_ms = now_ms;
	x->place = find_place(n, now_ms);
	if (!x->place || (n->count == NAMES_MAX && !n->oldest) || !tsearch(x, &n->tree, compare))
		return NULL;
	index = make_room(n, now_ms);
	n->entries[index] = x;
	n->places[x->place] = (uint32_t)IN_USE | (uint32_t)index;
	list_add(n, x);
	return TAKE_PTR(x);
}

bool names_address(struct names *n, const char *host, uint64_t now_ms, struct in_addr *ret)
{
	struct name key, **found, *x;

	if (strlen(host) >= sizeof key.host)
		return false;
	memcpy(key.host, host, strlen(host) + 1);
	found = tfind(&key, &n->tree, compare);
	x = found ? *found : add(n, host, now_ms);
	if (!x)
		return false;
	touch(n, x, now_ms);
	*ret = address_of(x);
	return true;
}

static struct name *at(const struct names *n, struct in_addr address)
{
	uint32_t place = ntohl(address.s_addr) - network_base;

	if (place >= ADDRESSES || !(n->places[place] & (uint32_t)IN_USE))
		return NULL;
	return n->entries[n->places[place] & ~(uint32_t)IN_USE];
}

const char *names_host(struct names *n, struct in_addr address, uint64_t now_ms)
{
	struct name *x = at(n, address);

	if (!x)
		return NULL;
	touch(n, x, now_ms);
	return x->host;
}

void names_hold(struct names *n, struct in_addr address, int change)
{
	struct name *x = at(n, address);

	if (!x || (change < 0 && x->held == 0))
		return;
	if (change > 0 && x->held++ == 0)
		list_remove(n, x);
	if (change < 0 && --x->held == 0) {
		x->last_ms = just_now;
		list_add(n, x);
	}
}
