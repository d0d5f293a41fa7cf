/* SPDX-License-Identifier: Apache-2.0 */
/* program.h - where cloche's other programs are. */
#ifndef BASE_PROGRAM_H
#define BASE_PROGRAM_H

#include <limits.h>

#include "base/err.h"

enum { PROGRAM_PATH_SIZE = PATH_MAX + 64 };

/* The running program. */
int program_self(char path[static PROGRAM_PATH_SIZE], struct err *e) must_check;

/* The program of this name beside the running program, else beside this library (a program of somebody else's that
 * uses libcloche), else where it is installed. 0, or -1 when it is nowhere. */
int program_find(const char *name, char path[static PROGRAM_PATH_SIZE], struct err *e) must_check;

#endif
