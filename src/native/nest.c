/* SPDX-License-Identifier: Apache-2.0 */
#include "native/nest.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/landlock.h"
#include "native/claim.h"
#include "native/launch.h"
#include "native/native.h"
#include "native/plan_make.h"
#include "protocol/protocol.h"

/* These take milliseconds; a machine that needs this long is broken. */
enum { START_LIMIT_MS = 20000, DEATH_LIMIT_MS = 20000, ENDS_MAX = 16384 };

static int keep_end(struct nest *n, const struct nest_report *r)
{
	if (n->end_count == ENDS_MAX) /* nobody asks for these: the oldest goes */
		memmove(n->ends, n->ends + 1, --n->end_count * sizeof *n->ends);
	if (n->end_count == n->end_room) {
		size_t room = n->end_room ? n->end_room * 2 : 64;
		struct nest_end *ends = realloc(n->ends, room * sizeof *ends);

		if (!ends)
			return -ENOMEM;
		n->ends = ends;
		n->end_room = room;
	}
	n->ends[n->end_count++] = (struct nest_end){r->pid, r->status, r->cpu_us};
	return 0;
}

/* The next report: 0, or -errno. *ret_fd: what came along, the caller's, or -1. */
static int next_report(struct nest *n, int timeout_ms, struct nest_report *ret, int *ret_fd)
{
	union {
		char space[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} control;
	struct iovec iov = {ret, sizeof *ret};
	struct msghdr m = {.msg_iov = &iov,
			   .msg_iovlen = 1,
			   .msg_control = &control,
			   .msg_controllen = sizeof control};
	struct pollfd p = {.fd = n->report, .events = POLLIN};
	struct cmsghdr *c;
	ssize_t got;
	int r;

	*ret_fd = -1;
	do
		r = poll(&p, 1, timeout_ms);
	while (r < 0 && errno == EINTR);
	if (r <= 0)
		return r < 0 ? -errno : -ETIMEDOUT;
	got = recvmsg(n->report, &m, MSG_CMSG_CLOEXEC);
	if (got != sizeof *ret)
		return got < 0 ? -errno : -EPIPE;
	c = CMSG_FIRSTHDR(&m);
	if (c && c->cmsg_type == SCM_RIGHTS && c->cmsg_len == CMSG_LEN(sizeof(int)))
		memcpy(ret_fd, CMSG_DATA(c), sizeof(int));
	ret->stage[sizeof ret->stage - 1] = ret->what[sizeof ret->what - 1] = '\0';
	return ret->type == NEST_ENDED ? keep_end(n, ret) : 0;
}

/* Until this has happened to this number. Failures of others are theirs to be missed. */
static int expect(struct nest *n, enum nest_report_type type, uint32_t number,
		  struct nest_report *ret, int *ret_fd, struct err *e)
{
	for (;;) {
		int r = next_report(n, START_LIMIT_MS, ret, ret_fd);

		if (r < 0) {
			err_set(e, -r, "hear from the nest");
			return err_stage(e, "nest");
		}
		if (ret->number == number && ret->type == (uint32_t)type)
			return 0;
		if (*ret_fd >= 0)
			close(*ret_fd);
		if (ret->type == NEST_FAILED && (ret->number == number || ret->number == 0)) {
			err_set(e, ret->errnum, "%s", ret->what);
			return err_stage(e, ret->stage);
		}
	}
}

static int send_frame(struct nest *n, enum frame_type type, const void *payload, size_t size,
		      const int *fds, size_t count, struct err *e)
{
	int r = frame_send(n->control, type, 0, payload, (uint32_t)size, fds, count);

	if (r == 0)
		return 0;
	err_set(e, -r, "talk to the nest");
	return err_stage(e, "nest");
}

/* v1: the files by which processes join; on v2 there are none. */
static int make_tasks(struct cgroup *c, const struct spec *s, int *fds, size_t *count,
		      struct err *e)
{
	*count = 0;
	return cgroup_create_v1(c, s, fds, count, e) < 0 ? err_stage(e, "cgroup") : 0;
}

static void close_all(int *fds, size_t *count)
{
	for (size_t i = 0; i < *count; i++)
		fd_close(&fds[i]);
	*count = 0;
}

/*
 * Who is born in a cgroup has to be allowed to write its cgroup.procs, and that of the folder it lies in.
 * The cgroup's own is for the nest's root (group) and its zygotes (user). The parent is every nest's: all
 * may write there, which lets nobody in - the other folder has to be theirs too - and no sandbox sees it.
 */
static int let_nest_fill(const struct nest *n, const struct cgroup *c, struct err *e)
{
	char parent[600];

	if (c->dir < 0)
		return 0;
	snprintf(parent, sizeof parent, "%s/cgroup.procs", n->host.unified);
	if (fchownat(c->dir, "cgroup.procs", n->slot.user_uid, n->slot.root_gid, 0) < 0 ||
	    fchmodat(c->dir, "cgroup.procs", 0664, 0) < 0 || chmod(parent, 0666) < 0) {
		err_set(e, errno, "let the nest fill cgroup %s", c->name);
		return err_stage(e, "cgroup");
	}
	return 0;
}

static int start_keeper(struct nest *n, struct err *e)
{
	_cleanup_close_ int control = -1;
	struct launch l = {.keep = n->slot.lock, .cgroup = n->cgroup.dir};
	int p[2];
	pid_t pid;

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, p) < 0)
		return err_set(e, errno, "make a socket pair");
	n->control = p[0];
	l.control = control = p[1];
	return launch(&l, &pid, &n->pidfd, e);
}

