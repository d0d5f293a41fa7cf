/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "native/isolate/isolate.h"

#ifndef CLONE_NEWTIME
#define CLONE_NEWTIME 0x80 /* linux/sched.h, 5.6 */
#endif

/* A time namespace of its own whose clocks start near zero: the machine's uptime is not visible, and
 * /proc/self/ns/time is no inode shared with others (it could carry locks). The offsets are written
 * while nobody is in it; then this process enters, since before Linux 6.3 a child that shares its
 * parent's memory cannot be born into another time namespace (EINVAL, seen on 6.1). */
int isolate_time(struct isolation *s)
{
	struct timespec monotonic, boot;
	char text[96];
	int fd, n, r = 0;

	clock_gettime(CLOCK_MONOTONIC, &monotonic);
	clock_gettime(CLOCK_BOOTTIME, &boot);
	n = snprintf(text, sizeof text, "monotonic -%lld 0\nboottime -%lld 0\n",
		     (long long)monotonic.tv_sec, (long long)boot.tv_sec);
	fd = openat(s->proc, "self/timens_offsets", O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return step_failed(s, errno, "open /proc/self/timens_offsets");
	if (write(fd, text, (size_t)n) != n)
		r = step_failed(s, errno, "write timens_offsets");
	close(fd);
	if (r < 0)
		return r;
	fd = openat(s->proc, "self/ns/time_for_children", O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return step_failed(s, errno, "open /proc/self/ns/time_for_children");
	if (setns(fd, CLONE_NEWTIME) < 0)
		r = step_failed(s, errno, "enter the time namespace");
	close(fd);
	return r;
}
