/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <linux/capability.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "native/isolate/isolate.h"

int isolate_no_new_privs(struct isolation *s)
{
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return step_failed(s, errno, "set no_new_privs");
	return 0;
}

/* The bounding set is emptied for good. Init itself keeps three capabilities, in its own user namespace
 * of two ids: to become the sandbox user, and to signal what it started. The command has none: becoming
 * another user than root clears all sets. */
int isolate_capabilities(struct isolation *s)
{
	struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
	struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = {0};

	if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) < 0)
		return step_failed(s, errno, "clear ambient capabilities");
	for (int cap = 0; cap < CAP_COUNT; cap++)
		if (prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) < 0) {
			if (errno == EINVAL && cap > 0)
				break; /* above the last one this kernel knows */
			return step_failed(s, errno, "drop capability %d", cap);
		}
	data[0].effective = data[0].permitted =
		1u << CAP_SETGID | 1u << CAP_SETUID | 1u << CAP_KILL;
	if (syscall(SYS_capset, &header, data) < 0)
		return step_failed(s, errno, "drop capabilities");
	return 0;
}