static int brief_keeper(struct nest *n, const struct spec *s, struct err *e)
{
	const struct nest_plan plan = {.root_uid = n->slot.root_uid,
				       .root_gid = n->slot.root_gid,
				       .user_uid = n->slot.user_uid,
				       .user_gid = n->slot.user_gid,
				       .uid_base = n->range.uid_base,
				       .gid_base = n->range.gid_base,
				       .id_count = n->range.slots * IDS_PER_SLOT,
				       .uid = s->uid,
				       .gid = s->gid};
	int tasks[CONTROLLER_COUNT], fds[2] = {n->image.dir}, p[2], r;
	size_t count;
	struct nest_report up;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, p) < 0)
		return err_set(e, errno, "make a socket pair");
	n->report = p[0];
	fds[1] = p[1];
	r = send_frame(n, FRAME_NEST, &plan, sizeof plan, fds, 2, e);
	close(p[1]);
	if (r < 0 || make_tasks(&n->cgroup, s, tasks, &count, e) < 0)
		return -1;
	r = send_frame(n, FRAME_CGROUP, NULL, 0, tasks, count, e);
	close_all(tasks, &count);
	return r < 0 ? -1 : expect(n, NEST_UP, 0, &up, &fds[0], e);
}

int nest_start(struct nest *n, const struct places *places, const char *uid_range,
	       const struct spec *s, struct err *e)
{
	*n = (struct nest){.places = places,
			   .slot.lock = -1,
			   .cgroup.dir = -1,
			   .image.dir = -1,
			   .image.lease = -1,
			   .control = -1,
			   .report = -1,
			   .pidfd = -1};
	if (places->rootless)
		return err_set(e, 0, "prepared sandboxes need root");
	/* /proc/self/exe is the zygote's file for all of its children: nothing else refuses to open it. */
	if (landlock_abi() == 0)
		return err_set(
			e, 0,
			"zygotes need Landlock: add landlock to lsm= on the kernel's command line");
	cgroup_host_find(places, &n->host);
	if (id_range_find(places, uid_range, &n->range, e) < 0 ||
	    image_open(places, "host", &n->image, e) < 0 ||
	    claim(places, &n->range, &n->host, s, &n->slot, &n->cgroup, e) < 0 ||
	    let_nest_fill(n, &n->cgroup, e) < 0 || start_keeper(n, e) < 0 ||
	    brief_keeper(n, s, e) < 0) {
		nest_stop(n);
		return -1;
	}
	return 0;
}

/* Death of the process and of everything below it, in its pid namespace. */
static int see_dead(int pidfd)
{
	struct pollfd p = {.fd = pidfd, .events = POLLIN};
	int r;

	do
		r = poll(&p, 1, DEATH_LIMIT_MS);
	while (r < 0 && errno == EINTR);
	return r > 0 ? 0 : -ETIMEDOUT;
}

void nest_stop(struct nest *n)
{
	struct err ignored;

	if (n->pidfd >= 0) {
		syscall(SYS_pidfd_send_signal, n->pidfd, SIGKILL, NULL, 0);
		if (n->cgroup.host)
			cgroup_kill(&n->cgroup);
		if (see_dead(n->pidfd) == 0)
			launch_wait(n->pidfd, &(bool){false}, &(int){0});
	}
	fd_close(&n->pidfd);
	fd_close(&n->control);
	fd_close(&n->report);
	if (n->cgroup.host && cgroup_destroy(&n->cgroup, &ignored) == 0)
		n->cgroup.host = NULL;
	image_done(&n->image);
	n->image.dir = -1;
	slot_release(&n->slot);
	free(n->ends);
	n->ends = NULL;
	n->end_count = n->end_room = 0;
}

