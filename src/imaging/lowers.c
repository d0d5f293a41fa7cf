/* SPDX-License-Identifier: Apache-2.0 */
#include "imaging/lowers.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/xattr.h>

#include "image/entry.h"

enum look { FOUND, LOOK_BELOW, HIDDEN };

static int open_beneath(int dir, const char *path)
{
	struct open_how how = {
		.flags = O_PATH | O_NOFOLLOW | O_CLOEXEC,
		.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS,
	};

	return (int)syscall(SYS_openat2, dir, path, &how, sizeof how);
}

bool lowers_is_whiteout(const struct stat *st)
{
	return S_ISCHR(st->st_mode) && st->st_rdev == 0;
}

bool lowers_is_opaque(int fd, bool rootless)
{
	char path[40], value[2] = "";

	snprintf(path, sizeof path, "/proc/self/fd/%d", fd); /* fgetxattr takes no O_PATH */
	return getxattr(path, rootless ? "user.overlay.opaque" : "trusted.overlay.opaque", value,
			sizeof value) == 1 &&
	       value[0] == 'y';
}

/* One layer, component by component: what is opaque or no folder hides all that is below. */
static enum look look_in(int layer, const char *path, bool rootless, struct stat *st)
{
	char part[ENTRY_PATH_MAX + 1];
	bool opaque = lowers_is_opaque(layer, rootless);

	for (const char *p = path; *p;) {
		size_t n = (size_t)(p - path) + strcspn(p, "/");
		_cleanup_close_ int fd = -1;
		struct stat found;

		memcpy(part, path, n);
		part[n] = '\0';
		fd = open_beneath(layer, part);
		if (fd < 0)
			return errno == ENOENT && !opaque ? LOOK_BELOW : HIDDEN;
		if (fstat(fd, &found) < 0 || !S_ISDIR(found.st_mode))
			return HIDDEN;
		if (!path[n]) {
			*st = found;
			return FOUND;
		}
		opaque |= lowers_is_opaque(fd, rootless);
		p = path + n + 1;
	}
	return HIDDEN;
}

void lowers_look(const struct lowers *l, const char *path, struct stat *st)
{
	enum look look = LOOK_BELOW;

	for (size_t i = l->count; look == LOOK_BELOW && i-- > 0;) {
		_cleanup_close_ int fd = openat(l->dir, l->layer[i].name,
						O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

		look = fd < 0 ? HIDDEN : look_in(fd, path, l->rootless, st);
	}
}
