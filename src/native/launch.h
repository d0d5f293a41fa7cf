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
#include <sys/types.h>

#include "base/err.h"

struct launch {
	int control;   /* becomes descriptor 3; 0 to 2 become /dev/null */
	int keep;      /* stays open in init: the slot's lock */
	int cgroup;    /* v2 directory to be born in, -1: none */
	bool rootless; /* born in a user namespace of its own */
};

/* 0, *ret_pid and *ret_pidfd; the process has executed init by then. It is a child of the caller like
 * any other: SIGCHLD is sent when it ends, and launch_wait() waits for it. */
int launch(const struct launch *l, pid_t *ret_pid, int *ret_pidfd, struct err *e) must_check;

/* Make the memory file that init is executed from now, for all children of this process to use: they must
 * keep *ret_fd open, which stays launch()'s. */
int launch_prepare(int *ret_fd, struct err *e) must_check;

/* How the process ended; blocks until it has. 0 or -errno. */
int launch_wait(int pidfd, bool *ret_signaled, int *ret_status);

#endif
