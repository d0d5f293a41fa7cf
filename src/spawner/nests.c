/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nests.c - which nest host makes what: a tenant's own, renewed by count and age.
 *
 * Children of one zygote have the same string hashes and the same layout of memory. So a tenant has its own, and
 * after MADE_MAX children or AGE_MS another one: the old one gets no new jobs, does those it was given, and ends with the
 * last of its sandboxes. One that was started before the host's packages or the operator's file have changed ends, too: modules,
 * libraries and policy of an older one are what they were; what waits there is refused, and of what it prepares meanwhile nothing is handed over.
 * A host that fails a job is not asked again either. A tenant gets a second one when the first is behind (a host does
 * one job after the other), and one that is near its end gets a successor, which has to be there before it goes. Both begin with a job that
 * nobody waits for, as their zygote has to start. Two that share the work would come to their ends
 * together, so whoever comes to help has half as many children as the others.
 */
#include "spawner/spawner.h"

#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd.h"
#include "spawner/nest_host.h"

enum {
	MADE_MAX = 1000,
	AGE_MS = 600000,
	IDLE_MS = 600000,
	JOB_LIMIT_MS = 90000, /* a zygote's imports are in it */
	STOP_LIMIT_MS = 3000,
	OF_TENANT_MAX = 2, /* beside those that are near their end */
	BEHIND = 3,        /* jobs that wait */
	/* So much before its end it gets a successor. */
	MADE_BEFORE = 100,
	AGE_BEFORE_MS = 20000,
};

static void refuse(struct spawner *s, const struct queued *q, int errnum, const char *why)
{
	struct err e = {0};

	err_set(&e, errnum, "%s: %s", q->job->request.id, why);
	e.code = CODE_SANDBOX_CREATE_FAILED;
	client_refuse(s, q->client, q->job->request.header.sequence, &e);
}

static void pop(struct nest_slot *n)
{
	job_free(n->queue[0].job);
	n->queue_count--;
	memmove(n->queue, n->queue + 1, n->queue_count * sizeof *n->queue);
	n->kill_when_made = false;
}

/* The last ones, all but so many. */
static void refuse_waiting(struct spawner *s, struct nest_slot *n, size_t but)
{
	while (n->queue_count > but) {
		const struct queued *q = &n->queue[--n->queue_count];

		refuse(s, q, EAGAIN, "its zygote is not asked again");
		job_free(q->job);
	}
}

static void drop_places(struct spawner *s, struct nest_slot *n)
{
	char name[32];

	while (n->place_count) {
		struct nest_place *p = &n->places[--n->place_count];

		cgroup_name(name, p->slot, p->realm);
		if (cgroup_remove(&s->host, name) < 0)
			s->sweep_ms = now_ms() + SWEEP_DELAY_MS;
		fd_close(&p->lock);
	}
}

bool nests_keep_place(struct box *b)
{
	struct nest_slot *n = b->nest;

	if (!n || n->retired || n->jobs < 0 || b->frozen || b->elsewhere || b->lock < 0 ||
	    n->place_count == NEST_PLACES_MAX)
		return false;
	n->places[n->place_count++] =
		(struct nest_place){b->meta.slot, b->meta.realm, TAKE_FD(b->lock)};
	return true;
}

/* With the socket the host ends. */
static void end(struct spawner *s, struct nest_slot *n, const char *why)
{
	drop_places(s, n);
	if (n->queue_count) /* what it was making is known by its folder */
		box_adopt(s, n->queue[0].job->request.id, true);
	while (n->queue_count) {
		refuse(s, &n->queue[0], EIO, why);
		pop(n);
	}
	spawner_unwatch(s, &n->jobs);
	n->retired = true;
	n->used = n->live > 0 || n->pid > 0;
}

static void end_if_done(struct spawner *s, struct nest_slot *n)
{
	if (n->used && n->retired && n->queue_count == 0 && n->live == 0)
		end(s, n, "");
}

static void retire(struct spawner *s, struct nest_slot *n)
{
	drop_places(s, n);
	n->retired = true;
	end_if_done(s, n);
}

static void send_first(struct spawner *s, struct nest_slot *n)
{
	static struct nest_job j;
	_cleanup_close_ int lock = -1;

	if (n->queue_count == 0)
		return;
	j = (struct nest_job){.create = n->queue[0].job->request};
	if (n->place_count) {
		const struct nest_place *p = &n->places[--n->place_count];

		j.has_place = 1;
		j.slot = p->slot;
		j.realm = p->realm;
		lock = p->lock;
	}
	n->deadline_ms = now_ms() + JOB_LIMIT_MS;
	if (nest_job_send(n->jobs, &j, lock) < 0)
		end(s, n, "the host of prepared sandboxes has ended");
}

static struct nest_origin origin_now(const struct spawner *s)
{
	struct nest_origin o = {.policy = s->policy.readings};

	packages_state_now(&o.packages);
	return o;
}

static bool is_outdated(const struct nest_slot *n, const struct nest_origin *now)
{
	return memcmp(&n->origin, now, sizeof *now) != 0;
}

