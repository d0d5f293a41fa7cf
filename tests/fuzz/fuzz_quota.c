/* SPDX-License-Identifier: Apache-2.0 */
/* A quota from JSON: an error with a sentence and nothing changed, or values that print and read back alike. */
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "base/json.h"
#include "store/quota.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct quota q, before, back;
	struct err e = {0};
	json_t *j;

	quota_none(&q);
	before = back = q;
	if (quota_from_text(&q, (const char *)data, size, &e) < 0) {
		CHECK(e.text[0] && memcmp(&q, &before, sizeof q) == 0);
		return 0;
	}
	CHECK(q.sandboxes > 0 && q.runs_per_minute > 0 && q.memory_bytes > 0 && q.disk_bytes > 0);
	CHECK(q.cpus_millis >= 10 && q.output_bytes_per_minute > 0);
	j = quota_to_json(&q);
	CHECK(j && quota_from_json(&back, j, &e) == 0);
	CHECK(memcmp(&q, &back, sizeof q) == 0);
	json_decref(j);
	return 0;
}
