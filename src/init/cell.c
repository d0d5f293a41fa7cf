/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cell.c - the init of a prepared sandbox: isolates itself, then serves as any sandbox's init does.
 *
 * One thing is more: until it is joined it is dumpable, which alone lets the zygote (over whose child
 * namespaces it has rights) name its namespaces by its pidfd. Whoever has joined says so on the seat; from
 * then on init is undumpable, and as its memory belongs to the host's root, nobody below can look at it.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "init/nest.h"

enum { CONTROL = 3, SEAT = 4, LOCK = 5 /* INIT_LOCK_FD */ };

static struct plan plan;
static struct guest guest;

__attribute__((noreturn)) static void give_up(const char *stage, int errnum, const char *what)
{
	guest_report_failure(&guest, stage, errnum, what);
	_exit(1);
}

/* The descriptors of an init, at their places; the isolation's above them. */
static int place(const int *fds, struct isolation *s)
{
	const int low[][2] = {{CELL_CONTROL, CONTROL}, {CELL_SEAT, SEAT}, {CELL_LOCK, LOCK}};
	int *high[] = {&s->userns, &s->tree, &s->netns};
	int moved[CELL_CGROUP];

	for (int i = 0; i < CELL_CGROUP; i++) {
		moved[i] = fcntl(fds[i], F_DUPFD_CLOEXEC, 64);
		if (moved[i] < 0)
			return -errno;
	}
	syscall(SYS_close_range, 3, 63, 0);
	for (size_t i = 0; i < sizeof low / sizeof *low; i++)
		if (dup2(moved[low[i][0]], low[i][1]) < 0)
			return -errno;
	for (int i = CELL_USERNS; i <= CELL_NETNS; i++)
		*high[i] = fcntl(moved[i], F_DUPFD_CLOEXEC, LOCK + 1);
	syscall(SYS_close_range, 64, ~0u, 0);
	return s->userns < 0 || s->tree < 0 || s->netns < 0 ? -EMFILE : 0;
}

void cell_run(const struct cell_request *request, const int *fds)
{
	struct isolation s = {.plan = &plan,
			      .control = CONTROL,
			      .image_dir = -1,
			      .proc = -1,
			      .keep_ruleset = true,
			      .ruleset = -1};
	const char *stage = "plan";
	int r = place(fds, &s);

	memcpy(&plan, request->plan, sizeof request->plan);
	if (r < 0)
		_exit(1);
	if (setsockopt(SEAT, SOL_SOCKET, SO_PASSCRED, &(int){1}, sizeof(int)) < 0)
		_exit(1);
	guest_init(&guest, CONTROL);
	r = isolate(&s, ISOLATE_CELL, &stage);
	if (r < 0)
		give_up(stage, -r, s.object);
	guest.uid = plan.uid;
	guest.gid = plan.gid;
	guest.profile = plan.profile;
	guest.plan = &plan;
	guest.seat = SEAT;
	guest.ruleset = s.ruleset;
	guest_open_seat();
	r = guest_ready(&guest, &s);
	if (r < 0)
		give_up("ready", -r, "report to the supervisor");
	guest_loop(&guest);
}
