/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pool.c - sandboxes that are made before they are asked for.
 *
 * How many of a kind are kept follows how often it is asked for: every request counts, half of the count is
 * forgotten each second, and a kind wants a quarter of it between its floor and the operator's ceiling. They
 * are made behind the answers: only when no client waits for one of its own, two at a time. The memory of all
 * is looked at once a second; above the budget nothing more is made and the oldest go. Whatever is older than
 * AGE_US goes too, and all when packages or the configuration have changed: what is handed over is what would
 * be made now. Of images that is looked at for each that is handed over, and when the store has changed none is kept
 * or made for a while: who removes an image waits for those who hold it (imaging/remove.c), and that shall not be us.
 */
#include "service/pool.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fd.h"
#include "image/apply.h"
#include "image/image.h"
#include "image/packages.h"
#include "image/state.h"
#include "service/counters.h"
#include "service/dying.h"
#include "service/run.h"

enum {
	KINDS_MAX = 32,
	MAKING_MAX = 2,
	LOOK_MS = 1000,
	FAILED_WAITS_LOOKS = 30,
	ZYGOTE_WAITS_DOUBLINGS = 8, /* of one look, after so many failures one after the other */
	STORE_WAITS_LOOKS = 5,
	START_LIMIT_S = 10,
	/* So many at a time are worth the start of a zygote, which takes as long as ten interpreters. */
	WORTH_A_ZYGOTE = 6,
};
/* Of one prepared sandbox, and of a kind that nobody asks for. */
#define AGE_US (600ull * 1000000)

const char *const pool_miss_names[MISS_COUNT] = {
	[MISS_NEW_KIND] = "new_kind",
	[MISS_EMPTY] = "empty",
	[MISS_KINDS] = "too_many_kinds",
	[MISS_OFF] = "off",
};

/* What an image's name stands for, and who may use it. */
struct image_sources {
	struct store_state store;
	struct timespec configuration;
};

struct prepared {
	struct prepared *next;
	struct kind *kind;
	struct pool_handed handed;
	struct talk *talk; /* by which what shall wait is started, and on which it can be taken */
	bool joined;
	bool ended; /* and released, before what is said with it tells */
	uint64_t made_us;
	struct image_sources images; /* as of before it was asked for */
};

struct kind {
	struct kind *next;
	struct pool *pool;
	struct spawner_create request; /* without an id */
	struct pool_want want;
	struct spec spec; /* of an image that something shall wait in: want.spec */
	bool of_image;
	struct prepared *ready, **ready_end, *making;
	size_t ready_count, making_count;
	double recent;
	uint64_t asked_us;
	bool has_zygote;          /* it has made some */
	unsigned waits;           /* looks until it is tried again after a failure */
	unsigned zygote_failures; /* since it last made one */
	unsigned
		without_zygote; /* looks until its zygote is tried again: new interpreters until then */
};

/* What everything prepared was made from. */
struct sources {
	struct packages_state packages;
	struct timespec configuration;
};

struct pool {
	struct service *service;
	struct kind *kinds;
	uv_timer_t clock;
	struct sources sources;
	struct image_sources images, images_seen; /* of the last refill, of the last look */
	bool images_settled;
	struct pool_counts counts;
	bool over_budget, stopping;
};

static void refill(struct pool *p);

/* ---- one ---- */

static void prepared_free(struct prepared *x)
{
	if (x->talk)
		talk_close(x->talk);
	counters_let_go(x->kind->pool->service, &x->handed.counters);
	free(x);
}

/* The sandbox is nobody's any more. */
static void drop_sandbox(struct pool *p, const char *id)
{
	p->counts.dropped++;
	dying_add(p->service, id, true);
}

static void making_done(struct prepared *x)
{
	struct prepared **at = &x->kind->making;

	while (*at != x)
		at = &(*at)->next;
	*at = x->next;
	x->kind->making_count--;
}

/* It gets another one soon, and the later the more of them fail. */
static void zygote_failed(struct kind *k)
{
	k->has_zygote = false;
	if (k->without_zygote) /* another of the same has told */
		return;
	k->without_zygote = 1u << k->zygote_failures;
	if (k->zygote_failures < ZYGOTE_WAITS_DOUBLINGS)
		k->zygote_failures++;
}

static void failed(struct prepared *x, bool made)
{
	struct pool *p = x->kind->pool;

	making_done(x);
	if (x->joined)
		zygote_failed(x->kind);
	else
		x->kind->waits = FAILED_WAITS_LOOKS;
	p->counts.failed++;
	if (made && !x->ended)
		drop_sandbox(p, x->handed.created.id);
	prepared_free(x);
}

