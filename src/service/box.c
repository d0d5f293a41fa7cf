/* SPDX-License-Identifier: Apache-2.0 */
#include "service/box.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/fd.h"
#include "base/json.h"
#include "image/image.h"
#include "service/dying.h"
#include "service/pool.h"
#include "service/problem.h"
#include "service/recover.h"
#include "settings/egress.h"

/* How often an idle clock looks for work, as a part of the idle time-out, and the bounds of it. */
#define IDLE_LOOKS  8
#define LOOK_MIN_US 50000u
#define LOOK_MAX_US 30000000u
/* Less CPU time than this between two looks is no work: init itself uses none while nothing happens. */
#define WORK_CPU_US 200u

static void arm(struct box *b);

/* ---- finding ---- */

static struct box **row_of(struct service *v, const char *id)
{
	unsigned n = 0;

	/* Ids are random digits behind their prefix: three of them spread well. */
	for (int i = 4; i < 7 && id[i]; i++)
		n = n << 4 | ((unsigned)(id[i] <= '9' ? id[i] - '0' : id[i] - 'a' + 10) & 15);
	return &v->boxes[n % ARRAY_SIZE(v->boxes)];
}

struct box *box_find(struct service *v, const char *id)
{
	struct box *b = *row_of(v, id);

	while (b && strcmp(b->stored.id, id) != 0)
		b = b->next;
	return b;
}

static void insert(struct box *b)
{
	struct box **row = row_of(b->service, b->stored.id);

	b->next = *row;
	*row = b;
	b->service->box_count++;
	b->counted = true;
	b->references = 1;
}

static void take_out(struct box *b)
{
	struct box **at = row_of(b->service, b->stored.id);

	if (!b->counted)
		return;
	while (*at != b)
		at = &(*at)->next;
	*at = b->next;
	b->service->box_count--;
	b->counted = false;
}

static void clock_closed(uv_handle_t *h)
{
	struct box *b = h->data;

	b->has_clock = false;
	box_release(b);
}

static void box_free(struct box *b)
{
	box_drop_idle(b);
	box_close_counters(b);
	network_close(b);
	stored_sandbox_done(&b->stored);
	spec_done(&b->spec);
	json_decref(b->metadata);
	strings_done(&b->image_env);
	json_decref(b->commands);
	free(b);
}

void box_hold(struct box *b)
{
	b->references++;
}

void box_release(struct box *b)
{
	if (--b->references == 0)
		box_free(b);
}

void waiter_add(struct waiter **list, struct waiter *w)
{
	w->next = *list;
	*list = w;
}

void waiter_remove(struct waiter **list, struct waiter *w)
{
	for (; *list; list = &(*list)->next)
		if (*list == w) {
			*list = w->next;
			return;
		}
}

/* A waiter may add or remove others while it is told. */
static void tell(struct box *b, struct waiter **list)
{
	box_hold(b);
	while (*list) {
		struct waiter *w = *list;

		*list = w->next;
		w->next = NULL;
		w->tell(w, b);
	}
	box_release(b);
}

void box_tell_counted(struct box *b)
{
	tell(b, &b->counted_again);
}

/* ---- what is remembered ---- */

static void put(struct box *b)
{
	struct err e = {0};

	if (TAKE(b->texts_are_old, false))
		box_keep_texts(b);
	if (store_begin(b->service->store, &e) < 0 ||
	    store_sandbox_put(b->service->store, &b->stored, &e) < 0)
		store_failed(b->service, &e);
}

static void put_now(struct box *b)
{
	put(b);
	service_commit(b->service);
}

enum { COMMAND_SHOWN = 4096, CLOCK_WAS_SET_MS = 1000 };

