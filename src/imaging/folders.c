/* SPDX-License-Identifier: Apache-2.0 */
#include "imaging/folders.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>

struct folder {
	char *path;
	struct timespec mtime;
	unsigned mode;
	unsigned order;
};

int folder_list_add(struct folder_list *l, const char *path, unsigned mode, struct timespec mtime,
		    struct err *e)
{
	if (l->count == FOLDERS_MAX)
		return err_set(e, EFBIG, "more than %d folders in one layer", FOLDERS_MAX);
	if (l->count == l->room) {
		size_t room = l->room ? 2 * l->room : 256;
		struct folder *more = realloc(l->item, room * sizeof *more);

		if (!more)
			return err_set(e, ENOMEM, "remember the folder %s", path);
		l->item = more;
		l->room = room;
	}
	l->item[l->count] = (struct folder){strdup(path), mtime, mode, (unsigned)l->count};
	if (!l->item[l->count].path)
		return err_set(e, ENOMEM, "remember the folder %s", path);
	l->count++;
	return 0;
}

/* What is below a folder comes before it, and of the same the latest first. */
static int backwards(const void *a, const void *b)
{
	const struct folder *x = a, *y = b;
	int r = strcmp(y->path, x->path);

	return r ? r : (y->order > x->order) - (y->order < x->order);
}

int folder_list_apply(struct folder_list *l, int dir, bool modes, struct err *e)
{
	struct open_how how = {
		.flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC,
		.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_XDEV,
	};

	if (l->count)
		qsort(l->item, l->count, sizeof *l->item, backwards);
	for (size_t i = 0; i < l->count; i++) {
		const struct folder *f = &l->item[i];
		const struct timespec times[2] = {f->mtime, f->mtime};
		_cleanup_close_ int fd = -1;

		if (i > 0 && strcmp(f->path, l->item[i - 1].path) == 0)
			continue;
		fd = (int)syscall(SYS_openat2, dir, f->path, &how, sizeof how);
		if (fd < 0 && (errno == ENOENT || errno == ENOTDIR || errno == ELOOP))
			continue;
		if (fd < 0 || futimens(fd, times) < 0 || (modes && fchmod(fd, f->mode) < 0))
			return err_set(e, errno, "set time and mode of the folder %s", f->path);
	}
	return 0;
}

void folder_list_done(struct folder_list *l)
{
	for (size_t i = 0; i < l->count; i++)
		free(l->item[i].path);
	free(l->item);
	*l = (struct folder_list){0};
}
