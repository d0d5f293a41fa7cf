/* SPDX-License-Identifier: Apache-2.0 */
/*
 * budget.h - how much memory the request bodies of one owner may take at a time, over all its connections.
 *
 * A body counts with the room that it has grown to, once that is more than BUDGET_FREE, until it was used up (a
 * run has been given what it needs of it) or its call is over. Small ones cost nothing here: connections bound
 * them. Entries live as long as something is taken.
 */
#ifndef SERVICE_BUDGET_H
#define SERVICE_BUDGET_H

#include "service/service.h"

enum { BUDGET_FREE = 64 << 10 };

/* So many largest bodies at a time, of one owner. */
enum { BUDGET_BODIES = 8 };

/* A body that has counted with `from` bytes now takes `to`; from 0: it begins. False: there is no room. */
bool budget_grow(struct service *v, const char *owner, size_t from, size_t to) must_check;
void budget_give(struct service *v, const char *owner, size_t bytes);

#endif
