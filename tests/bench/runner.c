/* SPDX-License-Identifier: Apache-2.0 */
/*
 * runner.c - start programs and print how long each took, with nothing of an interpreter in the numbers.
 *
 *	runner ROUNDS LIST		every line of LIST takes its turn in each round
 *	runner -j JOBS COUNT LIST	the first line of LIST, COUNT times, JOBS of them at a time
 *
 * A line of LIST: NAME, EVERY (runs in each EVERY-th round), STDIN (a file) and the program with its
 * arguments, all separated by tabs; "@N@" in an argument becomes a number that is new for each run.
 * stdout goes to /dev/null, stderr to a memory file that is quoted after a failure. One line of output
 * per run: NAME, nanoseconds from before the spawn until the process was reaped, its wait status (-1:
 * could not be started or took too long), what it said when it failed. With -j the last line is "all",
 * nanoseconds for everything, and the number of failures. A program whose first run fails is left out.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MAX_PROGRAMS = 32, MAX_ARGS = 96, MAX_JOBS = 256, LIMIT_MS = 120000 };

extern char **environ;

struct program {
	char *name, *input, *argv[MAX_ARGS];
	unsigned long every;
	bool has_run, left_out;
};

static struct program programs[MAX_PROGRAMS];
static size_t program_count;
static int complaints = -1; /* stderr of what is run */

__attribute__((noreturn)) static void die(const char *what)
{
	fprintf(stderr, "runner: %s: %s\n", what, strerror(errno));
	exit(1);
}

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static void add_program(char *line)
{
	struct program *p = &programs[program_count];
	char *save = NULL, *every;
	size_t n = 0;

	p->name = strtok_r(line, "\t", &save);
	every = strtok_r(NULL, "\t", &save);
	p->input = strtok_r(NULL, "\t", &save);
	while (n < MAX_ARGS - 1 && (p->argv[n] = strtok_r(NULL, "\t", &save)))
		n++;
	if (n == 0)
		return;
	p->every = strtoul(every, NULL, 10);
	if (p->every == 0)
		p->every = 1;
	program_count++;
}

static void read_list(const char *path)
{
	FILE *f = fopen(path, "re");
	char *line = NULL;
	size_t room = 0;

	if (!f)
		die(path);
	while (program_count < MAX_PROGRAMS && getline(&line, &room, f) > 0) {
		line[strcspn(line, "\n")] = '\0';
		add_program(line);
		line = NULL; /* its parts are used from now on */
		room = 0;
	}
	fclose(f);
}

/* Everything that the clock shall not see is done before: descriptors, and the arguments. */
static pid_t start(const struct program *p, uint64_t *ret_begun)
{
	static unsigned long number;
	static char texts[MAX_ARGS][256];
	char *argv[MAX_ARGS];
	posix_spawn_file_actions_t actions;
	pid_t pid;
	int r;

	number++;
	for (size_t i = 0; i < MAX_ARGS; i++) {
		char *mark = p->argv[i] ? strstr(p->argv[i], "@N@") : NULL;

		argv[i] = p->argv[i];
		if (mark) {
			snprintf(texts[i], sizeof texts[i], "%.*s%d-%lu%s",
				 (int)(mark - p->argv[i]), p->argv[i], getpid(), number, mark + 3);
			argv[i] = texts[i];
		}
		if (!argv[i])
			break;
	}
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_addopen(&actions, 0, p->input, O_RDONLY, 0);
	posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
	posix_spawn_file_actions_adddup2(&actions, complaints, 2);
	*ret_begun = now_ns();
	r = posix_spawnp(&pid, argv[0], &actions, NULL, argv, environ);
	posix_spawn_file_actions_destroy(&actions);
	errno = r;
	return r == 0 ? pid : -1;
}

/* The first line that was said, without what would break ours. */
static void print_complaint(void)
{
	char text[256];
	ssize_t n = pread(complaints, text, sizeof text - 1, 0);

	text[n > 0 ? n : 0] = '\0';
	for (char *c = text; *c; c++)
		if (*c == '\n' || *c == '\t')
			*c = ' ';
	printf("\t%s", text);
}

static void report(struct program *p, uint64_t took, int status)
{
	printf("%s\t%llu\t%d", p->name, (unsigned long long)took, status);
	if (status != 0)
		print_complaint();
	printf("\n");
	if (status != 0 && !p->has_run)
		p->left_out = true;
	p->has_run = true;
}

static void run_once(struct program *p)
{
	struct pollfd end = {.events = POLLIN};
	uint64_t begun;
	int status = -1;
	pid_t pid;

	if (ftruncate(complaints, 0) < 0)
		die("empty the memory file");
	lseek(complaints, 0, SEEK_SET);
	pid = start(p, &begun);
	if (pid < 0) {
		dprintf(complaints, "%s: %s", p->argv[0], strerror(errno));
		report(p, 0, -1);
		return;
	}
	end.fd = (int)syscall(SYS_pidfd_open, pid, 0);
	if (end.fd < 0)
		die("pidfd_open");
	if (poll(&end, 1, LIMIT_MS) == 0) {
		kill(pid, SIGKILL);
		dprintf(complaints, "took longer than %d s", LIMIT_MS / 1000);
		waitpid(pid, NULL, 0);
	} else {
		waitpid(pid, &status, 0);
	}
	begun = now_ns() - begun;
	close(end.fd);
	report(p, begun, status);
}

static void take_turns(unsigned long rounds)
{
	for (unsigned long i = 0; i < rounds; i++) {
		for (size_t k = 0; k < program_count; k++)
			if (!programs[k].left_out && i % programs[k].every == 0)
				run_once(&programs[k]);
		fflush(stdout);
	}
}

static void run_together(struct program *p, unsigned long jobs, unsigned long count)
{
	struct {
		pid_t pid;
		uint64_t begun;
	} running[MAX_JOBS] = {{0, 0}};
	unsigned long started = 0, ended = 0, failures = 0;
	uint64_t begun = now_ns();

	while (ended < count) {
		int status;
		pid_t pid;

		for (unsigned long i = 0; i < jobs && started < count; i++) {
			if (running[i].pid)
				continue;
			running[i].pid = start(p, &running[i].begun);
			if (running[i].pid < 0)
				die(p->argv[0]);
			started++;
		}
		pid = waitpid(-1, &status, 0);
		if (pid < 0)
			die("wait");
		for (unsigned long i = 0; i < jobs; i++) {
			if (running[i].pid != pid)
				continue;
			running[i].pid = 0;
			report(p, now_ns() - running[i].begun, status);
			failures += status != 0;
			ended++;
		}
	}
	printf("all\t%llu\t%lu\n", (unsigned long long)(now_ns() - begun), failures);
}

int main(int argc, char **argv)
{
	bool together = argc == 5 && strcmp(argv[1], "-j") == 0;
	unsigned long jobs = together ? strtoul(argv[2], NULL, 10) : 1;

	if ((argc != 3 && !together) || jobs < 1 || jobs > MAX_JOBS) {
		fprintf(stderr, "usage: runner ROUNDS LIST | runner -j JOBS COUNT LIST\n");
		return 2;
	}
	complaints = memfd_create("complaints", MFD_CLOEXEC);
	if (complaints < 0)
		die("memfd_create");
	read_list(argv[argc - 1]);
	if (program_count == 0) {
		fprintf(stderr, "runner: %s: nothing to run\n", argv[argc - 1]);
		return 1;
	}
	if (together)
		run_together(&programs[0], jobs, strtoul(argv[3], NULL, 10));
	else
		take_turns(strtoul(argv[1], NULL, 10));
	return 0;
}
