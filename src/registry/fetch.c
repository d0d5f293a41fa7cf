/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fetch.c - blobs into sinks, some at a time.
 *
 * A job is one blob at one source. What a source cannot give is asked of the next one, from where it stopped: the
 * digest says what it has to be, whoever sends it. When the digest is wrong in the end, nobody knows which of the
 * parts was: if there was more than one, the same source gets a second chance for the whole.
 */
#include "registry/inside.h"

#include <stdio.h>
#include <string.h>

#include "base/fd.h"

enum { PARALLEL = 3, PARALLEL_MAX = 16, PROGRESS_US = 100000 };

struct job {
	struct registry *r;
	struct registry_blob *blob;
	struct request q;
	char path[16 + DIGEST_TEXT];
	size_t tried;  /* sources, the current one included */
	bool in_parts; /* not all of it came in one piece from the current source */
	bool active;
};

struct fetching {
	struct registry *r;
	struct registry_blob *blobs;
	size_t count, next;
	struct job jobs[PARALLEL_MAX];
	unsigned width;
	uint64_t reported_at;
};

static int take(void *context, const void *data, size_t size, struct err *e)
{
	struct job *j = context;

	if (j->blob->sink.write(j->blob->sink.context, data, size, e) < 0)
		return -1;
	j->blob->done += size;
	return 0;
}

static int restart(void *context, struct err *e)
{
	struct job *j = context;

	if (j->blob->sink.restart(j->blob->sink.context, e) < 0)
		return -1;
	j->blob->done = 0;
	j->in_parts = false;
	return 0;
}

static void report(struct fetching *f, bool now)
{
	struct registry_progress p = {.blobs = f->blobs, .blob_count = f->count};
	const struct registry_options *o = &f->r->options;
	uint64_t time = now_us();

	if (!o->progress || (!now && time < f->reported_at + PROGRESS_US))
		return;
	f->reported_at = time;
	for (size_t i = 0; i < f->count; i++) {
		p.total += f->blobs[i].what.size;
		p.done += f->blobs[i].done;
	}
	for (unsigned i = 0; i < f->width; i++) {
		p.active += f->jobs[i].active && f->jobs[i].q.running;
		if (f->jobs[i].active && f->jobs[i].q.again_at)
			p.waiting = f->jobs[i].q.err.text;
	}
	if (p.active)
		p.waiting = NULL;
	o->progress(o->progress_context, &p);
}

static struct source *source_of(struct job *j)
{
	struct registry *r = j->r;

	return &r->sources[(r->current + j->tried - 1) % r->source_count];
}

static void start_request(struct job *j)
{
	request_done(&j->q);
	j->q = (struct request){
		.r = j->r,
		.source = source_of(j),
		.path = j->path,
		.resumable = true,
		.spec =
			{
				.offset = j->blob->done,
				.size = j->blob->what.size,
				.body = take,
				.restart = restart,
				.context = j,
			},
	};
	request_start(&j->q);
}

static int fail(struct job *j, enum registry_cause cause)
{
	return registry_fail(j->r, cause);
}

static int keep(struct job *j, struct err *e);

/* All of it is there already, or nothing is needed for it. */
static int begin(struct job *j, struct err *e)
{
	snprintf(j->path, sizeof j->path, "blobs/%s", j->blob->what.digest);
	j->tried = 1;
	j->active = true;
	j->in_parts = j->blob->offset > 0;
	j->blob->done = j->blob->offset;
	if (j->blob->done > j->blob->what.size && restart(j, e) < 0)
		return fail(j, REGISTRY_SINK);
	if (j->blob->done == j->blob->what.size)
		return keep(j, e);
	start_request(j);
	return 0;
}

/* The digest is wrong. Once more, here or elsewhere. */
static int mend(struct job *j, struct err *e)
{
	bool again = j->in_parts;
	struct err storing;

	if (!again && j->tried >= j->r->source_count) {
		err_set(e, 0,
			"%s sends something else for the blob %.19s...; nothing of it is kept",
			source_of(j)->name, j->blob->what.digest);
		fail(j, REGISTRY_DIGEST);
		if (restart(j, &storing) < 0)
			*e = storing;
		return -1;
	}
	if (!again)
		j->tried++;
	if (restart(j, e) < 0)
		return fail(j, REGISTRY_SINK);
	start_request(j);
	return 0;
}

