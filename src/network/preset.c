/* SPDX-License-Identifier: Apache-2.0 */
#include "network/preset.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fd.h"
#include "network/policy.h"

static const char suffix[] = ".rules";

/* ---- which there are ---- */

enum { NAMES_MAX = 256 };

static int compare(const void *a, const void *b)
{
	return strcmp(a, b);
}

static bool is_known(char (*names)[NETWORK_NAME_SIZE], size_t count, const char *name)
{
	for (size_t i = 0; i < count; i++)
		if (strcmp(names[i], name) == 0)
			return true;
	return false;
}

static size_t list_folder(const char *path, char (*names)[NETWORK_NAME_SIZE], size_t count)
{
	DIR *d = opendir(path);
	struct dirent *entry;
	struct err e;

	while (d && count < NAMES_MAX && (entry = readdir(d))) {
		size_t n = strlen(entry->d_name), m = n - (sizeof suffix - 1);
		char name[NETWORK_NAME_SIZE] = "";

		if (n < sizeof suffix || m >= sizeof name || strcmp(entry->d_name + m, suffix) != 0)
			continue;
		memcpy(name, entry->d_name, m);
		if (network_name_check(name, &e) == 0 && !is_known(names, count, name))
			memcpy(names[count++], name, sizeof name);
	}
	if (d)
		closedir(d);
	return count;
}

void preset_names(const struct preset_folders *folders, char *text, size_t size)
{
	char(*names)[NETWORK_NAME_SIZE] = calloc(NAMES_MAX, sizeof *names);
	size_t count = 0, used = 0;

	*text = '\0';
	for (size_t i = 0; names && i < folders->count; i++)
		count = list_folder(folders->path[i], names, count);
	if (names)
		qsort(names, count, sizeof *names, compare);
	for (size_t i = 0; i < count && used + strlen(names[i]) + 2 < size; i++)
		used += (size_t)snprintf(text + used, size - used, "%s%s", i ? " " : "", names[i]);
	free(names);
}

/* ---- one of them ---- */

static int refuse_word(const char *line, const char *end, const char *path, size_t number,
		       struct err *e)
{
	static const char *const words[] = {"preset", "credential", "}"};

	while (line < end && (*line == ' ' || *line == '\t'))
		line++;
	for (size_t i = 0; i < ARRAY_SIZE(words); i++) {
		size_t n = strlen(words[i]);

		if ((size_t)(end - line) >= n && strncmp(line, words[i], n) == 0 &&
		    (line + n == end || strchr(" \t\r", line[n])))
			return err_set(
				e, 0,
				"%.300s line %zu: %s: a preset has allow, deny and max- lines only",
				path, number, words[i]);
	}
	return 0;
}

static int check(const char *text, size_t size, const char *path, struct err *e)
{
	struct network_policy *p = NULL;
	size_t number = 1;

	for (const char *line = text, *end; *line; number++) {
		end = line + strcspn(line, "\n");
		if (refuse_word(line, end, path, number, e) < 0)
			return -1;
		line = *end ? end + 1 : end;
	}
	if (network_policy_parse(text, size, path, NETWORK_ALLOW, &p, e) < 0)
		return -1;
	network_policy_free(p);
	return 0;
}

/* 1: there is none here. */
static int read_file(const char *path, char **ret, struct err *e)
{
	_cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	_cleanup_free_ char *text = NULL;
	struct stat st;
	size_t size;
	int r;

	if (fd < 0)
		return errno == ENOENT || errno == ENOTDIR ? 1
							   : err_set(e, errno, "open %.300s", path);
	if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
		return err_set(e, 0, "%.300s: is not a file", path);
	r = fd_slurp(fd, PRESET_FILE_MAX, &text, &size);
	if (r < 0)
		return err_set(e, -r, "read %.300s (at most %d bytes)", path, PRESET_FILE_MAX);
	if (check(text, size, path, e) < 0)
		return -1;
	*ret = TAKE_PTR(text);
	return 0;
}

char *preset_read(const struct preset_folders *folders, const char *name, size_t *ret_folder,
		  struct err *e)
{
	char path[PRESET_PATH_SIZE + NETWORK_NAME_SIZE + 16], known[300];
	char *text = NULL;

	if (network_name_check(name, e) < 0)
		return NULL;
	for (size_t i = 0; i < folders->count; i++) {
		int r;

		snprintf(path, sizeof path, "%s/%s%s", folders->path[i], name, suffix);
		r = read_file(path, &text, e);
		if (r < 0)
			return NULL;
		if (r == 0) {
			if (ret_folder)
				*ret_folder = i;
			return text;
		}
	}
	preset_names(folders, known, sizeof known);
	err_set(e, 0, "there is no preset %s (%s%s)", name,
		*known ? "there are: " : "there are none", known);
	e->errnum = ENOENT;
	return NULL;
}
