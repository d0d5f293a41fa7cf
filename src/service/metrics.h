/* SPDX-License-Identifier: Apache-2.0 */
/* metrics.h - what cloched counts of itself, since its start. GET /metrics shows it (admin.c). */
#ifndef SERVICE_METRICS_H
#define SERVICE_METRICS_H

#include <stdint.h>

#include "sandbox/model.h"

/* Upper bounds of a histogram's buckets in microseconds; what is longer is only in `count`. */
#define HISTOGRAM_BOUNDS                                                                      \
	{                                                                                     \
		100, 200, 500, 1000, 2000, 5000, 10000, 20000, 50000, 100000, 200000, 500000, \
			1000000, 2000000, 5000000, 10000000                                   \
	}
enum { HISTOGRAM_BUCKETS = 16 };

struct histogram {
	uint64_t bucket[HISTOGRAM_BUCKETS]; /* each up to its bound, and above the one before */
	uint64_t count, sum_us;
};
extern const uint64_t histogram_bounds[HISTOGRAM_BUCKETS];
void histogram_add(struct histogram *h, uint64_t us);

struct metrics {
	uint64_t requests[6]; /* by hundreds of the status: 1 to 5 */
	uint64_t runs[REASON_COUNT];
	uint64_t sandboxes_created, sandboxes_ended[REASON_COUNT];
	struct histogram create;   /* from the request for a sandbox to one that runs */
	struct histogram begin;    /* from the request for a run to its command's beginning */
	struct histogram run;      /* to its result */
	struct histogram teardown; /* from the kill of a sandbox nobody waits for to its death */
	uint64_t output_bytes, refused_quota;
	uint64_t connections[3]; /* of sandboxes, by enum egress_verdict */
	uint64_t connection_bytes;
};

#endif
