/* SPDX-License-Identifier: Apache-2.0 */
/*
 * batch.c - POST /v1/runs:batch: many runs, each in a sandbox of its own, answered in the order they were asked for.
 *
 * The body is read a line at a time, and no further than the window: lines that were read and are not answered
 * are bounded in number and in bytes, and while they are as many as may be, the client is not read. Runs begin in
 * order and end in any; an answer waits here until those before it are written, and while the client does
 * not take what is written nothing is read, so that a slow reader slows everything down to its own pace.
 *
 * A line that is no run is answered with a problem in its place and ends nothing. What a single run is
 * refused for by a quota, or for want of something here, waits: it is tried again when its owner has given something
 * back, or the quota says that it is time, at most batch_wait long; those behind it wait with it.
 *
 * A client that goes away ends what runs and begins nothing more: no line of an unfinished body is ever begun
 * after that. The batch is freed by its timer's close callback; runs that are still ending have forgotten it.
 */
#include <stdio.h>
#include <string.h>

#include "base/fd.h"
#include "base/json.h"
#include "base/splitter.h"
#include "service/handlers.h"
#include "service/runs.h"

enum {
	MOST_AT_A_TIME = 1024,
	WINDOW = 1024, /* lines read and not answered, besides those that run */
	AHEAD = 16,    /* lines read and not begun: as many as run at a time, at least */
	TAG_BYTES = 256,
	MOST_RETRY_S = 60,
};
/* Text of what was not begun, input of what runs, and answers that wait for those before them. One line may
 * pass it. */
#define WINDOW_BYTES (16u << 20)

struct item {
	struct item *next;
	struct batch *batch;
	uint64_t index;
	char *line; /* until it is looked at */
	size_t line_size;
	json_t *request; /* until it is begun */
	struct body *body;
	json_t *tag;  /* or NULL */
	bool counted; /* in the rate of runs */
	uint64_t held_since_us;
	struct run *run;
	char *answer; /* complete: waits to be written */
	size_t answer_size;
	size_t held; /* its share of batch->bytes */
};

struct batch {
	struct batch *next; /* service->batches */
	struct call *call;
	struct splitter lines;
	json_t *runs; /* instead of lines */
	json_t *defaults;
	struct item *first, **last; /* in order: not written */
	struct item *waiting;       /* the first that was not begun */
	size_t items, waiting_count, running, bytes;
	size_t concurrency;
	uint64_t count, ok, failed, errors; /* lines so far, and what became of them */
	uint64_t begun, told;               /* told: as the client last heard of begun */
	int fds[SPEC_MAX_VOLUMES];
	size_t fd_count;
	uint64_t began_us;
	uv_timer_t retry;
	bool first_seen, input_ended, paused, blocked, held, broken, progress;
};

static void pump(struct batch *b);

/* ---- one line ---- */

static void item_free(struct item *i)
{
	if (i->run)
		run_forget(i->run, true);
	if (i->body) {
		body_done(i->body);
		free(i->body);
	}
	json_decref(i->request);
	json_decref(i->tag);
	free(i->line);
	free(i->answer);
	free(i);
}

static void hold_bytes(struct item *i, size_t bytes)
{
	i->batch->bytes += bytes - i->held;
	i->held = bytes;
}

/* value is stolen. */
static void answer(struct item *i, const char *key, json_t *value)
{
	i->answer = reply_text(json_pack("{sI so so}", "index", (json_int_t)i->index, "tag",
					 i->tag ? json_incref(i->tag) : json_null(), key, value),
			       &i->answer_size);
	if (!i->answer) { /* no line may be missing: the client sees an answer that is cut off */
		i->answer_size = 0;
		i->batch->broken = true;
	}
	hold_bytes(i, i->answer_size);
}

static void answer_problem(struct item *i, const struct err *e)
{
	i->batch->errors++;
	answer(i, "error", problem_json(e));
}

static bool is_answered(const struct item *i)
{
	return i->answer || i->batch->broken;
}