void box_remember_command(struct box *b, const char *id, const struct strings *command)
{
	json_t *list = json_array();
	size_t left = COMMAND_SHOWN;

	for (size_t i = 0; list && i < command->count; i++) {
		size_t n = strlen(command->item[i]);
		ssize_t whole = utf8_prefix(command->item[i], n < left ? n : left, true);

		json_array_append_new(list,
				      whole < 0 ? json_string("?")
						: json_stringn(command->item[i], (size_t)whole));
		left -= n < left ? n : left;
	}
	if (!json_is_object(b->commands)) {
		json_decref(b->commands);
		b->commands = json_object();
	}
	json_object_set_new(b->commands, id, list);
	b->texts_are_old = true;
	put(b);
}

void box_forget_command(struct box *b, const char *id)
{
	if (b->commands && json_object_del(b->commands, id) == 0) {
		b->texts_are_old = true;
		put(b);
	}
}

json_t *box_command(const struct box *b, const char *id)
{
	json_t *list = json_object_get(b->commands, id);

	return list ? json_incref(list) : json_array();
}

/* ---- clocks ---- */

static uint64_t look_interval(const struct box *b)
{
	uint64_t us = (uint64_t)b->stored.idle_timeout_ms * 1000 / IDLE_LOOKS;

	return us < LOOK_MIN_US ? LOOK_MIN_US : us > LOOK_MAX_US ? LOOK_MAX_US : us;
}

static void look_for_work(struct box *b, uint64_t now)
{
	uint64_t cpu;

	if (b->talks > 0)
		b->idle_at_us = now;
	if (!box_cpu_us(b, &cpu))
		return;
	if (cpu > b->last_cpu + WORK_CPU_US)
		b->idle_at_us = now;
	b->last_cpu = cpu;
}

static void time_is_up(struct box *b, enum reason why)
{
	if (b->stored.pause_on_timeout)
		box_pause(b);
	else
		box_end(b, why);
}

static void on_clock(uv_timer_t *t)
{
	struct box *b = t->data;
	uint64_t now = now_us();

	if (b->stored.state == STATE_PAUSED) {
		if (now >= b->paused_us + b->service->config.paused_retention_us)
			box_end(b, REASON_TIMEOUT);
	} else if (b->stored.state == STATE_RUNNING && b->pause_wanted == 0) {
		if (b->stored.idle_timeout_ms)
			look_for_work(b, now);
		if (b->expires_us && now >= b->expires_us)
			time_is_up(b, REASON_TIMEOUT);
		else if (b->stored.idle_timeout_ms &&
			 now >= b->idle_at_us + (uint64_t)b->stored.idle_timeout_ms * 1000)
			time_is_up(b, REASON_IDLE_TIMEOUT);
	}
	arm(b);
}

static void arm(struct box *b)
{
	uint64_t now = now_us(), at = UINT64_MAX;

	if (!b->has_clock)
		return;
	if (b->killing || b->stored.state == STATE_ENDED || b->stored.state == STATE_CREATING) {
		uv_timer_stop(&b->clock);
		return;
	}
	if (b->stored.state == STATE_PAUSED) {
		at = b->paused_us + b->service->config.paused_retention_us;
	} else {
		if (b->expires_us)
			at = b->expires_us;
		if (b->stored.idle_timeout_ms && at > now + look_interval(b))
			at = now + look_interval(b);
	}
	if (at == UINT64_MAX)
		uv_timer_stop(&b->clock);
	else
		/* One that is due already waits for a pause, which may be refused or asked for in vain. */
		uv_timer_start(&b->clock, on_clock,
			       at > now ? (at - now + 999) / 1000 : LOOK_MIN_US / 1000, 0);
}

static void start_clock(struct box *b)
{
	if (uv_timer_init(&b->service->loop, &b->clock) < 0)
		return;
	b->clock.data = b;
	b->has_clock = true;
	box_hold(b);
}

static void begin_life(struct box *b)
{
	uint64_t now = now_us();

	b->idle_at_us = now;
	b->expires_us = b->life_us ? now + b->life_us : 0;
	b->stored.expires_ms = b->life_us ? wall_ms() + (int64_t)(b->life_us / 1000) : 0;
	b->texts_are_old = true;
}

/* The end of a life is a time of the monotonic clock. What is told of it follows the clock on the wall
 * when that was set. */
