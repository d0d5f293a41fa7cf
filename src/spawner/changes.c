/* SPDX-License-Identifier: Apache-2.0 */
/*
 * changes.c - NETWORK: other rules for a sandbox that runs, checked against the policy as it is now, and carried out by a child:
 * reading a credential's source and the answer of the process that connects may take a while. Whatever fails, the old
 * rules hold, or, when that process is gone, nothing is let out at all; only of one that does not answer is it not known.
 */
#include "spawner/spawner.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"

struct report {
	uint32_t done;
	struct err err;
};

static struct change *free_change(struct spawner *s)
{
	for (size_t i = 0; i < CHANGES_MAX; i++)
		if (!s->changes[i].used)
			return &s->changes[i];
	return NULL;
}

__attribute__((noreturn)) static void work(const struct spawner *s, const struct spawner_change *m,
					   const struct spec *spec, int out)
{
	struct report r = {0};
	int folder =
		openat(s->place.sandboxes, m->id, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	if (folder < 0)
		err_set(&r.err, errno, "open the folder of %s", m->id);
	else
		r.done = egress_change(folder, &s->policy, spec, m->network.owner, &r.err) == 0;
	_exit(send(out, &r, sizeof r, MSG_NOSIGNAL) < 0);
}

static int start(struct spawner *s, struct change *c, const struct spawner_change *m,
		 const struct spec *spec, struct err *e)
{
	int p[2], keep[2];
	pid_t parent = getpid();

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, p) < 0)
		return err_set(e, errno, "make a socket pair");
	c->pid = fork();
	if (c->pid == 0) {
		worker_become_child(parent);
		keep[0] = p[1];
		keep[1] = s->place.sandboxes;
		worker_close_others(keep, 2);
		work(s, m, spec, p[1]);
	}
	close(p[1]);
	c->report = p[0];
	if (c->pid > 0 && spawner_watch(s, c->report, &c->source, EPOLLIN) == 0)
		return 0;
	err_set(e, errno, "start a child");
	if (c->pid > 0)
		kill(c->pid, SIGKILL);
	fd_close(&c->report);
	return -1;
}

static int check(struct spawner *s, const struct spawner_change *m, struct spec *spec,
		 struct err *e)
{
	const struct box *b = box_find(s, m->id);

	if (!b || b->state != BOX_LIVE || b->silent)
		return err_set(e, ESRCH, "%s", m->id);
	if (strncmp(b->meta.created.enforced.network, "egress", 6) != 0)
		return err_set(e, EINVAL, "%s was made without a network", m->id);
	return policy_refresh(&s->policy, e) < 0 ? -1 : change_check(&s->policy, m, spec, e);
}

void changes_request(struct spawner *s, const struct spawner_change *m)
{
	struct change *c = free_change(s);
	struct spec spec = {0};
	struct err e = {0};
	int r = c ? check(s, m, &spec, &e)
		  : err_set(&e, EAGAIN, "%d changes are under way", CHANGES_MAX);

	if (r == 0) {
		*c = (struct change){.source = {SOURCE_CHANGE},
				     .client = s->client_number,
				     .sequence = m->header.sequence,
				     .deadline_ms = now_ms() + CHANGE_DEADLINE_MS};
		r = start(s, c, m, &spec, &e);
		c->used = r == 0;
	}
	spec_done(&spec);
	if (r < 0)
		client_refuse(s, s->client_number, m->header.sequence, &e);
}

static void over(struct spawner *s, struct change *c)
{
	spawner_unwatch(s, &c->report);
	c->used = false;
}

void changes_event(struct spawner *s, struct change *c)
{
	struct report r;
	ssize_t n = recv(c->report, &r, sizeof r, MSG_DONTWAIT);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n != sizeof r) {
		r = (struct report){0};
		err_set(&r.err, 0,
			"the change was given up: it is not known whether the old or the new rules "
			"hold, change them again or end the sandbox");
	}
	r.err.text[sizeof r.err.text - 1] = r.err.stage[sizeof r.err.stage - 1] = '\0';
	if (r.done)
		client_done(s, c->client, c->sequence);
	else
		client_refuse(s, c->client, c->sequence, &r.err);
	over(s, c);
}

void changes_worker_ended(struct spawner *s, pid_t pid)
{
	for (size_t i = 0; i < CHANGES_MAX; i++)
		if (s->changes[i].used && s->changes[i].pid == pid)
			s->changes[i].pid = 0;
}

uint64_t changes_deadlines(struct spawner *s, uint64_t now)
{
	uint64_t next = UINT64_MAX;

	for (size_t i = 0; i < CHANGES_MAX; i++) {
		struct change *c = &s->changes[i];

		if (!c->used)
			continue;
		if (now >= c->deadline_ms) { /* its end is read as the report that never came */
			if (c->pid > 0)
				kill(c->pid, SIGKILL);
			c->deadline_ms = now + CHANGE_DEADLINE_MS;
		}
		if (c->deadline_ms < next)
			next = c->deadline_ms;
	}
	return next;
}
