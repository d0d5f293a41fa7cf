/* SPDX-License-Identifier: Apache-2.0 */
#include "service/run.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/fd.h"
#include "base/json.h"
#include "image/apply.h"
#include "image/image.h"
#include "native/report.h"
#include "service/artifacts.h"
#include "service/kept.h"
#include "service/problem.h"
#include "service/put.h"
#include "service/reply.h"
#include "service/run_result.h"
#include "service/tell.h"

/* A hung-up conversation means that the sandbox is dying: its end is waited for this long. */
#define GONE_LIMIT_MS 3000
/* A command has to begin within its time-out and this. */
#define BEGIN_LIMIT_MS 5000
/* CPU time and silence are looked at this often while they are limited. */
#define LOOK_MS 20
/* The dying of a command whose files are wanted, and then the collecting, may take this long each. */
#define COLLECT_LIMIT_MS 30000
/* What connections came to is told at once; longer is waited only for one that has been taken over, or is starved. */
#define FLUSH_LIMIT_MS 2000
#define FLUSH_KILL_MS  250

static void begin(struct run *r);
static void next_file(struct run *r);
static void start_command(struct run *r);
static void start_anew(struct run *r);
static void sandbox_is_going(struct run *r);
static void command_is_over(struct run *r);
static void finish(struct run *r);

static void hang_up(struct run *r)
{
	if (r->talk)
		box_hang_up(r->box, TAKE_PTR(r->talk));
}

static void clock_closed(uv_handle_t *h)
{
	struct run *r = h->data;

	spec_done(&r->spec);
	result_done(&r->result);
	free(r->input);
	json_decref(r->files);
	json_decref(r->json);
	free(r->text);
	free(r->owner);
	free(r->session);
	free(r->kind);
	free(r->input_sha256);
	free(r->limits);
	free(r);
}

static void unlink_run(struct run *r)
{
	struct run **at = &r->service->runs;

	while (*at != r)
		at = &(*at)->next;
	*at = r->next;
}

/* ---- the end ---- */

static void close_run(struct run *r)
{
	unlink_run(r);
	quota_keep_end(r->service->quotas, r->owner, r->keeping);
	box_release(r->box);
	uv_timer_stop(&r->clock);
	uv_close((uv_handle_t *)&r->clock, clock_closed);
}

static void finish(struct run *r)
{
	struct box *b = r->box;

	if (r->ending)
		return;
	r->ending = true;
	uv_timer_stop(&r->clock);
	hang_up(r);
	network_drain(b);
	network_unlisten(&r->connections);
	network_unflush(&r->flush);
	run_take_verdict_of_box(r);
	run_complete(r);
	run_remember_end(r);
	r->unwritten = service_commit(r->service) < 0; /* before anybody is told */
	run_tell_end(r);
	artifacts_close(r);
	if (r->ops && r->ops->on_end)
		r->ops->on_end(r);
	r->ops = NULL;
	waiter_remove(&b->made, &r->made);
	waiter_remove(&b->gone, &r->gone);
	/* Init may forget what is written down, and not before: until then it is the only one who knows. */
	if (r->command_over && !r->owns_box && b->stored.state != STATE_ENDED && !b->killing)
		tell_forget(b, r->number, r->result.out.bytes + r->result.err.bytes);
	if (!r->unwritten)
		close_run(r);
}

void run_write_again(struct run *r)
{
	if (r->unwritten)
		run_remember_end(r);
	else if (r->evidence.has_verdict)
		run_remember_verdict(r);
	else
		run_put(r, false, NULL);
}

void run_written(struct run *r)
{
	if (r->unwritten)
		close_run(r);
}

static void on_gone(struct waiter *w, struct box *b)
{
	(void)b;
	finish((struct run *)((char *)w - offsetof(struct run, gone)));
}

/* Nothing but init is alive, and what was counted stands still: its death is not waited for. */
static bool is_settled(struct run *r)
{
	struct box *b = r->box;

	if (!r->alone || r->evidence.has_verdict || b->killing || !network_is_still(b) ||
	    b->stored.state != STATE_RUNNING || b->service->store_error[0])
		return false;
	return box_read_counters(b);
}

static void conclude_now(struct run *r);

static void on_flushed(struct network_flush *f)
{
	conclude_now((struct run *)((char *)f - offsetof(struct run, flush)));
}

/* The command's part is done. What was refused during it is known before it is judged; a sandbox that is to be killed does not
 * wait long for that. */
