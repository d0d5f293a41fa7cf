/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kept.h - what stays of an owner's runs, artifacts and results, and how much of it there may be.
 *
 * The store counts what it has (a sum per owner that its own triggers keep, so it is right after any crash);
 * what is being collected is taken from the same quota before a byte of it is written. Where there is no room
 * the owner's own oldest runs make it: their artifacts go first, then, when results alone are too much, they
 * themselves, as they would at the end of run_retention. Nobody else loses anything.
 *
 * A file counts as the blocks it takes, a folder as one: empty ones cost inodes.
 *
 * Files and rows do not change in one step. A row without its files answers "not kept any more"; files without
 * their row are removed at the next start.
 */
#ifndef SERVICE_KEPT_H
#define SERVICE_KEPT_H

#include "service/service.h"

enum { KEPT_BLOCK = 4096 };

/* The folder of all artifacts; make: if it is not there. -1 with errno. */
int kept_open_root(const struct service *v, bool make) must_check;

/* Take this much for an artifact of the owner's; false: there is no room, and none can be made. */
bool kept_take(struct service *v, const char *owner, uint64_t bytes) must_check;
/* The result of this run was stored: others make room, where it was too much. */
void kept_settle(struct service *v, const char *owner, const char *run);

/* Its files are no more; the store is not asked. */
void kept_remove_files(struct service *v, const char *run);

/* Remove what is older than the configuration says, a part of it: true when there is more. */
bool kept_expire(struct service *v);
/* Once, before anything runs: files that belong to no run. */
void kept_sweep(struct service *v);

/* After a restart: what this owner, a key, may have. */
void kept_know_owner(struct service *v, const char *owner);

#endif
