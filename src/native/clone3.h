/* SPDX-License-Identifier: Apache-2.0 */
/*
 * clone3.h - clone3() with a stack and a function, as clone() has them. glibc keeps its own to itself,
 * and only clone3() can start a process inside a cgroup or give flags above 32 bits.
 */
#ifndef NATIVE_CLONE3_H
#define NATIVE_CLONE3_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* include/uapi/linux/sched.h, struct clone_args version 2 */
struct clone3_args {
	uint64_t flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls, set_tid,
		set_tid_size, cgroup;
};

#ifndef CLONE_INTO_CGROUP
#define CLONE_INTO_CGROUP 0x200000000ull
#endif
#ifndef CLONE_NEWTIME
#define CLONE_NEWTIME 0x80
#endif

/* For functions that run in such a child and never return from it: AddressSanitizer would mark their
 * frames in the parent's memory and never unmark them. */
#define in_clone_child __attribute__((no_sanitize("address"), noinline))

/* The child runs fn(argument) on the given stack and ends with its return value. The pid, or -errno. */
pid_t clone3_call(struct clone3_args *args, int (*fn)(void *), void *argument);

#endif
