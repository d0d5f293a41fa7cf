/* SPDX-License-Identifier: Apache-2.0 */
#include "native/seccomp.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "seccomp-filters.h"

const struct seccomp_profile *seccomp_profile_find(const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(seccomp_profiles); i++)
		if (strcmp(seccomp_profiles[i].name, name) == 0)
			return &seccomp_profiles[i];
	return NULL;
}

int seccomp_profile_load(const struct seccomp_profile *p)
{
	/* The kernel copies the program; its struct merely lacks the const. */
	struct sock_fprog prog = {.len = p->len, .filter = (void *)(uintptr_t)p->filter};

	/* Not libc's: musl has no wrapper, and libseccomp's name for it is ours. */
	if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &prog) < 0)
		return -errno;
	return 0;
}
