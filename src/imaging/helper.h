/* SPDX-License-Identifier: Apache-2.0 */
/* helper.h - programs that belong to this one: beside it when built and when installed. */
#ifndef IMAGING_HELPER_H
#define IMAGING_HELPER_H

#include <limits.h>

#include "base/err.h"

enum { HELPER_PATH_SIZE = PATH_MAX + 32 };

int helper_find(const char *name, char ret[HELPER_PATH_SIZE], struct err *e) must_check;

#endif
