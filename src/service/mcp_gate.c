/* SPDX-License-Identifier: Apache-2.0 */
#include "service/mcp_gate.h"

#include <stdio.h>
#include <string.h>

#include "base/fd.h"
#include "service/box.h"
#include "service/mcp_worker.h"
#include "service/problem.h"

enum { BEAT_MS = 1000 };

static const char instructions[] =
	"Runs code in strict sandboxes. Print what you want to see; write plots and other files to /output. "
	"A failed program is told with its exit code and stderr: mend the program and run it again.";

/* A worker, and for whom it works. */
struct mcp_bench {
	struct mcp_bench *next;
	char owner[64];
	bool shared; /* by all requests of the stateless revision of its owner */
	unsigned channels;
	uint64_t used_us;
	struct mcp_worker *worker;
};

struct mcp_gate {
	struct mcp_place place;
	struct mcp_channel *channels;
	struct mcp_bench *benches;
	size_t sessions;
	uv_timer_t beat;
};

/* ---- the host of agent/mcp.h ---- */

static void on_send(void *context, json_t *message)
{
	mcp_said(context, message);
}

static void on_begin(void *context, struct mcp_call *c)
{
	struct mcp_channel *ch = context;

	mcp_worker_begin(ch->bench->worker, c);
}

static void on_cancel(void *context, struct mcp_call *c)
{
	(void)context;
	mcp_worker_cancel(c);
}

static json_t *on_resources(void *context)
{
	const struct mcp_channel *ch = context;

	return mcp_worker_resources(ch->bench->worker);
}

static const struct mcp_host host = {on_send, on_begin, on_cancel, on_resources};

/* ---- the gate ---- */

static void on_beat(uv_timer_t *timer);

static void say(const char *text)
{
	log_event("mcp.failed", json_pack("{ss}", "error", text));
}

static void after(void *context)
{
	gate_sweep(context);
}

static struct mcp_gate *gate_of(struct service *v)
{
	if (v->mcp)
		return v->mcp;
	v->mcp = calloc(1, sizeof *v->mcp);
	if (!v->mcp)
		return NULL;
	v->mcp->place = (struct mcp_place){&v->loop, v->http, &v->mcp_asks, say, after, v};
	uv_timer_init(&v->loop, &v->mcp->beat);
	v->mcp->beat.data = v;
	uv_unref((uv_handle_t *)&v->mcp->beat);
	return v->mcp;
}

/* ---- benches ---- */

static struct mcp_bench *bench_open(struct mcp_gate *g, const char *owner, bool admin, bool shared)
{
	struct mcp_bench *b = g->benches;

	while (b && !(shared && b->shared && strcmp(b->owner, owner) == 0))
		b = b->next;
	if (!b) {
		b = calloc(1, sizeof *b);
		if (!b)
			return NULL;
		snprintf(b->owner, sizeof b->owner, "%s", owner);
		b->shared = shared;
		b->worker = mcp_worker_new(&g->place, owner, admin);
		if (!b->worker) {
			free(b);
			return NULL;
		}
		b->next = g->benches;
		g->benches = b;
	}
	b->channels++;
	b->used_us = now_us();
	return b;
}

/* Its sandboxes are nobody's now. */
static void bench_free(struct service *v, struct mcp_bench *b)
{
	const char *id;

	for (size_t i = 0; (id = mcp_worker_kept(b->worker, i)); i++) {
		struct box *box = box_find(v, id);

		if (!box || box->stored.state == STATE_ENDED)
			continue;
		audit(v, b->owner, box->stored.session, "sandbox.kill", id, NULL);
		snprintf(box->killer, sizeof box->killer, "%s", b->owner);
		box_end(box, REASON_KILLED);
	}
	mcp_worker_free(b->worker);
	free(b);
}

static void sweep_benches(struct service *v)
{
	for (struct mcp_bench **at = &v->mcp->benches; *at;) {
		struct mcp_bench *b = *at;
		bool idle = !b->shared || now_us() - b->used_us > GATE_IDLE_US;

		if (b->channels || !idle) {
			at = &b->next;
			continue;
		}
		*at = b->next;
		bench_free(v, b);
	}
}

