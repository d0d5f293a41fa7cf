/* SPDX-License-Identifier: Apache-2.0 */
/* unit.h - what the unit tests share: cmocka, skips with a reason, scratch folders, small files. */
#ifndef TESTS_UNIT_H
#define TESTS_UNIT_H

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* after the above */
#include <cmocka.h>

#include "base/cleanup.h"
#include "base/tree.h"

/* The runner counts skips by this line (tests/run.py). */
#define skip_because(...)                       \
	do {                                    \
		printf("skip: %s: ", __func__); \
		printf(__VA_ARGS__);            \
		printf("\n");                   \
		fflush(stdout);                 \
		skip();                         \
	} while (0)

#define assert_contains(text, part)                                          \
	do {                                                                 \
		if (!strstr(text, part))                                     \
			fail_msg("\"%s\" is not in \"%s\"", (part), (text)); \
	} while (0)

/* A new folder below TMPDIR; its path in path, its descriptor returned. */
static inline int scratch_make(char path[static 256])
{
	const char *base = getenv("TMPDIR");

	snprintf(path, 256, "%s/cloche-unit.XXXXXX", base && *base ? base : "/tmp");
	assert_non_null(mkdtemp(path));
	return open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

static inline void scratch_remove(const char *path)
{
	assert_int_equal(tree_remove(AT_FDCWD, path), 0);
}

static inline void write_at(int dir, const char *name, const void *data, size_t size, mode_t mode)
{
	int fd = openat(dir, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, data, size), (ssize_t)size);
	assert_int_equal(fchmod(fd, mode), 0);
	close(fd);
}

static inline void text_at(int dir, const char *name, const char *text)
{
	write_at(dir, name, text, strlen(text), 0644);
}

/* The whole of a small file, NUL-terminated; -1 if it is not there. */
static inline ssize_t read_at(int dir, const char *name, char *text, size_t size)
{
	int fd = openat(dir, name, O_RDONLY | O_CLOEXEC);
	ssize_t n;

	if (fd < 0)
		return -1;
	n = read(fd, text, size - 1);
	close(fd);
	if (n >= 0)
		text[n] = '\0';
	return n;
}

#endif
