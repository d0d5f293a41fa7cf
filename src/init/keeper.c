/* SPDX-License-Identifier: Apache-2.0 */
/*
 * keeper.c - the part of a nest that is real root: PID 1 of a pid namespace, the nest's is below it.
 *
 * For every prepared sandbox it makes the user namespace, the network namespace and the mounts, and hands
 * them to the nest, whose fork puts itself into them. It starts the zygotes, which have to be in the nest's
 * pid namespace and in a user namespace that the nest is not in. It runs nobody's code and reads nothing
 * but its host's requests. When it ends, or the request stream does, everything below ends.
 *
 * User namespaces: Z, the zygotes' and nobody else's; below it, owned by the zygotes' user, J, to which the
 * prepared sandboxes' namespaces belong and in which the nest is root; below that each sandbox's own.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "init/nest.h"
#include "native/clone3.h"
#include "native/netns.h"
#include "native/netns_look.h"

enum {
	ZYGOTES_MAX = 64,
	MAPS = 256,
	SPARES_MAX = 64,
	SPARES_IDLE = 8,
	IDLE_MS = 10000,
	/*
	 * From a sandbox's end until its network namespace is lent again. Who is in a multicast group when it ends leaves it,
	 * and the kernel tells of that afterwards: the first report comes 2 ticks later (igmp_ifc_event() in net/ipv4/igmp.c,
	 * mld_ifc_event() in net/ipv6/mcast.c), each other one at most an "unsolicited report interval" of 1 s behind the last, and there
	 * are 2 (RFC 3376 8.1 and 8.11, RFC 3810 9.1 and 9.11; igmp_qrv, mld_qrv, igmpv3_ and mldv2_unsolicited_report_interval in
	 * Documentation/networking/ip-sysctl.rst). Where the operator has other numbers the first is as early, and one is enough
	 * to be seen. IGMPv2 and MLDv1 tell at once. Twice as long, as a busy machine is late.
	 */
	SETTLE_MS = 2000,
};

static struct keeper {
	struct nest_plan plan;
	int control, image_dir, report, reaper;
	int zygotes_userns, cells_userns;
	int nest; /* requests to it */
	int nest_pidfd, own_pidns;
	pid_t nest_pid;
	struct zygote {
		pid_t pid; /* 0: none */
		uint32_t number;
	} zygotes[ZYGOTES_MAX];
	int own_netns;
	/* Network namespaces: of sandboxes that live, by number, and of dead ones that are like new. */
	struct lent {
		int fd;
		uint32_t number;
	} lent[LENT_MAX];
	struct spare {
		int fd;
		int64_t since_ms;
	} spares[SPARES_MAX]; /* the oldest first */
	size_t spare_count;
	struct netns_look new_look;
} k;

static union {
	unsigned char bytes[131072];
	struct cell_request cell;
	struct zygote_request zygote;
} request;

static struct plan plan;

int nest_report_send(int socket, const struct nest_report *r, int fd)
{
	union {
		char space[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} control = {0};
	struct iovec iov = {(void *)(uintptr_t)r, sizeof *r};
	struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1};

	if (fd >= 0) {
		struct cmsghdr *c;

		m.msg_control = &control;
		m.msg_controllen = sizeof control;
		c = CMSG_FIRSTHDR(&m);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(c), &fd, sizeof(int));
	}
	return sendmsg(socket, &m, MSG_NOSIGNAL) < 0 ? -errno : 0;
}

static void report_failure(uint32_t number, const char *stage, int errnum, const char *what)
{
	struct nest_report r = {.type = NEST_FAILED, .number = number, .errnum = errnum};

	snprintf(r.stage, sizeof r.stage, "%s", stage);
	snprintf(r.what, sizeof r.what, "%s", what);
	if (nest_report_send(k.report, &r, -1) < 0)
		_exit(1);
}

__attribute__((noreturn)) static void give_up(const char *stage, int errnum, const char *what)
{
	report_failure(0, stage, errnum, what);
	_exit(1);
}

/* `named` by the number `inside`; the slots' ids from `base` on keep their numbers, but for `from` to `to`:
 * a map names nobody twice. */
static void make_map(char text[MAPS], uint32_t inside, uint32_t named, uint32_t base, uint32_t from,
		     uint32_t to)
{
	int n = snprintf(text, MAPS, "%u %u 1\n", inside, named);
	uint32_t end = base + k.plan.id_count;

	if (from > base)
		n += snprintf(text + n, MAPS - (size_t)n, "%u %u %u\n", base, base, from - base);
	if (end > to)
		snprintf(text + n, MAPS - (size_t)n, "%u %u %u\n", to, to, end - to);
}

