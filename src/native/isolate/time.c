/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "native/isolate/isolate.h"

/* A time namespace of its own whose clocks start near zero: the machine's uptime is not visible, and
 * /proc/self/ns/time is no inode shared with others (it could carry locks). Processes enter it when
 * they exec; this one, our init, stays outside. */
int isolate_time(struct isolation *s)
{
	struct timespec monotonic, boot;
	char text[96];
	int fd, n, r = 0;

	clock_gettime(CLOCK_MONOTONIC, &monotonic);
	clock_gettime(CLOCK_BOOTTIME, &boot);
	n = snprintf(text, sizeof text, "monotonic -%lld 0\nboottime -%lld 0\n",
		     (long long)monotonic.tv_sec, (long long)boot.tv_sec);
	fd = open("/proc/self/timens_offsets", O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return step_failed(s, errno, "open /proc/self/timens_offsets");
	if (write(fd, text, (size_t)n) != n)
		r = step_failed(s, errno, "write timens_offsets");
	close(fd);
	return r;
}
