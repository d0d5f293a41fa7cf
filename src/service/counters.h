/* SPDX-License-Identifier: Apache-2.0 */
/* counters.h - what a sandbox's cgroup counts, read without rights: its files are readable for all. */
#ifndef SERVICE_COUNTERS_H
#define SERVICE_COUNTERS_H

#include <stdbool.h>
#include <stdint.h>

#include "native/cgroup.h"
#include "spawner/request.h"

bool counters_are_v2(const struct spawner_created *c);
/* One of its files; -1: it cannot be had. */
int counters_open(const struct spawner_created *c, enum counter_file f);

/* All that the spawner would tell of it; false: something of it cannot be read, the spawner has to be asked. */
bool counters_read(const struct spawner_created *c, const int fds[COUNTER_FILES],
		   uint64_t memory_limit, struct spawner_counters *ret);

/* Bytes in use just now; 0: not to be had. */
uint64_t counters_memory_now(const struct spawner_created *c);

#endif
