/* SPDX-License-Identifier: Apache-2.0 */
/*
 * meta.h - what a folder RUNTIME/sandboxes/ID says about its sandbox, for a spawner that comes later.
 *
 * Written once, before init is told to serve; what changes (paused, counters) is asked of the kernel.
 * The folder is root's alone, yet its content is only a claim: a sandbox is adopted when the process of
 * that number has that start time, holds that slot's lock, and lives in that slot's cgroup.
 */
#ifndef SPAWNER_META_H
#define SPAWNER_META_H

#include "native/sandbox.h"
#include "spawner/request.h"

struct meta {
	char magic[8];
	uint32_t version, size;
	char boot_id[40];
	uint32_t slot, realm;
	uint64_t start_ticks; /* field 22 of /proc/PID/stat */
	uint64_t started_ms;  /* CLOCK_BOOTTIME */
	uint64_t memory_bytes;
	struct spawner_created created; /* header zero */
	uint64_t sum;                   /* of all before: tells a half or a changed one */
};

/* A new one of a sandbox that was just made. 0 or -errno. */
int meta_fill(struct meta *m, const struct kept_sandbox *made, const struct cgroup_host *host,
	      const char *id, uint64_t memory_bytes) must_check;

/* Appears whole or not at all in the folder. 0 or -errno. */
int meta_write(int folder, const struct meta *m) must_check;

/* Whole, of this version, and about this id: 0; -EBADMSG when it is not; -errno when there is none. */
int meta_read(int folder, const char *id, struct meta *ret) must_check;
int meta_check(const void *data, size_t size, const char *id, struct meta *ret) must_check;

/* How it ended, in the place of meta and socket, until somebody has taken note of it. 0 or -errno; -EBADMSG
 * when it is not whole or about another. */
int ended_write(int folder, const struct spawner_ended *ended) must_check;
int ended_read(int folder, const char *id, struct spawner_ended *ret) must_check;

/* When it was started (field 22 of /proc/PID/stat): with its number it is that process. 0 or -errno. */
int process_start_ticks(pid_t pid, uint64_t *ret) must_check;

/* Is its sandbox alive, and really that one? 0, *ret_pidfd and *ret_lock (-1 when the lock, though held,
 * could not be shared); -ESRCH when it is dead; -EBADMSG when it claims something else; else -errno: it
 * could not be found out. */
int meta_adopt(const struct meta *m, const struct places *places, int *ret_pidfd,
	       int *ret_lock) must_check;

#endif
