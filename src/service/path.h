/* SPDX-License-Identifier: Apache-2.0 */
/* path.h - what can be said of a path inside by its name alone. Where it leads, init's worker finds out. */
#ifndef SERVICE_PATH_H
#define SERVICE_PATH_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

/* Whether it lies in /proc, /sys or /dev by its name. What a link leads to, init's worker tells. */
bool is_kernel_path(const char *path);

/* An absolute path from the query parameter or body, checked: at most 4,095 bytes. */
int check_path(const char *name, const char *path, size_t size, struct err *e) must_check;

#endif
