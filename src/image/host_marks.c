/* SPDX-License-Identifier: Apache-2.0 */
#include "image/host_marks.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/tree.h"

#define MARK "used-"

static void mark_name(char ret[NAME_MAX + 1], const char *boot, const char *root)
{
	snprintf(ret, NAME_MAX + 1, MARK "%s-%s", boot, root);
}

bool boot_id(char ret[BOOT_ID_SIZE])
{
	char text[64];

	if (fd_read_file(AT_FDCWD, "/proc/sys/kernel/random/boot_id", text, sizeof text) < 0)
		return false;
	text[strcspn(text, "\n")] = '\0';
	if (strlen(text) != BOOT_ID_SIZE - 1 || strchr(text, '/'))
		return false;
	memcpy(ret, text, BOOT_ID_SIZE);
	return true;
}

bool host_is_marked(int dir, const char *boot, const char *root)
{
	char name[NAME_MAX + 1];

	mark_name(name, boot, root);
	return faccessat(dir, name, F_OK, 0) == 0;
}

/* The root that a mark is of, if this is the name of one; *ret_boot: where its boot's id begins. */
static const char *marked_root(const char *name, const char **ret_boot)
{
	const size_t before = sizeof MARK - 1 + BOOT_ID_SIZE - 1;

	if (strncmp(name, MARK, sizeof MARK - 1) != 0 || strlen(name) < before + 2 ||
	    name[before] != '-')
		return NULL;
	*ret_boot = name + sizeof MARK - 1;
	return name + before + 1;
}

/* Call each() for every name; a folder that cannot be listed has none. */
static void each_name(int dir, void (*each)(int dir, const char *name, void *data), void *data)
{
	int list = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *d = list < 0 ? NULL : fdopendir(list);
	struct dirent *entry;

	if (!d) {
		fd_close(&list);
		return;
	}
	while ((entry = readdir(d)))
		each(dir, entry->d_name, data);
	closedir(d);
}

struct root {
	const char *name;
	bool has_mark;
};

static void see_mark(int dir, const char *name, void *data)
{
	struct root *r = data;
	const char *boot, *of = marked_root(name, &boot);

	(void)dir;
	r->has_mark = r->has_mark || (of && strcmp(of, r->name) == 0);
}

static void remove_mark(int dir, const char *name, void *data)
{
	const struct root *r = data;
	const char *boot, *of = marked_root(name, &boot);

	if (of && strcmp(of, r->name) == 0)
		(void)unlinkat(dir, name, 0);
}

void host_mark(int dir, const char *boot, const char *root)
{
	struct root r = {root, false};
	char name[NAME_MAX + 1];
	int fd;

	mark_name(name, boot, root);
	fd = openat(dir, name, O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0644);
	if (fd < 0)
		each_name(dir, remove_mark, &r);
	else
		close(fd);
}

static void look_at_root(int dir, const char *name, void *data)
{
	const char *boot = data;
	struct root r = {name, false};

	if ((strncmp(name, "root-", 5) != 0 && strncmp(name, ".making-", 8) != 0) ||
	    host_is_marked(dir, boot, name))
		return;
	each_name(dir, see_mark, &r);
	if (!r.has_mark) {
		host_mark(dir, boot, name);
	} else if (tree_remove(dir, name) ==
		   0) { /* the marks last: a half of it is removed again */
		each_name(dir, remove_mark, &r);
	}
}

/* Of a root that is no more, as its maker renamed or removed it. */
static void remove_stray(int dir, const char *name, void *data)
{
	const char *boot, *of = marked_root(name, &boot);

	(void)data;
	if (of && faccessat(dir, of, F_OK, AT_SYMLINK_NOFOLLOW) < 0)
		(void)unlinkat(dir, name, 0);
}

void host_sweep(int dir, const char *boot)
{
	each_name(dir, look_at_root, (void *)(uintptr_t)boot);
	each_name(dir, remove_stray, NULL);
}
