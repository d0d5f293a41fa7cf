/* SPDX-License-Identifier: Apache-2.0 */
#include "service/link.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "spawner/client.h"
#include "store/quota.h"

/* What waits: requests in all, creations of one owner and in all; and how many the spawner has at a time
 * (it makes eight at once). */
enum {
	RETRY_MS = 100,
	MOST_WAITING = 4096,
	MOST_OF_OWNER = 1024,
	MOST_CREATIONS = 4096,
	AT_A_TIME = 16
};

/* A request that has been sent, or that waits until there is room. */
struct waiting {
	struct waiting *next;
	int64_t sequence; /* -1: not sent yet */
	int errnum;       /* and it cannot be: it is refused by the loop */
	link_answer done;
	void *data;
	bool pulling; /* its image, first: counts no more as being made */
	bool many;    /* LIST: several answers, then DONE */
	enum spawner_type type;
	char id[SANDBOX_ID_SIZE];
};

/* A sandbox that is not asked for yet. */
struct creation {
	struct spawner_create request;
	int fds[SPEC_MAX_VOLUMES];
	size_t fd_count;
	struct waiting *waiting; /* what it becomes when it is sent */
};

struct link {
	uv_loop_t *loop;
	uv_poll_t poll;
	uv_timer_t retry;
	struct spawner_client client;
	const struct link_ops *ops;
	void *context;
	struct waiting *first, **last;
	size_t count;
	struct quota_queue *creations;
	struct creation *next; /* taken out of it, waits for room in the socket */
	unsigned being_made;
	char path[256];
	bool up, polled, closing, retry_closed;
};

static void on_ready(uv_poll_t *p, int status, int events);
static void send_creations(struct link *l);
static void connect_again(struct link *l);

static void on_retry(uv_timer_t *t)
{
	connect_again(t->data);
}

static bool has_unsent(const struct link *l)
{
	if (l->next)
		return true;
	for (const struct waiting *w = l->first; w; w = w->next)
		if (w->sequence < 0)
			return true;
	return false;
}

static void watch(struct link *l)
{
	uv_poll_start(&l->poll, UV_READABLE | (has_unsent(l) ? UV_WRITABLE : 0), on_ready);
}

static void creation_done(struct creation *c)
{
	for (size_t i = 0; i < c->fd_count; i++)
		close(c->fds[i]);
	free(c->waiting);
	free(c);
}

static void fail_creations(struct link *l)
{
	struct creation *c;

	l->being_made = 0;
	while ((c = l->next ? TAKE_PTR(l->next) : quota_queue_pop(l->creations))) {
		c->waiting->done(c->waiting->data, NULL);
		creation_done(c);
	}
}

/* Everyone who waits learns that no answer will come. */
static void fail_all(struct link *l)
{
	struct waiting *w = TAKE(l->first, NULL);

	l->last = &l->first;
	l->count = 0;
	while (w) {
		struct waiting *next = w->next;

		w->done(w->data, NULL);
		free(w);
		w = next;
	}
}

/* Once link_close() was called and the loop holds no part of it any more. */
static void free_closed(struct link *l)
{
	if (!l->retry_closed || l->polled)
		return;
	quota_queue_free(l->creations);
	free(l);
}

static void on_retry_closed(uv_handle_t *h)
{
	struct link *l = h->data;

	l->retry_closed = true;
	free_closed(l);
}

static void on_poll_closed(uv_handle_t *h)
{
	struct link *l = h->data;

	l->polled = false;
	if (l->closing) {
		free_closed(l);
		return;
	}
	uv_timer_start(&l->retry, on_retry, RETRY_MS, 0);
}

static void go_down(struct link *l)
{
	bool was_up = TAKE(l->up, false);

	if (l->polled && !uv_is_closing((uv_handle_t *)&l->poll)) {
		uv_poll_stop(&l->poll);
		spawner_disconnect(&l->client);
		uv_close((uv_handle_t *)&l->poll, on_poll_closed);
	}
	fail_all(l);
	fail_creations(l);
	if (was_up)
		l->ops->on_down(l->context);
}

static int send_one(struct link *l, struct waiting *w)
{
	w->sequence = spawner_ask(&l->client, w->type, w->id[0] ? w->id : NULL);
	if (w->sequence >= 0)
		return 0;
	return w->sequence == -EAGAIN ? 0 : -1;
}

static void send_unsent(struct link *l)
{
	for (struct waiting *w = l->first; w; w = w->next)
		if (w->sequence < 0 && !w->errnum && (send_one(l, w) < 0 || w->sequence < 0))
			return;
}