static void conclude(struct run *r)
{
	bool is_to_be_killed = r->owns_box && r->evidence.has_verdict;

	hang_up(r);
	if (r->flush.box)
		return;
	r->flush.done = on_flushed;
	uv_timer_stop(&r->clock);
	if (!r->started ||
	    !network_flush(r->box, &r->flush, is_to_be_killed ? FLUSH_KILL_MS : FLUSH_LIMIT_MS))
		conclude_now(r);
}

/* A sandbox of its own is ended and all its processes are seen dead before the answer. */
static void conclude_now(struct run *r)
{
	if (!r->owns_box || r->box->stored.state == STATE_ENDED) {
		finish(r);
		return;
	}
	uv_timer_stop(&r->clock);
	if (is_settled(r)) {
		box_leave(r->box); /* on_gone() finishes */
		return;
	}
	run_remember_verdict(r);
	box_end(r->box, r->evidence.has_verdict ? r->evidence.verdict : REASON_EXITED);
}

/* ---- clocks ---- */

/* Whether what it has left behind is still wanted: a limit of the command's own is no reason against it. */
static bool is_collected_after(const struct run *r)
{
	enum reason verdict = r->evidence.verdict;

	return r->want_artifacts && r->started &&
	       (!r->evidence.has_verdict || verdict == REASON_TIMEOUT ||
		verdict == REASON_CPU_TIME || verdict == REASON_IDLE_TIMEOUT ||
		verdict == REASON_OUTPUT_LIMIT);
}

static void on_too_late(uv_timer_t *t)
{
	struct run *r = t->data;

	r->result.artifacts_failed = true;
	conclude(r);
}

/* End the command for this reason; the verdict comes before the kill. */
static void stop_command(struct run *r, enum reason verdict)
{
	struct kill_record k = {r->number, SIGKILL, 1};

	if (r->evidence.has_verdict || r->evidence.main_ended)
		return;
	r->evidence.has_verdict = true;
	r->evidence.verdict = verdict;
	if (r->owns_box && !is_collected_after(r)) {
		conclude(r);
	} else if (r->started) {
		run_remember_verdict(r);
		service_commit(r->service);
		run_resume_output(r);
		tell_init(r->box, FRAME_KILL, &k, sizeof k);
		if (r->owns_box)
			uv_timer_start(&r->clock, on_too_late, COLLECT_LIMIT_MS, 0);
	} else {
		finish(r);
	}
}

static void arm(struct run *r);

/* Of one that is dead already the file may be another's, which has used less. */
static bool has_used_its_cpu_time(struct run *r)
{
	uint64_t limit = r->spec.cpu_time_us, cpu;

	return limit != SPEC_UNLIMITED && r->cpu_known && box_cpu_us(r->box, &cpu) &&
	       cpu > r->cpu_before && cpu - r->cpu_before >= limit;
}

static void look(struct run *r, uint64_t now)
{
	const struct spec *s = &r->spec;

	if (now - r->started_us >= s->timeout_us)
		stop_command(r, REASON_TIMEOUT);
	else if (has_used_its_cpu_time(r))
		stop_command(r, REASON_CPU_TIME);
	else if (s->idle_timeout_us != SPEC_UNLIMITED &&
		 now >= r->last_output_us + s->idle_timeout_us)
		stop_command(r, REASON_IDLE_TIMEOUT);
}

static void on_clock(uv_timer_t *t)
{
	struct run *r = t->data;

	if (r->hung_up_us) { /* the sandbox should be gone by now */
		r->hung_up_us = 0;
		box_end(r->box, REASON_RUNTIME_CRASH);
		return;
	}
	if (!r->started) { /* hung up on before it has begun, it will not begin: init looks */
		stop_command(r, REASON_TIMEOUT);
		return;
	}
	look(r, now_us());
	if (!r->ending)
		arm(r);
}

static void arm(struct run *r)
{
	uint64_t now = now_us(), left;
	bool often =
		r->spec.cpu_time_us != SPEC_UNLIMITED || r->spec.idle_timeout_us != SPEC_UNLIMITED;

	if (r->evidence.has_verdict || !r->started || r->spec.timeout_us == SPEC_UNLIMITED) {
		if (!often || r->evidence.has_verdict || !r->started)
			return;
		left = LOOK_MS;
	} else {
		left = r->started_us + r->spec.timeout_us;
		left = left > now ? (left - now + 999) / 1000 : 1;
		if (often && left > LOOK_MS)
			left = LOOK_MS;
	}
	uv_timer_start(&r->clock, on_clock, left, 0);
}

