/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <unistd.h>

#include "native/isolate/isolate.h"

#ifndef CLONE_NEWTIME
#define CLONE_NEWTIME 0x80 /* linux/sched.h, 5.6 */
#endif

/* The pid namespace came with clone; network, user and cgroup namespaces have steps of their own. The image directory
 * is entered first: its descriptor belongs to the old mount namespace, and unshare() moves only the
 * working directory over to the new one. */
int isolate_namespaces(struct isolation *s)
{
	static const struct {
		int flag;
		const char *layer;
	} kinds[] = {{CLONE_NEWIPC, "ipc"}, {CLONE_NEWUTS, "uts"}, {CLONE_NEWTIME, "time"}};
	int flags = CLONE_NEWNS;

	s->proc = open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (s->proc < 0)
		return step_failed(s, errno, "open /proc");
	if (fchdir(s->image_dir) < 0)
		return step_failed(s, errno, "enter the image directory");
	for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
		if (!layer_is_off(s, kinds[i].layer))
			flags |= kinds[i].flag;
	if (unshare(flags) < 0)
		return step_failed(s, errno, "unshare mount, ipc, uts and time namespaces");
	if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		return step_failed(s, errno, "make all mounts private");
	return 0;
}
