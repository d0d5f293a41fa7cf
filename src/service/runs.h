/* SPDX-License-Identifier: Apache-2.0 */
/* runs.h - what single runs and batches of them have in common. */
#ifndef SERVICE_RUNS_H
#define SERVICE_RUNS_H

#include "service/call.h"

/* A run in a sandbox of its own, for the owner and session of this call. counted: whether it was taken from the rate
 * of runs before; set when it is. fds: for body->volume_fds; they stay the caller's. NULL with e: nothing was begun,
 * and for a quota or want of something here (429, 503) it can be tried again if body->spec still has its command. */
struct run *runs_begin(struct call *c, struct body *body, bool *counted, const int *fds,
		       size_t fd_count, const struct run_ops *ops, void *data,
		       struct err *e) must_check;

/* For on_end: nothing was begun after all, and e says why. */
bool runs_was_refused(const struct run *r, struct err *e);

#endif
