/* SPDX-License-Identifier: Apache-2.0 */
/* recover.h - see recover.c */
#ifndef SERVICE_RECOVER_H
#define SERVICE_RECOVER_H

#include "service/service.h"
#include "spawner/request.h"

struct box;

/* A page of ids from store_sandbox_list(). */
struct ids {
	char id[1000][40];
	size_t count;
};
int ids_add(const struct stored_sandbox *s, void *data);

/* The spawner was away and is back; live: NULL when it does not know this sandbox. */
void box_reconcile(struct box *b, const struct spawner_live *live);

/* The spawner tells the end of one that is not in memory: written down with its runs, if it is in the store.
 * verdict: a reason that is not written down, or -1. */
void recover_end(struct service *v, const struct spawner_ended *ended, int verdict);
/* It could not be written down: it will be, and the spawner may forget it only then. */
void recover_keep_end(struct service *v, const struct spawner_ended *ended, int verdict);

/* main.c: the first comparison is done, clients may come. */
void service_is_ready(struct service *v);

#endif