void box_follow_wall_clock(struct box *b)
{
	int64_t at = wall_ms() + ((int64_t)b->expires_us - (int64_t)now_us()) / 1000;

	if (b->expires_us && llabs(at - b->stored.expires_ms) >= CLOCK_WAS_SET_MS)
		b->stored.expires_ms = at;
}

/* The monotonic clock is the same for as long as the machine runs, and so for whatever can be adopted. */
static void go_on_living(struct box *b)
{
	int64_t left = b->stored.expires_ms - wall_ms();

	if (!b->stored.expires_ms)
		b->expires_us = 0;
	else if (b->expires_us == 0) /* written by a version that knew the wall's only */
		b->expires_us = now_us() + (uint64_t)(left > 0 ? left : 0) * 1000;
}

/* ---- ends ---- */

static void give_back_quota(struct box *b)
{
	if (!b->admitted)
		return;
	b->admitted = false;
	quota_release(b->service->quotas, b->stored.owner, b->stored.session,
		      &(struct quota_need){b->spec.memory_bytes, b->spec.cpus_millis,
					   b->disk_bytes});
	batch_try_again(b->service, b->stored.owner);
}

/* The end, whatever led to it: written down, told, and taken out. */
static void finish(struct box *b, enum reason reason, const char *message)
{
	struct service *v = b->service;

	b->stored.state = STATE_ENDED;
	b->stored.reason = reason;
	b->stored.ended_ms = wall_ms();
	free(b->stored.message);
	b->stored.message = message && *message ? strdup(message) : NULL;
	b->texts_are_old = true;
	put(b);
	v->metrics.sandboxes_ended[reason]++;
	event_emit(v, "sandbox.ended", b, NULL, reasons[reason].name);
	audit(v, b->killer[0] ? b->killer : b->stored.owner, b->stored.session, "sandbox.end",
	      b->stored.id, json_pack("{ss}", "reason", reasons[reason].name));
	give_back_quota(b);
	take_out(b);
	tell(b, &b->made);
	tell(b, &b->paused);
	tell(b, &b->resumed);
	tell(b, &b->counted_again);
	tell(b, &b->gone);
	if (b->has_clock) {
		uv_timer_stop(&b->clock);
		uv_close((uv_handle_t *)&b->clock, clock_closed);
	}
	box_release(b);
}

enum reason box_judge_end(const struct stored_sandbox *s, const struct spawner_ended *ended)
{
	if (s->verdict >= 0)
		return (enum reason)s->verdict;
	/* How the init of a nest's cell died is known to nobody here: its counters tell. */
	if (ended->counters.oom_kills > 0 &&
	    (!ended->known || (ended->signaled && ended->status == SIGKILL)))
		return REASON_OOM;
	return ended->known ? REASON_RUNTIME_CRASH : REASON_LOST;
}

static void ignore_answer(void *data, const struct spawner_header *message)
{
	(void)data;
	(void)message;
}

/* One of those that nobody waits for. */
static bool is_nobodys(struct service *v, const struct spawner_ended *ended)
{
	enum dying_end end = dying_on_ended(v, ended->id);

	if (end == DYING_NOT && !pool_on_ended(v, ended->id))
		return false;
	if (end == DYING_UNWRITTEN)
		recover_keep_end(v, ended, REASON_EXITED);
	else if (end == DYING_NOT)
		box_release_end(v, ended->id);
	link_create_more(v->link);
	pool_refill(v);
	return true;
}

void box_leave(struct box *b)
{
	struct service *v = b->service;
	uint64_t losses = v->store_losses;
	char id[40];

	memcpy(id, b->stored.id, sizeof id);
	b->stored.verdict = REASON_EXITED;
	finish(b, REASON_EXITED, NULL); /* its run is told, and commits both ends */
	dying_add(v, id, service_commit(v) == 0 && v->store_losses == losses);
}

