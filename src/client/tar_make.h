/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tar_make.h - a tar of what is below a folder: regular files, folders and links as links. Sockets,
 * devices and what is nested too deep are counted as left out. Files are read as they are when their turn
 * comes; one that becomes shorter while it is read is an error.
 */
#ifndef CLIENT_TAR_MAKE_H
#define CLIENT_TAR_MAKE_H

#include <sys/types.h>

#include "base/err.h"

enum { TAR_MAX_DEPTH = 64 };

struct tar_maker;
struct tar_maker *tar_maker_new(int folder, struct err *e) must_check;
void tar_maker_free(struct tar_maker *m);
/* A call_source. */
ssize_t tar_maker_read(void *maker, char *data, size_t room);
unsigned tar_maker_left_out(const struct tar_maker *m);
/* Where it was when reading failed. */
const char *tar_maker_path(const struct tar_maker *m);

#endif