static int keep(struct job *j, struct err *e)
{
	bool mismatch = false;

	if (j->blob->sink.finish(j->blob->sink.context, &mismatch, e) == 0) {
		j->blob->finished = true;
		j->active = false;
		request_done(&j->q);
		return 0;
	}
	return mismatch ? mend(j, e) : fail(j, REGISTRY_SINK);
}

static int end_job(struct job *j, struct err *e)
{
	if (j->q.cause == REGISTRY_NONE) {
		if (j->q.tries > 1 + j->q.logins)
			j->in_parts = true;
		/* a server without Range has sent it in one piece after all */
		if (j->q.t.offset == 0)
			j->in_parts = false;
		return keep(j, e);
	}
	if (cause_elsewhere(j->q.cause) && j->tried < j->r->source_count) {
		j->in_parts = j->blob->done > 0;
		j->tried++;
		start_request(j);
		return 0;
	}
	*e = j->q.err;
	return fail(j, j->q.cause);
}

static uint64_t wake_time(const struct fetching *f)
{
	/* Without a progress to show nobody needs to be woken. */
	uint64_t wake = f->r->options.progress ? now_us() + PROGRESS_US : UINT64_MAX;

	for (unsigned i = 0; i < f->width; i++)
		if (f->jobs[i].active && request_wakes_at(&f->jobs[i].q) < wake)
			wake = request_wakes_at(&f->jobs[i].q);
	return wake == UINT64_MAX ? 0 : wake;
}

/* Look after every job, and give the idle ones something to do. 1: all is done. */
static int turn(struct fetching *f, struct err *e)
{
	bool busy = false;

	for (unsigned i = 0; i < f->width; i++) {
		struct job *j = &f->jobs[i];

		if (j->active && request_poll(&j->q)) {
			if (end_job(j, e) < 0)
				return -1;
			report(f, true);
		}
		while (!j->active && f->next < f->count) {
			*j = (struct job){.r = f->r, .blob = &f->blobs[f->next++]};
			if (begin(j, e) < 0)
				return -1;
		}
		busy |= j->active;
	}
	return busy ? 0 : 1;
}

static int run(struct fetching *f, struct err *e)
{
	for (;;) {
		int r = turn(f, e);

		if (r != 0)
			return r < 0 ? -1 : 0;
		if (engine_step(&f->r->engine, wake_time(f), e) < 0)
			return registry_fail(f->r, f->r->engine.cause);
		report(f, false);
	}
}

int registry_fetch(struct registry *r, struct registry_blob *blobs, size_t count, struct err *e)
{
	struct fetching *f;
	char name[REFERENCE_TEXT];
	int result;

	r->cause = REGISTRY_NONE;
	if (!r->resolved) {
		err_set(e, 0, "registry_fetch() without registry_resolve()");
		return registry_fail(r, REGISTRY_INTERNAL);
	}
	f = calloc(1, sizeof *f);
	if (!f) {
		err_set(e, ENOMEM, "fetch an image");
		return registry_fail(r, REGISTRY_INTERNAL);
	}
	f->r = r;
	f->blobs = blobs;
	f->count = count;
	f->width = r->options.parallel ? r->options.parallel : PARALLEL;
	if (f->width > PARALLEL_MAX)
		f->width = PARALLEL_MAX;
	for (size_t i = 0; i < count; i++)
		blobs[i].done = blobs[i].offset < blobs[i].what.size ? blobs[i].offset : 0;
	result = run(f, e);
	for (unsigned i = 0; i < f->width; i++)
		request_done(&f->jobs[i].q);
	if (result == 0)
		report(f, true);
	free(f);
	if (result == 0)
		return 0;
	reference_familiar(&r->reference, name);
	return err_prefix(e, "%.300s", name);
}
