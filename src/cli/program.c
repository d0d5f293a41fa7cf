/* SPDX-License-Identifier: Apache-2.0 */
/* program.c - where the programs are that a verb becomes. */
#include <limits.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"

int program_self(char path[PROGRAM_PATH], struct err *e)
{
	ssize_t n = readlink("/proc/self/exe", path, PATH_MAX - 1);

	if (n < 0)
		return err_set(e, errno, "find this program");
	path[n] = '\0';
	return 0;
}

int program_find(const char *name, char path[PROGRAM_PATH], struct err *e)
{
	char *slash;

	if (program_self(path, e) < 0)
		return -1;
	slash = strrchr(path, '/');
	snprintf(slash + 1, PROGRAM_NAME, "%s", name);
	if (access(path, X_OK) < 0)
		snprintf(path, PROGRAM_PATH, CLOCHE_LIBEXECDIR "/%s", name);
	return 0;
}