/* It is whole, or could be made so, and nobody will ever ask for it: the service stops, or its image may be another. */
static void unwanted(struct prepared *x)
{
	making_done(x);
	drop_sandbox(x->kind->pool, x->handed.created.id);
	prepared_free(x);
}

static void ready(struct prepared *x)
{
	struct kind *k = x->kind;

	if (k->pool->stopping || (k->of_image && k->waits)) {
		unwanted(x);
		return;
	}
	making_done(x);
	if (x->joined) {
		k->has_zygote = true;
		k->zygote_failures = 0;
	}
	x->made_us = now_us();
	x->next = NULL;
	*k->ready_end = x;
	k->ready_end = &x->next;
	k->ready_count++;
	k->pool->counts.made++;
	counters_open_ahead(k->pool->service, &x->handed.created, &x->handed.counters);
	refill(k->pool);
}

/* While it is ready nothing is to be said. If it is dead, pool_on_ended() is told as well. */
static void on_ready_frame(struct talk *t, const struct frame *f, const unsigned char *payload)
{
	struct prepared *x = talk_data(t);

	(void)f;
	(void)payload;
	talk_close(TAKE_PTR(x->talk));
}

static void on_ready_end(struct talk *t, int error)
{
	struct prepared *x = talk_data(t);

	(void)error;
	x->talk = NULL;
}

static const struct talk_ops ready_ops = {.on_frame = on_ready_frame, .on_end = on_ready_end};

/* BEGUN, and DONE when it can be taken. */
static void on_frame(struct talk *t, const struct frame *f, const unsigned char *payload)
{
	struct prepared *x = talk_data(t);
	struct begun_record begun;

	if (!x->ended && f->type == FRAME_BEGUN && !x->handed.number &&
	    begun_record_decode(payload, f->size, &begun) == 0) {
		x->handed.number = begun.number;
	} else if (!x->ended && f->type == FRAME_DONE && x->handed.number) {
		talk_limit(t, 0);
		talk_hand_over(t, &ready_ops, x);
		ready(x);
	} else {
		failed(x, true);
	}
}

static void on_end(struct talk *t, int error)
{
	struct prepared *x = talk_data(t);

	(void)error;
	x->talk = NULL;
	failed(x, true);
}

static const struct talk_ops talk_ops = {.on_frame = on_frame, .on_end = on_end};

/* The strings of what shall wait, with what the image wants in its environment. */
static int image_strings(const struct kind *k, const char *ctl, struct start_record *start,
			 char **ret, size_t *ret_size, struct err *e)
{
	struct strings env = {0};
	struct spec spec = {0};
	int r = box_read_image_env(ctl, &env, e);

	if (r == 0)
		r = spec_copy(&spec, &k->spec, e);
	if (r == 0)
		r = image_apply_env(&env, &spec, e);
	if (r == 0)
		r = run_start_strings(&spec, start, ret, ret_size, e);
	strings_done(&env);
	spec_done(&spec);
	return r;
}

/* Start what shall wait in it, under the name of the run that will use it. */
static void start_waiting(struct prepared *x)
{
	struct service *v = x->kind->pool->service;
	struct start_record start = x->kind->want.start;
	const char *strings = x->kind->want.strings;
	size_t size = x->kind->want.size;
	char path[sizeof v->config.runtime_dir + 64];
	_cleanup_free_ char *own = NULL;
	struct err e = {0};

	if (x->joined)
		start.flags |= START_JOINED;
	make_object_id(x->handed.run_id, "run_");
	memcpy(start.tag, x->handed.run_id, sizeof x->handed.run_id);
	snprintf(path, sizeof path, "%s/sandboxes/%s/ctl", v->config.runtime_dir,
		 x->handed.created.id);
	if (x->kind->of_image) {
		if (image_strings(x->kind, path, &start, &own, &size, &e) < 0) {
			failed(x, true);
			return;
		}
		strings = own;
	}
	x->talk = talk_open(&v->loop, path, &talk_ops, x, &e);
	if (!x->talk) {
		failed(x, true);
		return;
	}
	talk_limit(x->talk, START_LIMIT_S);
	talk_send(x->talk, FRAME_START, &start, sizeof start, strings, size);
}

