/* SPDX-License-Identifier: Apache-2.0 */
/* counters.h - what a sandbox's cgroup counts, read without rights: its files are readable for all. */
#ifndef SERVICE_COUNTERS_H
#define SERVICE_COUNTERS_H

#include <stdbool.h>
#include <stdint.h>

#include "native/cgroup.h"
#include "spawner/request.h"

/* Some of its files, open. */
struct counter_fds {
	int fd[COUNTER_FILES]; /* -1: not open */
	bool stay;             /* they are counted: only so many of the service stay open */
};

struct counter_fds counters_none(void);

bool counters_are_v2(const struct spawner_created *c);
/* One of its files; -1: it cannot be had. */
int counters_open(const struct spawner_created *c, enum counter_file f);

/* All that the spawner would tell of it; false: something of it cannot be read, the spawner has to be asked. */
bool counters_read(const struct spawner_created *c, const struct counter_fds *fds,
		   uint64_t memory_limit, struct spawner_counters *ret);

/* Bytes in use just now; 0: not to be had. */
uint64_t counters_memory_now(const struct spawner_created *c);

#endif
