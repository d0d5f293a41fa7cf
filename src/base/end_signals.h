/* SPDX-License-Identifier: Apache-2.0 */
/* end_signals.h - hear of the signals that ask a program to end, by a descriptor instead of a handler. */
#ifndef BASE_END_SIGNALS_H
#define BASE_END_SIGNALS_H

#include <signal.h>

#include "base/err.h"

/* Block SIGINT, SIGTERM, SIGHUP and (not 0) more, and give a signalfd of them: nonblocking, the caller's. before (may be
 * NULL) is what was blocked until now. -1 and e. */
int end_signals_watch(int more, sigset_t *before, struct err *e) must_check;

#endif
