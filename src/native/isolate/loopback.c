/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <net/if.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "native/isolate/isolate.h"

/* The network namespace has lo and nothing else; servers on 127.0.0.1 and ::1 work. */
int isolate_loopback(struct isolation *s)
{
	struct ifreq request = {.ifr_name = "lo"};
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	int r = 0;

	if (fd < 0)
		return step_failed(s, errno, "open a socket");
	request.ifr_flags = IFF_UP | IFF_RUNNING;
	if (ioctl(fd, SIOCSIFFLAGS, &request) < 0)
		r = step_failed(s, errno, "bring lo up");
	close(fd);
	return r;
}
