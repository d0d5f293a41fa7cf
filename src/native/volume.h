/* SPDX-License-Identifier: Apache-2.0 */
/* volume.h - the caller's folders and files: opened, checked and given ids before the sandbox exists. */
#ifndef NATIVE_VOLUME_H
#define NATIVE_VOLUME_H

#include "native/plan.h"
#include "native/slot.h"
#include "sandbox/spec.h"

/* Fill p->volumes from the spec (and the virtual environment). As root ret_mounts gets one detached
 * mount each (caller closes); rootless -1, and the path for the sandbox to open. */
int volumes_prepare(const struct spec *s, const struct slot *slot, bool rootless, struct plan *p,
		    int ret_mounts[PLAN_MAX_VOLUMES], struct err *e) must_check;

#endif
