/* SPDX-License-Identifier: Apache-2.0 */
/*
 * map_here.c - runs of --map in this process: as many threads as jobs, each of which runs one sandbox at a time
 * the way the one-shot does.
 *
 * A line is one thread's from the queue until it is in the list of finished ones; the main thread learns of that by a
 * descriptor. Signals are the main thread's (they were blocked before there were threads); it ends
 * runs by a second descriptor, which is readable from then on for all of them.
 */
#include <pthread.h>
#include <string.h>
#include <sys/eventfd.h>

#include "base/json.h"
#include "cli/map.h"
#include "native/native.h"
#include "settings/egress.h"

struct here {
	const struct map_order *order;
	pthread_mutex_t lock; /* of all up to the descriptors */
	pthread_cond_t more;
	struct map_line *first, **last; /* to be run, by ->queued */
	struct map_line *finished;
	size_t waiting, running;
	bool closed;
	struct err failed; /* a thread could not go on */
	int finished_fd, cancel_fd;
	unsigned jobs, threads;
	pthread_t thread[];
};

static int run_sandbox(struct here *h, struct map_line *l, const struct spec *s, const char *input,
		       size_t size, struct err *e)
{
	const struct map_order *o = h->order;
	struct native_io io = {.stdin_fd = -1,
			       .stdin_data = input ? input : "",
			       .stdin_size = size,
			       .out_fd = -1,
			       .err_fd = -1,
			       .cancel_fd = h->cancel_fd,
			       .uid_range = o->settings->uid_range};
	struct err why = {0};
	struct result r;
	int failed;

	failed = settings_egress_config(o->settings, o->places, s, NULL, &io.network,
					&io.network_opens_tls, &why);
	if (failed == 0)
		failed = native_run(o->places, s, &io, &r, &why);
	settings_egress_free(io.network);
	if (failed < 0)
		return map_line_problem(l, MAP_INTERNAL, &why, e);
	if (r.reason == REASON_CANCELLED)
		l->outcome = MAP_DROPPED;
	else
		failed = map_line_answer(l, result_ok(&r) ? MAP_OK : MAP_FAILED, result_to_json(&r),
					 e);
	result_done(&r);
	return failed;
}

static int run_line(struct here *h, struct map_line *l, struct err *e)
{
	json_t *input = json_object_get(l->request, "stdin");
	_cleanup_free_ char *code = NULL;
	struct err why = {0};
	size_t size = 0;
	struct spec s;
	int r;

	if (spec_copy(&s, h->order->spec, e) < 0)
		return -1;
	if (spec_command_from_json(&s, l->request, &code, &size, &why) < 0 ||
	    spec_finish(&s, &why) < 0)
		r = map_line_problem(l, MAP_INVALID, &why, e);
	else
		r = run_sandbox(h, l, &s, code ? code : json_string_value(input),
				code ? size : json_string_length(input), e);
	spec_done(&s);
	return r;
}

static struct map_line *take(struct here *h)
{
	struct map_line *l;

	pthread_mutex_lock(&h->lock);
	while (!h->first && !h->closed)
		pthread_cond_wait(&h->more, &h->lock);
	l = h->first;
	if (l) {
		h->first = l->queued;
		if (!h->first)
			h->last = &h->first;
		h->waiting--;
		h->running++;
	}
	pthread_mutex_unlock(&h->lock);
	return l;
}

static void give_back(struct here *h, struct map_line *l, const struct err *e)
{
	pthread_mutex_lock(&h->lock);
	l->queued = h->finished;
	h->finished = l;
	h->running--;
	if (e->text[0])
		h->failed = *e;
	pthread_mutex_unlock(&h->lock);
	eventfd_write(h->finished_fd, 1);
}

static void *work(void *data)
{
	struct here *h = data;
	struct map_line *l;

	while ((l = take(h)) != NULL) {
		struct err e = {0};
		enum map_outcome before = l->outcome;

		if (run_line(h, l, &e) < 0)
			l->outcome = before;
		give_back(h, l, &e);
	}
	return NULL;
}

