/* SPDX-License-Identifier: Apache-2.0 */
/* fd.h - descriptors: whole reads and writes, small files, pipes. All return 0/count or -errno. */
#ifndef BASE_FD_H
#define BASE_FD_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/cleanup.h"

/* Write all of data, retrying short writes and EINTR; blocks if fd does. 0 or -errno. */
int fd_write_all(int fd, const void *data, size_t size) must_check;

/* Read until EOF or size bytes. Returns the count, or -errno. */
ssize_t fd_read_all(int fd, void *data, size_t size) must_check;

/* Read a small text file (below dirfd, which may be AT_FDCWD) into text, NUL-terminated.
 * Returns its length; -EFBIG if it does not fit in size - 1 bytes; else -errno. */
ssize_t fd_read_file(int dirfd, const char *path, char *text, size_t size);

/* Write text to an existing file in a single write(2), as kernel interfaces want it. */
int fd_write_file(int dirfd, const char *path, const char *text);

/* Read everything to EOF into a fresh NUL-terminated buffer of at most limit bytes (-EFBIG above
 * that). The caller frees *ret_data. */
int fd_slurp(int fd, size_t limit, char **ret_data, size_t *ret_size) must_check;

/* Monotonic time in microseconds. */
uint64_t now_us(void);

#endif
