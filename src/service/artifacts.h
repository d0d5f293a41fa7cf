/* SPDX-License-Identifier: Apache-2.0 */
/*
 * artifacts.h - what a one-shot run leaves: /output and what matches globs in /workspace, taken through its
 * init before the sandbox goes, and kept in the state folder for a time.
 *
 * Names and sizes come from inside and are hostile: only regular files and folders, no control
 * characters, beneath the run's own folder, bytes and numbers bounded.
 */
#ifndef SERVICE_ARTIFACTS_H
#define SERVICE_ARTIFACTS_H

#include "service/run.h"

/* Begin; run_artifacts_done() is called when it is over, whatever came of it. */
void artifacts_begin(struct run *r);
void run_artifacts_done(struct run *r);
void artifacts_close(struct run *r);

/* Open one for reading; -1 with e. path is the client's. */
int artifact_open(struct service *v, const char *run_id, const char *path, uint64_t *ret_size,
		  struct err *e) must_check;

#endif