static void on_made(void *data, const struct spawner_header *message)
{
	struct prepared *x = data;

	if (!message) { /* the spawner went away, and it is nobody's fault; its successor is told to kill it */
		making_done(x);
		prepared_free(x);
		return;
	}
	if (message->type != SPAWNER_CREATED) {
		failed(x, false);
		return;
	}
	x->handed.created = *(const struct spawner_created *)message;
	if (x->kind->pool->stopping)
		unwanted(x);
	else if (x->kind->want.strings)
		start_waiting(x);
	else
		ready(x);
}

static void prepare(struct kind *k)
{
	_cleanup_free_ struct spawner_create *request = malloc(sizeof *request);
	struct prepared *x = request ? calloc(1, sizeof *x) : NULL;

	if (!x)
		return;
	*request = k->request;
	make_object_id(request->id, "sbx_");
	x->handed.counters = counters_none();
	x->joined = x->handed.joined = k->want.tenant[0] && !k->without_zygote;
	if (x->joined) {
		memcpy(request->zygote, "python", sizeof "python");
		memcpy(request->tenant, k->want.tenant, sizeof request->tenant);
		request->prepared = 1;
	}
	x->kind = k;
	x->images = k->pool->images;
	x->next = k->making;
	k->making = x;
	k->making_count++;
	if (link_create(k->pool->service->link, "", request, NULL, 0, on_made, x) < 0)
		failed(x, false);
}

static struct prepared *take_oldest(struct kind *k)
{
	struct prepared *x = k->ready;

	k->ready = x->next;
	if (!k->ready)
		k->ready_end = &k->ready;
	k->ready_count--;
	return x;
}

static void drop_oldest(struct kind *k)
{
	struct prepared *x = take_oldest(k);

	drop_sandbox(k->pool, x->handed.created.id);
	prepared_free(x);
}

/* ---- kinds ---- */

static bool same_want(const struct pool_want *a, const struct pool_want *b)
{
	return a->size == b->size && !a->strings == !b->strings &&
	       strcmp(a->tenant, b->tenant) == 0 &&
	       memcmp(&a->start, &b->start, sizeof a->start) == 0 &&
	       (!a->strings || memcmp(a->strings, b->strings, a->size) == 0);
}

static struct kind *find(const struct pool *p, const struct spawner_create *c,
			 const struct pool_want *want)
{
	struct kind *k = p->kinds;

	while (k && (!same_want(&k->want, want) || memcmp(&k->request, c, sizeof *c) != 0))
		k = k->next;
	return k;
}

static void free_kind(struct kind *k)
{
	free(k->want.strings);
	spec_done(&k->spec);
	free(k);
}

static void drop_kind(struct pool *p, struct kind **at)
{
	struct kind *k = *at;

	*at = k->next;
	p->counts.kinds--;
	free_kind(k);
}

/* Whoever asks for a new kind each time gets the place of its own last ones, not of those that are in use. */
static void make_place(struct pool *p)
{
	struct kind **least = NULL;

	for (struct kind **at = &p->kinds; *at; at = &(*at)->next)
		if (!(*at)->making &&
		    (!least || (*at)->recent < (*least)->recent ||
		     ((*at)->recent == (*least)->recent && (*at)->asked_us < (*least)->asked_us)))
			least = at;
	if (!least)
		return;
	while ((*least)->ready)
		drop_oldest(*least);
	drop_kind(p, least);
}

static int copy_want(struct kind *k, const struct pool_want *want)
{
	struct err ignored;

	k->want = *want;
	k->want.strings = NULL;
	k->want.spec = NULL;
	if (!want->strings)
		return 0;
	k->want.strings = malloc(want->size);
	if (!k->want.strings)
		return -1;
	memcpy(k->want.strings, want->strings, want->size);
	return k->of_image ? spec_copy(&k->spec, want->spec, &ignored) : 0;
}

static struct kind *add_kind(struct pool *p, const struct spawner_create *c,
			     const struct pool_want *want)
{
	struct kind *k;

	if (p->counts.kinds >= KINDS_MAX)
		make_place(p);
	k = p->counts.kinds < KINDS_MAX ? calloc(1, sizeof *k) : NULL;
	if (!k)
		return NULL;
	k->pool = p;
	k->request = *c;
	k->of_image = !image_is_host(c->image);
	if (copy_want(k, want) < 0) {
		free_kind(k);
		return NULL;
	}
	k->ready_end = &k->ready;
	k->next = p->kinds;
	p->kinds = k;
	p->counts.kinds++;
	return k;
}

