/* SPDX-License-Identifier: Apache-2.0 */
/*
 * seccomp.h - the system call filters, compiled at build time from seccomp.policy.
 *
 * Linked into cloche-init (static, musl), which loads a filter as its last act before exec, and
 * into cloche, which reports the digest of the filter that a sandbox runs under. Nothing is
 * allocated and nothing is computed at run time: a filter is constant data.
 */
#ifndef NATIVE_SECCOMP_H
#define NATIVE_SECCOMP_H

#include "base/cleanup.h"

struct sock_filter;

struct seccomp_profile {
	const char *name;                 /* as in seccomp.policy: "default", "no-locks", "dev" */
	unsigned short len;               /* instructions */
	const struct sock_filter *filter; /* <linux/filter.h> */
	const char *sha256;               /* of the program's bytes, 64 hexadecimal digits */
};

/* The profile of that name, or NULL. Static data: never freed. */
extern const struct seccomp_profile *seccomp_profile_find(const char *name);

/*
 * Put the calling thread and all that it starts under the profile's filter, for good. Filters add
 * up: one loaded earlier stays in force.
 *
 * The caller has set no_new_privs (else -EACCES, unless it has CAP_SYS_ADMIN) and has one thread:
 * others are not reached. Async-signal-safe, does not block. 0 or -errno; -EINVAL or -ENOSYS from
 * a kernel without CONFIG_SECCOMP_FILTER.
 */
extern int seccomp_profile_load(const struct seccomp_profile *p) must_check;

#endif
