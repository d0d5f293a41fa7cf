/* SPDX-License-Identifier: Apache-2.0 */
#include "native/claim.h"

#include <errno.h>

/* How many slots with a cgroup that cannot be emptied are passed over. */
#define BUSY_SLOTS 16

int claim(const struct places *places, const struct id_range *range, const struct cgroup_host *host,
	  const struct spec *s, struct slot *slot, struct cgroup *cgroup, struct err *e)
{
	uint32_t from = 0;

	for (int tries = 0;; tries++) {
		if (slot_acquire(places, range, from, slot, e) < 0)
			return err_stage(e, "ids");
		if (cgroup_create(host, slot, s, cgroup, e) == 0)
			return 0;
		if (e->errnum != EBUSY || tries == BUSY_SLOTS)
			return err_stage(e, "cgroup");
		slot_release(slot);
		from = slot->number + 1;
	}
}