static void make_user_namespaces(void)
{
	const struct nest_plan *p = &k.plan;
	char uids[MAPS], gids[MAPS];

	if (p->user_uid != p->root_uid + 1 || p->user_gid != p->root_gid + 1)
		give_up("userns", EINVAL, "the ids of the nest's slot");
	/* The zygotes' user is the nest's slot's. There is no root. The owner is not root either: what all sandboxes
	 * below use together is counted for it (native/idmap.h). */
	make_map(uids, p->uid, p->user_uid, p->uid_base, p->user_uid, p->user_uid + 1);
	make_map(gids, p->gid, p->user_gid, p->gid_base, p->user_gid, p->user_gid + 1);
	k.zygotes_userns = userns_below(-1, p->root_uid, p->root_gid, uids, gids);
	if (k.zygotes_userns < 0)
		give_up("userns", -k.zygotes_userns, "make the zygotes' user namespace");
	/* Root is the nest's; the zygotes' user has no name. A slot's two ids are neighbours. */
	make_map(uids, 0, p->root_uid, p->uid_base, p->root_uid, p->user_uid + 1);
	make_map(gids, 0, p->root_gid, p->gid_base, p->root_gid, p->user_gid + 1);
	k.cells_userns = userns_below(k.zygotes_userns, p->user_uid, p->user_gid, uids, gids);
	if (k.cells_userns < 0)
		give_up("userns", -k.cells_userns, "make the sandboxes' user namespace");
}

static void start_nest(void)
{
	struct nest_start start = {.report = k.report, .userns = k.cells_userns};
	struct clone3_args args = {
		.flags = CLONE_NEWPID | CLONE_PIDFD,
		.pidfd = (uint64_t)(uintptr_t)&k.nest_pidfd,
		.exit_signal = SIGCHLD,
	};
	int p[2];
	long pid;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, p) < 0)
		give_up("nest", errno, "make a socket pair");
	pid = syscall(SYS_clone3, &args, sizeof args);
	if (pid == 0) {
		close(p[0]);
		close(k.control);
		close(k.reaper);
		start.requests = p[1];
		nest_run(&start);
	}
	if (pid < 0)
		give_up("nest", errno, "make the nest's pid namespace");
	close(p[1]);
	k.nest = p[0];
	k.nest_pid = (pid_t)pid;
}

static void take_plan(const unsigned char *bytes)
{
	memcpy(&plan, bytes, offsetof(struct plan, volumes));
	plan.volume_count = 0;
	if (plan.tmpfs_count > PLAN_MAX_TMPFS)
		_exit(1);
}

static int cell_userns(const struct cell_request *r)
{
	char uids[MAPS], gids[MAPS];

	snprintf(uids, sizeof uids, "0 %u 1\n%u %u 1\n", plan.root_mount_id, plan.uid,
		 plan.user_mount_id);
	snprintf(gids, sizeof gids, "0 %u 1\n%u %u 1\n", r->root_gid, plan.gid,
		 plan.user_mount_gid);
	return userns_below(k.cells_userns, k.plan.root_uid, k.plan.root_gid, uids, gids);
}

static int hand_to_nest(const struct cell_request *r, const int *fds, size_t count)
{
	union {
		char space[CMSG_SPACE(CELL_FDS_MAX * sizeof(int))];
		struct cmsghdr align;
	} control = {0};
	struct iovec iov = {(void *)(uintptr_t)r, sizeof *r};
	struct msghdr m = {.msg_iov = &iov,
			   .msg_iovlen = 1,
			   .msg_control = &control,
			   .msg_controllen = CMSG_SPACE(count * sizeof(int))};
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);

	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(count * sizeof(int));
	memcpy(CMSG_DATA(c), fds, count * sizeof(int));
	return sendmsg(k.nest, &m, MSG_NOSIGNAL) < 0 ? -errno : 0;
}

/* ---- network namespaces: to make one and to take it down costs the kernel a millisecond. What is like a new
 * one when its sandbox is dead, and some time after, goes to another of this nest, so of the same tenant. One in
 * which anything was sent, or is open, or that was given rules of its own, is let go. ---- */

static bool is_like_new(int fd)
{
	static struct netns_look now;

	return netns_look(fd, k.own_netns, &now) == 0 && netns_looks_like(&now, &k.new_look);
}

static int pop_spare(void)
{
	int fd = k.spares[0].fd;

	memmove(k.spares, k.spares + 1, --k.spare_count * sizeof *k.spares);
	return fd;
}

