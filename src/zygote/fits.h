/* SPDX-License-Identifier: Apache-2.0 */
/* fits.h - whether a prepared interpreter can serve an environment. Knows nothing of Python: the pool
 * asks before it hands over, the child asks again. */
#ifndef ZYGOTE_FITS_H
#define ZYGOTE_FITS_H

#include "base/err.h"

/* Variables that an interpreter, libc or a library reads only once, when it starts or is loaded (a
 * table in fits.c), must be the same in both. The lists end with NULL. 0, or -1 naming the variable. */
int environment_fits(char *const *zygote, char *const *wanted, struct err *e);

#endif