/* ---- the command ---- */

static void keep(struct run *r, struct captured *c, const void *data, size_t size)
{
	uint64_t room = r->spec.max_output_bytes > c->kept ? r->spec.max_output_bytes - c->kept : 0;
	size_t n = size < room ? size : (size_t)room;
	char *more;

	if (n == 0 || r->streamed) {
		c->kept += n;
		return;
	}
	more = realloc(c->data, c->size + n);
	if (!more)
		return; /* counted as dropped */
	c->data = more;
	memcpy(c->data + c->size, data, n);
	c->size += n;
	c->kept += n;
}

static void on_data(struct run *r, unsigned stream, const void *data, size_t size)
{
	struct captured *c = stream == 1 ? &r->result.out : &r->result.err;
	uint64_t before = c->kept;

	r->last_output_us = now_us();
	c->bytes += size;
	keep(r, c, data, size);
	if (r->ops && r->ops->on_output && c->kept > before)
		r->ops->on_output(r, stream, data, (size_t)(c->kept - before));
	if (c->bytes > r->spec.max_output_bytes && r->spec.kill_on_output_limit)
		stop_command(r, REASON_OUTPUT_LIMIT);
}

/* stdin goes as far as init has room for it. */
static void send_input(struct run *r)
{
	while (r->talk && r->input_sent < r->input_size &&
	       r->input_sent - r->input_taken < STDIN_WINDOW) {
		size_t n = r->input_size - r->input_sent;
		size_t room = STDIN_WINDOW - (r->input_sent - r->input_taken);

		n = n < room ? n : room;
		talk_send(r->talk, FRAME_DATA, r->input + r->input_sent, n, NULL, 0);
		r->input_sent += n;
	}
	if (r->talk && r->input && r->input_sent == r->input_size && !r->input_ended) {
		r->input_ended = true;
		talk_send(r->talk, FRAME_EOF, NULL, 0, NULL, 0);
	}
}

static void on_ended(struct run *r, const struct ended_record *ended)
{
	const uint64_t *bytes = ended->bytes;

	if (!r->evidence.has_verdict) {
		if (ended->timed_out) {
			r->evidence.has_verdict = true;
			r->evidence.verdict = REASON_TIMEOUT;
		} else {
			r->evidence.main_ended = true;
			r->evidence.main_signaled = ended->signaled;
			r->evidence.main_status = (int)ended->status;
			r->evidence.main_core = ended->core;
		}
	}
	r->result.out.bytes = bytes[0] > r->result.out.bytes ? bytes[0] : r->result.out.bytes;
	r->result.err.bytes = bytes[1] > r->result.err.bytes ? bytes[1] : r->result.err.bytes;
	r->result.wall_ms = (double)ended->wall_us / 1000;
	r->cpu_command_us = ended->cpu_us;
	r->alone = ended->alone;
	r->result.limits_hit |= (ended->full & FULL_DISK ? HIT_DISK : 0) |
				(ended->full & FULL_INODES ? HIT_INODES : 0);
	command_is_over(r);
}

static void on_failed(struct run *r, const struct failed_record *failed)
{
	r->evidence.create_failed = true;
	r->evidence.failed_as = REASON_CREATE_FAILED;
	snprintf(r->result.stage, sizeof r->result.stage, "%s", failed->stage);
	r->result.errnum = (int)failed->errnum;
	snprintf(r->result.message, sizeof r->result.message, "%s: %s", failed->what,
		 strerror((int)failed->errnum));
	conclude(r);
}

static void on_begun(struct run *r, const struct begun_record *begun)
{
	if (r->started) { /* it has begun already: its clocks run from then */
		sandbox_is_going(r);
		return;
	}
	r->number = begun->number;
	r->taking = false;
	histogram_add(&r->service->metrics.begin, now_us() - r->asked_us);
	r->started = true;
	r->started_us = r->last_output_us = now_us();
	r->result.network.capture = network_capture(r->box);
	if (r->ops && r->ops->on_started)
		r->ops->on_started(r);
	if (r->cancelled)
		stop_command(r, REASON_CANCELLED);
	else
		arm(r);
}

