/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trust.h - whether a path is ours all the way: what stands in it can be made by nobody else but root and us, so
 * it can be used by name.
 *
 * Every folder on the way, and every link that is followed, must belong to root or to the calling user, and
 * nobody else may write in it, unless it is sticky (there others cannot move what is not theirs). Once that
 * holds, only those two can change it.
 */
#ifndef BASE_TRUST_H
#define BASE_TRUST_H

#include "base/err.h"

/* An absolute path, as far as it is there. -1 with e that names the component and what is wrong with it. */
int path_check_trust(const char *path, struct err *e) must_check;

#endif
