/* SPDX-License-Identifier: Apache-2.0 */
/* creation.c - from a CREATE to a sandbox: checked here, made by a worker, a few at a time. */
#include "spawner/spawner.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

void job_free(struct job *j)
{
	if (!j)
		return;
	for (size_t i = 0; i < j->fd_count; i++)
		fd_close(&j->fds[i]);
	spare_drop(&j->egress);
	spec_done(&j->spec);
	free(j);
}

static struct job *job_new(struct spawner *s, const struct spawner_create *m, int *fds,
			   size_t fd_count, struct err *e)
{
	struct job *j = calloc(1, sizeof *j);

	if (!j) {
		err_set(e, ENOMEM, "keep the request");
		return NULL;
	}
	j->egress = SPARE_EMPTY;
	j->request = *m;
	for (j->fd_count = 0; j->fd_count < fd_count; j->fd_count++)
		j->fds[j->fd_count] = TAKE_FD(fds[j->fd_count]);
	if (policy_refresh(&s->policy, e) < 0 ||
	    create_check(&s->policy, &j->request, fd_count, &j->spec, e) < 0) {
		job_free(j);
		return NULL;
	}
	return j;
}

/* What connects for it begins with it: while it waits in the queue it needs none. */
static int take_egress(struct spawner *s, struct job *j, struct err *e)
{
	if (j->spec.network.mode == NETWORK_NONE)
		return 0;
	if (spare_take(&s->spares, &s->places, s->policy.settings.uid_range, &j->egress, e) == 0)
		return 0;
	j->egress = SPARE_EMPTY;
	return err_stage(e, "network");
}

static void start(struct spawner *s, struct worker *w, struct queued *q)
{
	struct err e = {0};

	*w = (struct worker){.source = {SOURCE_WORKER},
			     .client = q->client,
			     .job = q->job,
			     .deadline_ms = now_ms() + CREATE_DEADLINE_MS};
	if (take_egress(s, q->job, &e) == 0 &&
	    worker_start(&s->place, q->job, &w->pid, &w->report, &e) == 0) {
		w->used = true;
		fd_close(&q->job->egress.process.setup); /* the worker has it: it ends with that */
		for (size_t i = 0; i < q->job->fd_count; i++)
			fd_close(&q->job->fds[i]); /* the worker has them */
		if (spawner_watch(s, w->report, &w->source, EPOLLIN) == 0)
			return;
		err_set(&e, errno, "watch a worker");
		kill(w->pid, SIGKILL);
		fd_close(&w->report);
		w->used = false;
	}
	e.code = CODE_SANDBOX_CREATE_FAILED;
	client_refuse(s, q->client, q->job->request.header.sequence, &e);
	job_free(q->job);
}

void creation_next(struct spawner *s)
{
	for (size_t i = 0; i < s->worker_count && s->queue_count; i++) {
		struct queued *q = &s->queue[s->queue_first];

		if (s->workers[i].used)
			continue;
		s->queue_first = (s->queue_first + 1) % QUEUE_MAX;
		s->queue_count--;
		start(s, &s->workers[i], q);
	}
}

static bool is_job(const struct job *j, const char *id)
{
	return j && strcmp(j->request.id, id) == 0;
}

void creation_cancelled(struct spawner *s, const struct queued *q)
{
	struct err e = {.code = CODE_SANDBOX_KILLED};

	snprintf(e.text, sizeof e.text, "%s: killed before it was made", q->job->request.id);
	client_refuse(s, q->client, q->job->request.header.sequence, &e);
	job_free(q->job);
}

bool creation_pending(struct spawner *s, const char *id, bool cancel)
{
	if (nests_pending(s, id, cancel) || pulls_pending(s, id, cancel))
		return true;
	for (size_t i = 0; i < WORKERS_MAX; i++)
		if (s->workers[i].used && is_job(s->workers[i].job, id)) {
			s->workers[i].kill_when_made |= cancel;
			return true;
		}
	for (size_t i = 0; i < s->queue_count; i++) {
		struct queued *q = &s->queue[(s->queue_first + i) % QUEUE_MAX];

		if (!is_job(q->job, id))
			continue;
		if (!cancel)
			return true;
		creation_cancelled(s, q);
		for (; i + 1 < s->queue_count; i++)
			s->queue[(s->queue_first + i) % QUEUE_MAX] =
				s->queue[(s->queue_first + i + 1) % QUEUE_MAX];
		s->queue_count--;
		return true;
	}
	return false;
}

static int check_queue(const struct spawner *s, struct err *e)
{
	if (s->queue_count < QUEUE_MAX)
		return 0;
	err_set(e, EAGAIN, "%d sandboxes wait to be made", QUEUE_MAX);
	return err_code(e, CODE_SANDBOX_QUOTA_EXCEEDED);
}

int creation_again(struct spawner *s, const struct queued *q, struct err *e)
{
	if (check_queue(s, e) < 0)
		return -1;
	s->queue[(s->queue_first + s->queue_count++) % QUEUE_MAX] = *q;
	return 0;
}