static bool is_old(const struct nest_slot *n)
{
	return n->made >= n->made_max || now_ms() - n->started_ms > AGE_MS;
}

static bool is_near_its_end(const struct nest_slot *n)
{
	return n->made >= n->made_max - MADE_BEFORE ||
	       now_ms() - n->started_ms > AGE_MS - AGE_BEFORE_MS;
}

/* Is n the better one to ask? One that has made nothing yet only when there is no other; the one with less to do; the one
 * that ends sooner. */
static bool is_better(const struct nest_slot *n, const struct nest_slot *found)
{
	if (!found || !n->made || !found->made)
		return !found || n->made > found->made;
	return n->queue_count < found->queue_count ||
	       (n->queue_count == found->queue_count && is_near_its_end(n));
}

/* A tenant's. *ret_count: how many there are that are not near their end. */
static struct nest_slot *find(struct spawner *s, const char *tenant, size_t *ret_count)
{
	const struct nest_origin now = origin_now(s);
	struct nest_slot *found = NULL;

	*ret_count = 0;
	for (struct nest_slot *n = s->nests; n < s->nests + NESTS_MAX; n++) {
		bool outdated;

		if (!n->used || n->retired || strcmp(n->tenant, tenant) != 0)
			continue;
		outdated = is_outdated(n, &now);
		if (outdated)
			refuse_waiting(s, n, 1);
		if (outdated || is_old(n)) {
			retire(s, n);
			continue;
		}
		*ret_count += !is_near_its_end(n);
		if (is_better(n, found))
			found = n;
	}
	return found;
}

/* A free place; else that of whoever has been idle for longest, for the next time. Not asker's. */
static struct nest_slot *find_place(struct spawner *s, const struct nest_slot *asker)
{
	struct nest_slot *oldest = NULL;
	bool one_goes = false;

	for (struct nest_slot *n = s->nests; n < s->nests + NESTS_MAX; n++) {
		bool idle = n->queue_count == 0 && n->live == 0;

		if (!n->used)
			return n;
		one_goes |= n->retired && idle;
		if (!n->retired && idle && n != asker && (!oldest || n->busy_ms < oldest->busy_ms))
			oldest = n;
	}
	if (oldest && !one_goes)
		retire(s, oldest);
	return NULL;
}

/* asker: for whose sake, NULL: the tenant has none. */
static struct nest_slot *start(struct spawner *s, const char *tenant, const struct nest_slot *asker,
			       size_t made_max)
{
	struct nest_slot *n = find_place(s, asker);
	struct err e = {0};

	if (!n)
		return NULL;
	*n = (struct nest_slot){
		.source = {SOURCE_NEST}, .jobs = -1, .made_max = made_max, .origin = origin_now(s)};
	if (nest_host_start(&s->place, &n->pid, &n->jobs, &e) < 0)
		return NULL;
	memcpy(n->tenant, tenant, sizeof n->tenant);
	n->used = true;
	n->started_ms = now_ms();
	if (spawner_watch(s, n->jobs, &n->source, EPOLLIN) == 0)
		return n;
	end(s, n, "");
	return NULL;
}

void nests_request(struct spawner *s, struct job *j)
{
	struct queued q = {j, s->client_number};
	size_t count;
	struct nest_slot *n = find(s, j->request.tenant, &count), *second = NULL;

	if (n && count < OF_TENANT_MAX && j->request.prepared) {
		if (is_near_its_end(n) && !n->followed) {
			second = start(s, j->request.tenant, n, MADE_MAX);
			n->followed = second != NULL;
		} else if (n->queue_count >= BEHIND) {
			second = start(s, j->request.tenant, n, MADE_MAX / 2);
		}
	}
	if (second)
		n = second;
	else if (!n)
		n = start(s, j->request.tenant, NULL, MADE_MAX);
	if (!n || n->queue_count == NEST_QUEUE_MAX) {
		refuse(s, &q, EAGAIN, "no host of prepared sandboxes is free");
		job_free(j);
		return;
	}
	n->busy_ms = now_ms();
	n->queue[n->queue_count++] = q;
	if (n->queue_count == 1)
		send_first(s, n);
}

/* Something was prepared for whoever comes after the change. */
static bool is_too_late(struct spawner *s, const struct nest_slot *n)
{
	struct nest_origin now;
	struct err ignored;

	if (!n->queue[0].job->request.prepared)
		return false;
	if (policy_refresh(&s->policy, &ignored) < 0)
		return true;
	now = origin_now(s);
	return is_outdated(n, &now);
}

/* False: not to be handed over, and nothing else of this host's. */
static bool made(struct spawner *s, struct nest_slot *n, const struct worker_report *r, int pidfd,
		 int lock)
{
	const struct queued *q = &n->queue[0];
	bool late = is_too_late(s, n);
	struct box *b = creation_made(s, late ? 0 : q->client, q->job->request.header.sequence,
				      n->kill_when_made, r, pidfd, lock, false);

	n->made++;
	if (b) {
		b->nest = n;
		n->live++;
	}
	if (late) /* nobody's, and so killed */
		refuse(s, q, EAGAIN, "packages or the operator's file have changed");
	return !late;
}

