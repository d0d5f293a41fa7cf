/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>

#include "native/isolate/mounts.h"

/* Every writable place has a size and a number of inodes. Without the latter a million empty files
 * end in the OOM killer instead of ENOSPC. */
int isolate_tmpfs(struct isolation *s)
{
	for (uint32_t i = 0; i < s->plan->tmpfs_count; i++) {
		const struct plan_tmpfs *t = &s->plan->tmpfs[i];
		char path[PLAN_PATH + 16];
		unsigned uid = t->owned ? s->plan->user_mount_id : s->plan->root_mount_id;
		unsigned gid = t->owned ? s->plan->user_mount_gid : s->plan->root_mount_id;
		uint64_t inodes = layer_is_off(s, "nr_inodes") ? 100000000 : t->inodes;
		int r = 0;

		if (is_in_writable_place(s->plan, t->path) && strcmp(t->path, "/dev/shm") != 0)
			r = make_directories(NEW_ROOT, t->path, s->plan->user_mount_id);
		if (r < 0)
			return step_failed(s, -r, "make mount point %s", t->path);
		snprintf(path, sizeof path, NEW_ROOT "%s", t->path);
		r = mount_tmpfs(path, t->exec || layer_is_off(s, "noexec") ? 0 : MS_NOEXEC,
				t->size_bytes, inodes, t->mode, uid, gid);
		if (r < 0)
			return step_failed(s, -r, "mount a tmpfs on %s", t->path);
	}
	return 0;
}