/* The last one may be gone: what comes next goes where it was. */
static void answer_one(struct link *l, struct waiting **at, const struct spawner_header *message)
{
	struct waiting *w = *at;

	*at = w->next;
	if (!*at)
		l->last = at;
	l->count--;
	if (w->type == SPAWNER_CREATE && !w->pulling)
		l->being_made--;
	w->done(w->data, message);
	free(w);
}

/* Whoever is told may ask again, and be told again by the next turn of the loop. */
static void refuse_unsendable(struct link *l)
{
	struct waiting **at = &l->first;

	while (*at && !(*at)->errnum)
		at = &(*at)->next;
	if (*at) {
		struct spawner_refused m = {.header = {SPAWNER_REFUSED, 0},
					    .code = CODE_SANDBOX_CREATE_FAILED,
					    .errnum = (uint32_t)(*at)->errnum,
					    .stage = "spawner"};

		snprintf(m.text, sizeof m.text, "ask the spawner: %s", strerror((*at)->errnum));
		answer_one(l, at, &m.header);
	}
}

static void answer(struct link *l, const union spawner_message *m)
{
	struct waiting **at = &l->first;

	while (*at && (*at)->sequence != m->header.sequence)
		at = &(*at)->next;
	if (*at) {
		struct waiting *w = *at;

		if (w->many && m->header.type == SPAWNER_LIVE) {
			w->done(w->data, &m->header);
			return;
		}
		if (m->header.type == SPAWNER_PULLING) {
			if (!TAKE(w->pulling, true)) /* so that others are made meanwhile */
				l->being_made--;
			l->ops->on_pulling(l->context, m->pulling.id);
			return;
		}
		answer_one(l, at, &m->header);
	}
}

static void on_ready(uv_poll_t *p, int status, int events)
{
	struct link *l = p->data;
	union spawner_message m;
	int r = 1;

	if (status < 0) {
		go_down(l);
		return;
	}
	if (events & UV_WRITABLE) {
		refuse_unsendable(l);
		send_unsent(l);
	}
	send_creations(l);
	while (r > 0 && !uv_is_closing((uv_handle_t *)&l->poll) &&
	       (r = spawner_receive(&l->client, &m)) > 0) {
		if (m.header.type == SPAWNER_ENDED)
			l->ops->on_ended(l->context, &m.ended);
		else
			answer(l, &m);
	}
	if (r < 0) {
		go_down(l);
	} else if (!uv_is_closing((uv_handle_t *)&l->poll)) {
		send_creations(l); /* in the place of those that were answered */
		watch(l);
	}
}

static void on_hello(void *data, const struct spawner_header *message)
{
	struct link *l = data;

	if (!message || message->type != SPAWNER_DONE)
		return; /* going down anyway, or of another version: go_down() comes */
	l->up = true;
	l->ops->on_up(l->context);
}

static struct waiting *waiting_new(enum spawner_type type, link_answer done, void *data)
{
	struct waiting *w = calloc(1, sizeof *w);

	if (w)
		*w = (struct waiting){.sequence = -1, .done = done, .data = data, .type = type};
	return w;
}

static void append(struct link *l, struct waiting *w)
{
	*l->last = w;
	l->last = &w->next;
	l->count++;
}

static int add(struct link *l, enum spawner_type type, const char *id, bool many, int64_t sequence,
	       link_answer done, void *data)
{
	/* Ends are asked for once, and there are no more of them than sandboxes: the bound is for what
	 * clients can ask for again and again. */
	bool always = type == SPAWNER_KILL || type == SPAWNER_DISCARD || type == SPAWNER_RELEASE;
	struct waiting *w =
		always || l->count < MOST_WAITING ? waiting_new(type, done, data) : NULL;

	if (!w)
		return -1;
	w->sequence = sequence;
	w->many = many;
	if (id)
		snprintf(w->id, sizeof w->id, "%s", id);
	append(l, w);
	return 0;
}

static int request(struct link *l, enum spawner_type type, const char *id, bool many,
		   link_answer done, void *data)
{
	int64_t sequence;

	if (!l->polled || uv_is_closing((uv_handle_t *)&l->poll))
		return -1;
	sequence = has_unsent(l) ? -EAGAIN : spawner_ask(&l->client, type, id);
	if (sequence < 0 && sequence != -EAGAIN)
		return -1;
	if (add(l, type, id, many, sequence, done, data) < 0)
		return -1;
	if (sequence < 0)
		watch(l);
	return 0;
}