/* ---- channels ---- */

static size_t sessions_of(const struct mcp_gate *g, const char *owner)
{
	size_t n = 0;

	for (const struct mcp_channel *ch = g->channels; ch; ch = ch->next)
		n += *ch->id && !ch->over && strcmp(ch->owner, owner) == 0;
	return n;
}

static int no_memory(struct err *e)
{
	return problem_set(e, PROBLEM_UNAVAILABLE, "out of memory");
}

static int channel_fill(struct mcp_gate *g, struct mcp_channel *ch, bool admin, struct err *e)
{
	struct mcp_options how = {.instructions = instructions, .asked_only = true};

	ch->bench = bench_open(g, ch->owner, admin, !*ch->id);
	if (!ch->bench)
		return no_memory(e);
	how.view = mcp_worker_view(ch->bench->worker);
	ch->mcp = mcp_new(&how, &host, ch);
	return ch->mcp ? 0 : no_memory(e);
}

static void channel_free(struct mcp_channel *ch)
{
	mcp_free(ch->mcp);
	if (ch->bench)
		ch->bench->channels--;
	free(ch);
}

struct mcp_channel *gate_open(struct service *v, const char *owner, bool admin, bool session,
			      struct err *e)
{
	struct mcp_gate *g = gate_of(v);
	struct mcp_channel *ch = g ? calloc(1, sizeof *ch) : NULL;

	if (!ch) {
		no_memory(e);
		return NULL;
	}
	if (session &&
	    (g->sessions >= GATE_SESSIONS || sessions_of(g, owner) >= GATE_SESSIONS_OF_ONE)) {
		free(ch);
		problem_set(e, PROBLEM_TOO_MANY_REQUESTS,
			    "too many MCP sessions: end one with DELETE, or wait");
		return NULL;
	}
	ch->service = v;
	ch->used_us = now_us();
	snprintf(ch->owner, sizeof ch->owner, "%s", owner);
	if (session)
		make_object_id(ch->id, "mcp_");
	if (channel_fill(g, ch, admin, e) < 0) {
		channel_free(ch);
		return NULL;
	}
	g->sessions += session;
	ch->next = g->channels;
	g->channels = ch;
	if (!uv_is_active((uv_handle_t *)&g->beat))
		uv_timer_start(&g->beat, on_beat, BEAT_MS, BEAT_MS);
	return ch;
}

struct mcp_channel *gate_find(struct service *v, const char *owner, const char *id)
{
	struct mcp_channel *ch = v->mcp ? v->mcp->channels : NULL;

	while (ch &&
	       (ch->over || !*ch->id || strcmp(ch->id, id) != 0 || strcmp(ch->owner, owner) != 0))
		ch = ch->next;
	if (ch)
		ch->used_us = ch->bench->used_us = now_us();
	return ch;
}

void gate_sweep(struct service *v)
{
	if (!v->mcp)
		return;
	for (struct mcp_channel **at = &v->mcp->channels; *at;) {
		struct mcp_channel *ch = *at;

		if (!ch->over || ch->posts) {
			at = &ch->next;
			continue;
		}
		*at = ch->next;
		v->mcp->sessions -= *ch->id != '\0';
		channel_free(ch);
	}
	sweep_benches(v);
}

static void on_beat(uv_timer_t *timer)
{
	struct service *v = timer->data;

	for (struct mcp_bench *b = v->mcp->benches; b; b = b->next)
		mcp_worker_beat(b->worker);
	for (struct mcp_channel *ch = v->mcp->channels; ch; ch = ch->next)
		if (*ch->id && !ch->posts && now_us() - ch->used_us > GATE_IDLE_US)
			ch->over = true;
	gate_sweep(v);
	if (!v->mcp->channels && !v->mcp->benches)
		uv_timer_stop(timer);
}
