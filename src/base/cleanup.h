/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cleanup.h - owned locals are released when they leave scope.
 *
 * A local that owns memory or a descriptor is declared with its attribute and an initialiser:
 *	_cleanup_free_ char *name = NULL;
 *	_cleanup_close_ int fd = -1;
 * and is given away with TAKE_PTR() or TAKE_FD(), which leave NULL or -1 behind. Attributes are
 * for memory and descriptors only; undoing things in the world is an explicit destroy function.
 */
#ifndef BASE_CLEANUP_H
#define BASE_CLEANUP_H

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static inline void cleanup_free(void *p)
{
	free(*(void **)p);
}

/* Close *fd if it is open, keep errno, and leave -1. close() is never retried: on Linux the
 * descriptor is gone even when it reports EINTR. */
static inline void fd_close(int *fd)
{
	if (*fd >= 0) {
		int saved = errno;

		close(*fd);
		errno = saved;
		*fd = -1;
	}
}

#define _cleanup_(f)    __attribute__((cleanup(f)))
#define _cleanup_free_  _cleanup_(cleanup_free)
#define _cleanup_close_ _cleanup_(fd_close)

/* Overwrite, then free, and leave NULL: for what nobody should find in memory. */
static inline void secret_free(char **text)
{
	if (*text)
		explicit_bzero(*text, strlen(*text));
	free(*text);
	*text = NULL;
}
#define _cleanup_secret_ _cleanup_(secret_free)

#define TAKE(var, nothing)                     \
	({                                     \
		__typeof__(var) taken = (var); \
		(var) = (nothing);             \
		taken;                         \
	})
#define TAKE_PTR(p) TAKE(p, NULL)
#define TAKE_FD(fd) TAKE(fd, -1)

#define ARRAY_SIZE(a) (sizeof(a) / sizeof *(a))
#define must_check    __attribute__((warn_unused_result))

#endif
