/* SPDX-License-Identifier: Apache-2.0 */
/*
 * loadfilter - run a command under a seccomp profile and nothing else: no namespaces, no limits.
 *
 *	loadfilter PROFILE [COMMAND [ARG...]]
 *
 * Without a command it prints "ready" and waits to be killed, for scdump to look at. The layer
 * alone is what the golden files and the tests of single calls want; it is no sandbox.
 */
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "native/seccomp.h"

int main(int argc, char **argv)
{
	const struct seccomp_profile *profile = NULL;
	int r = 0;

	if (argc < 2 || !(profile = seccomp_profile_find(argv[1]))) {
		fprintf(stderr, "usage: loadfilter PROFILE [COMMAND [ARG...]]\n");
		return 2;
	}
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0) {
		perror("loadfilter: no_new_privs");
		return 125;
	}
	r = seccomp_profile_load(profile);
	if (r < 0) {
		fprintf(stderr, "loadfilter: profile %s: %s\n", profile->name, strerror(-r));
		return 125;
	}
	if (argc > 2) {
		execvp(argv[2], argv + 2);
		fprintf(stderr, "loadfilter: %s: %m\n", argv[2]);
		return 127;
	}
	puts("ready");
	fflush(stdout);
	for (;;)
		pause();
}
