/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dying.h - sandboxes that nobody waits for any more: killed and removed behind the answers.
 *
 * All of their processes but init are dead already, or they were never used. What they were is written down.
 */
#ifndef SERVICE_DYING_H
#define SERVICE_DYING_H

#include "service/service.h"

/* Have it killed. written: no row calls it alive. */
void dying_add(struct service *v, const char *id, bool written);

/* One has ended: was it one of these, and is its end to be written down yet. */
enum dying_end { DYING_NOT, DYING_WRITTEN, DYING_UNWRITTEN };
enum dying_end dying_on_ended(struct service *v, const char *id);

/* So many that nothing more should be prepared; and so many that nothing more should be made at all. */
bool dying_are_many(const struct service *v);
bool dying_are_too_many(const struct service *v);

/* The spawner went away: its successor tells what lives, and recover.c has it killed. */
void dying_forget(struct service *v);

#endif
