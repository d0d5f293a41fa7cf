/* SPDX-License-Identifier: Apache-2.0 */
/* loop.h - question, answer, calls, what they came to, and again, until there is an answer or a limit is met. */
#ifndef ASK_LOOP_H
#define ASK_LOOP_H

#include "ask/settings.h"

/* Returns the exit status, after having said all that is to be said. signals: a descriptor for Ctrl-C. */
int loop_run(struct ask_settings *s, int signals);

#endif
