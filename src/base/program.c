/* SPDX-License-Identifier: Apache-2.0 */
#include "base/program.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Of a file in the same folder. */
static bool is_beside(const char *file, const char *name, char *path)
{
	const char *slash = strrchr(file, '/');

	if (file[0] != '/')
		return false;
	snprintf(path, PROGRAM_PATH_SIZE, "%.*s/%s", (int)(slash - file), file, name);
	return access(path, X_OK) == 0;
}

int program_self(char path[static PROGRAM_PATH_SIZE], struct err *e)
{
	ssize_t n = readlink("/proc/self/exe", path, PROGRAM_PATH_SIZE - 1);

	if (n < 0)
		return err_set(e, errno, "find this program");
	path[n] = '\0';
	return 0;
}

int program_find(const char *name, char path[static PROGRAM_PATH_SIZE], struct err *e)
{
	char self[PROGRAM_PATH_SIZE];
	struct err ignored = {0};
	Dl_info library;

	if (program_self(self, &ignored) == 0 && is_beside(self, name, path))
		return 0;
	if (dladdr((void *)(uintptr_t)program_find, &library) && library.dli_fname &&
	    is_beside(library.dli_fname, name, path))
		return 0;
	snprintf(path, PROGRAM_PATH_SIZE, "%s/%s", CLOCHE_LIBEXECDIR, name);
	return access(path, X_OK) == 0 ? 0 : err_set(e, errno, "%s (reinstall cloche)", path);
}
