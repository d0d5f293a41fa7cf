/* SPDX-License-Identifier: Apache-2.0 */
/*
 * init.c - PID 1 of a sandbox: static, small, ours.
 *
 * It is executed from a sealed memory file, so it holds nothing of its maker but what it is sent on
 * descriptor 3. When the first frame is a PLAN, it first isolates itself (native/isolate). Then it is
 * the guest side of the protocol: it puts files in, starts the command as the sandbox user, reaps
 * everything, relays stdio when asked to, and reports how the command ended - apart from all output.
 *
 * Invariants: the command is never PID 1, so signals keep their normal meaning for it. Init is another
 * user than the command, undumpable, and holds no descriptor of the host's but the stream. When the
 * stream ends, init ends, and with it every process of the sandbox - unless it was told to be the init
 * of a kept sandbox (kept.h), which lives until it is killed.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "init/guest.h"
#include "init/nest.h"
#include "protocol/protocol.h"
#include "native/isolate/isolate.h"

enum { CONTROL = 3 };

static struct plan plan;
static struct guest guest;

/* Report the failure and end. */
__attribute__((noreturn)) static void give_up(const char *stage, int errnum, const char *what)
{
	guest_report_failure(&guest, stage, errnum, what);
	_exit(1);
}

/* A PLAN is what the native runtime begins with. */
static void set_up(const struct frame *f, const int *fds, size_t fd_count)
{
	struct isolation s = {
		.plan = &plan, .control = CONTROL, .userns = -1, .proc = -1, .netns = -1};
	const size_t first = 1 + (plan.has_lease != 0);
	const char *stage = "plan";
	int r;

	if (f->size < offsetof(struct plan, volumes) || fd_count < first ||
	    f->size !=
		    offsetof(struct plan, volumes) + plan.volume_count * sizeof plan.volumes[0] ||
	    plan.volume_count > PLAN_MAX_VOLUMES || plan.tmpfs_count > PLAN_MAX_TMPFS)
		give_up(stage, EPROTO, "malformed plan");
	/* The lease stays open as long as this process lives: that is all it is for. */
	s.image_dir = fds[0];
	for (size_t i = 0; i < PLAN_MAX_VOLUMES; i++)
		s.volumes[i] = i + first < fd_count ? fds[i + first] : -1;
	r = isolate(&s, ISOLATE_SANDBOX, &stage);
	if (r < 0)
		give_up(stage, -r, s.object);
	guest.uid = plan.uid;
	guest.gid = plan.gid;
	guest.profile = plan.profile;
	guest.plan = &plan;
#ifdef CLOCHE_MUTATION
	guest.without_seccomp = layer_is_off(&s, "seccomp");
	guest.keep_capabilities = layer_is_off(&s, "caps");
	guest.keep_descriptors = layer_is_off(&s, "descriptors");
#endif
	r = guest_ready(&guest, &s);
	if (r < 0)
		give_up("ready", -r, "report to the supervisor");
}

static void first_frame(void)
{
	int fds[PLAN_MAX_VOLUMES + 2];
	size_t fd_count = PLAN_MAX_VOLUMES + 2;
	struct frame f;
	int r = frame_receive(CONTROL, FROM_HOST, &f, &plan, sizeof plan, fds, &fd_count);

	if (r < 0)
		_exit(1);
	if (f.type == FRAME_NEST && f.size == sizeof(struct nest_plan) && fd_count == 2) {
		struct nest_plan nest;

		memcpy(&nest, &plan, sizeof nest);
		keeper_run(CONTROL, &nest, fds[0], fds[1]);
	}
	if (f.type != FRAME_PLAN)
		give_up("plan", EPROTO, "the first frame is not a plan");
	set_up(&f, fds, fd_count);
}

/* The system call itself: the C library keeps two or three numbers for threads and would not touch them.
 * All zero is SIG_DFL. */
static void reset_signals(void)
{
	static const unsigned long long zero[4]; /* struct sigaction of the kernel: 32 bytes */

	for (int i = 1; i < 65; i++)
		syscall(SYS_rt_sigaction, i, zero, NULL, 8);
}

int main(void)
{
	sigset_t all;

	/* Signals are read, never handled: there is no handler to race with. */
	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, NULL);
	/* What a process inherits beside descriptors: none of it is the caller's to give. */
	umask(022);
	personality(0);
	/* The system call itself: musl's function of this name does nothing. */
	syscall(SYS_sched_setscheduler, 0, SCHED_OTHER, &(struct sched_param){0});
	/* What the caller ignored must not reach the command as ignored. */
	reset_signals();
	signal(SIGPIPE, SIG_IGN);
	guest_init(&guest, CONTROL);
	first_frame();
	guest_loop(&guest);
}