/* Init broke its rules, or is dying. */
static void sandbox_is_going(struct run *r)
{
	hang_up(r);
	if (r->box->stored.state == STATE_ENDED) {
		finish(r);
		return;
	}
	r->hung_up_us = now_us();
	uv_timer_start(&r->clock, on_clock, GONE_LIMIT_MS, 0);
}

static void on_frame(struct talk *t, const struct frame *f, const unsigned char *payload)
{
	struct run *r = talk_data(t);
	struct failed_record failed;
	struct begun_record begun;
	struct ended_record ended;
	uint32_t credit;

	if (f->type == FRAME_DATA) {
		on_data(r, f->stream, payload, f->size);
	} else if (f->type == FRAME_CREDIT) {
		memcpy(&credit, payload, sizeof credit);
		r->input_taken += credit;
		send_input(r);
	} else if (f->type == FRAME_BEGUN && begun_record_decode(payload, f->size, &begun) == 0) {
		on_begun(r, &begun);
	} else if (f->type == FRAME_ENDED && ended_record_decode(payload, f->size, &ended) == 0) {
		on_ended(r, &ended);
	} else if (f->type == FRAME_FAILED &&
		   failed_record_decode(payload, f->size, &failed) == 0) {
		if (r->taking)
			start_anew(r);
		else
			on_failed(r, &failed);
	} else if (f->type != FRAME_EOF && f->type != FRAME_OFFSET) {
		sandbox_is_going(r);
	}
}

static void on_talk_end(struct talk *t, int error)
{
	(void)error;
	sandbox_is_going(talk_data(t));
}

static const struct talk_ops command_ops = {.on_frame = on_frame, .on_end = on_talk_end};

static void on_could_not(uv_timer_t *t)
{
	conclude(t->data);
}

/* Told by the loop, not from inside run_new(): its caller does not know the run yet. */
static void could_not(struct run *r, const char *stage, const struct err *e)
{
	r->evidence.create_failed = true;
	r->evidence.failed_as = REASON_CREATE_FAILED;
	snprintf(r->result.stage, sizeof r->result.stage, "%s", stage);
	r->result.errnum = e->errnum;
	snprintf(r->result.message, sizeof r->result.message, "%s", e->text);
	uv_timer_start(&r->clock, on_could_not, 0, 0);
}

/* Want of something here says nothing about its init; anything else is that of a dead one. Told by the loop
 * when that is over already: nobody else will. */
static void cannot_talk(struct run *r, const char *stage, struct err *e)
{
	if (r->box->stored.state == STATE_ENDED) {
		uv_timer_start(&r->clock, on_could_not, 0, 0);
		return;
	}
	if (e->code != PROBLEM_UNAVAILABLE || r->box->killing) {
		sandbox_is_going(r);
		return;
	}
	r->busy = true;
	could_not(r, stage, e);
}

static void start_command(struct run *r)
{
	_cleanup_free_ char *strings = NULL;
	struct take_record take;
	struct start_record s;
	struct err e = {0};
	size_t size;

	/* A sandbox of its own is counted at its end. */
	r->oom_known = !r->owns_box && box_oom_count(r->box, &r->oom_before);
	r->cpu_known = r->spec.cpu_time_us != SPEC_UNLIMITED && box_cpu_us(r->box, &r->cpu_before);
	if (image_apply_env(&r->box->image_env, &r->spec, &e) < 0 ||
	    run_start_record(r, &s, &strings, &size, &e) < 0) {
		could_not(r, "start", &e);
		return;
	}
	r->talk = box_talk(r->box, &command_ops, r, &e);
	if (!r->talk) {
		cannot_talk(r, "start", &e);
		return;
	}
	r->taking = r->box->waiting || r->box->joins;
	s.flags |= r->box->joins ? START_JOINED : 0;
	run_take_record(r, &s, &take);
	if (!r->connections.box)
		network_listen(r->box, &r->connections, &r->result.network, wall_ms());
	talk_hold(r->talk); /* a command without its code would wait for it until its time is up */
	if (r->box->waiting)
		talk_send(r->talk, FRAME_TAKE, &take, sizeof take, NULL, 0);
	else
		talk_send(r->talk, FRAME_START, &s, sizeof s, strings, size);
	send_input(r);
	talk_release(r->talk);
	if (r->owns_box) /* its code runs meanwhile */
		box_open_counters(r->box);
	/* Code inside can stop the workers that hold all of init's conversations: then nothing begins. */
	if (r->spec.timeout_us < SPEC_UNLIMITED - 1)
		uv_timer_start(&r->clock, on_clock, r->spec.timeout_us / 1000 + BEGIN_LIMIT_MS, 0);
}

