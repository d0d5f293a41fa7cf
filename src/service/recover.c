/* SPDX-License-Identifier: Apache-2.0 */
/*
 * recover.c - after a restart of cloched, or of the spawner: what is written down against what lives.
 *
 *	in the store alive, and at the spawner   adopted: its clocks go on, its commands are found by tag
 *	in the store alive, and nowhere          lost, unless a verdict had been written down before
 *	at the spawner, and not in the store     killed: nobody could ever ask for it
 *
 * Nothing is served before this is done for the first time.
 */
#include "service/recover.h"

#include <signal.h>
#include <string.h>

#include "service/box.h"
#include "service/kept.h"
#include "service/run.h"
#include "service/tell.h"

enum { LIVE_MAX = 65536, RUNS_MAX = 1000, AGAIN_MS = 1000, SILENT_S = 10 };

struct list {
	struct service *service;
	struct spawner_live *live;
	bool *used;
	size_t count, room;
};

static const struct spawner_live *take_live(struct list *l, const char *id)
{
	for (size_t i = 0; i < l->count; i++)
		if (!l->used[i] && strcmp(l->live[i].created.id, id) == 0) {
			l->used[i] = true;
			return &l->live[i];
		}
	return NULL;
}

/* ---- commands of an adopted sandbox ---- */

struct wanted {
	struct stored_run run;
	bool found;
};

struct search {
	struct box *box;
	struct wanted *runs;
	size_t count, room;
};

static int add_run(const struct stored_run *r, void *data)
{
	struct search *s = data;
	struct stored_run *to;

	if (s->count == s->room) {
		size_t room = s->room ? s->room * 2 : 4;
		struct wanted *more = realloc(s->runs, room * sizeof *more);

		if (!more)
			return 1;
		s->runs = more;
		s->room = room;
	}
	s->runs[s->count].found = false;
	to = &s->runs[s->count].run;
	*to = *r;
	to->owner = strdup(r->owner);
	to->session = r->session ? strdup(r->session) : NULL;
	to->kind = strdup(r->kind ? r->kind : "run");
	to->input_sha256 = r->input_sha256 ? strdup(r->input_sha256) : NULL;
	to->result = r->result ? strdup(r->result) : NULL;
	to->artifact_path = r->artifact_path ? strdup(r->artifact_path) : NULL;
	to->limits = r->limits ? strdup(r->limits) : NULL;
	to->error_code = NULL;
	s->count++;
	return 0;
}

static void search_done(struct search *s)
{
	struct service *v = s->box->service;
	bool one_shot = s->box->stored.one_shot, running = false;

	for (size_t i = 0; i < s->count; i++) {
		if (!s->runs[i]
			     .found) /* asked for, and never begun; or it has gone with its sandbox */
			run_lost(v, &s->runs[i].run, REASON_LOST);
		running = running || s->runs[i].found;
		stored_run_done(&s->runs[i].run);
	}
	free(s->runs);
	if (one_shot && !running)
		box_end(s->box, REASON_LOST);
	box_release(s->box);
	free(s);
}

/* The rest of its input was in the request, which is gone: it would wait for that until its time is up. */
static bool has_lost_its_input(const struct stored_run *run, const struct command_record *r)
{
	return r->running && r->flags & INPUT_IS_CUT && run_limits_have_input(run->limits);
}

static void found(struct search *s, struct wanted *w, const struct command_record *r)
{
	struct kill_record k = {r->number, SIGKILL, 1};

	if (has_lost_its_input(&w->run, r)) {
		tell_init(s->box, FRAME_KILL, &k, sizeof k);
		return; /* and is lost in search_done() */
	}
	w->found = true;
	run_adopt(s->box, &w->run, r);
}

static void on_frame(struct talk *t, const struct frame *f, const unsigned char *payload)
{
	struct search *s = talk_data(t);
	struct command_record r;

	if (f->type == FRAME_COMMAND && command_record_decode(payload, f->size, &r) == 0) {
		if (r.flags & START_WAITS) /* prepared, and never used: it has run nothing */
			return;
		for (size_t i = 0; i < s->count; i++)
			if (!s->runs[i].found && strcmp(s->runs[i].run.id, r.tag) == 0)
				found(s, &s->runs[i], &r);
		return;
	}
	box_hang_up(s->box, t);
	search_done(s);
}

