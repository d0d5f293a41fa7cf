/* SPDX-License-Identifier: Apache-2.0 */
#include "service/metrics.h"

const uint64_t histogram_bounds[HISTOGRAM_BUCKETS] = HISTOGRAM_BOUNDS;

void histogram_add(struct histogram *h, uint64_t us)
{
	h->count++;
	h->sum_us += us;
	for (int i = 0; i < HISTOGRAM_BUCKETS; i++)
		if (us <= histogram_bounds[i]) {
			h->bucket[i]++;
			return;
		}
}
