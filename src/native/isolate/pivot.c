/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "native/isolate/mounts.h"

/* pivot_root, not chroot: the host's tree is detached, so no path and no ".." leads to it. */
int isolate_pivot(struct isolation *s)
{
	const struct plan *p = s->plan;

	if (chdir(NEW_ROOT) < 0)
		return step_failed(s, errno, "enter the new root");
	if (syscall(SYS_pivot_root, ".", ".") < 0)
		return step_failed(s, errno, "pivot_root");
	if (umount2(".", MNT_DETACH) < 0)
		return step_failed(s, errno, "detach the host's tree");
	if (chdir("/") < 0)
		return step_failed(s, errno, "enter /");
	for (uint32_t i = 0; i < p->tmpfs_count; i++) {
		s->tmpfs_dirs[i] =
			open(p->tmpfs[i].path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		if (s->tmpfs_dirs[i] < 0)
			return step_failed(s, errno, "open %s", p->tmpfs[i].path);
	}
	return 0;
}
