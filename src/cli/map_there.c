/* SPDX-License-Identifier: Apache-2.0 */
/*
 * map_there.c - runs of --map by the service: one batch, sent and read at the same time.
 *
 * What all runs have in common goes first, as the batch's defaults: options, files, descriptors of volumes. Lines are
 * sent as the service begins them, no more than run at a time ahead of it, so that what is stopped has not been asked for
 * much more than what runs; answers come in the order of the lines, so the oldest open line is the one that is answered. While there is nothing to send, a blank line now and then says
 * that we live. A line that was sent may run even if we never learn of it: it is not sent again.
 */
#include <string.h>

#include "base/fd.h"
#include "base/json.h"
#include "cli/map.h"

enum {
	AHEAD = 1024,    /* lines given and not answered */
	FIRST = 16,      /* before the service has said how many run at a time */
	QUIET_MS = 8000, /* the service hangs up on a body that is silent for 20 s */
	TARGET_ROOM = 64,
};
#define AHEAD_BYTES (8u << 20)

struct there {
	const struct map_order *order;
	struct call *call;
	struct lines lines;
	char target[TARGET_ROOM];
	char *head; /* the first line */
	size_t head_size, head_sent;
	int fds[CALL_FDS];
	size_t fd_count;
	struct map_line *first, **last; /* not answered, by ->queued */
	struct map_line *unsent;        /* the first that is not sent, or not to its end */
	size_t open, open_bytes;
	uint64_t given, answered, sent_us;
	uint64_t begun, at_a_time; /* as the service says */
	bool closed, over;
};

/* ---- what goes out ---- */

static size_t put(char *data, size_t room, const char *text, size_t size, size_t *sent)
{
	size_t n = size - *sent < room ? size - *sent : room;

	memcpy(data, text + *sent, n);
	*sent += n;
	return n;
}

/* A call_source. */
static ssize_t give_lines(void *context, char *data, size_t room)
{
	struct there *t = context;
	size_t n = put(data, room, t->head, t->head_size, &t->head_sent);

	while (t->unsent && n < room) {
		struct map_line *l = t->unsent;

		n += put(data + n, room - n, l->text, l->text_size, &l->sent);
		if (l->sent == l->text_size) {
			free(TAKE_PTR(l->text));
			t->unsent = l->queued;
		}
	}
	if (n == 0 && t->closed)
		return 0;
	if (n == 0 && now_us() - t->sent_us >= QUIET_MS * 1000ull)
		data[n++] = '\n';
	if (n == 0)
		return -EAGAIN;
	t->sent_us = now_us();
	return (ssize_t)n;
}

/* What was said on the command line, as the first line has it. */
static int make_head(struct there *t, struct err *e)
{
	const struct oneshot o = {
		.service = t->order->service,
		.spec = t->order->spec,
		.origins = t->order->settings->origins,
		.own_env = {t->order->own_env[0], t->order->own_env[1]},
	};
	_cleanup_json_ json_t *body = oneshot_body(&o, t->fds, &t->fd_count, e);
	_cleanup_json_ json_t *head = NULL;

	if (!body)
		return -1;
	json_object_del(body, "command"); /* each line has its own */
	head = json_pack("{sO}", "defaults", body);
	t->head = head ? json_dumps(head, JSON_COMPACT) : NULL;
	if (!t->head)
		return err_set(e, ENOMEM, "make a request");
	t->head_size = strlen(t->head) + 1;
	t->head[t->head_size - 1] = '\n';
	return 0;
}

/* ---- what comes back ---- */

static int count_outcome(json_t *answer, enum map_outcome *ret, struct err *e)
{
	json_t *result = json_object_get(answer, "result");

	if (result) {
		*ret = json_is_true(json_object_get(result, "ok")) ? MAP_OK : MAP_FAILED;
		return 0;
	}
	*ret = MAP_ERROR;
	return json_is_object(json_object_get(answer, "error"))
		       ? 0
		       : err_set(e, 0, "the service's answer has neither a result nor an error");
}

static int take_progress(struct there *t, const json_t *told, struct err *e)
{
	json_int_t begun = json_integer_value(json_object_get(told, "begun"));
	json_int_t at_a_time = json_integer_value(json_object_get(told, "concurrency"));

	if (begun < 1 || at_a_time < 1)
		return err_set(e, 0, "the service does not say how many lines have begun");
	t->begun = (uint64_t)begun;
	t->at_a_time = (uint64_t)at_a_time;
	return 0;
}

static int take_answer(void *context, json_t *answer, struct err *e)
{
	json_t *index = json_object_get(answer, "index");
	struct there *t = context;
	struct map_line *l = t->first;
	enum map_outcome outcome;

	if (json_is_true(json_object_get(answer, "done"))) {
		t->over = true;
		return 0;
	}
	if (json_object_get(answer, "begun"))
		return take_progress(t, answer, e);
	if (!l || l == t->unsent || t->over || !json_is_integer(index) ||
	    (uint64_t)json_integer_value(index) != t->answered)
		return err_set(e, 0, "the service answers what was not asked");
	if (count_outcome(answer, &outcome, e) < 0)
		return -1;
	if (json_object_set_new(answer, "index", json_integer((json_int_t)l->index)) < 0)
		return err_set(e, ENOMEM, "keep a result");
	l->answer = json_dumps(answer, JSON_OUT);
	if (!l->answer)
		return err_set(e, ENOMEM, "keep a result");
	l->answer_size = strlen(l->answer) + 1;
	l->answer[l->answer_size - 1] = '\n';
	l->outcome = outcome;
	l->ready = true;
	t->first = l->queued;
	if (!t->first)
		t->last = &t->first;
	t->open--;
	t->open_bytes -= l->text_size;
	t->answered++;
	return 0;
}

