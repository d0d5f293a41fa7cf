/* SPDX-License-Identifier: Apache-2.0 */
/*
 * volumes.c - folders and files of the caller's.
 *
 * As root the supervisor opened each one, checked it, gave it the caller's ids (an id-mapped mount) and
 * passed the detached mount; here it is only attached. Rootless the mount has to be copied in this
 * namespace, by path, and what was opened must be what the supervisor looked at.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "native/isolate/mounts.h"
#include "native/mount_api.h"

static int clone_by_path(struct isolation *s, const struct plan_volume *v)
{
	struct stat st;
	bool mapped;
	int fd = clone_mount(v->host, -1, &mapped);

	if (fd < 0)
		return step_failed(s, -fd, "copy the mount of the volume for %s", v->box);
	if (fstat(fd, &st) < 0 || st.st_dev != v->dev || st.st_ino != v->ino) {
		close(fd);
		return step_failed(s, ESTALE, "the volume for %s changed while it was opened",
				   v->box);
	}
	return fd;
}

/* While this process is still the caller: the sandbox's ids may not be able to reach the folder. */
int isolate_volumes_open(struct isolation *s)
{
	for (uint32_t i = 0; s->plan->rootless && i < s->plan->volume_count; i++) {
		s->volumes[i] = clone_by_path(s, &s->plan->volumes[i]);
		if (s->volumes[i] < 0)
			return s->volumes[i];
	}
	return 0;
}

int isolate_volumes(struct isolation *s)
{
	for (uint32_t i = 0; i < s->plan->volume_count; i++) {
		const struct plan_volume *v = &s->plan->volumes[i];
		struct mount_attr attr = {.attr_set = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV |
						      (v->writable ? 0 : MOUNT_ATTR_RDONLY)};
		int fd = s->volumes[i];
		char path[PLAN_PATH + 16];
		int r = 0;

		if (is_in_writable_place(s->plan, v->box) && !is_in_volume(s->plan, v->box))
			r = make_mount_point(NEW_ROOT, v, s->plan->user_mount_id);
		if (r < 0)
			return step_failed(s, -r, "make mount point %s", v->box);
		snprintf(path, sizeof path, NEW_ROOT "%s", v->box);
		if (syscall(SYS_mount_setattr, fd, "", AT_EMPTY_PATH | AT_RECURSIVE, &attr,
			    sizeof attr) < 0)
			return step_failed(s, errno, "set flags of volume %s", v->box);
		r = attach_mount(fd, path);
		close(fd);
		if (r < 0)
			return step_failed(s, -r, "attach volume %s", v->box);
	}
	return 0;
}