static int check_new(struct spawner *s, const char *id, struct err *e)
{
	if (box_find(s, id) || end_find(s, id) || creation_pending(s, id, false))
		return err_set(e, EEXIST, "%s", id);
	if (check_queue(s, e) < 0)
		return -1;
	if (s->box_count + s->queue_count + WORKERS_MAX >= s->box_max) {
		err_set(e, EMFILE, "%zu sandboxes: the limit of open files allows no more",
			s->box_count);
		return err_code(e, CODE_SANDBOX_QUOTA_EXCEEDED);
	}
	return 0;
}

void creation_request(struct spawner *s, const struct spawner_create *m, int *fds, size_t fd_count)
{
	struct err e = {0};
	struct job *j = NULL;

	if (check_new(s, m->id, &e) == 0)
		j = job_new(s, m, fds, fd_count, &e);
	if (!j) {
		client_refuse(s, s->client_number, m->header.sequence, &e);
		return;
	}
	if (j->request.zygote[0]) {
		nests_request(s, j);
		return;
	}
	s->queue[(s->queue_first + s->queue_count++) % QUEUE_MAX] =
		(struct queued){j, s->client_number};
}

struct box *creation_made(struct spawner *s, unsigned client, uint32_t sequence, bool kill,
			  const struct worker_report *r, int pidfd, int lock, bool ours)
{
	struct spawner_created c = r->meta.created;
	struct err e = {.code = CODE_SANDBOX_CREATE_FAILED};
	struct box *b = box_add(s, &r->meta, pidfd, lock);

	if (!b) {
		err_set(&e, ENOMEM, "keep %s", c.id);
		client_refuse(s, client, sequence, &e);
		return NULL;
	}
	b->ours = ours;
	c.header = (struct spawner_header){SPAWNER_CREATED, sequence};
	client_send(s, client, &c, sizeof c);
	/* Who asked may have been followed by another, who has had its list and would never hear of it. */
	b->silent = client != s->client_number;
	if (kill || b->silent)
		box_kill(b, s);
	return b;
}

void creation_refused(struct spawner *s, unsigned client, uint32_t sequence,
		      const struct worker_report *r)
{
	struct err e = r->err;

	e.text[sizeof e.text - 1] = e.stage[sizeof e.stage - 1] = '\0';
	if (e.code == CODE_NONE && e.errnum != EPERM)
		e.code = CODE_SANDBOX_CREATE_FAILED;
	client_refuse(s, client, sequence, &e);
}

void creation_worker_ended(struct spawner *s, pid_t pid)
{
	for (size_t i = 0; i < WORKERS_MAX; i++)
		if (s->workers[i].used && s->workers[i].pid == pid)
			s->workers[i].pid = 0;
}

/* Its number may be somebody else's once it was waited for. */
static void kill_worker(const struct worker *w)
{
	if (w->pid > 0)
		kill(w->pid, SIGKILL);
}

static void given_up(struct spawner *s, const struct worker *w)
{
	struct err e = {0};

	err_set(&e, ETIMEDOUT, "the creation of %s was given up", w->job->request.id);
	e.code = CODE_SANDBOX_CREATE_FAILED;
	client_refuse(s, w->client, w->job->request.header.sequence, &e);
}

/* The worker has failed, and says why (r) or was killed. What it may have made is known by its folder. */
static void failed(struct spawner *s, struct worker *w, const struct worker_report *r)
{
	if (!r) {
		kill_worker(w);
		box_adopt(s, w->job->request.id, true);
		given_up(s, w);
		s->sweep_ms = now_ms() + SWEEP_DELAY_MS;
		return;
	}
	if (r->err.code == CODE_SANDBOX_IMAGE_MISSING && !w->kill_when_made &&
	    pulls_take(s, w->job, w->client, &r->err)) {
		w->job = NULL;
		return;
	}
	creation_refused(s, w->client, w->job->request.header.sequence, r);
}

void creation_report(struct spawner *s, struct worker *w)
{
	static struct worker_report r;
	int pidfd = -1, lock = -1;
	int n = worker_receive(w->report, &r, &pidfd, &lock);

	if (n == 0)
		return;
	if (n == 1 && r.made) {
		fd_close(&w->job->egress.process.pidfd); /* it is the sandbox's from now on */
		creation_made(s, w->client, w->job->request.header.sequence, w->kill_when_made, &r,
			      pidfd, lock, true);
	} else {
		failed(s, w, n == 1 ? &r : NULL);
	}
	spawner_unwatch(s, &w->report);
	job_free(TAKE_PTR(w->job));
	w->used = false;
}

bool creation_runs(const struct spawner *s)
{
	for (size_t i = 0; i < WORKERS_MAX; i++)
		if (s->workers[i].used)
			return true;
	return false;
}

void creation_collect(struct spawner *s)
{
	for (size_t i = 0; i < WORKERS_MAX; i++)
		if (s->workers[i].used)
			creation_report(s, &s->workers[i]);
}

uint64_t creation_deadlines(struct spawner *s, uint64_t now)
{
	uint64_t next = UINT64_MAX;

	for (size_t i = 0; i < WORKERS_MAX; i++) {
		struct worker *w = &s->workers[i];

		if (!w->used)
			continue;
		if (now >= w->deadline_ms) { /* its end is read as the report that never came */
			kill_worker(w);
			given_up(s, w);
			w->client = 0; /* is answered */
			w->deadline_ms = now + CREATE_DEADLINE_MS;
		}
		if (w->deadline_ms < next)
			next = w->deadline_ms;
	}
	return next;
}
