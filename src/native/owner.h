/* SPDX-License-Identifier: Apache-2.0 */
/*
 * owner.h - for a moment the effective ids are others': whoever makes a user namespace is its owner by these
 * (user_namespaces(7)).
 *
 * This thread's alone (glibc would change all threads'). Root's capabilities are taken back, as some kernels let only who has
 * them make user namespaces. Also built with musl, for init.
 */
#ifndef NATIVE_OWNER_H
#define NATIVE_OWNER_H

#include <errno.h>
#include <linux/capability.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

/* 0 or -errno. Clears whether the process is dumpable, and its parent's death signal (prctl(2)). */
static inline int owner_become(uint32_t uid, uint32_t gid)
{
	struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
	struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3];

	if (syscall(SYS_setresgid, -1, gid, -1) < 0 || syscall(SYS_setresuid, -1, uid, -1) < 0 ||
	    syscall(SYS_capget, &header, data) < 0)
		return -errno;
	data[0].effective = data[0].permitted;
	data[1].effective = data[1].permitted;
	return syscall(SYS_capset, &header, data) < 0 ? -errno : 0;
}

#endif