static void close_way(void *way, bool now)
{
	struct here *h = way;

	pthread_mutex_lock(&h->lock);
	h->closed = true;
	while (now && h->first) {
		h->first->outcome = MAP_DROPPED;
		h->first->ready = true;
		h->first = h->first->queued;
		h->waiting--;
	}
	if (!h->first)
		h->last = &h->first;
	pthread_cond_broadcast(&h->more);
	pthread_mutex_unlock(&h->lock);
	eventfd_write(h->finished_fd, 1); /* perhaps there is nothing to wait for */
}

static void abort_way(void *way)
{
	struct here *h = way;

	close_way(h, true);
	eventfd_write(h->cancel_fd, 1);
}

static void done(void *way)
{
	struct here *h = way;

	abort_way(h);
	while (h->threads > 0)
		pthread_join(h->thread[--h->threads], NULL);
	fd_close(&h->finished_fd);
	fd_close(&h->cancel_fd);
	pthread_cond_destroy(&h->more);
	pthread_mutex_destroy(&h->lock);
	free(h);
}

static void *begin(const struct map_order *o, unsigned jobs, struct err *e)
{
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);
	unsigned count = jobs ? jobs : cpus < 1 ? 2 : 2 * (unsigned)cpus;
	struct here *h = calloc(1, sizeof *h + count * sizeof h->thread[0]);
	int failed = 0;

	if (!h) {
		err_set(e, ENOMEM, "begin %u jobs", count);
		return NULL;
	}
	h->order = o;
	h->jobs = count;
	h->last = &h->first;
	h->finished_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	h->cancel_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	pthread_mutex_init(&h->lock, NULL);
	pthread_cond_init(&h->more, NULL);
	json_object_seed(0); /* while there is one thread */
	if (h->finished_fd < 0 || h->cancel_fd < 0)
		failed = errno;
	while (!failed && h->threads < count) {
		failed = pthread_create(&h->thread[h->threads], NULL, work, h);
		if (!failed)
			h->threads++;
	}
	if (!failed)
		return h;
	err_set(e, failed, "begin %u jobs", count);
	done(h);
	return NULL;
}

static bool wants(void *way)
{
	struct here *h = way;
	bool yes;

	pthread_mutex_lock(&h->lock);
	yes = !h->closed && h->waiting < h->jobs;
	pthread_mutex_unlock(&h->lock);
	return yes;
}

static int give(void *way, struct map_line *l, struct err *e)
{
	struct here *h = way;

	(void)e;
	l->queued = NULL;
	pthread_mutex_lock(&h->lock);
	*h->last = l;
	h->last = &l->queued;
	h->waiting++;
	pthread_cond_signal(&h->more);
	pthread_mutex_unlock(&h->lock);
	return 0;
}

static struct pollfd poll_way(void *way, int *wait_ms)
{
	struct here *h = way;

	(void)wait_ms;
	return (struct pollfd){h->finished_fd, POLLIN, 0};
}

/* What a thread has written of a line is seen from here on: they shared the lock. */
static int serve(void *way, short revents, struct err *e)
{
	struct here *h = way;
	struct map_line *list;
	eventfd_t count;
	bool over;

	(void)revents;
	if (eventfd_read(h->finished_fd, &count) < 0)
		return 0;
	pthread_mutex_lock(&h->lock);
	list = TAKE_PTR(h->finished);
	over = h->closed && h->waiting == 0 && h->running == 0;
	*e = h->failed;
	pthread_mutex_unlock(&h->lock);
	for (; list; list = list->queued) {
		json_decref(TAKE_PTR(list->request));
		list->ready = true;
	}
	return e->text[0] ? -1 : over;
}

const struct map_way map_here = {
	.begin = begin,
	.wants = wants,
	.give = give,
	.close = close_way,
	.poll = poll_way,
	.serve = serve,
	.abort = abort_way,
	.done = done,
};