/* The part of a plan that prepared sandboxes have. processes_max: instead of the plan's; 0: as it is. */
static int fill_plan(struct nest *n, const struct spec *s, const struct slot *slot,
		     unsigned char *bytes, uint64_t processes_max, struct err *e)
{
	struct plan *p = calloc(1, sizeof *p);
	int r;

	if (!p)
		return err_set(e, ENOMEM, "make a plan");
	r = plan_make(p, n->places, s, slot, &n->image, false, e);
	if (processes_max)
		p->rlimit[RLIMIT_NPROC] = processes_max;
	memcpy(bytes, p, offsetof(struct plan, volumes));
	free(p);
	return r < 0 && !e->stage[0] ? err_stage(e, "plan") : r;
}

static int append(char *strings, size_t *size, const char *text, struct err *e)
{
	size_t n = strlen(text) + 1;

	if (n > NEST_STRINGS_MAX - *size)
		return err_set(e, E2BIG, "start a zygote");
	memcpy(strings + *size, text, n);
	*size += n;
	return 0;
}

static int pack(struct zygote_request *r, const char *path, char *const *argv, char *const *envp,
		struct err *e)
{
	char *strings = (char *)(r + 1);
	size_t size = 0;

	if (append(strings, &size, path, e) < 0)
		return -1;
	for (; argv[r->argc]; r->argc++)
		if (append(strings, &size, argv[r->argc], e) < 0)
			return -1;
	for (; envp[r->envc]; r->envc++)
		if (append(strings, &size, envp[r->envc], e) < 0)
			return -1;
	r->strings = (uint32_t)size;
	return 0;
}

int nest_zygote(struct nest *n, const struct spec *s, const char *path, char *const *argv,
		char *const *envp, const int fds[ZYGOTE_FDS_IN], int *ret_pidfd, struct err *e)
{
	struct zygote_request *r = calloc(1, sizeof *r + NEST_STRINGS_MAX);
	struct nest_report report;
	int result = -1;

	if (!r)
		return err_set(e, ENOMEM, "start a zygote");
	r->number = ++n->last_number;
	/* The kernel counts what runs in the sandboxes to the zygotes' user, too. */
	if (fill_plan(n, s, &n->slot, r->plan, UINT64_MAX, e) == 0 &&
	    pack(r, path, argv, envp, e) == 0 &&
	    send_frame(n, FRAME_ZYGOTE, r, sizeof *r + r->strings, fds, ZYGOTE_FDS_IN, e) == 0)
		result = expect(n, NEST_ZYGOTE, r->number, &report, ret_pidfd, e);
	free(r);
	return result;
}

/* What init says when it is ready, or why it is not. */
static int expect_ready(struct cell *c, struct err *e)
{
	unsigned char payload[sizeof(struct failed_record)];
	struct failed_record failed;
	size_t count = PLAN_MAX_TMPFS;
	struct frame f;
	int r = frame_receive(c->control, FROM_GUEST, &f, payload, sizeof payload, c->places,
			      &count);

	if (r == 0 && f.type == FRAME_READY) {
		c->place_count = count;
		return 0;
	}
	if (r == 0 && f.type == FRAME_FAILED &&
	    failed_record_decode(payload, f.size, &failed) == 0) {
		err_set(e, (int)failed.errnum, "%s", failed.what);
		return err_stage(e, failed.stage);
	}
	err_set(e, r < 0 ? -r : 0, "init ended while a sandbox was prepared");
	return err_stage(e, "init");
}

static int pair_up(int type, int *ret_ours, int *ret_theirs, struct err *e)
{
	const struct timeval limit = {.tv_sec = START_LIMIT_MS / 1000};
	int p[2];

	if (socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, p) < 0)
		return err_set(e, errno, "make a socket pair");
	*ret_ours = p[0];
	*ret_theirs = p[1];
	if (setsockopt(p[0], SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) < 0)
		return err_set(e, errno, "limit a socket");
	return 0;
}

/* Ids and cgroup: a free slot's, or those that a dead sandbox has left. */
static int find_place(struct nest *n, const struct spec *s, struct slot *used, struct cell *c,
		      struct err *e)
{
	if (used->lock < 0)
		return claim(n->places, &n->range, &n->host, s, &c->slot, &c->cgroup, e);
	c->slot = slot_at(&n->range, used->number, used->realm, TAKE_FD(used->lock));
	if (cgroup_create(&n->host, &c->slot, s, &c->cgroup, e) < 0)
		return err_stage(e, "cgroup");
	cgroup_take_over(&c->cgroup, s);
	return 0;
}