void box_on_ended(struct service *v, const struct spawner_ended *ended)
{
	struct box *b = box_find(v, ended->id);
	uint64_t losses = v->store_losses;
	int verdict = -1;

	if (!b && is_nobodys(v, ended))
		return;
	if (b) {
		box_hold(b); /* until its end is released */
		b->counters = ended->counters;
		b->has_counters = true;
		enum reason reason = box_judge_end(&b->stored, ended);

		verdict = (int)reason;
		finish(b, reason,
		       reason == REASON_EXITED ? NULL : codes[reasons[reason].code].people);
	} else {
		recover_end(v, ended, -1);
	}
	/* Only after it is on disk may the spawner forget it; who was told may have committed already. */
	if (service_commit(v) < 0 || v->store_losses != losses) {
		recover_keep_end(v, ended, verdict);
		if (b)
			box_release(b);
	} else if (b) {
		network_hear_out(b);
	} else {
		box_release_end(v, ended->id);
	}
}

void box_release_end(struct service *v, const char *id)
{
	if (link_ask(v->link, SPAWNER_RELEASE, id, ignore_answer, NULL) < 0)
		return; /* it is told again after the next HELLO */
}

void box_write_again(struct box *b)
{
	put(b);
}

void box_end(struct box *b, enum reason verdict)
{
	if (b->killing || b->stored.state == STATE_ENDED)
		return;
	b->killing = true;
	b->stored.verdict = (int)verdict;
	put_now(b);
	arm(b);
	/* One that is still being made is killed when it is; a line that is down comes back (recover.c). */
	if ((b->stored.state != STATE_CREATING || b->pulling) &&
	    link_ask(b->service->link, SPAWNER_KILL, b->stored.id, ignore_answer, NULL) < 0)
		log_event("kill.delayed", json_pack("{ss}", "sandbox", b->stored.id));
}

void box_lost(struct service *v, struct stored_sandbox *stored, enum reason why)
{
	struct err e = {0};

	stored->state = STATE_ENDED;
	stored->reason = stored->verdict >= 0 ? (enum reason)stored->verdict : why;
	stored->ended_ms = wall_ms();
	if (store_begin(v->store, &e) < 0 || store_sandbox_put(v->store, stored, &e) < 0)
		store_failed(v, &e);
	audit(v, "system", stored->session, "sandbox.end", stored->id,
	      json_pack("{ss}", "reason", reasons[stored->reason].name));
}

/* ---- making ---- */

static void made(struct box *b, const struct spawner_created *c)
{
	b->created = *c;
	box_keep_enforced(b);
	box_keep_enforced_text(b);
	network_open(b);
	b->stored.state = STATE_RUNNING;
	b->pulling = false;
	free(TAKE_PTR(b->stored.message));
	begin_life(b);
	box_take_image(b);
	put(b);
	b->service->metrics.sandboxes_created++;
	histogram_add(&b->service->metrics.create, now_us() - b->asked_us);
	if (b->killing) {
		b->killing = false;
		box_end(b, (enum reason)b->stored.verdict);
	}
	if (!b->stored.one_shot) {
		start_clock(b);
		arm(b);
	}
	event_emit(b->service, "sandbox.created", b, NULL, NULL);
	tell(b, &b->made);
}

/* What is wrong with what was asked for (a volume that is not there, or not allowed) against what failed. */
static bool is_of_the_request(int errnum)
{
	static const int wrong[] = {0,     EPERM, EACCES, ENOENT,      ENOTDIR,
				    ELOOP, EXDEV, EINVAL, ENAMETOOLONG};

	for (size_t i = 0; i < ARRAY_SIZE(wrong); i++)
		if (wrong[i] == errnum)
			return true;
	return false;
}

void box_on_pulling(struct service *v, const char *id)
{
	struct box *b = box_find(v, id);

	if (!b || b->stored.state != STATE_CREATING)
		return;
	b->pulling = true;
	free(b->stored.message);
	b->stored.message = strdup("its image is being pulled");
	put(b);
	audit(v, b->stored.owner, b->stored.session, "image.pull", b->stored.id,
	      json_pack("{ss}", "image", b->spec.image));
	if (b->killing && link_ask(v->link, SPAWNER_KILL, id, ignore_answer, NULL) < 0)
		log_event("kill.delayed", json_pack("{ss}", "sandbox", id));
}

