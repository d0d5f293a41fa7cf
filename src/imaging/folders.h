/* SPDX-License-Identifier: Apache-2.0 */
/*
 * folders.h - what is set on folders when everything is in them: their times, which change with each entry, and
 * in a user's store modes that would keep us out.
 */
#ifndef IMAGING_FOLDERS_H
#define IMAGING_FOLDERS_H

#include <stdbool.h>
#include <stddef.h>
#include <time.h>

#include "base/err.h"

enum { FOLDERS_MAX = 200000 }; /* some 20 MiB of names */

struct folder_list {
	struct folder *item;
	size_t count, room;
};

int folder_list_add(struct folder_list *l, const char *path, unsigned mode, struct timespec mtime,
		    struct err *e) must_check;
/* The last word on each holds. Paths lead below dir, without links; what is no folder any more is passed over. */
int folder_list_apply(struct folder_list *l, int dir, bool modes, struct err *e) must_check;
void folder_list_done(struct folder_list *l);

#endif
