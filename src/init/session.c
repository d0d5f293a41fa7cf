/* SPDX-License-Identifier: Apache-2.0 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "init/kept.h"

enum { MEMBERS_MAX = 4096, ROUNDS = 10 };

/* /proc hides what one may not inspect; what runs inside is the sandbox user's. Must be that user. */
static size_t find_members(pid_t session, pid_t *members)
{
	DIR *proc = opendir("/proc");
	struct dirent *e;
	size_t n = 0;

	while (proc && n < MEMBERS_MAX && (e = readdir(proc))) {
		pid_t pid = e->d_name[0] >= '1' && e->d_name[0] <= '9'
				    ? (pid_t)strtol(e->d_name, NULL, 10)
				    : 0;

		if (pid > 1 && getsid(pid) == session)
			members[n++] = pid;
	}
	if (proc)
		closedir(proc);
	return n;
}

static bool is_dead(pid_t pid)
{
	char path[32], text[128];
	const char *state;
	ssize_t n;
	int fd;

	snprintf(path, sizeof path, "/proc/%d/stat", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return errno == ENOENT || errno == ESRCH;
	n = read(fd, text, sizeof text - 1);
	close(fd);
	if (n <= 0)
		return true;
	text[n] = '\0';
	state = strrchr(text, ')');
	return state && state[1] && (state[2] == 'Z' || state[2] == 'X');
}

/* With SIGKILL again until nobody new turns up: one that got it forks no more, but may have before. */
unsigned session_signal(const struct guest *g, pid_t session, pid_t but, int signal)
{
	static pid_t members[MEMBERS_MAX];
	uint64_t before = 0;
	size_t n = 0;

	for (int round = 0; round < ROUNDS; round++) {
		uint64_t sum = 0;

		if (guest_as_user(g->uid, g->gid) == 0)
			n = find_members(session, members);
		guest_as_root();
		for (size_t i = 0; i < n; i++) {
			sum += (uint64_t)members[i] * (uint64_t)members[i] + 1;
			if (members[i] != but)
				kill(members[i], signal);
		}
		if (signal != SIGKILL || sum == before)
			break;
		before = sum;
	}
	return (unsigned)n;
}

bool session_is_alive(const struct guest *g, pid_t session)
{
	static pid_t members[MEMBERS_MAX];
	bool alive = false;

	if (guest_as_user(g->uid, g->gid) == 0) {
		size_t n = find_members(session, members);

		for (size_t i = 0; i < n && !alive; i++)
			alive = !is_dead(members[i]);
	}
	guest_as_root();
	return alive;
}