void nests_event(struct spawner *s, struct nest_slot *n)
{
	static struct worker_report r;
	int pidfd = -1, lock = -1;
	int got = worker_receive(n->jobs, &r, &pidfd, &lock);
	const struct queued *q = &n->queue[0];
	bool good = false;

	if (got == 0)
		return;
	if (got < 0 || n->queue_count == 0) {
		end(s, n, "the host of prepared sandboxes has ended");
		return;
	}
	if (r.made) {
		good = made(s, n, &r, pidfd, lock);
	} else {
		creation_refused(s, q->client, q->job->request.header.sequence, &r);
		s->sweep_ms =
			now_ms() + SWEEP_DELAY_MS; /* the cgroup of a place that it was given */
	}
	pop(n);
	if (good) {
		send_first(s, n);
		end_if_done(s, n); /* an old one */
	} else {
		refuse_waiting(s, n, 0);
		retire(s, n);
	}
}

void nests_box_gone(struct spawner *s, struct nest_slot *n)
{
	n->live--;
	if (n->jobs < 0)
		n->used = n->live > 0 || n->pid > 0;
	else
		end_if_done(s, n);
}

void nests_worker_ended(struct spawner *s, pid_t pid)
{
	for (struct nest_slot *n = s->nests; n < s->nests + NESTS_MAX; n++)
		if (n->used && n->pid == pid) {
			n->pid = 0;
			end(s, n, "the host of prepared sandboxes has ended");
			s->sweep_ms = now_ms() +
				      SWEEP_DELAY_MS; /* its own cgroup, and what it was making */
		}
}

static void cancel_waiting(struct spawner *s, struct nest_slot *n, size_t i)
{
	creation_cancelled(s, &n->queue[i]);
	n->queue_count--;
	memmove(n->queue + i, n->queue + i + 1, (n->queue_count - i) * sizeof *n->queue);
}

bool nests_pending(struct spawner *s, const char *id, bool cancel)
{
	for (struct nest_slot *n = s->nests; n < s->nests + NESTS_MAX; n++)
		for (size_t i = 0; n->used && i < n->queue_count; i++) {
			if (strcmp(n->queue[i].job->request.id, id) != 0)
				continue;
			if (cancel && i == 0)
				n->kill_when_made = true;
			else if (cancel)
				cancel_waiting(s, n, i);
			return true;
		}
	return false;
}

uint64_t nests_deadlines(struct spawner *s, uint64_t now)
{
	uint64_t next = UINT64_MAX;

	for (struct nest_slot *n = s->nests; n < s->nests + NESTS_MAX; n++) {
		if (!n->used || n->jobs < 0)
			continue;
		if (n->queue_count && now >= n->deadline_ms) {
			if (n->pid > 0)
				kill(n->pid, SIGKILL);
			end(s, n, "the host of prepared sandboxes does not answer");
			continue;
		}
		if (!n->queue_count && !n->live && now >= n->busy_ms + IDLE_MS) {
			retire(s, n);
			continue;
		}
		if (n->queue_count && n->deadline_ms < next)
			next = n->deadline_ms;
		if (!n->queue_count && !n->live && n->busy_ms + IDLE_MS < next)
			next = n->busy_ms + IDLE_MS;
	}
	return next;
}

/* A host with everything that it made. */
static void wait_for_host(const struct nest_slot *n, uint64_t until)
{
	_cleanup_close_ int pidfd = (int)syscall(SYS_pidfd_open, n->pid, 0);
	struct pollfd p = {.fd = pidfd, .events = POLLIN};
	uint64_t now = now_ms();

	if (pidfd >= 0)
		poll(&p, 1, now < until ? (int)(until - now) : 0);
}

/* What a host has made dies with it, and no slot of a dead sandbox is held any more: so a sweep finds their
 * cgroups. The folders of those that were somebody's stay and tell it. */
bool nests_stop(struct spawner *s)
{
	uint64_t until = now_ms() + STOP_LIMIT_MS;
	bool any = false;

	for (struct nest_slot *n = s->nests; n < s->nests + NESTS_MAX; n++)
		if (n->used)
			spawner_unwatch(s, &n->jobs);
	for (struct nest_slot *n = s->nests; n < s->nests + NESTS_MAX; n++) {
		if (!n->used)
			continue;
		drop_places(s, n);
		any = true;
		if (n->pid > 0)
			wait_for_host(n, until);
		for (size_t i = 0; i < n->queue_count; i++) /* made, and nobody's */
			worker_remove_folder(s->place.sandboxes, n->queue[i].job->request.id);
	}
	for (size_t i = 0; any && i < BOX_BUCKETS; i++)
		for (struct box *b = s->buckets[i]; b; b = b->next)
			if (b->nest)
				fd_close(&b->lock);
	return any;
}