static struct item *item_new(struct batch *b)
{
	struct item *i = calloc(1, sizeof *i);

	if (!i) {
		b->broken = true;
		return NULL;
	}
	i->batch = b;
	i->index = b->count++;
	*b->last = i;
	b->last = &i->next;
	b->items++;
	b->waiting_count++;
	if (!b->waiting)
		b->waiting = i;
	return i;
}

/* ---- reading ---- */

static bool is_blank(const char *line, size_t size)
{
	for (size_t n = 0; n < size; n++)
		if (line[n] != ' ' && line[n] != '\t' && line[n] != '\r')
			return false;
	return true;
}

/* The first line, if it has nothing but defaults, is for all that follow. */
static bool take_defaults(struct batch *b, const char *line, size_t size)
{
	struct err e;
	_cleanup_json_ json_t *j = NULL;
	json_t *defaults;

	if (b->first_seen)
		return false;
	b->first_seen = true;
	j = json_read(line, size, &e);
	defaults = json_object_get(j, "defaults");
	if (!json_is_object(defaults) || json_object_size(j) != 1)
		return false;
	b->defaults = json_incref(defaults);
	return true;
}

static void take_too_long(struct batch *b)
{
	struct item *i = item_new(b);
	struct err e = {0};

	b->first_seen = true;
	if (!i)
		return;
	problem_set(&e, PROBLEM_TOO_LARGE, "the line is longer than %zu bytes", b->lines.most);
	answer_problem(i, &e);
}

static void take_text(struct batch *b, const char *line, size_t size)
{
	struct item *i;

	if (is_blank(line, size) || take_defaults(b, line, size))
		return;
	i = item_new(b);
	if (!i)
		return;
	i->line = malloc(size);
	if (!i->line) {
		b->broken = true;
		return;
	}
	memcpy(i->line, line, size);
	i->line_size = size;
	hold_bytes(i, size);
}

static bool has_room(const struct batch *b)
{
	size_t ahead = b->concurrency > AHEAD ? b->concurrency : AHEAD;

	return !b->broken && b->items < WINDOW + b->concurrency && b->waiting_count < ahead &&
	       b->bytes < WINDOW_BYTES && !b->blocked;
}

/* One more line. False: there is no room, or no line. */
static bool take_line(struct batch *b)
{
	const char *line;
	size_t size;

	if (!has_room(b))
		return false;
	if (b->runs) {
		json_t *request = json_array_get(b->runs, b->count);
		struct item *i = request ? item_new(b) : NULL;

		if (i)
			i->request = json_incref(request);
		return i != NULL;
	}
	switch (splitter_next(&b->lines, b->input_ended, &line, &size)) {
	case SPLITTER_TOO_LONG:
		take_too_long(b);
		return true;
	case SPLITTER_LINE:
		take_text(b, line, size);
		return true;
	default:
		return false;
	}
}

static bool is_over(const struct batch *b)
{
	return !b->first && b->input_ended &&
	       (b->runs ? b->count == json_array_size(b->runs) : b->lines.left.size == 0);
}

/* ---- beginning ---- */

/* The rows of files are changed when they are read: each run has its own. */
static json_t *copy_files(json_t *files)
{
	json_t *copy = json_array(), *row;
	size_t i;

	if (!json_is_array(files)) {
		json_decref(copy);
		return json_incref(files);
	}
	json_array_foreach(files, i, row)
		if (json_array_append_new(copy, json_is_object(row) ? json_copy(row)
								    : json_incref(row)) < 0) {
			json_decref(copy);
			return NULL;
		}
	return copy;
}

static int add_defaults(struct item *i, struct err *e)
{
	json_t *defaults = i->batch->defaults, *files = json_object_get(defaults, "files");
	bool own_files = json_object_get(i->request, "files");

	if (!defaults)
		return 0;
	if (json_object_update_missing(i->request, defaults) < 0 ||
	    (files && !own_files &&
	     json_object_set_new(i->request, "files", copy_files(files)) < 0)) {
		err_set(e, ENOMEM, "add the defaults");
		e->code = PROBLEM_UNAVAILABLE;
		return -1;
	}
	return 0;
}

