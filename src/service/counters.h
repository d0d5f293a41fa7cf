/* SPDX-License-Identifier: Apache-2.0 */
/* counters.h - what a sandbox's cgroup counts, read without rights: its files are readable for all. */
#ifndef SERVICE_COUNTERS_H
#define SERVICE_COUNTERS_H

#include <stdbool.h>
#include <stdint.h>

#include "spawner/request.h"

/* All that the spawner would tell of it; false: something of it cannot be read, the spawner has to be asked. */
bool counters_read(const struct spawner_created *c, uint64_t memory_limit,
		   struct spawner_counters *ret);

/* Bytes in use just now; 0: not to be had. */
uint64_t counters_memory_now(const struct spawner_created *c);

#endif
