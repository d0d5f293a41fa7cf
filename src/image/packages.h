/* SPDX-License-Identifier: Apache-2.0 */
/*
 * packages.h - whether the host's packages are as they were: for what was started from the host's image and lives on.
 */
#ifndef IMAGE_PACKAGES_H
#define IMAGE_PACKAGES_H

#include <time.h>

enum { PACKAGE_FOLDERS = 13 };

struct packages_state {
	struct timespec changed[PACKAGE_FOLDERS];
};

/* To be compared with memcmp(): differs when a package came, changed or went in between. Who replaces a file in a folder
 * changes the folder. */
void packages_state_now(struct packages_state *ret);

#endif
