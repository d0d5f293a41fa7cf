/* SPDX-License-Identifier: Apache-2.0 */
#include "base/trust.h"

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"

enum { MOST_LINKS = 40 }; /* as the kernel's MAXSYMLINKS */

struct way {
	char real[PATH_MAX]; /* folders that were found good, no link among them; "" is the root */
	char rest[PATH_MAX]; /* not looked at yet */
	unsigned links;
};

static const char *name_of(const struct way *w)
{
	return w->real[0] ? w->real : "/";
}

/* A group of one's own, or root's, is nobody else. */
static bool others_may_write(const struct stat *st)
{
	bool group = st->st_mode & S_IWGRP && st->st_gid != 0 &&
		     (geteuid() == 0 || st->st_gid != getegid());

	return (group || st->st_mode & S_IWOTH) && !(st->st_mode & S_ISVTX);
}

static int check(const struct way *w, const struct stat *st, const char *path, struct err *e)
{
	if (st->st_uid != 0 && st->st_uid != geteuid())
		return err_set(
			e, EPERM,
			"%.300s: %.300s belongs to uid %u, who could put something else in its "
			"place: use a path whose folders are root's or yours",
			path, name_of(w), (unsigned)st->st_uid);
	if (S_ISDIR(st->st_mode) && others_may_write(st))
		return err_set(e, EPERM,
			       "%.300s: others may write in %.300s (mode %04o): chmod go-w, or use "
			       "another path",
			       path, name_of(w), (unsigned)st->st_mode & 07777);
	return 0;
}

static void pop(struct way *w)
{
	char *slash = strrchr(w->real, '/');

	if (slash)
		*slash = '\0';
}

/* The next component of rest goes to the end of real. 0: there is none. */
static int take(struct way *w)
{
	char *p = w->rest + strspn(w->rest, "/");
	size_t n = strcspn(p, "/"), used = strlen(w->real);

	if (n == 0)
		return 0;
	if (used + n + 2 > sizeof w->real)
		return -ENAMETOOLONG;
	w->real[used] = '/';
	memcpy(w->real + used + 1, p, n);
	w->real[used + 1 + n] = '\0';
	memmove(w->rest, p + n, strlen(p + n) + 1);
	return 1;
}

static int follow(struct way *w)
{
	char target[PATH_MAX], rest[PATH_MAX];
	ssize_t n = readlink(w->real, target, sizeof target - 1);

	if (n < 0)
		return -errno;
	target[n] = '\0';
	if (++w->links > MOST_LINKS)
		return -ELOOP;
	memcpy(rest, w->rest, sizeof rest);
	if (snprintf(w->rest, sizeof w->rest, "%s/%s", target, rest) >= (int)sizeof w->rest)
		return -ENAMETOOLONG;
	if (target[0] == '/')
		w->real[0] = '\0';
	else
		pop(w);
	return 0;
}

/* 1: go on, 0: that was all, -1. */
static int step(struct way *w, const char *path, struct err *e)
{
	struct stat st;
	int r = take(w);
	const char *name;

	if (r <= 0)
		return r < 0 ? err_set(e, -r, "%.300s", path) : 0;
	name = strrchr(w->real, '/') + 1;
	if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0) {
		r = name[1] ? 2 : 1;
		while (r--)
			pop(w);
		return 1;
	}
	if (lstat(w->real, &st) < 0)
		return errno == ENOENT ? 0 : err_set(e, errno, "%.300s", w->real);
	if (check(w, &st, path, e) < 0)
		return -1;
	r = S_ISLNK(st.st_mode) ? follow(w) : S_ISDIR(st.st_mode) ? 0 : -ENOTDIR;
	return r < 0 ? err_set(e, -r, "%.300s", w->real) : 1;
}

int path_check_trust(const char *path, struct err *e)
{
	struct way w = {.links = 0};
	struct stat st;
	int r;

	if (path[0] != '/' || snprintf(w.rest, sizeof w.rest, "%s", path) >= (int)sizeof w.rest)
		return err_set(e, path[0] == '/' ? ENAMETOOLONG : EINVAL, "%.300s", path);
	if (stat("/", &st) < 0)
		return err_set(e, errno, "/");
	r = check(&w, &st, path, e) < 0 ? -1 : 1;
	while (r > 0)
		r = step(&w, path, e);
	return r;
}
