/* SPDX-License-Identifier: Apache-2.0 */
/*
 * launch.h - start the process that becomes PID 1 of a sandbox.
 *
 * Our init is part of this binary and is executed from a sealed memory file: no path is looked up, no
 * version can differ, and nothing of the caller's memory goes along.
 */
#ifndef NATIVE_LAUNCH_H
#define NATIVE_LAUNCH_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

enum { LAUNCH_STACK = 16384 };

/* Lives until launch_finish(): the new process uses this memory until it has executed init. */
struct launch {
	int control;   /* becomes descriptor 3; 0 to 2 become /dev/null */
	int keep;      /* stays open in init: the slot's lock */
	int cgroup;    /* v2 directory to be born in, -1: none */
	bool rootless; /* born in a user namespace of its own */

	/* launch.c's own */
	int executable, null;
	int errnum;
	const char *what;
	uint32_t running; /* the kernel makes it 0 when the process has executed init, or has ended */
	char stack[LAUNCH_STACK] __attribute__((aligned(16)));
};

/* Start it: 0, *ret_pid and *ret_pidfd. The descriptors named in *l may be closed then. */
int launch_begin(struct launch *l, pid_t *ret_pid, int *ret_pidfd, struct err *e) must_check;

/* Wait until it has executed init: 0, or what went wrong on the way (it is to be waited for all the
 * same). Idempotent; of one that was not begun, 0. */
int launch_finish(struct launch *l, struct err *e);

/* How the process ended; blocks until it has. 0 or -errno. */
int launch_wait(int pidfd, bool *ret_signaled, int *ret_status);

#endif