static void connect_again(struct link *l)
{
	if (l->closing || l->polled)
		return;
	if (spawner_connect(&l->client, l->path) < 0 ||
	    uv_poll_init(l->loop, &l->poll, l->client.fd) < 0) {
		spawner_disconnect(&l->client);
		uv_timer_start(&l->retry, on_retry, RETRY_MS, 0);
		return;
	}
	l->poll.data = l;
	l->polled = true;
	watch(l);
	if (request(l, SPAWNER_HELLO, NULL, false, on_hello, l) < 0)
		go_down(l);
}

struct link *link_new(uv_loop_t *loop, const char *path, const struct link_ops *ops, void *context,
		      struct err *e)
{
	struct link *l = calloc(1, sizeof *l);

	if (l)
		l->creations = quota_queue_new(MOST_OF_OWNER, MOST_CREATIONS);
	if (!l || !l->creations || strlen(path) >= sizeof l->path) {
		if (l)
			quota_queue_free(l->creations);
		free(l);
		err_set(e, 0, "reach the spawner at %s: no memory, or too long a path", path);
		return NULL;
	}
	l->loop = loop;
	l->ops = ops;
	l->context = context;
	l->last = &l->first;
	l->client.fd = -1;
	snprintf(l->path, sizeof l->path, "%s", path);
	uv_timer_init(loop, &l->retry);
	l->retry.data = l;
	connect_again(l);
	return l;
}

void link_close(struct link *l)
{
	l->closing = true;
	go_down(l);
	uv_timer_stop(&l->retry);
	uv_close((uv_handle_t *)&l->retry, on_retry_closed);
}

bool link_is_up(const struct link *l)
{
	return l->up;
}

static void send_creations(struct link *l)
{
	while (l->up && l->being_made < AT_A_TIME && l->ops->may_create(l->context)) {
		struct creation *c = l->next ? TAKE_PTR(l->next) : quota_queue_pop(l->creations);
		struct waiting *w;
		int64_t sequence;

		if (!c)
			return;
		sequence = spawner_send(&l->client, SPAWNER_CREATE, &c->request, sizeof c->request,
					c->fds, c->fd_count);
		/* When the line is down, go_down() comes from the loop: nobody is called back out of a call of
		 * theirs. */
		if (sequence == -EAGAIN || sequence == -ECONNRESET) {
			l->next = c;
			watch(l);
			return;
		}
		w = TAKE_PTR(c->waiting);
		creation_done(c);
		w->sequence = sequence < 0 ? -1 : sequence;
		w->errnum = sequence < 0 ? (int)-sequence : 0;
		append(l, w);
		l->being_made++;
		if (w->errnum)
			watch(l);
	}
}

int link_create(struct link *l, const char *owner, const struct spawner_create *request,
		const int *fds, size_t fd_count, link_answer done, void *data)
{
	struct creation *c = l->up && fd_count <= SPEC_MAX_VOLUMES ? calloc(1, sizeof *c) : NULL;

	if (!c)
		return -1;
	c->request = *request;
	c->waiting = waiting_new(SPAWNER_CREATE, done, data);
	for (; c->fd_count < fd_count; c->fd_count++) {
		c->fds[c->fd_count] = fcntl(fds[c->fd_count], F_DUPFD_CLOEXEC, 0);
		if (c->fds[c->fd_count] < 0)
			break;
	}
	if (!c->waiting || c->fd_count < fd_count || quota_queue_push(l->creations, owner, c) < 0) {
		creation_done(c);
		return -1;
	}
	send_creations(l);
	return 0;
}

int link_ask(struct link *l, enum spawner_type type, const char *id, link_answer done, void *data)
{
	return l->up ? request(l, type, id, false, done, data) : -1;
}

int link_change(struct link *l, struct spawner_change *m, link_answer done, void *data)
{
	int64_t sequence;

	if (!l->up || !l->polled || uv_is_closing((uv_handle_t *)&l->poll) || has_unsent(l))
		return -1;
	sequence = spawner_send(&l->client, SPAWNER_NETWORK, m, sizeof *m, NULL, 0);
	return sequence < 0 ? -1 : add(l, SPAWNER_NETWORK, m->id, false, sequence, done, data);
}

int link_list(struct link *l, link_answer each, void *data)
{
	return l->up ? request(l, SPAWNER_LIST, NULL, true, each, data) : -1;
}

void link_create_more(struct link *l)
{
	send_creations(l);
}

bool link_creations_wait(const struct link *l)
{
	return !l->up || l->next || quota_queue_length(l->creations) > 0 ||
	       l->being_made >= AT_A_TIME;
}

bool link_is_idle(const struct link *l)
{
	return !l->first && !l->next && quota_queue_length(l->creations) == 0;
}
