/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sandbox_self.h - what cloched gives up once everything is open: see sandbox_self.c.
 */
#ifndef SERVICE_SANDBOX_SELF_H
#define SERVICE_SANDBOX_SELF_H

#include "service/service.h"

/* No new privileges, undumpable, only its own folders, only the system calls of self_calls.def. */
int sandbox_self(struct service *v, struct err *e) must_check;

#endif