static void not_made(struct box *b, const struct spawner_refused *r)
{
	enum reason reason = r->code == CODE_SANDBOX_IMAGE_MISSING ? REASON_IMAGE_MISSING
			     : r->code == CODE_SANDBOX_RUNTIME_UNAVAILABLE
				     ? REASON_RUNTIME_UNAVAILABLE
				     : REASON_CREATE_FAILED;

	if (b->killing && r->code == CODE_SANDBOX_KILLED) {
		finish(b, (enum reason)b->stored.verdict, r->text);
		return;
	}
	if (reason == REASON_CREATE_FAILED) /* others have none */
		memcpy(b->stage, r->stage, sizeof b->stage);
	b->errnum = (int)r->errnum;
	b->failed_code = (enum code)r->code;
	if ((strcmp(r->stage, "volume") == 0 || strcmp(r->stage, STAGE_RULES) == 0) &&
	    is_of_the_request((int)r->errnum))
		b->failed_code = CODE_NONE;
	if (r->code == CODE_NONE && !is_of_the_request((int)r->errnum))
		b->failed_code = CODE_SANDBOX_CREATE_FAILED;
	b->refused = true;
	finish(b, reason, r->text);
}

static void on_made(void *data, const struct spawner_header *message)
{
	struct box *b = data;

	if (b->joins && message && message->type == SPAWNER_REFUSED &&
	    b->stored.state == STATE_CREATING && !b->killing &&
	    box_ask_without_zygote(b, on_made) == 0)
		return;
	/* The spawner went away: whether it was made, its successor knows (recover.c). */
	if (!message)
		b->unsure = true;
	else if (b->stored.state == STATE_CREATING && message->type == SPAWNER_CREATED)
		made(b, (const struct spawner_created *)message);
	else if (b->stored.state == STATE_CREATING && message->type == SPAWNER_REFUSED)
		not_made(b, (const struct spawner_refused *)message);
	box_release(b);
}

/* From the pool: it is there already, and written down together with the run that is its reason. */
static bool take_prepared(struct box *b, struct spawner_create *c, const struct pool_want *want)
{
	struct pool_handed handed;
	struct err ignored;

	if (b->spec.network.mode != NETWORK_NONE || box_fill_create(c, b, NULL, 0, &ignored) < 0) {
		*c = (struct spawner_create){0};
		return false;
	}
	c->pull = 0; /* nothing is pulled for nobody, and whose image is there needs no pull */
	if (!pool_take(b->service, c, want, &handed)) {
		b->joins = pool_would_join(b->service, c, want);
		*c = (struct spawner_create){0};
		return false;
	}
	memcpy(b->stored.id, handed.created.id, sizeof b->stored.id);
	b->waiting = handed.number;
	b->joins = handed.joined && !handed.number;
	memcpy(b->waiting_run, handed.run_id, sizeof b->waiting_run);
	insert(b);
	snprintf(b->ctl, sizeof b->ctl, "%s/sandboxes/%s/ctl", b->service->config.runtime_dir,
		 b->stored.id);
	if (handed.talk)
		box_take_idle(b, handed.talk);
	b->counter_fds = handed.counters;
	made(b, &handed.created);
	return true;
}

