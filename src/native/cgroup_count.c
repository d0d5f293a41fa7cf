/* SPDX-License-Identifier: Apache-2.0 */
/* cgroup_count.c - what a cgroup has counted, by the names that cgroup v1 and v2 have for it. */
#include "native/cgroup.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/units.h"
#include "native/sandbox.h"

/* The number behind "key " at the start of a line (key "": the file's only number). */
static uint64_t find_counter(char *text, const char *key)
{
	char *p = text;
	size_t n = strlen(key);
	uint64_t value;

	while (n && p && !(strncmp(p, key, n) == 0 && p[n] == ' ')) {
		p = strchr(p, '\n');
		p = p ? p + 1 : NULL;
	}
	if (!p)
		return UINT64_MAX;
	p += n ? n + 1 : 0;
	p[strcspn(p, "\n")] = '\0';
	return parse_count(p, 0, INT64_MAX, &value) == 0 ? value : UINT64_MAX;
}

/* One read gives all that the kernel has to say: it is shorter than a page. */
static uint64_t read_open(int fd, const char *key)
{
	char text[4096];
	ssize_t n = fd < 0 ? -1 : pread(fd, text, sizeof text - 1, 0);

	if (n < 0)
		return UINT64_MAX;
	text[n] = '\0';
	return find_counter(text, key);
}

uint64_t cgroup_count(int dir, const char *file, const char *key)
{
	_cleanup_close_ int fd = dir < 0 ? -1 : openat(dir, file, O_RDONLY | O_CLOEXEC);

	return read_open(fd, key);
}

static uint64_t or_zero(uint64_t v)
{
	return v == UINT64_MAX ? 0 : v;
}

/* Our own init is one of the processes counted. */
static uint64_t without_init(uint64_t pids)
{
	return pids == UINT64_MAX || pids == 0 ? pids : pids - 1;
}

/* What is counted where. memory.failcnt of v1 stays 0 when memory plus swap is the same limit: the peak tells. */
static const struct {
	enum controller controller;
	const char *name[2], *key[2]; /* v1, v2 */
} counter_files[COUNTER_FILES] = {
	[COUNT_CPU] = {CPUACCT, {"cpuacct.usage", "cpu.stat"}, {"", "usage_usec"}},
	[COUNT_PIDS_EVENTS] = {PIDS, {"pids.events", "pids.events"}, {"max", "max"}},
	[COUNT_PIDS_PEAK] = {PIDS, {"pids.peak", "pids.peak"}, {"", ""}},
	[COUNT_MEMORY_EVENTS] = {MEMORY,
				 {"memory.oom_control", "memory.events"},
				 {"oom_kill", "oom_kill"}},
	[COUNT_MEMORY_PEAK] = {MEMORY, {"memory.max_usage_in_bytes", "memory.peak"}, {"", ""}},
};

const char *counter_name(enum counter_file f, bool v2)
{
	return counter_files[f].name[v2];
}

enum controller counter_controller(enum counter_file f)
{
	return counter_files[f].controller;
}

uint64_t cgroup_read_number(int fd)
{
	return read_open(fd, "");
}

static uint64_t count_in(const int fds[COUNTER_FILES], enum counter_file f, bool v2)
{
	return read_open(fds[f], counter_files[f].key[v2]);
}

void cgroup_read_files(const int fds[COUNTER_FILES], bool v2, uint64_t memory_limit,
		       struct cgroup_counters *ret)
{
	uint64_t cpu = count_in(fds, COUNT_CPU, v2);

	*ret = (struct cgroup_counters){
		.cpu_us = v2 || cpu == UINT64_MAX ? cpu : cpu / 1000,
		.pids_hit = or_zero(count_in(fds, COUNT_PIDS_EVENTS, v2)) > 0,
		.pids_peak = without_init(count_in(fds, COUNT_PIDS_PEAK, v2)),
		.oom_kills = or_zero(count_in(fds, COUNT_MEMORY_EVENTS, v2)),
		.memory_peak_bytes = count_in(fds, COUNT_MEMORY_PEAK, v2),
	};
	ret->memory_hit = ret->oom_kills > 0;
	if (v2)
		ret->memory_hit |= or_zero(read_open(fds[COUNT_MEMORY_EVENTS], "max")) > 0;
	else
		ret->memory_hit |= ret->memory_peak_bytes != UINT64_MAX &&
				   ret->memory_peak_bytes >= memory_limit;
}

static int counter_folder(const struct cgroup *c, enum counter_file f)
{
	return c->host->version == CGROUP_V2 ? c->dir : c->v1[counter_files[f].controller];
}

static int open_counter(const struct cgroup *c, enum counter_file f)
{
	int dir = counter_folder(c, f);
	bool v2 = c->host->version == CGROUP_V2;

	return dir < 0 ? -1 : openat(dir, counter_name(f, v2), O_RDONLY | O_CLOEXEC);
}

uint64_t cgroup_cpu_us(const struct cgroup *c)
{
	bool v2 = c->host->version == CGROUP_V2;
	uint64_t n = cgroup_count(counter_folder(c, COUNT_CPU), counter_name(COUNT_CPU, v2),
				  counter_files[COUNT_CPU].key[v2]);

	return v2 || n == UINT64_MAX ? n : n / 1000;
}

void cgroup_read(const struct cgroup *c, struct cgroup_counters *r)
{
	int fds[COUNTER_FILES];

	for (int f = 0; f < COUNTER_FILES; f++)
		fds[f] = open_counter(c, (enum counter_file)f);
	cgroup_read_files(fds, c->host->version == CGROUP_V2,
			  c->has[MEMORY] ? c->memory_limit : UINT64_MAX, r);
	for (int f = 0; f < COUNTER_FILES; f++)
		fd_close(&fds[f]);
}

void cgroup_read_now(const struct cgroup *c, uint64_t *ret_memory_bytes, uint64_t *ret_pids)
{
	bool v2 = c->host->version == CGROUP_V2;

	*ret_memory_bytes = cgroup_count(v2 ? c->dir : c->v1[MEMORY],
					 v2 ? "memory.current" : "memory.usage_in_bytes", "");
	*ret_pids = without_init(cgroup_count(v2 ? c->dir : c->v1[PIDS], "pids.current", ""));
}