/* What waited cannot be used, and has seen nothing of this run: it begins as it would without. */
static void start_anew(struct run *r)
{
	hang_up(r);
	r->taking = false;
	r->box->waiting = 0;
	r->box->joins = false;
	r->input_sent = r->input_taken = 0;
	r->input_ended = false;
	start_command(r);
}

/* What the command left behind in its sandbox: nothing is kept of its record; artifacts of a one-shot are
 * taken before the sandbox goes. */
static void command_is_over(struct run *r)
{
	uv_timer_stop(&r->clock);
	r->command_over = true;
	if (r->input || r->stdin_open || r->owns_box)
		hang_up(r);
	else
		box_lay_down(r->box, TAKE_PTR(r->talk));
	if (!is_collected_after(r)) {
		conclude(r);
		return;
	}
	uv_timer_start(&r->clock, on_too_late, COLLECT_LIMIT_MS, 0);
	artifacts_begin(r); /* calls run_artifacts_done() */
}

void run_artifacts_done(struct run *r)
{
	conclude(r);
}

/* ---- files first ---- */

static void on_file_frame(struct talk *t, const struct frame *f, const unsigned char *payload)
{
	struct run *r = talk_data(t);
	struct failed_record failed;
	struct err e = {0};

	hang_up(r);
	if (f->type == FRAME_DONE) {
		next_file(r);
	} else if (f->type == FRAME_FAILED &&
		   failed_record_decode(payload, f->size, &failed) == 0) {
		err_set(&e, (int)failed.errnum, "%s", failed.what);
		could_not(r, "files", &e);
	} else {
		sandbox_is_going(r);
	}
}

static const struct talk_ops file_ops = {.on_frame = on_file_frame, .on_end = on_talk_end};

static void next_file(struct run *r)
{
	json_t *row = json_array_get(r->files, r->file_index++);
	struct err e = {0};

	if (!row) {
		json_decref(TAKE_PTR(r->files));
		start_command(r);
		return;
	}
	r->talk = box_talk(r->box, &file_ops, r, &e);
	if (!r->talk) {
		cannot_talk(r, "files", &e);
	} else if (put_file(r->talk, row) < 0) {
		hang_up(r);
		err_set(&e, ENOMEM, "%s", json_string_value(json_object_get(row, "path")));
		could_not(r, "files", &e);
	}
}

/* ---- the beginning ---- */

static void begin(struct run *r)
{
	if (r->cancelled) {
		r->evidence.has_verdict = true;
		r->evidence.verdict = REASON_CANCELLED;
		conclude(r);
		return;
	}
	r->file_index = 0;
	next_file(r);
}

static void on_made(struct waiter *w, struct box *b)
{
	struct run *r = (struct run *)((char *)w - offsetof(struct run, made));
	struct err e = {0};

	/* That it is made has to be known: after our death one that is being made is taken away. */
	if (b->stored.state != STATE_ENDED && service_record(r->service, &e) < 0)
		could_not(r, "start", &e);
	else if (b->stored.state == STATE_RUNNING || b->stored.state == STATE_PAUSED)
		begin(r);
	/* else it could not be made: on_gone is told next */
}

static struct run *allocate(struct box *b, const char *owner, const char *session, const char *kind)
{
	struct run *r = calloc(1, sizeof *r);

	if (!r)
		return NULL;
	r->service = b->service;
	r->box = b;
	r->owner = strdup(owner);
	r->session = session ? strdup(session) : NULL;
	r->kind = strdup(kind);
	r->cpu_command_us = RESULT_UNKNOWN;
	if (!r->owner || !r->kind || uv_timer_init(&b->service->loop, &r->clock) < 0) {
		free(r->owner);
		free(r->session);
		free(r->kind);
		free(r);
		return NULL;
	}
	r->clock.data = r;
	r->made.tell = on_made;
	r->gone.tell = on_gone;
	r->next = b->service->runs;
	b->service->runs = r;
	box_hold(b);
	memcpy(r->result.sandbox, b->stored.id, sizeof r->result.sandbox);
	r->created_ms = wall_ms();
	r->asked_us = now_us();
	return r;
}

struct run *run_new(struct box *b, struct run_request *q, const struct run_ops *ops, void *data,
		    struct err *e)
{
	struct run *r = allocate(b, q->owner, q->session, q->kind);
	uint64_t cpu;

