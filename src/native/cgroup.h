/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cgroup.h - limits, counters and the kill, on cgroup v2, v1 and hybrid hosts.
 *
 * The supervisor owns the cgroup: made before the sandbox, judged by its counters, removed after it. On
 * v1 each controller is a tree of its own, and the controller-less v2 tree of a hybrid host, where
 * there is one, carries the kill (cgroup.kill works without controllers and is atomic).
 */
#ifndef NATIVE_CGROUP_H
#define NATIVE_CGROUP_H

#include <stdbool.h>
#include <stdint.h>

#include "native/slot.h"
#include "sandbox/places.h"
#include "sandbox/spec.h"

/* Set in the environment of a command that was started again in a scope asked for. */
#define CGROUP_SCOPE_MARK "CLOCHE_IN_SCOPE"

enum cgroup_version { CGROUP_NONE, CGROUP_V1, CGROUP_V2 };
enum controller { MEMORY, CPU, CPUACCT, PIDS, FREEZER, CONTROLLER_COUNT };

/* What this host and user have. Paths end below the mount, without a slash. */
struct cgroup_host {
	enum cgroup_version version;
	char unified[512];             /* parent of our v2 cgroups; "" if no v2 tree is usable */
	char v1[CONTROLLER_COUNT][64]; /* parents on v1; "" where the controller is missing */
	bool may_be_delegated;         /* rootless on v2: better to ask systemd for a scope first */
	char why_not[320];             /* when something is missing: cause and remedy */
};

struct cgroup {
	const struct cgroup_host *host;
	char name[32];              /* SLOT-REALM */
	int dir;                    /* our v2 directory, -1: none */
	int v1[CONTROLLER_COUNT];   /* our v1 directories, -1: none */
	bool has[CONTROLLER_COUNT]; /* limits that are in force */
	bool has_swap;
	bool host_without_swap;
	uint64_t memory_limit;
};

struct cgroup_counters {
	uint64_t oom_kills;                            /* 0 when it cannot be read */
	uint64_t cpu_us, memory_peak_bytes, pids_peak; /* UINT64_MAX: not to be had */
	bool memory_hit, pids_hit;
};

/* Look at the host, quickly. Never fails: what is missing is said in why_not. */
void cgroup_host_find(const struct places *places, struct cgroup_host *ret);

/* Make the v2 directory of this name (limits too, on a v2 host). What a killed run left there is
 * killed and removed first. 0; on a host without: 0 and dir -1. */
int cgroup_create(const struct cgroup_host *host, const struct slot *slot, const struct spec *s,
		  struct cgroup *ret, struct err *e) must_check;

/* v1, between create and create_v1: keep the controllers' directories that the last sandbox of this slot has left, if it
 * had these limits and they show nothing of it: nobody is in them, nothing ran into a limit, no more processes than every
 * sandbox has, less than 1 MB of memory that is still charged. Peaks and CPU time begin anew. Else they go. */
void cgroup_take_over(struct cgroup *c, const struct spec *s);

/* v1: make the controllers' directories and give the descriptors the sandbox's first process joins by,
 * at most CONTROLLER_COUNT. The caller closes them. */
int cgroup_create_v1(struct cgroup *c, const struct spec *s, int *ret_fds, size_t *ret_count,
		     struct err *e) must_check;

/* Lift the CPU limit and kill everything inside, at once. */
void cgroup_kill(struct cgroup *c);

/* cgroup_count.c. The number behind "key " in a line of a file in this directory, or with "" the only one; UINT64_MAX: none. */
uint64_t cgroup_count(int dir, const char *file, const char *key);
uint64_t cgroup_cpu_us(const struct cgroup *c);
void cgroup_read(const struct cgroup *c, struct cgroup_counters *ret);

/* The same, file by file: for whoever reads them when there is no time to open them. */
enum counter_file {
	COUNT_CPU,
	COUNT_PIDS_EVENTS,
	COUNT_PIDS_PEAK,
	COUNT_MEMORY_EVENTS,
	COUNT_MEMORY_PEAK,
	COUNTER_FILES
};
/* Its name in the cgroup's directory; on v1 in that of counter_controller(). */
const char *counter_name(enum counter_file f, bool v2);
enum controller counter_controller(enum counter_file f);
/* From the beginning of open files, each -1 where it cannot be had. memory_limit: in force, or UINT64_MAX. */
void cgroup_read_files(const int fds[COUNTER_FILES], bool v2, uint64_t memory_limit,
		       struct cgroup_counters *ret);
/* The number that is all there is in an open file; UINT64_MAX: there is none. */
uint64_t cgroup_read_number(int fd);

/* Remove the directories; they must be empty of processes. Idempotent. */
int cgroup_destroy(struct cgroup *c, struct err *e) must_check;

/* Remove what runs that were killed have left: every directory whose slot nobody holds. */
void cgroup_sweep(const struct cgroup_host *host, const struct places *places);

#endif
