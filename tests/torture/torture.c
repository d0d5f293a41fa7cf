/* SPDX-License-Identifier: Apache-2.0 */
#include "torture.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <jansson.h>

#include "native/clone3.h"

static enum torture_kind armed;
static unsigned left;
static int error;
static bool fired;
static const char *victim = "";

void torture_arm(enum torture_kind kind, unsigned n, int errnum)
{
	armed = kind;
	left = n;
	error = errnum;
	fired = false;
	victim = "";
}

bool torture_disarm(void)
{
	armed = TORTURE_NONE;
	return fired;
}

const char *torture_victim(void)
{
	return victim;
}

void torture_start(char **argv)
{
	static const char tunable[] = "glibc.malloc.tcache_count=0";
	const char *set = getenv("GLIBC_TUNABLES");

	if ((set && strcmp(set, tunable) == 0) || getenv("CLOCHE_UNDER_VALGRIND"))
		return;
	setenv("GLIBC_TUNABLES", tunable, 1);
	execv("/proc/self/exe", argv);
}

unsigned long torture_heap(void)
{
#if defined(__SANITIZE_ADDRESS__)
	return 0;
#else
	struct mallinfo2 m = mallinfo2();

	return getenv("CLOCHE_UNDER_VALGRIND") ? 0 : m.uordblks + m.hblkhd;
#endif
}

static bool now(enum torture_kind kind, const char *name)
{
	if (armed != kind || --left > 0)
		return false;
	armed = TORTURE_NONE;
	fired = true;
	victim = name;
	errno = kind == TORTURE_MEMORY ? ENOMEM : error;
	return true;
}
#define FAILS_MEMORY now(TORTURE_MEMORY, __func__ + sizeof "__wrap_" - 1)
#define FAILS_CALLS  now(TORTURE_CALLS, __func__ + sizeof "__wrap_" - 1)

/* Names end in 64 where the headers, told of 64-bit offsets, call these functions so.
 * WRAP(kind, what a failure returns, type, name, parameters, arguments) */
#define WRAP(kind, failure, type, name, parameters, arguments)           \
	type __real_##name parameters;                                   \
	type __wrap_##name parameters;                                   \
	type __wrap_##name parameters                                    \
	{                                                                \
		return FAILS_##kind ? failure : __real_##name arguments; \
	}

WRAP(MEMORY, NULL, void *, malloc, (size_t size), (size))
WRAP(MEMORY, NULL, void *, calloc, (size_t n, size_t size), (n, size))
WRAP(MEMORY, NULL, void *, realloc, (void *p, size_t size), (p, size))
WRAP(MEMORY, NULL, char *, strdup, (const char *text), (text))
WRAP(MEMORY, NULL, char *, strndup, (const char *text, size_t size), (text, size))
WRAP(MEMORY, NULL, FILE *, fopen64, (const char *path, const char *mode), (path, mode))
WRAP(MEMORY, NULL, DIR *, opendir, (const char *path), (path))
WRAP(MEMORY, NULL, DIR *, fdopendir, (int fd), (fd))
WRAP(MEMORY, -1, ssize_t, getline, (char **line, size_t *room, FILE *f), (line, room, f))

int __wrap_asprintf(char **ret, const char *format, ...);
int __wrap_asprintf(char **ret, const char *format, ...)
{
	va_list ap;
	int n;

	if (FAILS_MEMORY)
		return -1;
	va_start(ap, format);
	n = vasprintf(ret, format, ap);
	va_end(ap);
	return n;
}

WRAP(CALLS, -1, int, openat64, (int dir, const char *path, int flags, mode_t mode),
     (dir, path, flags, mode))
WRAP(CALLS, -1, int, open64, (const char *path, int flags, mode_t mode), (path, flags, mode))
WRAP(CALLS, -1, int, pipe2, (int p[2], int flags), (p, flags))
WRAP(CALLS, -1, int, socketpair, (int domain, int type, int protocol, int p[2]),
     (domain, type, protocol, p))
WRAP(CALLS, -1, int, setsockopt, (int fd, int level, int name, const void *value, socklen_t size),
     (fd, level, name, value, size))
WRAP(CALLS, -1, int, fcntl64, (int fd, int command, long argument), (fd, command, argument))
WRAP(CALLS, -1, int, mkdir, (const char *path, mode_t mode), (path, mode))
WRAP(CALLS, -1, int, flock, (int fd, int operation), (fd, operation))
WRAP(CALLS, -1, int, memfd_create, (const char *name, unsigned flags), (name, flags))
WRAP(CALLS, -1, ssize_t, sendmsg, (int fd, const struct msghdr *m, int flags), (fd, m, flags))
WRAP(CALLS, -1, ssize_t, recvmsg, (int fd, struct msghdr *m, int flags), (fd, m, flags))
WRAP(CALLS, -1, ssize_t, getrandom, (void *data, size_t size, unsigned flags), (data, size, flags))
WRAP(CALLS, -1, ssize_t, write, (int fd, const void *data, size_t size), (fd, data, size))
WRAP(CALLS, -1, ssize_t, read, (int fd, void *data, size_t size), (fd, data, size))
WRAP(CALLS, -error, pid_t, clone3_call,
     (struct clone3_args * args, int (*fn)(void *), void *argument), (args, fn, argument))

/* Jansson is a library of its own: it asks us by function pointer. */
static void *json_malloc_tortured(size_t size)
{
	return now(TORTURE_MEMORY, "json malloc") ? NULL : __real_malloc(size);
}

__attribute__((constructor)) static void torture_jansson(void)
{
	json_set_alloc_funcs(json_malloc_tortured, free);
}
