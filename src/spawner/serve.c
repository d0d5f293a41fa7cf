/* SPDX-License-Identifier: Apache-2.0 */
/*
 * serve.c - the loop: one event at a time, so that whatever an event frees is not in a later one's way.
 */
#include "spawner/spawner.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"

uint64_t now_ms(void)
{
	return now_us() / 1000;
}

int spawner_watch(struct spawner *s, int fd, struct source *source, uint32_t events)
{
	struct epoll_event e = {.events = events, .data.ptr = source};

	return epoll_ctl(s->epoll, EPOLL_CTL_ADD, fd, &e);
}

void spawner_unwatch(struct spawner *s, int *fd)
{
	if (*fd >= 0)
		epoll_ctl(s->epoll, EPOLL_CTL_DEL, *fd, NULL);
	fd_close(fd);
}

/* An init that dies is told of by its pidfd too, but whoever waits first gets the status. An init that
 * nobody knows yet is in a report: it becomes our child only when its worker has sent that and ended. */
static void note_end(struct spawner *s, const siginfo_t *info)
{
	struct box *b = box_find_pid(s, info->si_pid);

	creation_worker_ended(s, info->si_pid);
	nests_worker_ended(s, info->si_pid);
	pulls_ended(s, info->si_pid, info->si_code == CLD_EXITED && info->si_status == 0);
	changes_worker_ended(s, info->si_pid);
	if (info->si_pid == s->sweeper)
		s->sweeper = 0;
	if (!b) {
		creation_collect(s);
		b = box_find_pid(s, info->si_pid);
	}
	if (!b || b->state != BOX_LIVE)
		return;
	b->reaped = true;
	b->signaled = info->si_code != CLD_EXITED;
	b->status = info->si_status;
	box_dead(s, b);
}

static void reap(struct spawner *s)
{
	siginfo_t info;

	for (;;) {
		info.si_pid = 0;
		if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | __WALL) < 0 || info.si_pid == 0)
			return;
		note_end(s, &info);
	}
}

static void signal_event(struct spawner *s)
{
	struct signalfd_siginfo i;

	while (read(s->signals, &i, sizeof i) == sizeof i)
		if ((i.ssi_signo == SIGTERM || i.ssi_signo == SIGINT) && !s->stop) {
			s->stop = true;
			s->stop_by_ms = now_ms() + STOP_WAITS_MS;
		}
	reap(s);
}

static void dispatch(struct spawner *s, const struct epoll_event *event)
{
	struct source *source = event->data.ptr;

	switch (source->kind) {
	case SOURCE_LISTENER:
		client_accept(s);
		break;
	case SOURCE_CLIENT:
		client_event(s, event->events);
		break;
	case SOURCE_SIGNAL:
		signal_event(s);
		break;
	case SOURCE_WORKER:
		creation_report(s, (struct worker *)source);
		break;
	case SOURCE_NEST:
		nests_event(s, (struct nest_slot *)source);
		break;
	case SOURCE_CHANGE:
		changes_event(s, (struct change *)source);
		break;
	case SOURCE_BOX:
		box_dead(s, (struct box *)source);
		break;
	case SOURCE_FREEZE:
		box_freeze_event(
			s, (struct box *)((char *)source - offsetof(struct box, freeze_source)));
		break;
	}
}

/* Behind what somebody waits for, and behind what is still to be done for that when we have answered. */
static uint64_t spares_deadlines(struct spawner *s, uint64_t now)
{
	if (s->stop || !spares_lack(&s->spares))
		return UINT64_MAX;
	if (s->queue_count || creation_runs(s)) {
		s->spares_ms = now + SPARES_DELAY_MS;
		return UINT64_MAX; /* the end of that is an event */
	}
	if (now >= s->spares_ms) {
		spares_fill(&s->spares, &s->places, s->policy.settings.uid_range);
		s->spares_ms = now + SPARES_DELAY_MS;
	}
	return spares_lack(&s->spares) ? s->spares_ms : UINT64_MAX;
}

/* One at a time: each holds the slots that it looks at. The next time it is due, 0: never. */
static uint64_t sweep_if_due(struct spawner *s, uint64_t now)
{
	if (s->sweep_ms && now >= s->sweep_ms && s->sweeper > 0)
		s->sweep_ms = now + SWEEP_DELAY_MS;
	if (s->sweep_ms && now >= s->sweep_ms) {
		s->sweeper = worker_sweep(&s->place);
		s->sweep_ms = s->sweeper < 0 ? now + SWEEP_DELAY_MS : 0;
	}
	return s->sweep_ms;
}

/* What else would wait for the next spawner. One that runs would die with us, in the middle of it. */
static void last_sweep(struct spawner *s)
{
	if (s->sweeper > 0) {
		kill(s->sweeper, SIGKILL);
		waitpid(s->sweeper, NULL, 0);
	}
	cgroup_sweep(&s->host, &s->places);
}

/* What time alone makes due; milliseconds until the next, -1: none. */
static int deadlines(struct spawner *s)
{
	static uint64_t (*const due[])(struct spawner * s, uint64_t now) = {
		creation_deadlines, box_deadlines,     nests_deadlines,
		pulls_deadlines,    changes_deadlines, spares_deadlines,
	};
	uint64_t now = now_ms(), next = UINT64_MAX, sweep;

	for (size_t i = 0; i < ARRAY_SIZE(due); i++) {
		uint64_t t = due[i](s, now);

		next = t < next ? t : next;
	}
	sweep = sweep_if_due(s, now);
	if (sweep && sweep < next)
		next = sweep;
	if (s->stop && s->stop_by_ms < next)
		next = s->stop_by_ms;
	if (next == UINT64_MAX)
		return -1;
	return next <= now ? 0 : next - now > INT32_MAX ? INT32_MAX : (int)(next - now);
}

/* What was asked before the end: above all what may be forgotten. One that goes on asking is not heard out, and
 * neither is one that does not take its answers. */
static void hear_last_words(struct spawner *s)
{
	struct pollfd p = {.fd = s->client, .events = POLLIN};
	uint64_t until = now_ms() + LAST_WORDS_MS;

	while (s->client >= 0 && !s->out && now_ms() < until && poll(&p, 1, 0) > 0 &&
	       p.revents & POLLIN)
		client_event(s, EPOLLIN);
}

/* Told to stop together with its client, it hears what that still has to say: what shall not be left. What was
 * told to go, and what is being made for a client that has gone, is waited for: nobody else would clean up. */
static bool has_stopped(const struct spawner *s)
{
	if (!s->stop)
		return s->ending && s->box_count == 0;
	return now_ms() >= s->stop_by_ms ||
	       (s->client < 0 && !creation_runs(s) && !boxes_are_dying(s));
}

int spawner_run(struct spawner *s, struct err *e)
{
	while (!has_stopped(s)) {
		struct epoll_event event;
		int n = epoll_wait(s->epoll, &event, 1, deadlines(s));

		if (n < 0 && errno != EINTR)
			return err_set(e, errno, "wait for events");
		if (n > 0)
			dispatch(s, &event);
		if (!s->stop || s->client >= 0)
			creation_next(s);
	}
	hear_last_words(s);
	spares_end(&s->spares);
	if (nests_stop(s) || s->sweep_ms || s->sweeper > 0)
		last_sweep(s);
	return 0;
}
