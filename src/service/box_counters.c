/* SPDX-License-Identifier: Apache-2.0 */
/*
 * box_counters.c - a sandbox's counters, read where everybody may.
 *
 * To open one of the files takes five times as long as to read it: those of a busy sandbox stay open between two of its
 * commands, and those of a one-shot are opened while its code runs.
 */
#include <string.h>

#include "base/fd.h"
#include "service/box.h"

/* How many sandboxes' counters stay open. */
#define COUNTERS_OPEN 64

static bool keeps_open(struct box *b)
{
	struct service *v = b->service;

	if (!b->counters_open && v->counters_open < COUNTERS_OPEN) {
		v->counters_open++;
		b->counters_open = true;
	}
	return b->counters_open;
}

static int counter_fd(struct box *b, enum counter_file f)
{
	if (b->counter_fds[f] < 0)
		b->counter_fds[f] = counters_open(&b->created, f);
	return b->counter_fds[f];
}

static void let_go(struct box *b)
{
	for (int f = 0; f < COUNTER_FILES; f++)
		fd_close(&b->counter_fds[f]);
}

static bool read_one(struct box *b, enum counter_file f, bool keep, struct cgroup_counters *ret)
{
	int fds[COUNTER_FILES];

	memset(fds, -1, sizeof fds);
	fds[f] = counter_fd(b, f);
	cgroup_read_files(fds, counters_are_v2(&b->created), UINT64_MAX, ret);
	if (!b->counters_open && !(keep && keeps_open(b)))
		let_go(b);
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
	for (int f = 0; f < COUNTER_FILES && keeps_open(b); f++)
		counter_fd(b, (enum counter_file)f);
}

bool box_read_counters(struct box *b)
{
	struct spawner_counters c;
	bool known;

	for (int f = 0; f < COUNTER_FILES; f++)
		counter_fd(b, (enum counter_file)f);
	known = counters_read(&b->created, b->counter_fds, b->spec.memory_bytes, &c);
	if (!b->counters_open)
		let_go(b);
	if (known) {
		b->counters = c;
		b->has_counters = true;
	}
	return known;
}

void box_close_counters(struct box *b)
{
	let_go(b);
	b->service->counters_open -= b->counters_open;
	b->counters_open = false;
}
