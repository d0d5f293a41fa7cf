/* SPDX-License-Identifier: Apache-2.0 */
/*
 * approve.h - whether a person has to say yes to a call, and what they say. Decided by the tool and by what its
 * sandbox is given, never by reading the code.
 */
#ifndef ASK_APPROVE_H
#define ASK_APPROVE_H

#include <stdint.h>

#include "ask/show.h"

/* Fills u->approval. A call that may not be made has its text then. -1: interrupted, or the time is over. */
int approve(const struct ask_settings *s, struct show *w, struct use *u, int signals,
	    uint64_t deadline_us) must_check;

#endif
