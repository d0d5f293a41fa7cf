/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "native/isolate/isolate.h"

/* Everything the steps used is closed by name, so that a forgotten one shows up in the descriptor
 * tests; the command's own table is swept by close_range() before it starts. Init is undumpable: the
 * code, although in the same pid namespace, can neither trace nor inspect it. */
int isolate_descriptors(struct isolation *s)
{
	int *used[] = {&s->image_dir, &s->proc};

	for (size_t i = 0; i < sizeof used / sizeof *used; i++) {
		close(*used[i]);
		*used[i] = -1;
	}
	if (s->userns >= 0 && !s->plan->rootless) {
		close(s->userns);
		s->userns = -1;
	}
	if (!layer_is_off(s, "dumpable") && prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)
		return step_failed(s, errno, "become undumpable");
	/* Set after the last change of credentials, which would clear it. */
	if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0)
		return step_failed(s, errno, "tie to the supervisor");
	return 0;
}
