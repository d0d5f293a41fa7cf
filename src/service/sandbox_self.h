/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sandbox_self.h - what cloched gives up once everything is open: see sandbox_self.c.
 */
#ifndef SERVICE_SANDBOX_SELF_H
#define SERVICE_SANDBOX_SELF_H

#include "base/err.h"

/* No new privileges, undumpable, of the files only the state (and the counters of cgroups), no TCP connection
 * of its own, only the system calls of self_calls.def. For good, and for the calling thread. */
int sandbox_self(const char *state_dir, const char *runtime_dir, struct err *e) must_check;

#endif