static void on_end(struct talk *t, int error)
{
	struct search *s = talk_data(t);

	(void)error;
	box_hang_up(s->box, t);
	search_done(s);
}

static const struct talk_ops search_ops = {.on_frame = on_frame, .on_end = on_end};

static void find_commands(struct box *b)
{
	struct search *s = calloc(1, sizeof *s);
	struct err e = {0};
	struct talk *t;

	if (!s)
		return;
	s->box = b;
	box_hold(b);
	if (store_run_list(b->service->store, b->stored.id, true, RUNS_MAX, add_run, s, &e) < 0)
		store_failed(b->service, &e);
	if (s->count == 0 && !b->stored.one_shot) {
		free(s->runs);
		box_release(b);
		free(s);
		return;
	}
	t = box_talk(b, &search_ops, s, &e);
	if (!t) {
		search_done(s);
		return;
	}
	talk_limit(t, SILENT_S);
	talk_send(t, FRAME_LIST, NULL, 0, NULL, 0);
}

/* ---- sandboxes ---- */

/* Its sandbox is gone for this reason: so are its runs. */
static void lose_runs(struct service *v, const char *sandbox, enum reason why)
{
	struct search s = {.box = NULL};
	struct err e = {0};

	if (store_run_list(v->store, sandbox, true, RUNS_MAX, add_run, &s, &e) < 0)
		store_failed(v, &e);
	for (size_t i = 0; i < s.count; i++) {
		run_lost(v, &s.runs[i].run, why);
		stored_run_done(&s.runs[i].run);
	}
	free(s.runs);
}

static int copy_sandbox(const struct stored_sandbox *from, struct stored_sandbox *to)
{
	const char *const texts[] = {from->owner,    from->session, from->spec,   from->labels,
				     from->enforced, from->usage,   from->message};
	char **copies[] = {&to->owner,    &to->session, &to->spec,   &to->labels,
			   &to->enforced, &to->usage,   &to->message};

	*to = *from;
	for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
		*copies[i] = texts[i] ? strdup(texts[i]) : NULL;
	return 0;
}

static int settle(const struct stored_sandbox *stored, void *data)
{
	struct list *l = data;
	struct service *v = l->service;
	struct box *known = box_find(v, stored->id);
	const struct spawner_live *live;
	struct stored_sandbox copy;
	struct err e = {0};
	struct box *b;

	if (stored->state == STATE_ENDED)
		return 0;
	live = take_live(l, stored->id);
	if (known) { /* only the spawner was away */
		box_reconcile(known, live);
		return 0;
	}
	copy_sandbox(stored, &copy);
	kept_know_owner(v, copy.owner);
	if (live && stored->state != STATE_CREATING && (b = box_adopt(v, &copy, live, &e))) {
		find_commands(b);
		return 0;
	}
	/* One that was still being made is nobody's yet: it is killed below. */
	if (live)
		for (size_t i = 0; i < l->count; i++)
			if (&l->live[i] == live)
				l->used[i] = false;
	box_lost(v, &copy, REASON_LOST);
	lose_runs(v, copy.id, copy.reason);
	stored_sandbox_done(&copy);
	return 0;
}

static void ignore_answer(void *data, const struct spawner_header *message)
{
	(void)data;
	(void)message;
}

int ids_add(const struct stored_sandbox *s, void *data)
{
	struct ids *ids = data;

	memcpy(ids->id[ids->count++], s->id, sizeof ids->id[0]);
	return ids->count == sizeof ids->id / sizeof *ids->id;
}

/* One page of one state; how many there were, and the last of them. */
static size_t settle_page(struct list *l, int state, char last[40])
{
	struct sandbox_filter f = {
		.state = state, .with_one_shot = true, .after = last, .limit = 1000};
	_cleanup_free_ struct ids *ids = calloc(1, sizeof *ids);
	struct service *v = l->service;
	struct err e = {0};

	if (!ids || store_sandbox_list(v->store, &f, ids_add, ids, &e) < 0)
		return 0;
	for (size_t i = 0; i < ids->count; i++) {
		struct stored_sandbox s = {0};

		if (store_sandbox_get(v->store, ids->id[i], &s, &e) == 0)
			settle(&s, l);
		stored_sandbox_done(&s);
	}
	if (ids->count)
		memcpy(last, ids->id[ids->count - 1], 40);
	return ids->count;
}