struct box *box_create(struct service *v, struct stored_sandbox *stored, struct spec *spec,
		       uint64_t disk_bytes, uint64_t life_us, json_t *metadata,
		       const struct pool_want *want, const char *const *fd_boxes, const int *fds,
		       size_t fd_count, uid_t fd_owner, struct err *e)
{
	_cleanup_free_ struct spawner_create *c = calloc(1, sizeof *c);
	struct box *b = calloc(1, sizeof *b);

	if (!b || !c) {
		free(b);
		stored_sandbox_done(stored);
		spec_done(spec);
		err_set(e, ENOMEM, "make a sandbox");
		e->code = PROBLEM_UNAVAILABLE;
		return NULL;
	}
	b->service = v;
	b->counter_fds = counters_none();
	b->stored = TAKE(*stored, (struct stored_sandbox){0});
	b->spec = TAKE(*spec, (struct spec){0});
	b->disk_bytes = disk_bytes;
	b->life_us = life_us;
	b->metadata = metadata ? json_incref(metadata) : json_object();
	b->stored.verdict = -1;
	b->asked_us = now_us();
	b->fd_owner = fd_owner;
	if (want && fd_count == 0 && spec->volume_count == 0 && take_prepared(b, c, want)) {
		b->references++;
		return b;
	}
	make_object_id(b->stored.id, "sbx_");
	insert(b);
	snprintf(b->ctl, sizeof b->ctl, "%s/sandboxes/%s/ctl", v->config.runtime_dir, b->stored.id);
	if (box_fill_create(c, b, fd_boxes, fd_count, e) == 0) {
		b->texts_are_old = true;
		put(b);
		if (service_record(v, e) < 0) {
			take_out(b);
			box_release(b);
			return NULL;
		}
		b->references += 2; /* the caller's, and the spawner's answer's */
		if (box_ask(b, c, fds, fd_count, on_made) == 0)
			return b;
		b->references -= 2;
		problem_set(e, PROBLEM_UNAVAILABLE, "the spawner does not answer; try again");
		finish(b, REASON_CREATE_FAILED, e->text);
		return NULL;
	}
	take_out(b);
	box_release(b);
	return NULL;
}

/* ---- pause and use ---- */

static char *why_not_changed(const struct box *b, bool pausing,
			     const struct spawner_header *message)
{
	const struct spawner_refused *r = (const struct spawner_refused *)message;
	bool refused = message && message->type == SPAWNER_REFUSED;
	char *text;

	if (asprintf(&text, "sandbox %s was not %s: %s", b->stored.id,
		     pausing ? "paused" : "resumed",
		     refused ? r->text : "the spawner went away meanwhile") < 0)
		return NULL;
	return text;
}

static void on_paused(void *data, const struct spawner_header *message)
{
	struct box *b = data;
	bool done = message && message->type == SPAWNER_DONE;
	bool pausing = b->pause_wanted > 0, touched = TAKE(b->touched, false);

	b->pause_wanted = 0;
	if (b->stored.state == STATE_ENDED) {
		box_release(b);
		return;
	}
	if (done) {
		b->stored.state = pausing ? STATE_PAUSED : STATE_RUNNING;
		b->stored.paused_ms = pausing ? wall_ms() : 0;
		b->paused_us = now_us();
		if (!pausing)
			begin_life(b);
		put(b);
		event_emit(b->service, pausing ? "sandbox.paused" : "sandbox.resumed", b, NULL,
			   NULL);
	}
	arm(b);
	if (!done)
		b->not_changed = why_not_changed(b, pausing, message);
	tell(b, pausing ? &b->paused : &b->resumed);
	free(TAKE_PTR(b->not_changed));
	tell(b, b->stored.state == STATE_PAUSED ? &b->paused : &b->resumed);
	if (touched || b->resumed)
		box_resume(b); /* what was said to init meanwhile waits in its socket */
	else if (b->paused)
		box_pause(b);
	box_release(b);
}

static void ask_pause(struct box *b, bool pause)
{
	b->pause_wanted = pause ? 1 : -1;
	box_hold(b);
	if (link_ask(b->service->link, pause ? SPAWNER_PAUSE : SPAWNER_RESUME, b->stored.id,
		     on_paused, b) < 0)
		on_paused(b, NULL);
}

void box_pause(struct box *b)
{
	if (state_next(b->stored.state, EVENT_PAUSE) >= 0 && !b->pause_wanted && !b->killing)
		ask_pause(b, true);
}

void box_resume(struct box *b)
{
	if (state_next(b->stored.state, EVENT_RESUME) >= 0 && !b->pause_wanted && !b->killing)
		ask_pause(b, false);
}

