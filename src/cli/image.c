/* SPDX-License-Identifier: Apache-2.0 */
/*
 * image.c - `cloche image` becomes cloche-image: beside this program when built, else where it is installed. All
 * arguments are for that program; its options stand here for the help alone.
 */
#include <limits.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"

const struct cli_option image_options[] = {
	{"quiet", 'q', NULL, "import, rm, prune: print nothing but errors", 0},
	{"json", 0, NULL, "ls: print a JSON array", 0},
	{"all", 'a', NULL, "prune: also what has a name", 0},
	{"force", 'f', NULL, "rm, by id: with all its names", 0},
	{NULL},
};

int verb_image(const struct verb *verb, int argc, char **argv)
{
	char path[PATH_MAX + 16];
	ssize_t n = readlink("/proc/self/exe", path, PATH_MAX - 1);
	struct err e = {0};
	char *slash;

	for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++)
		if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
			print_verb_help(stdout, verb);
			return 0;
		}
	if (n < 0) {
		err_set(&e, errno, "find this program");
		return fail(EXIT_CLOCHE, &e);
	}
	path[n] = '\0';
	slash = strrchr(path, '/');
	memcpy(slash, "/cloche-image", sizeof "/cloche-image");
	if (access(path, X_OK) < 0)
		memcpy(path, CLOCHE_LIBEXECDIR "/cloche-image",
		       sizeof CLOCHE_LIBEXECDIR "/cloche-image");
	argv[0] = path;
	execv(path, argv);
	err_set(&e, errno, "start %.300s (reinstall cloche)", path);
	return fail(EXIT_CLOCHE, &e);
}