static int take_tag(struct item *i, struct err *e)
{
	json_t *tag = json_object_get(i->request, "tag");

	if (!tag)
		return 0;
	if (!json_is_string(tag) || json_string_length(tag) > TAG_BYTES)
		return err_set(e, 0, "tag: must be a string of at most %d bytes", TAG_BYTES);
	i->tag = json_incref(tag);
	json_object_del(i->request, "tag");
	return 0;
}

static int read_request(struct item *i, struct err *e)
{
	if (!i->request) {
		i->request = json_read(i->line, i->line_size, e);
		free(TAKE_PTR(i->line));
	}
	if (!i->request)
		return -1;
	if (!json_is_object(i->request))
		return err_set(e, 0, "a run must be a JSON object");
	if (take_tag(i, e) < 0)
		return -1;
	if (json_object_get(i->request, "volume_fds"))
		return err_set(e, 0, "volume_fds: descriptors come once, for all: in defaults");
	return add_defaults(i, e);
}

/* What it says, into i->body; the policy is applied. */
static int look_at(struct item *i, struct err *e)
{
	if (read_request(i, e) < 0)
		return -1;
	i->body = calloc(1, sizeof *i->body);
	if (!i->body) {
		err_set(e, ENOMEM, "read a run");
		e->code = PROBLEM_UNAVAILABLE;
		return -1;
	}
	if (body_read(i->body, BODY_RUN, i->batch->call->service, NULL, i->request, e) < 0)
		return -1;
	if (i->body->stdin_open)
		return err_set(e, 0, "stdin: true is for a run that is not in a batch");
	return 0;
}

static void on_end(struct run *r)
{
	struct item *i = r->data;
	struct batch *b = i->batch;
	struct err e = {0};

	i->run = NULL;
	b->running--;
	if (runs_was_refused(r, &e)) {
		answer_problem(i, &e);
	} else {
		*(result_ok(&r->result) ? &b->ok : &b->failed) += 1;
		answer(i, "result", run_result_json(r));
	}
	pump(b);
}

static const struct run_ops batch_ops = {.on_end = on_end};

static void on_retry(uv_timer_t *t)
{
	struct batch *b = t->data;

	b->held = false;
	pump(b);
}

/* Whether it is worth waiting for: nothing was begun, and what was asked for may be had later. */
static bool is_for_later(const struct item *i, const struct err *e)
{
	const struct call *c = i->batch->call;
	uint64_t limit = c->service->config.batch_wait_us;

	if (!i->body || i->body->spec.command.count == 0)
		return false;
	if (e->code == CODE_SANDBOX_QUOTA_EXCEEDED ? c->never_fits : e->code != PROBLEM_UNAVAILABLE)
		return false;
	return !i->held_since_us || now_us() - i->held_since_us < limit;
}

static void wait_for_room(struct item *i)
{
	struct batch *b = i->batch;
	uint64_t now = now_us(), ms = b->call->retry_after_s * 1000ull, left;

	if (!i->held_since_us)
		i->held_since_us = now;
	if (b->call->retry_after_s) /* it was counted as refused, and is not */
		b->call->service->metrics.refused_quota--;
	b->held = true;
	left = (i->held_since_us + b->call->service->config.batch_wait_us - now) / 1000 + 1;
	ms = ms < 1000 ? 1000 : ms > MOST_RETRY_S * 1000 ? MOST_RETRY_S * 1000 : ms;
	uv_timer_start(&b->retry, on_retry, ms < left ? ms : left, 0);
}