int box_touch(struct box *b, struct err *e)
{
	b->idle_at_us = now_us();
	if (b->stored.state == STATE_ENDED || b->killing)
		return problem_set(e, PROBLEM_SANDBOX_ENDED, "sandbox %s has ended", b->stored.id);
	if (b->stored.state == STATE_CREATING)
		return problem_set(e, PROBLEM_CONFLICT, "sandbox %s is still being made",
				   b->stored.id);
	if (b->stored.state != STATE_PAUSED && b->pause_wanted <= 0)
		return 0;
	if (!b->stored.resume_on_touch)
		return problem_set(e, PROBLEM_CONFLICT, "sandbox %s is paused: POST …/resume first",
				   b->stored.id);
	b->touched = b->pause_wanted > 0; /* it can be resumed only when it is paused */
	box_resume(b);                    /* what is said to init meanwhile waits in its socket */
	return 0;
}

void box_renew(struct box *b, uint64_t life_us, uint64_t idle_us)
{
	if (life_us != UINT64_MAX)
		b->life_us = life_us;
	if (idle_us != UINT64_MAX)
		b->stored.idle_timeout_ms = (int64_t)((idle_us + 999) / 1000);
	begin_life(b);
	put(b);
	arm(b);
	event_emit(b->service, "sandbox.renewed", b, NULL, NULL);
}

/* ---- after a restart ---- */

struct box *box_adopt(struct service *v, struct stored_sandbox *stored,
		      const struct spawner_live *live, struct err *e)
{
	struct box *b = calloc(1, sizeof *b);

	if (!b) {
		err_set(e, ENOMEM, "adopt sandbox %s", stored->id);
		return NULL;
	}
	b->service = v;
	b->counter_fds = counters_none();
	b->stored = TAKE(*stored, (struct stored_sandbox){0});
	if (box_restore_spec(b, e) < 0) {
		box_free(b);
		return NULL;
	}
	go_on_living(b);
	b->created = live->created;
	box_keep_enforced(b);
	insert(b);
	network_open(b);
	snprintf(b->ctl, sizeof b->ctl, "%s/sandboxes/%s/ctl", v->config.runtime_dir, b->stored.id);
	b->stored.state = live->paused ? STATE_PAUSED : STATE_RUNNING;
	b->idle_at_us = b->paused_us = now_us();
	b->admitted = quota_adopt(v->quotas, b->stored.owner, b->stored.session,
				  &(struct quota_need){b->spec.memory_bytes, b->spec.cpus_millis,
						       b->disk_bytes},
				  now_us()) == 0;
	if (!b->stored.one_shot) {
		start_clock(b);
		arm(b);
	}
	if (b->stored.verdict >= 0) {
		int verdict = b->stored.verdict;

		box_end(b, (enum reason)verdict);
	}
	return b;
}

void box_reconcile(struct box *b, const struct spawner_live *live)
{
	struct spawner_refused gone = {.code = CODE_SANDBOX_CREATE_FAILED,
				       .stage = "spawner",
				       .text = "the spawner was restarted meanwhile"};

	if (b->stored.state == STATE_CREATING) {
		if (!b->unsure)
			return; /* asked for after it came back */
		b->unsure = false;
		if (live)
			made(b, &live->created);
		else
			not_made(b, &gone);
		return;
	}
	if (!live) { /* its end was seen by nobody */
		finish(b, b->stored.verdict >= 0 ? (enum reason)b->stored.verdict : REASON_LOST,
		       codes[CODE_SANDBOX_LOST].people);
		return;
	}
	if (!b->pause_wanted && live->paused != (b->stored.state == STATE_PAUSED)) {
		b->stored.state =
			live->paused ? STATE_PAUSED : STATE_RUNNING; /* its answer was lost */
		b->paused_us = now_us();
		put(b);
		arm(b);
	}
	if (b->killing &&
	    link_ask(b->service->link, SPAWNER_KILL, b->stored.id, ignore_answer, NULL) < 0)
		log_event("kill.delayed", json_pack("{ss}", "sandbox", b->stored.id));
}

/* ---- what can be read without privileges ---- */
