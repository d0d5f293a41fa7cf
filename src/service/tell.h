/* SPDX-License-Identifier: Apache-2.0 */
/* tell.h - what a sandbox's init is told without waiting for its answer. */
#ifndef SERVICE_TELL_H
#define SERVICE_TELL_H

#include "service/box.h"

/* One request; lost with the sandbox, or for want of something here. */
void tell_init(struct box *b, enum frame_type type, const void *record, size_t size);

/* Init may forget a command whose end is committed. Several go together, at the latest after 20 ms, so that
 * it is not in the way of the next command; at once when init keeps much of it (bytes), which is charged to
 * the sandbox's memory. */
void tell_forget(struct box *b, uint32_t number, uint64_t bytes);

#endif