static int prepare(struct nest *n, const struct spec *s, struct slot *used, struct cell *c,
		   struct err *e)
{
	struct cell_request r = {.number = ++n->last_number};
	_cleanup_close_ int control = -1, seat = -1;
	struct nest_report report;
	int fds[4];

	c->number = r.number;
	if (find_place(n, s, used, c, e) < 0 || let_nest_fill(n, &c->cgroup, e) < 0 ||
	    fill_plan(n, s, &c->slot, r.plan, 0, e) < 0 ||
	    pair_up(SOCK_STREAM, &c->control, &control, e) < 0 ||
	    pair_up(SOCK_SEQPACKET, &c->seat, &seat, e) < 0)
		return -1;
	r.root_gid = c->slot.root_gid;
	r.has_cgroup = c->cgroup.dir >= 0;
	fds[0] = control;
	fds[1] = seat;
	fds[2] = c->slot.lock;
	fds[3] = c->cgroup.dir;
	if (send_frame(n, FRAME_CELL, &r, sizeof r, fds, 3 + r.has_cgroup, e) < 0 ||
	    make_tasks(&c->cgroup, s, c->tasks, &c->task_count, e) < 0)
		return -1;
	if (frame_send(c->control, FRAME_CGROUP, 0, NULL, 0, c->tasks, c->task_count) < 0)
		return err_set(e, EPIPE, "talk to a prepared sandbox's init");
	if (expect(n, NEST_CELL, r.number, &report, &c->pidfd, e) < 0)
		return -1;
	c->pid = report.pid;
	fd_close(&control); /* or its end would not be seen */
	return expect_ready(c, e);
}

int nest_cell(struct nest *n, const struct spec *s, struct slot *used, struct cell *ret,
	      struct err *e)
{
	struct err ignored;

	*ret = (struct cell)CELL_NONE;
	if (s->volume_count > 0) {
		fd_close(&used->lock);
		return err_set(e, 0, "a prepared sandbox has no volumes");
	}
	if (prepare(n, s, used, ret, e) == 0)
		return 0;
	/* What was asked for and not heard of ends when its control does. */
	if (nest_end_cell(n, ret, 0, &ignored) < 0)
		ret->cgroup.host = NULL;
	return -1;
}

int nest_wait(struct nest *n, pid_t pid, int timeout_ms, struct nest_end *ret)
{
	uint64_t until = now_us() / 1000 + (uint64_t)timeout_ms;

	for (;;) {
		struct nest_report report;
		uint64_t now;
		int fd, r;

		for (size_t i = 0; i < n->end_count; i++)
			if (n->ends[i].pid == pid) {
				*ret = n->ends[i];
				n->end_count--;
				memmove(n->ends + i, n->ends + i + 1,
					(n->end_count - i) * sizeof *n->ends);
				return 0;
			}
		now = now_us() / 1000;
		r = next_report(n, now < until ? (int)(until - now) : 0, &report, &fd);
		if (fd >= 0)
			close(fd);
		if (r < 0)
			return r;
	}
}

int nest_end_cell(struct nest *n, struct cell *c, pid_t joined, struct err *e)
{
	struct nest_end end;
	int r = 0;

	if (c->cgroup.host)
		cgroup_kill(&c->cgroup);
	if (c->pidfd >= 0) {
		syscall(SYS_pidfd_send_signal, c->pidfd, SIGKILL, NULL, 0);
		r = see_dead(c->pidfd);
	}
	if (r == 0 && joined > 0)
		r = nest_wait(n, joined, DEATH_LIMIT_MS, &end);
	if (r == 0 && c->pid > 0)
		r = nest_wait(n, c->pid, DEATH_LIMIT_MS, &end);
	fd_close(&c->control);
	fd_close(&c->seat);
	fd_close(&c->pidfd);
	c->pid = 0;
	close_all(c->tasks, &c->task_count);
	close_all(c->places, &c->place_count);
	if (r < 0 && r != -EPIPE)
		err_set(e, -r, "a prepared sandbox did not die within %d s of its kill",
			DEATH_LIMIT_MS / 1000);
	else if (!c->cgroup.host || cgroup_destroy(&c->cgroup, e) == 0)
		r = 0;
	else
		r = -1;
	c->cgroup.host = NULL;
	slot_release(&c->slot);
	return r < 0 ? -1 : 0;
}
