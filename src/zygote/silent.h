/* SPDX-License-Identifier: Apache-2.0 */
/* silent.h - whether anybody could notice the death of an object. */
#ifndef ZYGOTE_SILENT_H
#define ZYGOTE_SILENT_H

#include <stdbool.h>

#include "zygote/interp.h"

/* In the first process. */
int silent_prepare(struct err *e);

/* Nobody could. Judges the object, not what it holds. */
bool silent_object(PyObject *object);

/* No library is loaded of which it is not known whether it has something to do at the exit of the
 * process. */
bool silent_libraries(void);

#endif
