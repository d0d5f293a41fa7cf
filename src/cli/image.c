/* SPDX-License-Identifier: Apache-2.0 */
/*
 * image.c - `cloche image` becomes cloche-image: beside this program when built, else where it is installed. All
 * arguments are for that program; its options stand here for the help alone.
 */
#include <fcntl.h>
#include <spawn.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/program.h"
#include "cli/cli.h"

const struct cli_option image_options[] = {
	{"quiet", 'q', NULL, "pull, import, rm, prune: print nothing but errors", 0},
	{"json", 0, NULL, "ls: print a JSON array", 0},
	{"all", 'a', NULL, "prune: also what has a name", 0},
	{"force", 'f', NULL, "rm, by id: with all its names", 0},
	{NULL},
};

int verb_image(const struct verb *verb, int argc, char **argv)
{
	char path[PROGRAM_PATH_SIZE];
	struct err e = {0};

	for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++)
		if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
			print_verb_help(stdout, verb);
			return 0;
		}
	if (program_find("cloche-image", path, &e) < 0)
		return fail(EXIT_CLOCHE, &e);
	argv[0] = path;
	execv(path, argv);
	err_set(&e, errno, "start %.300s (reinstall cloche)", path);
	return fail(EXIT_CLOCHE, &e);
}

/* Its progress and its errors are on our stderr. */
int image_pull(const char *name, bool quiet, struct err *e)
{
	char path[PROGRAM_PATH_SIZE], copy[SPEC_PATH_SIZE];
	char verb[] = "pull", silent[] = "--quiet", end[] = "--";
	char *argv[] = {path, verb, end, copy, NULL, NULL};
	posix_spawn_file_actions_t actions;
	int status, r;
	pid_t pid;

	if (program_find("cloche-image", path, e) < 0)
		return -1;
	snprintf(copy, sizeof copy, "%s", name);
	if (quiet) {
		argv[2] = silent;
		argv[3] = end;
		argv[4] = copy;
	}
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
	posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
	r = posix_spawn(&pid, path, &actions, NULL, argv, environ);
	posix_spawn_file_actions_destroy(&actions);
	if (r != 0)
		return err_set(e, r, "start %.300s (reinstall cloche)", path);
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return err_set(e, errno, "wait for %.300s", path);
	if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
		return 0;
	err_set(e, 0, "the image %.200s could not be pulled", name);
	return err_code(e, CODE_SANDBOX_IMAGE_MISSING);
}
