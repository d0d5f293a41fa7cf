/* SPDX-License-Identifier: Apache-2.0 */
/*
 * counters.c - a sandbox's cgroup, found by the files that the spawner named.
 *
 * On cgroup v2 all of them lie in one folder, on v1 in one per controller.
 */
#include "service/counters.h"

#include <fcntl.h>
#include <string.h>

#include "base/fd.h"
#include "native/sandbox.h"

struct counter_fds counters_none(void)
{
	struct counter_fds c = {.stay = false};

	memset(c.fd, -1, sizeof c.fd);
	return c;
}

/* What the spawner named, by the controller whose folder it lies in. */
static const char *named(const struct spawner_created *c, enum controller controller)
{
	return controller == MEMORY ? c->memory_events
	       : controller == PIDS ? c->pids_events
				    : c->cpu_usage;
}

bool counters_are_v2(const struct spawner_created *c)
{
	const char *name = strrchr(c->memory_events, '/');

	return name && strcmp(name, "/memory.events") == 0;
}

/* file, in the folder in which what the spawner named lies. */
static int open_beside(const char *path_named, const char *file)
{
	const char *slash = strrchr(path_named, '/');
	size_t n = slash ? (size_t)(slash + 1 - path_named) : 0;
	char path[320];

	if (n == 0 || n + strlen(file) >= sizeof path)
		return -1;
	memcpy(path, path_named, n);
	memcpy(path + n, file, strlen(file) + 1);
	return open(path, O_RDONLY | O_CLOEXEC);
}

int counters_open(const struct spawner_created *c, enum counter_file f)
{
	return open_beside(named(c, counter_controller(f)), counter_name(f, counters_are_v2(c)));
}

bool counters_read(const struct spawner_created *c, const struct counter_fds *fds,
		   uint64_t memory_limit, struct spawner_counters *ret)
{
	struct cgroup_counters r;

	cgroup_read_files(fds->fd, counters_are_v2(c), memory_limit, &r);
	*ret = (struct spawner_counters){
		.oom_kills = r.oom_kills,
		.cpu_us = r.cpu_us,
		.memory_peak_bytes = r.memory_peak_bytes,
		.pids_peak = r.pids_peak,
		.memory_hit = r.memory_hit,
		.pids_hit = r.pids_hit,
	};
	return fds->fd[COUNT_PIDS_EVENTS] >= 0 && fds->fd[COUNT_MEMORY_EVENTS] >= 0 &&
	       r.cpu_us != UINT64_MAX && r.memory_peak_bytes != UINT64_MAX;
}

uint64_t counters_memory_now(const struct spawner_created *c)
{
	_cleanup_close_ int fd = open_beside(
		c->memory_events, counters_are_v2(c) ? "memory.current" : "memory.usage_in_bytes");
	uint64_t n = cgroup_read_number(fd);

	return n == UINT64_MAX ? 0 : n;
}