static size_t wanted(const struct kind *k)
{
	const struct service_config *c = &k->pool->service->config;
	size_t n = (size_t)(k->recent / 4);

	if (now_us() - k->asked_us > AGE_US)
		return 0;
	n = n < c->pool_floor ? c->pool_floor : n;
	return n > c->pool ? c->pool : n;
}

/* Whoever lacks most of what it wants is first. */
static struct kind *neediest(const struct pool *p)
{
	struct kind *found = NULL;
	double most = 0;

	for (struct kind *k = p->kinds; k; k = k->next) {
		size_t want = wanted(k), has = k->ready_count + k->making_count;
		double lacks = want > has ? (double)(want - has) / (double)want : 0;

		if (!k->waits && (!k->of_image || p->images_settled) && lacks > most) {
			most = lacks;
			found = k;
		}
	}
	return found;
}

static struct timespec changed(const char *path)
{
	struct stat st;

	return path && stat(path, &st) == 0 ? st.st_mtim : (struct timespec){0};
}

static bool image_sources_now(const struct pool *p, struct image_sources *ret)
{
	*ret = (struct image_sources){.configuration = changed(p->service->file_name)};
	return store_state_now(p->service->store_folders, &ret->store);
}

static void drop_outdated(struct kind *k)
{
	struct image_sources now;
	bool known = !k->of_image || image_sources_now(k->pool, &now);

	while (k->ready && k->of_image &&
	       (!known || memcmp(&k->ready->images, &now, sizeof now) != 0))
		drop_oldest(k);
}

static size_t making(const struct pool *p)
{
	size_t n = 0;

	for (const struct kind *k = p->kinds; k; k = k->next)
		n += k->making_count;
	return n;
}

/* What is made from now on is of the store as it is now; without kinds of images nobody asks. */
static void look_at_images(struct pool *p)
{
	const struct kind *k = p->kinds;

	while (k && !k->of_image)
		k = k->next;
	p->images_settled =
		k && image_sources_now(p, &p->images) && store_state_is_settled(&p->images.store);
}

static void refill(struct pool *p)
{
	struct kind *k;

	look_at_images(p);
	/* Counted, as one that cannot be asked for is not being made. */
	for (size_t i = 0; i < MAKING_MAX && !p->stopping && !p->over_budget &&
			   making(p) < MAKING_MAX && !link_creations_wait(p->service->link) &&
			   !dying_are_many(p->service) && (k = neediest(p));
	     i++)
		prepare(k);
}

/* ---- the look ---- */

static struct sources sources_now(const struct pool *p)
{
	struct sources s = {.configuration = changed(p->service->file_name)};

	packages_state_now(&s.packages);
	return s;
}

/* Whatever changed in the store: nothing of it is in our hands, and nothing will be for a while. */
static bool images_changed(struct pool *p)
{
	struct image_sources now;
	bool same;

	image_sources_now(p, &now);
	same = memcmp(&now, &p->images_seen, sizeof now) == 0;
	p->images_seen = now;
	return !same;
}

static void drop_stale(struct kind *k, bool all, uint64_t now)
{
	while (k->ready && (all || now - k->ready->made_us > AGE_US || k->ready_count > wanted(k)))
		drop_oldest(k);
}

static void look_at_memory(struct pool *p)
{
	struct kind *largest = NULL;

	p->counts.memory_bytes = 0;
	for (struct kind *k = p->kinds; k; k = k->next) {
		for (const struct prepared *x = k->ready; x; x = x->next)
			p->counts.memory_bytes += counters_memory_now(&x->handed.created);
		if (k->ready && (!largest || k->ready->made_us < largest->ready->made_us))
			largest = k;
	}
	p->over_budget = p->counts.memory_bytes > p->service->config.pool_memory_bytes;
	if (p->over_budget && largest)
		drop_oldest(largest);
}

static void on_look(uv_timer_t *t)
{
	struct pool *p = t->data;
	struct sources now_are = sources_now(p);
	bool other = memcmp(&now_are, &p->sources, sizeof now_are) != 0;
	bool other_images = images_changed(p);
	uint64_t now = now_us();

	p->sources = now_are;
	for (struct kind **at = &p->kinds; *at;) {
		struct kind *k = *at;

		k->recent /= 2;
		k->waits -= k->waits > 0;
		k->without_zygote -= k->without_zygote > 0;
		if (k->of_image && other_images)
			k->waits = STORE_WAITS_LOOKS;
		drop_stale(k, other || (k->of_image && other_images), now);
		if (!k->ready && !k->making && now - k->asked_us > AGE_US)
			drop_kind(p, at);
		else
			at = &k->next;
	}
	look_at_memory(p);
	refill(p);
}

