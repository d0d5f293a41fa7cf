/* SPDX-License-Identifier: Apache-2.0 */
#include "base/end_signals.h"

#include <errno.h>
#include <stddef.h>
#include <sys/signalfd.h>

int end_signals_watch(int more, sigset_t *before, struct err *e)
{
	sigset_t set;
	int fd;

	sigemptyset(&set);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGHUP);
	if (more)
		sigaddset(&set, more);
	sigprocmask(SIG_BLOCK, &set, before);
	fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	return fd < 0 ? err_set(e, errno, "watch signals") : fd;
}
