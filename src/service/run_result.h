/* SPDX-License-Identifier: Apache-2.0 */
/* run_result.h - a run's row, and its result from what is known of it. For run.c. */
#ifndef SERVICE_RUN_RESULT_H
#define SERVICE_RUN_RESULT_H

#include "service/run.h"

/* Its row. result: NULL when there is none yet. */
void run_put(struct run *r, bool ended, const char *result);

/* The sandbox went away under the command: why, the box knows. */
void run_take_verdict_of_box(struct run *r);

/* Judge it and fill in its result. */
void run_complete(struct run *r);

/* What is known of the end before something is killed for it; and the end. */
void run_remember_verdict(struct run *r);
void run_remember_end(struct run *r);

/* Counters, event, quota: once it is written down. */
void run_tell_end(struct run *r);

#endif