static void settle_all(struct list *l)
{
	struct service *v = l->service;

	for (int state = STATE_CREATING; state < STATE_ENDED; state++) {
		char last[40] = "";

		while (settle_page(l, state, last) == 1000)
			;
	}
	for (size_t i = 0; i < l->count; i++)
		if (!l->used[i] && !box_find(v, l->live[i].created.id)) {
			log_event("sandbox.unknown",
				  json_pack("{ss}", "sandbox", l->live[i].created.id));
			if (link_ask(v->link, SPAWNER_KILL, l->live[i].created.id, ignore_answer,
				     NULL) < 0)
				break;
		}
}

static void on_live(void *data, const struct spawner_header *message)
{
	struct list *l = data;

	if (message && message->type == SPAWNER_LIVE) {
		if (l->count == l->room) {
			size_t room = l->room ? l->room * 2 : 64;
			void *live =
				room <= LIVE_MAX ? realloc(l->live, room * sizeof *l->live) : NULL;
			void *used = live ? realloc(l->used, room * sizeof *l->used) : NULL;

			l->live = live ? live : l->live;
			l->used = used ? used : l->used;
			if (!live || !used)
				return; /* not in the list: lost, and killed at the next start */
			l->room = room;
		}
		l->used[l->count] = false;
		l->live[l->count++] = *(const struct spawner_live *)message;
		return;
	}
	if (message) {
		settle_all(l);
		service_commit(l->service);
		service_is_ready(l->service);
	}
	free(l->live);
	free(l->used);
	free(l);
}

/* ---- ends that nobody here was waiting for ---- */

/* It ended while we were away, and the spawner knows how: that is better than "lost". */
void recover_end(struct service *v, const struct spawner_ended *ended, int verdict)
{
	struct stored_sandbox s = {0};
	struct err e = {0};

	if (store_sandbox_get(v->store, ended->id, &s, &e) != 0)
		return;
	if (s.state != STATE_ENDED && s.state != STATE_CREATING) {
		s.verdict = s.verdict < 0 ? verdict : s.verdict;
		box_lost(v, &s, box_judge_end(&s, ended));
		lose_runs(v, s.id, s.reason);
	}
	stored_sandbox_done(&s);
}

/* ---- when the store has failed ---- */

/* An end that the spawner has told, and that could not be written down. */
struct unwritten {
	struct unwritten *next;
	struct spawner_ended ended;
	int verdict;
};

void recover_keep_end(struct service *v, const struct spawner_ended *ended, int verdict)
{
	struct unwritten *u;

	for (u = v->unwritten; u; u = u->next)
		if (strcmp(u->ended.id, ended->id) == 0)
			return;
	u = malloc(sizeof *u);
	if (!u)
		return; /* the spawner keeps it, and tells it after the next start */
	*u = (struct unwritten){v->unwritten, *ended, verdict};
	v->unwritten = u;
}

static void write_all(struct service *v)
{
	for (size_t i = 0; i < ARRAY_SIZE(v->boxes); i++)
		for (struct box *b = v->boxes[i]; b; b = b->next)
			box_write_again(b);
	for (struct run *r = v->runs; r; r = r->next)
		run_write_again(r);
	for (struct unwritten *u = v->unwritten; u; u = u->next)
		recover_end(v, &u->ended, u->verdict);
	audit(v, "system", NULL, "state.written_again", "state", NULL);
}

static void on_again(uv_timer_t *t)
{
	struct service *v = t->data;
	struct unwritten *u;

	write_all(v);
	if (service_commit(v) < 0)
		return; /* which has started the clock again */
	log_event("store.again", NULL);
	for (struct run *r = v->runs, *next; r; r = next) {
		next = r->next;
		run_written(r);
	}
	while ((u = v->unwritten)) {
		v->unwritten = u->next;
		box_release_end(v, u->ended.id);
		free(u);
	}
}

void recover_store(struct service *v)
{
	if (!v->stopping && !uv_is_active((uv_handle_t *)&v->again))
		uv_timer_start(&v->again, on_again, AGAIN_MS, 0);
}

void recover(struct service *v)
{
	struct list *l = calloc(1, sizeof *l);

	if (!l)
		return;
	l->service = v;
	if (link_list(v->link, on_live, l) < 0)
		free(l);
}
