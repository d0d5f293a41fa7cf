/* SPDX-License-Identifier: Apache-2.0 */
/*
 * scope.c - rootless: a cgroup that is ours, from the user's systemd.
 *
 * A login shell's cgroup is not delegated to its user. systemd makes a delegated scope for whoever asks,
 * so the command asks once, by starting itself again in one; systemd-run becomes this command, which
 * keeps its pid, terminal and exit status.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/cli.h"
#include "native/cgroup.h"

/* Where a login would have set it. */
void scope_find_runtime_dir(void)
{
	char path[64];
	struct stat st;

	snprintf(path, sizeof path, "/run/user/%u", geteuid());
	if (geteuid() != 0 && !getenv("XDG_RUNTIME_DIR") && stat(path, &st) == 0 &&
	    S_ISDIR(st.st_mode) && st.st_uid == geteuid())
		setenv("XDG_RUNTIME_DIR", path, 0);
}

void scope_enter(const struct places *places, int argc, char **argv)
{
	static const char *const ask[] = {"systemd-run", "--user", "--scope",      "--quiet",
					  "--collect",   "-p",     "Delegate=yes", "--"};
	const char *runtime = getenv("XDG_RUNTIME_DIR");
	struct cgroup_host host;
	char bus[1024];
	char **list;
	size_t n = 0;

	if (!places->rootless || getenv(CGROUP_SCOPE_MARK) || !runtime)
		return;
	cgroup_host_find(places, &host);
	snprintf(bus, sizeof bus, "%s/systemd/private", runtime);
	if (!host.may_be_delegated || access(bus, F_OK) < 0)
		return;
	list = calloc(ARRAY_SIZE(ask) + (size_t)argc + 2, sizeof *list);
	if (!list)
		return;
	for (; n < ARRAY_SIZE(ask); n++)
		list[n] = (char *)(uintptr_t)ask[n];
	list[n] = realpath("/proc/self/exe", NULL);
	if (!list[n++])
		return;
	for (int i = 1; i < argc; i++)
		list[n++] = argv[i];
	setenv(CGROUP_SCOPE_MARK, "1", 1);
	execvp(list[0], list);
	/* No systemd-run: go on, and say what is missing where the limits are made. */
	unsetenv(CGROUP_SCOPE_MARK);
	free(list);
}
