/* SPDX-License-Identifier: Apache-2.0 */
/*
 * serve.c - `cloche serve` becomes cloche-serve: beside this program when built, else where it is
 * installed. All arguments are for that program; its options stand here for the help alone.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/program.h"
#include "cli/cli.h"

const struct cli_option serve_options[] = {
	{"config", 0, "FILE", "the configuration, instead of cloche.yaml where it belongs", 0},
	{"check", 0, NULL, "check the configuration, say what is wrong with it, and end", 0},
	{"end-sandboxes", 0, NULL, "with the service stopped: end every sandbox it left alive", 0},
	{"foreground", 0, NULL, "accepted: it always runs in the foreground", 0},
	{NULL},
};

static bool asks_for_help(int argc, char **argv)
{
	for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++)
		if (strcmp(argv[i], "--help") == 0)
			return true;
	return false;
}

/* Sandboxes lie below the service's cgroup: started from a login it asks for one of its own, as every
 * command does. A unit has the one it was given, and systemd wants its process to stay there. */
static void find_cgroup(int argc, char **argv)
{
	struct places places;
	struct err ignored;

	if (!getenv("NOTIFY_SOCKET") && places_find(&places, &ignored) == 0)
		scope_enter(&places, argc + 1, argv - 1);
}

int verb_serve(const struct verb *verb, int argc, char **argv)
{
	char path[PROGRAM_PATH_SIZE];
	struct err e = {0};

	if (asks_for_help(argc, argv)) {
		print_verb_help(stdout, verb);
		return 0;
	}
	find_cgroup(argc, argv);
	if (program_find("cloche-serve", path, &e) < 0)
		return fail(EXIT_CLOCHE, &e);
	argv[0] = path;
	execv(path, argv);
	err_set(&e, errno, "start the service: %.300s", path);
	return fail(EXIT_CLOCHE, &e);
}