/* The first that waits begins, or is answered with why not. False: not now. */
static bool begin_next(struct batch *b)
{
	struct item *i = b->waiting;
	struct err e = {0};

	if (!i || b->held || b->broken || b->running >= b->concurrency ||
	    (b->running > 0 && b->bytes >= WINDOW_BYTES && !i->answer))
		return false;
	b->call->retry_after_s = 0;
	b->call->never_fits = false;
	if (!i->answer && (i->body || look_at(i, &e) == 0))
		i->run = runs_begin(b->call, i->body, &i->counted, b->fds, b->fd_count, &batch_ops,
				    i, &e);
	if (!i->run && !i->answer && is_for_later(i, &e)) {
		wait_for_room(i);
		return false;
	}
	b->waiting = i->next;
	b->waiting_count--;
	b->begun++;
	if (i->run)
		b->running++;
	else if (!i->answer)
		answer_problem(i, &e);
	if (i->body)
		body_done(i->body);
	free(TAKE_PTR(i->body));
	json_decref(TAKE_PTR(i->request));
	return true;
}

void batch_try_again(struct service *v, const char *owner)
{
	for (struct batch *b = v->batches; b; b = b->next)
		if (b->held && strcmp(b->call->owner, owner) == 0)
			uv_timer_start(&b->retry, on_retry, 0, 0);
}

/* ---- answering ---- */

static void begin_answer(struct batch *b)
{
	if (!exchange_began(b->call->x))
		reply_lines_begin(b->call->x);
}

static bool write_first(struct batch *b)
{
	struct item *i = b->first;

	if (!i || b->blocked || i == b->waiting || i->run || !is_answered(i) || b->broken)
		return false;
	begin_answer(b);
	b->blocked = !exchange_write(b->call->x, i->answer, i->answer_size);
	b->first = i->next;
	if (!b->first)
		b->last = &b->first;
	b->items--;
	hold_bytes(i, 0);
	item_free(i);
	return true;
}

static void end(struct batch *b)
{
	struct call *c = b->call;
	struct exchange *x = c->x;
	bool complete = !b->broken;

	begin_answer(b);
	if (complete)
		reply_line(x,
			   json_pack("{sb sI sI sI sI sI sf}", "done", 1, "lines",
				     (json_int_t)b->count, "runs", (json_int_t)(b->ok + b->failed),
				     "ok", (json_int_t)b->ok, "failed", (json_int_t)b->failed,
				     "errors", (json_int_t)b->errors, "wall_ms",
				     (double)(now_us() - b->began_us) / 1000));
	c->service->metrics.requests[complete ? 2 : 5]++;
	call_free(c);
	exchange_end(x, complete);
}

/* Read on, or not for now. */
static void set_reading(struct batch *b)
{
	bool pause = !has_room(b);

	if (b->runs || b->input_ended || pause == b->paused)
		return;
	b->paused = pause;
	if (pause)
		exchange_pause(b->call->x);
	else
		exchange_resume(b->call->x);
}

/* How far it is, for a client that sends no more than is begun soon. */
static void tell_progress(struct batch *b)
{
	if (!b->progress || b->begun == b->told || b->blocked)
		return;
	b->told = b->begun;
	begin_answer(b);
	b->blocked = !reply_line(b->call->x, json_pack("{sI sI}", "begun", (json_int_t)b->begun,
						       "concurrency", (json_int_t)b->concurrency));
}

/* Everything that can be done now. b may be gone after it. */
static void pump(struct batch *b)
{
	while (write_first(b) || begin_next(b) || take_line(b))
		;
	if (b->broken || is_over(b)) {
		end(b);
		return;
	}
	tell_progress(b);
	set_reading(b);
}

/* ---- the exchange ---- */

static void on_body(struct exchange *x, const void *data, size_t size)
{
	struct call *c = exchange_data(x);
	struct batch *b = c->data;

	if (splitter_put(&b->lines, data, size) < 0)
		b->broken = true;
	pump(b);
}

static void on_body_end(struct exchange *x)
{
	struct call *c = exchange_data(x);
	struct batch *b = c->data;

	b->input_ended = true;
	pump(b);
}

static void on_room(struct exchange *x)
{
	struct call *c = exchange_data(x);
	struct batch *b = c->data;

	b->blocked = false;
	pump(b);
}

