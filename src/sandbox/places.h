/* SPDX-License-Identifier: Apache-2.0 */
/* places.h - where things are (CONTRACT "Where things are"), for root and for an ordinary user. */
#ifndef SANDBOX_PLACES_H
#define SANDBOX_PLACES_H

#include <stdbool.h>

#include "base/err.h"

struct places {
	bool rootless;
	char config[1024];      /* configuration file */
	char system_config[64]; /* the operator's: its policy holds for everyone */
	char state[1024];       /* what survives a reboot: prepared images */
	char runtime[1024];     /* what does not: locks */
};

/* Decide from the effective user and XDG_*. */
int places_find(struct places *p, struct err *e) must_check;

/* mkdir -p with mode 0700 for what is missing; 0 or -errno. */
int make_private_dirs(const char *path) must_check;

#endif