/* One that nothing has happened in since, or -1. */
static int find_spare(void)
{
	while (k.spare_count && guest_now_us() / 1000 - k.spares[0].since_ms >= SETTLE_MS) {
		int fd = pop_spare();

		if (is_like_new(fd))
			return fd;
		close(fd);
	}
	return -1;
}

/* Nobody has asked for a while. */
static void drop_spares(void)
{
	while (k.spare_count > SPARES_IDLE)
		close(pop_spare());
}

static void lend(uint32_t number, int fd)
{
	struct lent *l = &k.lent[number % LENT_MAX];

	if (l->number)
		close(l->fd); /* that lives longer than many others */
	l->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	l->number = l->fd >= 0 ? number : 0;
}

static void take_back(void)
{
	struct lent *l;
	uint32_t number;

	if (recv(k.nest, &number, sizeof number, MSG_DONTWAIT) != sizeof number)
		return;
	l = &k.lent[number % LENT_MAX];
	if (l->number != number)
		return;
	l->number = 0;
	if (k.spare_count < SPARES_MAX && is_like_new(l->fd))
		k.spares[k.spare_count++] = (struct spare){l->fd, guest_now_us() / 1000};
	else
		close(l->fd);
}

static int finish_netns(struct netns_maker *maker, int *ret_fd)
{
	int r = netns_finish(maker, ret_fd);

	if (r == 0 && k.new_look.size == 0 && netns_look(*ret_fd, k.own_netns, &k.new_look) < 0)
		k.new_look.size = 0; /* then none is ever like it */
	return r;
}

/* The network namespace takes longest and is made beside the rest. */
static void make_cell(const int *given, size_t given_count)
{
	const struct cell_request *r = &request.cell;
	int fds[CELL_FDS_MAX] = {-1, -1, -1};
	struct isolation s = {.plan = &plan, .image_dir = k.image_dir, .userns = -1, .tree = -1};
	const char *stage = "net", *what = "make a network namespace";
	static struct netns_maker maker;
	int n;

	take_plan(r->plan);
	maker.pid = 0;
	n = 0;
	fds[CELL_NETNS] = find_spare();
	if (fds[CELL_NETNS] < 0)
		n = netns_begin_in(&maker, -1, k.cells_userns);
	if (n == 0) {
		s.userns = fds[CELL_USERNS] = n = cell_userns(r);
		stage = "userns";
		what = "make the sandbox's user namespace";
	}
	if (n >= 0) {
		n = isolate(&s, ISOLATE_TREE, &stage);
		what = s.object;
		fds[CELL_TREE] = s.tree;
		if (n < 0)
			umount2("mnt", MNT_DETACH); /* what was made of it */
	}
	if (maker.pid > 0) {
		int made = finish_netns(&maker, &fds[CELL_NETNS]);

		if (n >= 0 && made < 0) {
			n = made;
			stage = "net";
			what = "make a network namespace";
		}
	}
	memcpy(fds + CELL_CONTROL, given, given_count * sizeof *given);
	if (n >= 0) {
		n = hand_to_nest(r, fds, CELL_CONTROL + given_count);
		stage = "nest";
		what = "hand a sandbox to the nest";
		if (n == 0)
			lend(r->number, fds[CELL_NETNS]);
	}
	for (int i = CELL_USERNS; i <= CELL_NETNS; i++)
		if (fds[i] >= 0)
			close(fds[i]);
	if (n < 0)
		report_failure(r->number, stage, -n, what);
}

static struct zygote *free_zygote(void)
{
	for (size_t i = 0; i < ZYGOTES_MAX; i++)
		if (k.zygotes[i].pid == 0)
			return &k.zygotes[i];
	return NULL;
}

/* Its children's pid namespace is the nest's for one fork. */
static int fork_zygote(const struct zygote_request *r, const char *strings, const int *fds,
		       int netns)
{
	struct isolation s = {.plan = &plan,
			      .image_dir = k.image_dir,
			      .userns = k.zygotes_userns,
			      .proc = -1,
			      .netns = netns};
	struct nest_report report = {.type = NEST_ZYGOTE, .number = r->number};
	int pidfd = -1, n = 0;
	struct clone3_args args = {
		.flags = CLONE_PIDFD,
		.pidfd = (uint64_t)(uintptr_t)&pidfd,
		.exit_signal = SIGCHLD,
	};
	struct zygote *z = free_zygote();
	long pid;

	if (!z)
		return -EAGAIN;
	if (setns(k.nest_pidfd, CLONE_NEWPID) < 0)
		return -errno;
	pid = syscall(SYS_clone3, &args, sizeof args);
	if (pid == 0)
		zygote_run(r, strings, &s, fds);
	n = pid < 0 ? -errno : 0;
	if (setns(k.own_pidns, CLONE_NEWPID) < 0)
		_exit(1);
	if (n < 0)
		return n;
	*z = (struct zygote){(pid_t)pid, r->number};
	n = nest_report_send(k.report, &report, pidfd);
	close(pidfd);
	return n;
}

