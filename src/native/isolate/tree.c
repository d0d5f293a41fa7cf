/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tree.c - all mounts of a sandbox but proc, as one detached tree: made by real root, attached by the
 * sandbox's init, which has no rights outside its user namespace.
 */
#include <errno.h>
#include <fcntl.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "native/isolate/mounts.h"
#include "native/mount_api.h"

/* The overlays hold their layers by themselves: the stage they were made on goes away. */
int isolate_tree_take(struct isolation *s)
{
	s->tree = (int)syscall(SYS_open_tree, AT_FDCWD, NEW_ROOT,
			       OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_RECURSIVE);
	if (s->tree < 0)
		return step_failed(s, errno, "take the mounts of %s", NEW_ROOT);
	if (umount2(STAGE, MNT_DETACH) < 0)
		return step_failed(s, errno, "detach %s", STAGE);
	return 0;
}

int isolate_tree_attach(struct isolation *s)
{
	int r = attach_mount(s->tree, NEW_ROOT);

	close(s->tree);
	s->tree = -1;
	return r < 0 ? step_failed(s, -r, "attach the sandbox's mounts") : 0;
}