/* ---- for the others ---- */

static bool miss(struct pool *p, enum pool_miss why)
{
	p->counts.misses[why]++;
	return false;
}

bool pool_take(struct service *v, const struct spawner_create *c, const struct pool_want *want,
	       struct pool_handed *ret)
{
	struct pool *p = v->pool;
	struct prepared *x;
	struct kind *k;
	bool known;

	if (!p || p->stopping || v->config.pool == 0 ||
	    (!image_is_host(c->image) && v->store_folders[0] < 0))
		return p ? miss(p, MISS_OFF) : false;
	k = find(p, c, want);
	known = k != NULL;
	if (!k && !(k = add_kind(p, c, want)))
		return miss(p, MISS_KINDS);
	k->recent++;
	k->asked_us = now_us();
	drop_outdated(k);
	if (!k->ready) {
		miss(p, known ? MISS_EMPTY : MISS_NEW_KIND);
		return false;
	}
	x = take_oldest(k);
	*ret = x->handed;
	ret->talk = TAKE_PTR(x->talk);
	x->handed.counters = counters_none();
	prepared_free(x);
	p->counts.hits++;
	p->counts.waiting_hits += ret->number != 0 || ret->joined;
	p->counts.joined_hits += ret->joined;
	return true;
}

bool pool_would_join(const struct service *v, const struct spawner_create *c,
		     const struct pool_want *want)
{
	const struct kind *k = v->pool && want->tenant[0] ? find(v->pool, c, want) : NULL;

	return k && !k->without_zygote && (k->has_zygote || k->recent >= WORTH_A_ZYGOTE);
}

void pool_zygote_failed(struct service *v, const char *tenant)
{
	for (struct kind *k = v->pool ? v->pool->kinds : NULL; k; k = k->next)
		if (strcmp(k->want.tenant, tenant) == 0)
			zygote_failed(k);
}

void pool_refill(struct service *v)
{
	if (v->pool)
		refill(v->pool);
}

bool pool_on_ended(struct service *v, const char *id)
{
	for (struct kind *k = v->pool ? v->pool->kinds : NULL; k; k = k->next) {
		for (struct prepared **at = &k->ready, *x; (x = *at); at = &x->next) {
			if (strcmp(x->handed.created.id, id) != 0)
				continue;
			*at = x->next;
			if (!x->next)
				k->ready_end = at;
			k->ready_count--;
			prepared_free(x);
			return true;
		}
		for (struct prepared *x = k->making; x; x = x->next)
			if (strcmp(x->handed.created.id, id) == 0)
				return x->ended = true; /* its conversation tells the rest */
	}
	return false;
}

void pool_forget(struct service *v)
{
	/* recover.c finds no row of any, and has it killed. */
	for (struct kind *k = v->pool ? v->pool->kinds : NULL; k; k = k->next) {
		while (k->ready)
			prepared_free(take_oldest(k));
		while (k->making) { /* all that are left: link.c has told the others first */
			struct prepared *x = k->making;

			making_done(x);
			prepared_free(x);
		}
	}
}

void pool_start(struct service *v)
{
	struct pool *p = v->operator_uid ? NULL : calloc(1, sizeof *p);

	if (!p || uv_timer_init(&v->loop, &p->clock) < 0) {
		free(p);
		return; /* an ordinary user's, or no memory: then everything is made when it is asked for */
	}
	p->service = v;
	p->clock.data = p;
	p->sources = sources_now(p);
	image_sources_now(p, &p->images_seen);
	v->pool = p;
	uv_timer_start(&p->clock, on_look, LOOK_MS, LOOK_MS);
}

void pool_stop(struct service *v)
{
	struct pool *p = v->pool;

	if (!p)
		return;
	p->stopping = true;
	uv_timer_stop(&p->clock);
	for (struct kind *k = p->kinds; k; k = k->next)
		while (k->ready)
			drop_oldest(k);
}

bool pool_is_empty(const struct service *v)
{
	return !v->pool || making(v->pool) == 0;
}

void pool_count(const struct service *v, struct pool_counts *ret)
{
	*ret = v->pool ? v->pool->counts : (struct pool_counts){0};
	for (const struct kind *k = v->pool ? v->pool->kinds : NULL; k; k = k->next) {
		ret->ready += k->ready_count;
		ret->making += k->making_count;
	}
}
