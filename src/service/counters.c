/* SPDX-License-Identifier: Apache-2.0 */
/*
 * counters.c - a sandbox's cgroup, found by the files that the spawner named.
 *
 * On cgroup v2 all of them lie in one folder, on v1 in one per controller. The folders are opened for the
 * reading only; cgroup_read() does not need more.
 */
#include "service/counters.h"

#include <fcntl.h>
#include <string.h>

#include "base/fd.h"
#include "native/sandbox.h"

static const struct cgroup_host hosts[] = {{.version = CGROUP_V1}, {.version = CGROUP_V2}};

/* The folder that a file lies in. */
static int open_folder(const char *file)
{
	const char *slash = strrchr(file, '/');
	char path[256];

	if (!slash || (size_t)(slash - file) >= sizeof path)
		return -1;
	memcpy(path, file, (size_t)(slash - file));
	path[slash - file] = '\0';
	return open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
}

static void open_cgroup(const struct spawner_created *c, struct cgroup *ret)
{
	const char *name = strrchr(c->memory_events, '/');
	bool v2 = name && strcmp(name, "/memory.events") == 0;

	*ret = (struct cgroup){.host = &hosts[v2], .dir = -1};
	for (int i = 0; i < CONTROLLER_COUNT; i++)
		ret->v1[i] = -1;
	if (v2) {
		ret->dir = open_folder(c->memory_events);
		return;
	}
	ret->v1[MEMORY] = open_folder(c->memory_events);
	ret->v1[PIDS] = open_folder(c->pids_events);
	ret->v1[CPUACCT] = open_folder(c->cpu_usage);
	ret->has[MEMORY] = ret->v1[MEMORY] >= 0;
}

bool counters_read(const struct spawner_created *c, uint64_t memory_limit,
		   struct spawner_counters *ret)
{
	struct cgroup_counters r;
	struct cgroup g;
	bool open;

	open_cgroup(c, &g);
	g.memory_limit = memory_limit;
	open = g.dir >= 0 || (g.v1[MEMORY] >= 0 && g.v1[PIDS] >= 0 && g.v1[CPUACCT] >= 0);
	if (open)
		cgroup_read(&g, &r);
	cgroup_close(&g);
	if (!open)
		return false;
	*ret = (struct spawner_counters){
		.oom_kills = r.oom_kills,
		.cpu_us = r.cpu_us,
		.memory_peak_bytes = r.memory_peak_bytes,
		.pids_peak = r.pids_peak,
		.memory_hit = r.memory_hit,
		.pids_hit = r.pids_hit,
	};
	return r.cpu_us != UINT64_MAX && r.memory_peak_bytes != UINT64_MAX;
}

uint64_t counters_memory_now(const struct spawner_created *c)
{
	uint64_t bytes = UINT64_MAX, pids;
	struct cgroup g;

	open_cgroup(c, &g);
	if (g.dir >= 0 || g.v1[MEMORY] >= 0)
		cgroup_read_now(&g, &bytes, &pids);
	cgroup_close(&g);
	return bytes == UINT64_MAX ? 0 : bytes;
}
