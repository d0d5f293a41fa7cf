/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <sys/mount.h>

#include "native/isolate/mounts.h"

/* Only processes: no machine-wide file (subset=pid), no process of another user (hidepid), and
 * nothing can be written. There is no sysfs. */
int isolate_proc(struct isolation *s)
{
	const char *how = layer_is_off(s, "masks")     ? NULL
			  : layer_is_off(s, "hidepid") ? "subset=pid"
						       : "subset=pid,hidepid=invisible";

	if (mount("proc", NEW_ROOT "/proc", "proc", MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC,
		  how) < 0)
		return step_failed(
			s, errno,
			s->plan->rootless
				? "mount proc (inside a container this needs an unmasked /proc)"
				: "mount proc");
	return 0;
}
