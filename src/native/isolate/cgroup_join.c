/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <unistd.h>

#include "protocol/protocol.h"
#include "native/isolate/isolate.h"

enum { MAX_CONTROLLERS = 8 };

/* The process puts itself into its cgroups, by writing 0 to each v1 `tasks` file: moving another
 * process by pid waits for an RCU grace period (7.7 ms measured), moving oneself does not. On v2 the
 * process was cloned into its cgroup and nothing is left to join. */
int isolate_cgroup(struct isolation *s)
{
	int fds[MAX_CONTROLLERS];
	size_t count = MAX_CONTROLLERS;
	struct frame f;
	int r = frame_receive(s->control, FROM_HOST, &f, NULL, 0, fds, &count);

	if (r < 0 || f.type != FRAME_CGROUP)
		return step_failed(s, r < 0 ? -r : EPROTO, "receive cgroups");
	r = 0;
	for (size_t i = 0; i < count; i++) {
		if (r == 0 && write(fds[i], "0", 1) != 1)
			r = step_failed(s, errno, "join cgroup");
		close(fds[i]);
	}
	return r;
}