/* {"runs":[…],"defaults":{…}} */
static int read_whole(struct batch *b, json_t *j, struct err *e)
{
	json_t *runs = json_object_get(j, "runs"), *defaults = json_object_get(j, "defaults");

	if (!json_is_array(runs) || (defaults && !json_is_object(defaults)) ||
	    json_object_size(j) != 1u + !!defaults)
		return err_set(e, 0,
			       "give {\"runs\":[...]}, and \"defaults\":{...} if there are any");
	b->runs = json_incref(runs);
	b->defaults = json_incref(defaults);
	return 0;
}

static void on_whole(struct exchange *x, char *data, size_t size)
{
	struct call *c = exchange_data(x);
	struct batch *b = c->data;
	struct err e = {0};
	_cleanup_json_ json_t *j = json_read(data, size, &e);

	exchange_drop_body(x);
	b->input_ended = true;
	e.code = 0;
	if (!j || read_whole(b, j, &e) < 0)
		call_problem(c, &e);
	else
		pump(b);
}

static void on_closed(uv_handle_t *h)
{
	struct batch *b = h->data;

	splitter_done(&b->lines);
	json_decref(b->runs);
	json_decref(b->defaults);
	free(b);
}

/* However it ends: what still runs is cancelled. */
static void release(struct call *c)
{
	struct batch *b = TAKE_PTR(c->data), **at = &c->service->batches;

	while (*at != b)
		at = &(*at)->next;
	*at = b->next;
	while (b->first) {
		struct item *i = b->first;

		b->first = i->next;
		item_free(i);
	}
	while (b->fd_count > 0)
		fd_close(&b->fds[--b->fd_count]);
	uv_timer_stop(&b->retry);
	uv_close((uv_handle_t *)&b->retry, on_closed);
}

static bool has_type(const struct call *c, const char *wanted)
{
	const char *type = exchange_field(c->x, "content-type");
	size_t n = type ? strcspn(type, "; \t") : 0;

	return n == strlen(wanted) && strncasecmp(type, wanted, n) == 0;
}

static struct batch *batch_new(struct call *c, size_t concurrency)
{
	struct batch *b = calloc(1, sizeof *b);

	if (!b)
		return NULL;
	b->call = c;
	b->last = &b->first;
	b->concurrency = concurrency;
	b->lines.most = c->service->config.body_bytes;
	b->began_us = now_us();
	b->progress = call_flag(c, "progress");
	b->fd_count = exchange_take_fds(c->x, b->fds, ARRAY_SIZE(b->fds));
	uv_timer_init(&c->service->loop, &b->retry);
	b->retry.data = b;
	b->next = c->service->batches;
	c->service->batches = b;
	c->data = b;
	c->release = release;
	return b;
}

void runs_batch(struct call *c)
{
	uint64_t usual = c->service->config.batch_concurrency, concurrency;
	bool lines = has_type(c, "application/x-ndjson");
	struct err e = {0};
	int r = call_number(c, "concurrency", usual < MOST_AT_A_TIME ? usual : MOST_AT_A_TIME,
			    MOST_AT_A_TIME, &concurrency, &e);

	if (r == 0 && concurrency == 0)
		r = err_set(&e, 0, "concurrency: must be a number from 1 to %d", MOST_AT_A_TIME);
	if (r == 0 && !lines && !has_type(c, "application/json"))
		r = problem_set(&e, PROBLEM_UNSUPPORTED_MEDIA_TYPE,
				"send a run a line, with Content-Type: application/x-ndjson, or "
				"{\"runs\":[...]} as application/json");
	if (r == 0 && !batch_new(c, concurrency)) {
		e.code = PROBLEM_UNAVAILABLE;
		r = -1;
	}
	if (r < 0) {
		call_problem(c, &e);
	} else if (lines) {
		c->ops.on_body = on_body;
		c->ops.on_body_end = on_body_end;
		c->ops.on_room = on_room;
	} else {
		c->ops.on_room = on_room;
		exchange_collect(c->x, c->service->config.body_bytes, on_whole);
	}
}
