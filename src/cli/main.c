/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

#include "cli/cli.h"

const struct verb verbs[] = {
	{"run", "[OPTION...] [--] COMMAND [ARG...]", "run a command in a new sandbox", verb_run,
	 true},
	{"python", "[OPTION...] [-c CODE | FILE | -] [ARG...]", "run Python code in a new sandbox",
	 verb_language, true},
	{"bash", "[OPTION...] [-c CODE | FILE | -] [ARG...]", "run a bash script in a new sandbox",
	 verb_language, true},
	{"node", "[OPTION...] [-c CODE | FILE | -] [ARG...]", "run JavaScript in a new sandbox",
	 verb_language, true},
	{"doctor", "[--json]", "say what this machine can enforce, and how to get the rest",
	 verb_doctor, false},
	{"config", "show [--json]", "print every setting and where its value comes from",
	 verb_config, false},
	{"help", "[VERB]", "explain cloche or one verb", verb_help, false},
	{"version", "", "print the version", verb_version, false},
	{"reference", "man|bash", "print the manual page or the completion, from the tables",
	 verb_reference, false},
};
const size_t verb_count = ARRAY_SIZE(verbs);

/* A program may be started with 0, 1 or 2 closed; what it opens next must not land there. */
static void fill_standard_descriptors(void)
{
	int fd;

	do
		fd = open("/dev/null", O_RDWR);
	while (fd >= 0 && fd <= 2);
	if (fd > 2)
		close(fd);
}

int main(int argc, char **argv)
{
	const char *name = argc > 1 ? argv[1] : "help";
	struct err e = {0};

	if (getauxval(AT_SECURE)) {
		err_set(&e, 0, "must not be installed set-user-id or with capabilities");
		return fail(EXIT_CLOCHE, &e);
	}
	fill_standard_descriptors();
	signal(SIGPIPE, SIG_IGN);
	signal(SIGCHLD, SIG_DFL); /* our own children are waited for */
	scope_find_runtime_dir();
	if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0)
		name = "help";
	if (strcmp(name, "--version") == 0)
		name = "version";
	for (size_t i = 0; i < verb_count; i++)
		if (strcmp(verbs[i].name, name) == 0)
			return verbs[i].run(&verbs[i], argc - 1, argv + 1);
	err_set(&e, 0, "no such verb: %.60s (try `cloche help`)", name);
	return fail(EXIT_USAGE, &e);
}
