/* SPDX-License-Identifier: Apache-2.0 */
/*
 * host.h - the host image: this machine's /usr, and a root with a made-up /etc around it.
 *
 * The root is prepared once on disk (below the state directory) and is the lower layer of every
 * sandbox's own overlay. Its name carries a digest of what it was made from, so a change of the
 * machine's /etc makes a new one; it never changes in place. Those that were not used since the machine was
 * started are removed (host_marks.h).
 */
#ifndef IMAGE_HOST_H
#define IMAGE_HOST_H

#include "sandbox/places.h"

struct host_image {
	int dir;           /* folder that holds the prepared root and an empty "mnt"; O_PATH */
	char template[64]; /* name of the prepared root in it */
};

/* Find the prepared root, making it if it is missing. */
int host_image_open(const struct places *places, struct host_image *ret, struct err *e) must_check;

void host_image_done(struct host_image *image);

#endif
