/* SPDX-License-Identifier: Apache-2.0 */
/*
 * library.c - what a new sandbox costs a program that uses libcloche: create, execute /bin/true, destroy,
 * N times in one process, taking turns with posix_spawn of the same program.
 *
 *	bench-library N		prints NAME<tab>nanoseconds<tab>status per run, as runner does
 */
#include <cloche/cloche.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>

extern char **environ;

static const char *const command[] = {"/bin/true", NULL};

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static int bare(void)
{
	char *argv[] = {(char *)(uintptr_t)command[0], NULL};
	int status = -1;
	pid_t pid;

	if (posix_spawn(&pid, command[0], NULL, NULL, argv, environ) != 0)
		return -1;
	waitpid(pid, &status, 0);
	return status;
}

static int sandboxed(void)
{
	struct cloche_error e = {0};
	struct cloche_spec *spec = cloche_spec_new(&e);
	struct cloche_result *result = NULL;
	int status = -1;

	if (spec && cloche_spec_command(spec, command, &e) == 0 &&
	    cloche_run(spec, NULL, 0, &result, &e) == 0) {
		status = cloche_result_ok(result) ? 0 : 1;
		if (status != 0)
			fprintf(stderr, "%s: %s\n", cloche_result_reason(result),
				cloche_result_message(result));
	} else {
		fprintf(stderr, "%s\n", e.text);
	}
	cloche_result_free(result);
	cloche_spec_free(spec);
	return status;
}

static void measure(const char *name, int (*run)(void))
{
	uint64_t begun = now_ns();
	int status = run();

	printf("%s\t%llu\t%d\n", name, (unsigned long long)(now_ns() - begun), status);
}

int main(int argc, char **argv)
{
	unsigned long n = argc == 2 ? strtoul(argv[1], NULL, 10) : 0;

	if (n == 0) {
		fprintf(stderr, "usage: bench-library N\n");
		return 2;
	}
	for (unsigned long i = 0; i < n; i++) {
		measure("posix_spawn", bare);
		measure("libcloche", sandboxed);
	}
	return 0;
}
