/* SPDX-License-Identifier: Apache-2.0 */
/* claim.h - what every sandbox begins with: a slot, and the cgroup of its number. */
#ifndef NATIVE_CLAIM_H
#define NATIVE_CLAIM_H

#include "native/cgroup.h"
#include "native/slot.h"

/* A cgroup that cannot be emptied (a process of a killed run hangs in the kernel) costs its slot, not the
 * run. On failure what was made is in *slot and *cgroup, for their destroy functions. */
int claim(const struct places *places, const struct id_range *range, const struct cgroup_host *host,
	  const struct spec *s, struct slot *slot, struct cgroup *cgroup, struct err *e) must_check;

#endif
