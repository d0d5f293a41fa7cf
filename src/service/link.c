/* SPDX-License-Identifier: Apache-2.0 */
#include "service/link.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "spawner/client.h"

enum { RETRY_MS = 100, MOST_WAITING = 4096 };

/* A request that has been sent, or that waits until there is room. */
struct waiting {
	struct waiting *next;
	int64_t sequence; /* -1: not sent yet */
	link_answer done;
	void *data;
	bool many; /* LIST: several answers, then DONE */
	enum spawner_type type;
	char id[SANDBOX_ID_SIZE];
	struct spawner_create *create; /* CREATE that is not sent yet, with its descriptors */
	int fds[SPEC_MAX_VOLUMES];
	size_t fd_count;
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
	char path[256];
	bool up, polled, closing;
};

static void on_ready(uv_poll_t *p, int status, int events);
static void connect_again(struct link *l);

static void on_retry(uv_timer_t *t)
{
	connect_again(t->data);
}

static bool has_unsent(const struct link *l)
{
	for (const struct waiting *w = l->first; w; w = w->next)
		if (w->sequence < 0)
			return true;
	return false;
}

static void watch(struct link *l)
{
	uv_poll_start(&l->poll, UV_READABLE | (has_unsent(l) ? UV_WRITABLE : 0), on_ready);
}

static void drop_create(struct waiting *w)
{
	for (size_t i = 0; i < w->fd_count; i++)
		close(w->fds[i]);
	w->fd_count = 0;
	free(TAKE_PTR(w->create));
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
		drop_create(w);
		free(w);
		w = next;
	}
}

static void on_poll_closed(uv_handle_t *h)
{
	struct link *l = h->data;

	l->polled = false;
	if (l->closing)
		return;
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
	if (was_up)
		l->ops->on_down(l->context);
}

static int send_one(struct link *l, struct waiting *w)
{
	w->sequence = w->create ? spawner_send(&l->client, w->type, w->create, sizeof *w->create,
					       w->fds, w->fd_count)
				: spawner_ask(&l->client, w->type, w->id[0] ? w->id : NULL);
	if (w->sequence >= 0) {
		drop_create(w);
		return 0;
	}
	return w->sequence == -EAGAIN ? 0 : -1;
}

static void send_unsent(struct link *l)
{
	for (struct waiting *w = l->first; w; w = w->next)
		if (w->sequence < 0 && (send_one(l, w) < 0 || w->sequence < 0))
			return;
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
		*at = w->next;
		if (!*at)
			l->last = at;
		l->count--;
		w->done(w->data, &m->header);
		free(w);
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
	if (events & UV_WRITABLE)
		send_unsent(l);
	while (r > 0 && !uv_is_closing((uv_handle_t *)&l->poll) &&
	       (r = spawner_receive(&l->client, &m)) > 0) {
		if (m.header.type == SPAWNER_ENDED)
			l->ops->on_ended(l->context, &m.ended);
		else
			answer(l, &m);
	}
	if (r < 0)
		go_down(l);
	else if (!uv_is_closing((uv_handle_t *)&l->poll))
		watch(l);
}

static void on_hello(void *data, const struct spawner_header *message)
{
	struct link *l = data;

	if (!message || message->type != SPAWNER_DONE)
		return; /* going down anyway, or of another version: go_down() comes */
	l->up = true;
	l->ops->on_up(l->context);
}

static struct waiting *add(struct link *l, enum spawner_type type, const char *id, bool many,
			   int64_t sequence, link_answer done, void *data)
{
	struct waiting *w = l->count < MOST_WAITING ? calloc(1, sizeof *w) : NULL;

	if (!w)
		return NULL;
	*w = (struct waiting){.sequence = sequence, .done = done, .data = data, .many = many, .type = type};
	if (id)
		snprintf(w->id, sizeof w->id, "%s", id);
	*l->last = w;
	l->last = &w->next;
	l->count++;
	return w;
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
	if (!add(l, type, id, many, sequence, done, data))
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

	if (!l || strlen(path) >= sizeof l->path) {
		free(l);
		err_set(e, l ? ENAMETOOLONG : ENOMEM, "reach the spawner");
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
	uv_close((uv_handle_t *)&l->retry, NULL);
}

bool link_is_up(const struct link *l)
{
	return l->up;
}

/* The line is full: it is sent in its turn. */
static int queue_create(struct link *l, const struct spawner_create *c, const int *fds,
			size_t fd_count, link_answer done, void *data)
{
	struct spawner_create *copy = malloc(sizeof *copy);
	struct waiting *w = copy ? add(l, SPAWNER_CREATE, NULL, false, -EAGAIN, done, data) : NULL;

	if (!w) {
		free(copy);
		return -1;
	}
	*copy = *c;
	w->create = copy;
	for (; w->fd_count < fd_count; w->fd_count++) {
		w->fds[w->fd_count] = fcntl(fds[w->fd_count], F_DUPFD_CLOEXEC, 0);
		if (w->fds[w->fd_count] < 0)
			break;
	}
	if (w->fd_count < fd_count) { /* it was added last */
		struct waiting **at = &l->first;

		while (*at != w)
			at = &(*at)->next;
		*at = NULL;
		l->last = at;
		l->count--;
		drop_create(w);
		free(w);
		return -1;
	}
	watch(l);
	return 0;
}

int link_create(struct link *l, struct spawner_create *c, const int *fds, size_t fd_count,
		link_answer done, void *data)
{
	int64_t sequence = -EAGAIN;

	if (!l->up || fd_count > SPEC_MAX_VOLUMES)
		return -1;
	if (!has_unsent(l))
		sequence = spawner_send(&l->client, SPAWNER_CREATE, c, sizeof *c, fds, fd_count);
	if (sequence == -EAGAIN)
		return queue_create(l, c, fds, fd_count, done, data);
	return sequence < 0 || !add(l, SPAWNER_CREATE, NULL, false, sequence, done, data) ? -1 : 0;
}

int link_ask(struct link *l, enum spawner_type type, const char *id, link_answer done, void *data)
{
	return l->up ? request(l, type, id, false, done, data) : -1;
}

int link_list(struct link *l, link_answer each, void *data)
{
	return l->up ? request(l, SPAWNER_LIST, NULL, true, each, data) : -1;
}
