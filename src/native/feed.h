/* SPDX-License-Identifier: Apache-2.0 */
/*
 * feed.h - files and folders of the caller's for a sandbox: one walk over them, and PUT frames of what it finds.
 *
 * What the caller names may be a link; below it nothing is followed. Each sink function returns 0, or -1 with e,
 * which ends the walk.
 */
#ifndef NATIVE_FEED_H
#define NATIVE_FEED_H

#include <sys/stat.h>

#include "sandbox/spec.h"

struct feed_sink {
	int (*folder)(void *context, const char *box, mode_t mode, struct err *e);
	int (*link)(void *context, const char *box, const char *target, struct err *e);
	/* fd is open for reading and stays the walk's. The size in st is what is to be taken, exactly: a file that
	 * shrinks meanwhile is an error, growth is not taken. name is for messages. */
	int (*file)(void *context, int fd, const struct stat *st, const char *name, const char *box,
		    struct err *e);
	void *context;
};

/* Every input of the spec, a folder before what is in it. */
int feed_walk(const struct spec *s, const struct feed_sink *to, struct err *e) must_check;

/* Send every input of the spec. Blocks while the sandbox is slow, as long as the stream's own send
 * timeout allows; ECANCELED when cancel_fd (-1: none) becomes readable. */
int feed_inputs(int control, const struct spec *s, int cancel_fd, struct err *e) must_check;

#endif
