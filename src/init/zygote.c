/* SPDX-License-Identifier: Apache-2.0 */
/*
 * zygote.c - from a fork of the keeper's to the interpreter: isolated like a sandbox, executed as a user
 * without one capability, under the filter "zygote" (seccomp.policy): a sandbox's, and what joining takes.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "init/nest.h"
#include "native/seccomp.h"

enum { ABOVE = 100 };

#define EXECUTABLE "/proc/self/fd/5" /* ZYGOTE_STDIO */

/* Its standard error is all there is to say it on. */
__attribute__((noreturn)) static void give_up(const char *stage, int errnum, const char *what)
{
	dprintf(2, "zygote: %s: %s: %s\n", stage, what, strerror(errnum));
	_exit(125);
}

static char **split(const struct zygote_request *r, const char *strings, char ***ret_envp)
{
	char **list = calloc((size_t)r->argc + r->envc + 2, sizeof *list), **next = list;
	const char *p = strings + strlen(strings) + 1, *end = strings + r->strings;

	if (!list || r->argc == 0)
		return NULL;
	for (uint32_t i = 0; i < r->argc + r->envc; i++, p += strlen(p) + 1) {
		if (p >= end)
			return NULL;
		if (i == r->argc)
			next++; /* the NULL behind the arguments */
		*next++ = (char *)(uintptr_t)p;
	}
	*ret_envp = list + r->argc + 1;
	return p == end ? list : NULL;
}

void zygote_run(const struct zygote_request *r, const char *strings, struct isolation *s,
		const int *fds)
{
	const struct seccomp_profile *filter = seccomp_profile_find("zygote");
	char **envp = NULL, **argv = split(r, strings, &envp);
	const char *stage = "plan";
	sigset_t none;
	int high[ZYGOTE_FDS_IN], e;

	for (int i = 0; i < ZYGOTE_FDS_IN; i++)
		high[i] = fcntl(fds[i], F_DUPFD_CLOEXEC, ABOVE);
	if (dup2(high[2], 2) < 0 || !argv || !filter)
		give_up("plan", EPROTO, "malformed request");
	e = isolate(s, ISOLATE_ZYGOTE, &stage);
	if (e < 0)
		give_up(stage, -e, s->object);
	for (int i = 0; i < ZYGOTE_STDIO; i++)
		if (dup2(high[i], i) < 0)
			give_up("stdio", errno, "place descriptors");
	if (dup2(high[ZYGOTE_STDIO], ZYGOTE_STDIO) < 0 ||
	    fcntl(ZYGOTE_STDIO, F_SETFD, FD_CLOEXEC) < 0 ||
	    syscall(SYS_close_range, ZYGOTE_STDIO + 1, ~0u, 0) < 0)
		give_up("stdio", errno, "place descriptors");
	umask(022);
	if (setsid() < 0 || chdir("/") < 0 || prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0 ||
	    prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) < 0) /* for EXECUTABLE */
		give_up("session", errno, "start a session");
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	signal(SIGPIPE, SIG_DFL);
	e = seccomp_profile_load(filter);
	if (e < 0)
		give_up("seccomp", -e, filter->name);
	execve(strings[0] ? strings : EXECUTABLE, argv, envp);
	give_up("exec", errno, argv[0]);
}
