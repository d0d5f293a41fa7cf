/* SPDX-License-Identifier: Apache-2.0 */
/*
 * box_counters.c - a sandbox's counters, read where everybody may.
 *
 * To open one of the files takes five times as long as to read it: those of a busy sandbox stay open between two of its
 * commands. Those of a one-shot are opened while it waits to be handed over, or else when its code has been sent: whom that
 * wakes is often put on our processor, and has to wait until we sleep.
 */
#include <string.h>

#include "base/fd.h"
#include "service/box.h"

/* How many sandboxes' counters stay open; of those that wait to be handed over more are opened only below the second. */
enum { COUNTERS_OPEN = 64, COUNTERS_AHEAD = 32 };

static bool may_stay(struct service *v, struct counter_fds *c, unsigned most)
{
	if (!c->stay && v->counters_open < most) {
		v->counters_open++;
		c->stay = true;
	}
	return c->stay;
}

static void open_all(const struct spawner_created *s, struct counter_fds *c)
{
	for (int f = 0; f < COUNTER_FILES; f++)
		if (c->fd[f] < 0)
			c->fd[f] = counters_open(s, (enum counter_file)f);
}

static void close_all(struct counter_fds *c)
{
	for (int f = 0; f < COUNTER_FILES; f++)
		fd_close(&c->fd[f]);
}

void counters_open_ahead(struct service *v, const struct spawner_created *s, struct counter_fds *c)
{
	if (may_stay(v, c, COUNTERS_AHEAD))
		open_all(s, c);
}

void counters_let_go(struct service *v, struct counter_fds *c)
{
	close_all(c);
	v->counters_open -= c->stay;
	c->stay = false;
}

static int counter_fd(struct box *b, enum counter_file f)
{
	int *fd = &b->counter_fds.fd[f];

	if (*fd < 0)
		*fd = counters_open(&b->created, f);
	return *fd;
}

static bool read_one(struct box *b, enum counter_file f, bool keep, struct cgroup_counters *ret)
{
	int fds[COUNTER_FILES];

	memset(fds, -1, sizeof fds);
	fds[f] = counter_fd(b, f);
	cgroup_read_files(fds, counters_are_v2(&b->created), UINT64_MAX, ret);
	if (!b->counter_fds.stay && !(keep && may_stay(b->service, &b->counter_fds, COUNTERS_OPEN)))
		close_all(&b->counter_fds);
	return fds[f] >= 0;
}

bool box_oom_count(struct box *b, uint64_t *ret)
{
	struct cgroup_counters c;

	if (!read_one(b, COUNT_MEMORY_EVENTS, true, &c))
		return false;
	*ret = c.oom_kills;
	return true;
}

bool box_cpu_us(struct box *b, uint64_t *ret)
{
	struct cgroup_counters c;

	if (!read_one(b, COUNT_CPU, false, &c) || c.cpu_us == UINT64_MAX)
		return false;
	*ret = c.cpu_us;
	return true;
}

void box_open_counters(struct box *b)
{
	if (may_stay(b->service, &b->counter_fds, COUNTERS_OPEN))
		open_all(&b->created, &b->counter_fds);
}

bool box_read_counters(struct box *b)
{
	struct spawner_counters c;
	bool known;

	open_all(&b->created, &b->counter_fds);
	known = counters_read(&b->created, &b->counter_fds, b->spec.memory_bytes, &c);
	if (!b->counter_fds.stay)
		close_all(&b->counter_fds);
	if (known) {
		b->counters = c;
		b->has_counters = true;
	}
	return known;
}

void box_close_counters(struct box *b)
{
	counters_let_go(b->service, &b->counter_fds);
}