static int take_lines(void *context, const char *data, size_t size, struct err *e)
{
	struct there *t = context;

	return lines_feed(&t->lines, data, size, take_answer, t, e);
}

/* ---- the way ---- */

static void done(void *way)
{
	struct there *t = way;

	call_drop(t->call);
	lines_done(&t->lines);
	while (t->fd_count > 0)
		fd_close(&t->fds[--t->fd_count]);
	free(t->head);
	free(t);
}

static void *begin(const struct map_order *o, unsigned jobs, struct err *e)
{
	struct there *t = calloc(1, sizeof *t);
	struct request q = {.method = "POST", .type = "application/x-ndjson"};

	if (!t) {
		err_set(e, ENOMEM, "make a request");
		return NULL;
	}
	t->order = o;
	t->last = &t->first;
	t->sent_us = now_us();
	t->at_a_time = jobs ? jobs : FIRST;
	snprintf(t->target, sizeof t->target, "/v1/runs:batch?progress");
	if (jobs)
		snprintf(t->target, sizeof t->target, "/v1/runs:batch?progress&concurrency=%u",
			 jobs);
	q.target = t->target;
	q.source = give_lines;
	q.source_context = t;
	q.source_size = UINT64_MAX;
	q.sink = take_lines;
	q.sink_context = t;
	if (make_head(t, e) == 0) {
		q.fds = t->fds;
		q.fd_count = t->fd_count;
		t->call = call_new(o->service, &q, e);
	}
	if (t->call)
		return t;
	done(t);
	return NULL;
}

static bool wants(void *way)
{
	const struct there *t = way;

	return !t->closed && t->open < AHEAD + t->at_a_time && t->open_bytes < AHEAD_BYTES &&
	       t->given < t->begun + t->at_a_time;
}

static int give(void *way, struct map_line *l, struct err *e)
{
	struct there *t = way;

	if (l->tag && json_object_set(l->request, "tag", l->tag) < 0)
		return err_set(e, ENOMEM, "make a request");
	l->text = json_dumps(l->request, JSON_COMPACT);
	if (!l->text)
		return err_set(e, ENOMEM, "make a request");
	json_decref(TAKE_PTR(l->request));
	l->text_size = strlen(l->text) + 1;
	l->text[l->text_size - 1] = '\n';
	l->queued = NULL;
	*t->last = l;
	t->last = &l->queued;
	if (!t->unsent)
		t->unsent = l;
	t->open++;
	t->given++;
	t->open_bytes += l->text_size;
	return 0;
}

/* The oldest up to this one stay; the rest will have no answer. */
static void drop_from(struct there *t, struct map_line *from)
{
	struct map_line **at = &t->first;

	while (*at && *at != from)
		at = &(*at)->queued;
	for (struct map_line *l = *at; l; l = l->queued) {
		free(TAKE_PTR(l->text));
		l->outcome = MAP_DROPPED;
		l->ready = true;
		t->open--;
		t->open_bytes -= l->text_size;
	}
	*at = NULL;
	t->last = at;
}

static void close_way(void *way, bool now)
{
	struct there *t = way;
	struct map_line *l = t->unsent;

	t->closed = true;
	if (!now || !l)
		return;
	/* One that is half sent has to be sent. */
	drop_from(t, l->sent ? l->queued : l);
	t->unsent = l->sent ? l : NULL;
}

static void abort_way(void *way)
{
	struct there *t = way;

	call_drop(TAKE_PTR(t->call));
	t->closed = t->over = true;
	t->unsent = NULL;
	drop_from(t, t->first);
}

static struct pollfd poll_way(void *way, int *wait_ms)
{
	const struct there *t = way;

	if (!t->closed)
		*wait_ms = QUIET_MS;
	return t->call ? (struct pollfd){call_fd(t->call), call_events(t->call), 0}
		       : (struct pollfd){-1, 0, 0};
}

/* All of it may have run, or nothing: it is not known, and not done again. */
static int lost(const struct there *t, struct err *e)
{
	const struct service *v = t->order->service;
	int status = call_status(t->call);
	struct err why = *e;

	if (status && status / 100 != 2)
		return err_prefix(e,
				  status < 500 ? "refused by the service at %.200s"
					       : "the service at %.200s",
				  v->name);
	return err_set(
		e, 0,
		"the service at %.200s was lost (%.200s): %zu lines that were given to it have no "
		"result here; some may have run (GET /v1/runs lists them)",
		v->name, why.text, t->open);
}

static int serve(void *way, short revents, struct err *e)
{
	struct there *t = way;
	int r;

	(void)revents; /* there may be more to send, whatever the socket says */
	if (!t->call)
		return 1;
	r = call_pump(t->call, e);
	if (r == 0)
		return 0;
	if (r > 0 && t->over && !t->first) {
		call_drop(TAKE_PTR(t->call));
		return 1;
	}
	if (r > 0)
		err_set(e, 0, "its answer is not complete");
	return lost(t, e);
}

const struct map_way map_there = {
	.begin = begin,
	.wants = wants,
	.give = give,
	.close = close_way,
	.poll = poll_way,
	.serve = serve,
	.abort = abort_way,
	.done = done,
};
