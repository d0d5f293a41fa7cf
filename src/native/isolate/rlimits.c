/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <sys/resource.h>

#include "native/isolate/isolate.h"

/* Soft = hard (but for CPU time): nothing inside can raise them. A host limit below ours stays. */
int isolate_rlimits(struct isolation *s)
{
	for (int i = 0; i < PLAN_RLIMITS; i++) {
		struct rlimit now, want;

		if (s->plan->rlimit[i] == UINT64_MAX)
			continue;
		if (getrlimit(i, &now) < 0)
			return step_failed(s, errno, "read rlimit %d", i);
		want.rlim_max =
			now.rlim_max < s->plan->rlimit[i] ? now.rlim_max : s->plan->rlimit[i];
		want.rlim_cur = want.rlim_max;
		/* A hard limit alone is a SIGKILL like any other; the soft one says SIGXCPU first. */
		if (i == RLIMIT_CPU && want.rlim_max > 1)
			want.rlim_cur = want.rlim_max - 1;
		if (setrlimit(i, &want) < 0)
			return step_failed(s, errno, "set rlimit %d", i);
	}
	return 0;
}
