/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "native/isolate/isolate.h"

/* When the whole machine is short of memory, the kernel should take a sandbox before a service. The
 * value may be raised by anyone and never lowered without CAP_SYS_RESOURCE; children inherit it. */
int isolate_victim(struct isolation *s)
{
	int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
	int r = 0;

	if (fd < 0)
		return step_failed(s, errno, "open /proc/self/oom_score_adj");
	if (write(fd, "300", 3) != 3 && errno != EACCES) /* already higher: fine */
		r = step_failed(s, errno, "raise oom_score_adj");
	close(fd);
	return r;
}