static void make_zygote(size_t size, const int *fds, size_t count)
{
	const struct zygote_request *r = &request.zygote;
	const char *strings = (const char *)(r + 1);
	int netns = -1, n = -EPROTO;

	if (size == sizeof *r + r->strings && r->strings > 0 && r->strings <= NEST_STRINGS_MAX &&
	    strings[r->strings - 1] == '\0' && count == ZYGOTE_FDS_IN) {
		take_plan(r->plan);
		n = netns_make(&netns);
	}
	if (n == 0)
		n = fork_zygote(r, strings, fds, netns);
	if (netns >= 0)
		close(netns);
	if (n < 0)
		report_failure(r->number, "zygote", -n, "start a zygote");
}

static void reap(void)
{
	struct signalfd_siginfo ignored;
	int status;
	pid_t pid;

	while (read(k.reaper, &ignored, sizeof ignored) > 0)
		;
	while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
		if (pid == k.nest_pid)
			_exit(1); /* with it everything */
		for (size_t i = 0; i < ZYGOTES_MAX; i++)
			if (k.zygotes[i].pid == pid) {
				struct nest_report r = {.type = NEST_ZYGOTE_ENDED,
							.number = k.zygotes[i].number,
							.status = (uint32_t)status};

				k.zygotes[i].pid = 0;
				if (nest_report_send(k.report, &r, -1) < 0)
					_exit(1);
			}
	}
}

static void serve(void)
{
	int fds[CELL_FDS_MAX];
	size_t count = CELL_FDS_MAX - CELL_CONTROL;
	struct frame f;

	if (frame_receive(k.control, FROM_HOST, &f, &request, sizeof request, fds, &count) < 0)
		_exit(0);
	if (f.type == FRAME_CELL && f.size == sizeof request.cell && request.cell.has_cgroup <= 1 &&
	    count == 3 + request.cell.has_cgroup)
		make_cell(fds, count);
	else if (f.type == FRAME_ZYGOTE && f.size >= sizeof request.zygote)
		make_zygote(f.size, fds, count);
	else
		_exit(1);
	for (size_t i = 0; i < count; i++)
		close(fds[i]);
}

/* A /proc of this pid namespace, for the maps; all mounts private, for the stage. */
static void own_place(void)
{
	if (fchdir(k.image_dir) < 0 || unshare(CLONE_NEWNS) < 0 ||
	    mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
	    mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) < 0)
		give_up("nest", errno, "make a mount namespace for the nest");
	/* The descriptor that was given is of the mount namespace that was left. */
	close(k.image_dir);
	k.image_dir = open(".", O_PATH | O_DIRECTORY | O_CLOEXEC);
	k.own_pidns = open("/proc/self/ns/pid", O_RDONLY | O_CLOEXEC);
	k.own_netns = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
	if (k.image_dir < 0 || k.own_pidns < 0 || k.own_netns < 0)
		give_up("nest", errno, "open /proc/self/ns");
}

void keeper_run(int control, const struct nest_plan *p, int image_dir, int report)
{
	struct isolation s = {.control = control};
	sigset_t child;

	k = (struct keeper){
		.plan = *p, .control = control, .image_dir = image_dir, .report = report};
	sigemptyset(&child);
	sigaddset(&child, SIGCHLD);
	k.reaper = signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK);
	if (k.reaper < 0 || prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0 ||
	    prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0)
		give_up("nest", errno, "begin");
	if (isolate_cgroup(&s) < 0 || isolate_victim(&s) < 0)
		give_up("cgroup", EIO, s.object);
	own_place();
	make_user_namespaces();
	start_nest();
	for (;;) {
		struct pollfd f[] = {{.fd = k.control, .events = POLLIN},
				     {.fd = k.reaper, .events = POLLIN},
				     {.fd = k.nest, .events = POLLIN}};

		int n = poll(f, 3, k.spare_count > SPARES_IDLE ? IDLE_MS : -1);

		if (n < 0 && errno != EINTR)
			_exit(1);
		if (n == 0)
			drop_spares();
		if (f[1].revents)
			reap();
		if (f[2].revents)
			take_back();
		if (f[0].revents)
			serve();
	}
}