	if (!r) {
		spec_done(q->spec);
		free(q->input);
		err_set(e, ENOMEM, "start a run");
		e->code = PROBLEM_UNAVAILABLE;
		return NULL;
	}
	r->spec = TAKE(*q->spec, (struct spec){0});
	r->input = TAKE_PTR(q->input);
	r->input_size = q->input_size;
	r->stdin_open = q->stdin_open;
	r->streamed = q->streamed;
	r->owns_box = q->owns_box;
	r->want_artifacts = q->artifacts;
	r->output_folder = q->output_folder;
	r->files = json_incref(q->files);
	r->input_sha256 = q->input_sha256 ? strdup(q->input_sha256) : NULL;
	r->input_bytes = q->input_bytes;
	r->ops = ops;
	r->data = data;
	r->result.timeout_us = r->spec.timeout_us;
	if (b->waiting)
		memcpy(r->result.id, b->waiting_run, sizeof r->result.id);
	else
		make_object_id(r->result.id, "run_");
	/* A sandbox that is still to be made has used none. */
	if (r->spec.cpu_time_us != SPEC_UNLIMITED && box_cpu_us(b, &cpu))
		r->limits = run_limits_text(r, cpu);
	else
		r->limits = run_limits_text(r, 0);
	run_put(r, false, NULL);
	audit(r->service, r->owner, r->session, "run.start", r->result.id,
	      json_pack("{ss ss sI so}", "sandbox", b->stored.id, "kind", r->kind, "input_bytes",
			(json_int_t)r->input_bytes, "input_sha256",
			r->input_sha256 ? json_string(r->input_sha256) : json_null()));
	if (service_record(r->service, e) < 0) {
		close_run(r);
		return NULL;
	}
	event_emit(r->service, "run.started", b, r->result.id, NULL);
	waiter_add(&b->gone, &r->gone);
	if (b->stored.state == STATE_CREATING)
		waiter_add(&b->made, &r->made);
	else
		begin(r);
	return r;
}

void run_cancel(struct run *r)
{
	r->cancelled = true;
	run_resume_output(r);
	if (r->started && !r->command_over)
		stop_command(r, REASON_CANCELLED);
	else if (r->owns_box && r->box->stored.state == STATE_CREATING &&
		 !image_is_host(r->box->spec.image))
		begin(r); /* which ends it: to get an image may take an hour */
}

void run_forget(struct run *r, bool cancel)
{
	r->ops = NULL;
	if (cancel)
		run_cancel(r);
}

void run_pause_output(struct run *r)
{
	if (r->talk)
		talk_pause(r->talk);
}

void run_resume_output(struct run *r)
{
	if (r->talk)
		talk_resume(r->talk);
}

/* ---- after a restart ---- */

void run_adopt(struct box *b, const struct stored_run *stored, const struct command_record *c)
{
	struct attach_record a = {.number = c->number, .follow = 1};
	struct kill_record k = {c->number, SIGKILL, 1};
	struct run *r = allocate(b, stored->owner, stored->session, stored->kind);
	struct err e = {0};

	if (!r)
		return;
	memcpy(r->result.id, stored->id, sizeof r->result.id);
	kept_remove_files(r->service, stored->id); /* collecting does not go on */
	r->created_ms = stored->created_ms;
	r->input_sha256 = stored->input_sha256 ? strdup(stored->input_sha256) : NULL;
	r->input_bytes = stored->input_bytes;
	r->owns_box = b->stored.one_shot;
	r->number = c->number;
	run_take_stored_verdict(r, stored->result);
	r->started = true;
	r->started_us = r->last_output_us = now_us();
	r->spec.memory_bytes = b->spec.memory_bytes;
	run_take_limits(r, stored->limits);
	waiter_add(&b->gone, &r->gone);
	r->result.network.capture = network_capture(b);
	network_listen(b, &r->connections, &r->result.network, r->created_ms);
	r->talk = box_talk(b, &command_ops, r, &e);
	if (!r->talk) {
		sandbox_is_going(r);
		return;
	}
	talk_send(r->talk, FRAME_ATTACH, &a, sizeof a, NULL, 0);
	arm(r);
	if (r->evidence.has_verdict && !r->owns_box) /* the kill may not have gone out */
		tell_init(b, FRAME_KILL, &k, sizeof k);
}
