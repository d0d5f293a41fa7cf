/* SPDX-License-Identifier: Apache-2.0 */
/* feed.h - send files and folders of the caller's into a sandbox, as PUT frames. */
#ifndef NATIVE_FEED_H
#define NATIVE_FEED_H

#include "sandbox/spec.h"

/* Send every input of the spec. Blocks while the sandbox is slow, as long as the stream's own send
 * timeout allows; ECANCELED when cancel_fd (-1: none) becomes readable. */
int feed_inputs(int control, const struct spec *s, int cancel_fd, struct err *e) must_check;

#endif
