/* SPDX-License-Identifier: Apache-2.0 */
/* volume.h - the caller's folders and files: opened, checked and given ids before the sandbox exists. */
#ifndef NATIVE_VOLUME_H
#define NATIVE_VOLUME_H

#include "native/plan.h"
#include "native/slot.h"
#include "sandbox/spec.h"

/* Fill p->volumes from the spec (and the virtual environment). As root ret_mounts gets one detached
 * mount each (caller closes); rootless -1, and the path for the sandbox to open. opened (or NULL): by
 * the spec's volumes, [SPEC_MAX_VOLUMES] the environment: what to mount in the path's place, or -1. */
int volumes_prepare(const struct spec *s, const int *opened, const struct slot *slot, bool rootless,
		    struct plan *p, int ret_mounts[PLAN_MAX_VOLUMES], struct err *e) must_check;

/* May what this descriptor refers to be given to a sandbox? Says where it is. */
int volume_check(int fd, char real[PLAN_HOST_PATH], struct err *e) must_check;

/* Is this the path of a virtual environment whose interpreter a sandbox has? */
int venv_check(const char *path, struct err *e) must_check;

/* Make the mount point of a volume below the folder `box`/ in the fresh file system at root, which
 * nobody else has written to; nothing if it lies elsewhere. */
int volume_point(int root, const struct plan_volume *v, const char *box, uint32_t uid, uint32_t gid,
		 struct err *e) must_check;

#endif
