/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lookup.c - addresses of names: the operator's map, or the system's resolver on libuv's threads; kept for a short time.
 *
 * What the sandbox's resolver answers and what is connected to soon afterwards come from one look-up. Nobody may
 * connect to what is in here without asking the policy about each address again: it may have changed.
 */
#include <errno.h>
#include <netdb.h>
#include <string.h>

#include "egress/egress.h"

struct lookup {
	struct lookup *next;
	struct egress *egress;
	uv_getaddrinfo_t request;
	char host[HOST_SIZE];
	bool pending;
	uint64_t until_ms; /* uv_now() */
	struct waiter waiters;
	struct addresses found;
};

enum { FAILED_MS = 2000 };

static const struct addresses no_room = {.error = "too many names are being looked up"};

static struct lookup *find(struct egress *g, const char *host)
{
	struct lookup *l = g->lookups;

	while (l && strcmp(l->host, host) != 0)
		l = l->next;
	return l;
}

/* The ones that are over, and when that is not enough the oldest: new ones stand at the front. */
static void make_room(struct egress *g)
{
	uint64_t now = uv_now(&g->loop);
	struct lookup **oldest = NULL;

	for (struct lookup **p = &g->lookups; *p;) {
		struct lookup *l = *p;

		if (!l->pending && l->until_ms <= now) {
			*p = l->next;
			free(l);
			g->lookup_count--;
			continue;
		}
		if (!l->pending)
			oldest = p;
		p = &l->next;
	}
	if (g->lookup_count >= LIMIT_CACHE_NAMES && oldest) {
		struct lookup *l = *oldest;

		*oldest = l->next;
		free(l);
		g->lookup_count--;
	}
}

static void add_address(struct addresses *a, const struct sockaddr *address)
{
	union address *to = &a->list[a->count];

	if (a->count == ADDRESSES_MAX)
		return;
	*to = (union address){0};
	if (address->sa_family == AF_INET)
		memcpy(&to->v4, address, sizeof to->v4);
	else if (address->sa_family == AF_INET6)
		memcpy(&to->v6, address, sizeof to->v6);
	else
		return;
	a->count++;
}

static void fail(struct addresses *a, int status)
{
	a->missing = status == 0 || status == UV_EAI_NONAME || status == UV_EAI_NODATA;
	a->error = a->missing               ? "the name does not exist"
		   : status == UV_EAI_AGAIN ? "no server of names answers"
					    : "the name cannot be resolved";
}

/* To a list that is not the lookup's. There are some. */
static void take_waiters(struct lookup *l, struct waiter *to)
{
	*to = l->waiters;
	to->next->prev = to->prev->next = to;
	l->waiters.prev = l->waiters.next = &l->waiters;
}

/* Who is told may look up something else at once, and make_room() free this one for it: what is needed is kept here. */
static void settle(struct lookup *l)
{
	struct egress *g = l->egress;
	const struct addresses found = l->found;
	struct waiter waiting;

	l->pending = false;
	l->until_ms = uv_now(&g->loop) + (found.count ? LIMIT_CACHE_MS : FAILED_MS);
	g->lookup_pending--;
	if (l->waiters.next == &l->waiters)
		return;
	take_waiters(l, &waiting);
	while (waiting.next != &waiting) {
		struct waiter *w = waiting.next;

		lookup_cancel(w);
		w->done(w, &found);
	}
}

static void on_resolved(uv_getaddrinfo_t *request, int status, struct addrinfo *list)
{
	struct lookup *l = request->data;

	for (struct addrinfo *a = status == 0 ? list : NULL; a; a = a->ai_next)
		add_address(&l->found, a->ai_addr);
	uv_freeaddrinfo(list);
	if (l->found.count == 0)
		fail(&l->found, status);
	settle(l);
}

static const struct resolve_entry *mapped(const struct egress *g, const char *host)
{
	for (size_t i = 0; i < g->settings.resolve_count; i++)
		if (strcmp(g->settings.resolve[i].host, host) == 0)
			return &g->settings.resolve[i];
	return NULL;
}

static struct lookup *add(struct egress *g, const char *host)
{
	struct lookup *l;

	if (g->lookup_count >= LIMIT_CACHE_NAMES)
		make_room(g);
	if (g->lookup_count >= LIMIT_CACHE_NAMES || g->lookup_pending >= LIMIT_LOOKUPS_MAX)
		return NULL;
	l = calloc(1, sizeof *l);
	if (!l)
		return NULL;
	snprintf(l->host, sizeof l->host, "%s", host);
	l->egress = g;
	l->request.data = l;
	l->waiters.prev = l->waiters.next = &l->waiters;
	l->next = g->lookups;
	g->lookups = l;
	g->lookup_count++;
	return l;
}

static void begin(struct lookup *l)
{
	static const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
	const struct resolve_entry *entry = mapped(l->egress, l->host);

	l->found = (struct addresses){0};
	l->pending = true;
	l->egress->lookup_pending++;
	if (entry) {
		for (size_t i = 0; i < entry->count; i++)
			add_address(&l->found, (const void *)&entry->addresses[i]);
		if (l->found.count == 0)
			fail(&l->found, 0);
		settle(l);
	} else if (uv_getaddrinfo(&l->egress->loop, &l->request, on_resolved, l->host, NULL,
				  &hints) < 0) {
		fail(&l->found, UV_EAI_FAIL);
		settle(l);
	}
}

const struct addresses *lookup_start(struct egress *g, const char *host, struct waiter *w)
{
	struct lookup *l = find(g, host);

	if (!l)
		l = add(g, host);
	if (!l)
		return &no_room;
	if (!l->pending && l->until_ms <= uv_now(&g->loop))
		begin(l);
	if (!l->pending)
		return &l->found;
	w->lookup = l;
	w->next = &l->waiters;
	w->prev = l->waiters.prev;
	w->prev->next = w;
	l->waiters.prev = w;
	return NULL;
}

void lookup_cancel(struct waiter *w)
{
	if (!w->lookup)
		return;
	w->prev->next = w->next;
	w->next->prev = w->prev;
	w->lookup = NULL;
}

void lookup_free(struct egress *g)
{
	for (struct lookup *l = g->lookups, *next; l; l = next) {
		next = l->next;
		if (!l->pending) /* else the loop has it */
			free(l);
	}
	g->lookups = NULL;
}
