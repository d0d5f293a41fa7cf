/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nest_host.c - prepared Python for one tenant.
 *
 * The nest and its zygote are started by the first job. Each job: a cell, the pipes of its command (which belong
 * to the sandbox's user, so that /dev/stdout can be opened by name), a child of the zygote's that joins, and
 * then the cell's init is told to serve. All of this blocks: it is behind everybody's answers.
 */
#include "spawner/nest_host.h"

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/landlock.h"
#include "native/launch.h"
#include "native/native.h"
#include "native/nest.h"
#include "native/report.h"
#include "protocol/protocol.h"
#include "zygote/join.h"
#include "zygote/launch.h"
#include "zygote/message.h"

/* Imports of large modules take seconds; a child only milliseconds. */
enum { START_LIMIT_MS = 60000, CHILD_LIMIT_MS = 10000, HOST_NICE = 10 };

/* All zygotes of a tenant together, and the memory of what they import. */
#define ZYGOTE_MEMORY (1ull << 30)
#define ZYGOTE_CPUS   2000

struct host {
	const struct worker_place *place;
	struct nest nest;
	bool up;
	int requests; /* to the zygote */
	int zygote_pidfd;
	int said[2]; /* what it writes on its own streams: nobody's business, but it must not block */
	uint32_t sequence;
	int priority; /* of who is not preparing something */
};

/* ---- the zygote */

/* The module lies beside this program. */
static int open_module(struct err *e)
{
	char path[512];
	ssize_t n = readlink("/proc/self/exe", path, sizeof path - 32);
	char *slash;
	int fd;

	path[n > 0 ? n : 0] = '\0';
	slash = strrchr(path, '/');
	if (!slash)
		return err_set(e, errno, "find the folder of this program");
	memcpy(slash, "/cloche-zygote.so", sizeof "/cloche-zygote.so");
	fd = open(path, O_RDONLY | O_CLOEXEC);
	return fd < 0 ? err_set(e, errno, "open %s", path) : fd;
}

/* Its standard input: the bootstrap, and then the end. */
static int make_bootstrap(int *ret, struct err *e)
{
	int p[2];

	if (pipe2(p, O_CLOEXEC) < 0)
		return err_set(e, errno, "make a pipe");
	*ret = p[0];
	if (fd_write_all(p[1], ZYGOTE_BOOTSTRAP, strlen(ZYGOTE_BOOTSTRAP)) < 0) {
		close(p[1]);
		return err_set(e, EIO, "write the bootstrap");
	}
	close(p[1]);
	return 0;
}

/* One message within the time; 0, or -1. */
static int hear(int socket, void *message, size_t room, size_t *ret_size, int limit_ms,
		struct err *e)
{
	struct pollfd p = {.fd = socket, .events = POLLIN};
	int fds[ZYGOTE_FDS + ZYGOTE_JOIN_FDS_MAX], r;
	size_t count;
	ssize_t n;

	do
		r = poll(&p, 1, limit_ms);
	while (r < 0 && errno == EINTR);
	if (r <= 0)
		return err_set(e, r < 0 ? errno : ETIMEDOUT, "hear from the Python zygote");
	n = message_receive(socket, message, room, fds, &count);
	for (size_t i = 0; n > 0 && i < count; i++)
		close(fds[i]);
	if (n < (ssize_t)sizeof(struct zygote_header))
		return err_set(e, n < 0 ? (int)-n : 0, "the Python zygote has ended");
	*ret_size = (size_t)n;
	return 0;
}

/* What it says when it does not do what it was asked for. */
static int refused(const void *message, size_t size, struct err *e)
{
	const struct zygote_refused *r = message;

	if (size != sizeof *r || r->text[sizeof r->text - 1])
		return err_set(e, EPROTO, "the Python zygote: an answer that is none");
	return err_set(e, (int)r->errnum, "the Python zygote: %s", r->text);
}

static int send_start(struct host *h, struct err *e)
{
	static char message[ZYGOTE_MESSAGE_MAX];
	const json_t *modules = h->place->policy->settings.python_modules;
	struct zygote_start start = {
		{ZYGOTE_START, ++h->sequence}, ZYGOTE_VERSION, (uint32_t)json_array_size(modules)};
	size_t size = sizeof start, i;
	json_t *name;
	int r;

	memcpy(message, &start, sizeof start);
	json_array_foreach((json_t *)(uintptr_t)modules, i, name) {
		size_t n = json_string_length(name) + 1;

		if (n > sizeof message - size)
			return err_set(e, E2BIG, "policy: python_modules");
		memcpy(message + size, json_string_value(name), n);
		size += n;
	}
	r = message_send(h->requests, message, size, NULL, 0);
	if (r < 0)
		return err_set(e, -r, "talk to the Python zygote");
	if (hear(h->requests, message, sizeof message, &size, START_LIMIT_MS, e) < 0)
		return -1;
	return ((struct zygote_header *)message)->type == ZYGOTE_READY ? 0
								       : refused(message, size, e);
}

static int start_zygote(struct host *h, const struct spec *s, struct err *e)
{
	char *argv[] = {(char *)(uintptr_t) "python3", (char *)(uintptr_t) "-", NULL};
	char *envp[SPEC_MAX_ENV + 1];
	_cleanup_close_ int module = open_module(e), bootstrap = -1, theirs = -1, out = -1;
	int p[2], said[2];

	if (module < 0 || make_bootstrap(&bootstrap, e) < 0)
		return -1;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, p) < 0)
		return err_set(e, errno, "make a socket pair");
	h->requests = p[0];
	theirs = p[1];
	if (pipe2(said, O_CLOEXEC | O_NONBLOCK) < 0)
		return err_set(e, errno, "make a pipe");
	h->said[0] = said[0];
	h->said[1] = out = said[1];
	for (size_t i = 0; i <= s->env.count; i++)
		envp[i] = i < s->env.count ? s->env.item[i] : NULL;
	{
		const int fds[ZYGOTE_FDS_IN] = {bootstrap, out, out, theirs, module, bootstrap};

		if (nest_zygote(&h->nest, s, "/usr/bin/python3", argv, envp, fds, &h->zygote_pidfd,
				e) < 0)
			return -1;
	}
	return send_start(h, e);
}

/* A spec like a run's, with room for all children's shared memory. */
static int bring_up(struct host *h, struct err *e)
{
	struct spec s;
	int r = -1;

	if (spec_init(&s, e) < 0)
		return -1;
	s.memory_bytes = ZYGOTE_MEMORY;
	s.cpus_millis = ZYGOTE_CPUS;
	if (spec_language(&s, LANGUAGE_PYTHON, CODE_STDIN, NULL, e) == 0 &&
	    spec_finish(&s, e) == 0 &&
	    nest_start(&h->nest, h->place->places, h->place->policy->settings.uid_range, &s, e) ==
		    0)
		r = start_zygote(h, &s, e);
	spec_done(&s);
	h->up = r == 0;
	return r < 0 && !e->stage[0] ? err_stage(e, "zygote") : r;
}

/* ---- one sandbox */

/* Descriptors by enum joined_fd, ours and theirs. */
struct ends {
	int ours[JOINED_FDS], theirs[JOINED_FDS];
};

static void close_ends(struct ends *x)
{
	for (int i = 0; i < JOINED_FDS; i++) {
		fd_close(&x->ours[i]);
		fd_close(&x->theirs[i]);
	}
}

static int make_ends(const struct slot *slot, struct ends *x, struct err *e)
{
	int p[2];

	memset(x, -1, sizeof *x);
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, p) < 0)
		return err_set(e, errno, "make a socket pair");
	x->ours[JOINED_CONTROL] = p[0];
	x->theirs[JOINED_CONTROL] = p[1];
	for (int i = JOINED_STDIN; i <= JOINED_STDERR; i++) {
		int ours = i == JOINED_STDIN;

		if (pipe2(p, O_CLOEXEC) < 0 || fchown(p[0], slot->user_uid, slot->user_gid) < 0)
			return err_set(e, errno, "make a pipe");
		x->ours[i] = p[ours];
		x->theirs[i] = p[!ours];
	}
	return 0;
}

static int send_fork(struct host *h, const struct cell *c, bool warm, const struct ends *x,
		     struct err *e)
{
	struct {
		struct zygote_fork fork;
		struct join_data join;
	} m = {.fork = {.header = {ZYGOTE_FORK, ++h->sequence},
			.flags = warm ? ZYGOTE_WARM : 0,
			.join_size = sizeof m.join},
	       .join = {.has_cgroup = c->cgroup.dir >= 0,
			.task_count = (uint32_t)c->task_count,
			.of_init = 1}};
	int fds[ZYGOTE_FDS + JOIN_FDS_MAX];
	size_t n = 0;
	int r;

	_Static_assert((int)JOINED_FDS == (int)ZYGOTE_FDS, "in the same order");
	for (; n < JOINED_FDS; n++)
		fds[n] = x->theirs[n];
	fds[n++] = c->seat;
	fds[n++] = c->pidfd;
	if (m.join.has_cgroup)
		fds[n++] = c->cgroup.dir;
	for (size_t i = 0; i < c->task_count; i++)
		fds[n++] = c->tasks[i];
	m.fork.join_fds = (uint32_t)(n - ZYGOTE_FDS);
	r = message_send(h->requests, &m, sizeof m, fds, n);
	return r < 0 ? err_set(e, -r, "talk to the Python zygote") : 0;
}

/* A child of the zygote's in the cell, waiting for what it shall be. */
static int join(struct host *h, const struct cell *c, bool warm, struct ends *x, struct err *e)
{
	static char message[ZYGOTE_MESSAGE_MAX];
	const struct zygote_header *said = (const struct zygote_header *)message;
	size_t size;

	if (send_fork(h, c, warm, x, e) < 0 ||
	    hear(h->requests, message, sizeof message, &size, CHILD_LIMIT_MS, e) < 0)
		return -1;
	if (said->type != ZYGOTE_FORKED)
		return refused(message, size, e);
	for (int i = 0; i < JOINED_FDS; i++)
		fd_close(&x->theirs[i]);
	if (hear(x->ours[JOINED_CONTROL], message, sizeof message, &size, CHILD_LIMIT_MS, e) < 0)
		return -1;
	return said->type == ZYGOTE_WAITING ? 0 : refused(message, size, e);
}

/* It was made with less, and what runs in it has as much as anybody else. */
static void give_priority(const struct host *h, const struct cell *c)
{
	int dir = c->cgroup.dir >= 0 ? c->cgroup.dir : c->cgroup.v1[PIDS];
	char text[256], *p = text;

	if (fd_read_file(dir, "cgroup.procs", text, sizeof text) < 0)
		return;
	for (long pid; (pid = strtol(p, &p, 10)) > 0;)
		setpriority(PRIO_PROCESS, (id_t)pid, h->priority);
}

static int serve_cell(const struct cell *c, int listener, const struct ends *x, struct err *e)
{
	int fds[1 + JOINED_FDS] = {listener}, r;
	struct frame f;

	memcpy(fds + 1, x->ours, sizeof x->ours);
	r = frame_send(c->control, FRAME_SERVE, 0, NULL, 0, fds, 1 + JOINED_FDS);
	if (r == 0)
		r = frame_receive(c->control, FROM_GUEST, &f, NULL, 0, NULL, NULL);
	if (r == 0 && f.type != FRAME_DONE)
		r = -EPROTO;
	return r < 0 ? err_set(e, -r, "talk to a prepared sandbox's init") : 0;
}

static int host_pid(int pidfd, pid_t *ret)
{
	char path[64], text[512], *p;

	snprintf(path, sizeof path, "/proc/self/fdinfo/%d", pidfd);
	if (fd_read_file(AT_FDCWD, path, text, sizeof text) < 0 || !(p = strstr(text, "\nPid:")))
		return -1;
	*ret = (pid_t)strtol(p + 5, NULL, 10);
	return *ret > 0 ? 0 : -1;
}

static int describe(const struct host *h, const struct job *job, const struct cell *c, int folder,
		    struct meta *ret, struct err *e)
{
	static struct plan plan;
	struct kept_sandbox made = {.pidfd = c->pidfd, .slot = c->slot};
	struct result result = {0};
	int r;

	plan.landlock_abi = (uint32_t)landlock_abi();
	report_enforced(&result, &job->spec, &c->cgroup, &plan);
	made.enforced = result.enforced;
	if (host_pid(c->pidfd, &made.pid) < 0)
		return err_set(e, ESRCH, "%s ended while it was made", job->request.id);
	r = meta_fill(ret, &made, h->place->host, job->request.id, job->spec.memory_bytes);
	if (r == 0)
		r = meta_write(folder, ret);
	return r < 0 ? err_set(e, -r, "write down %s", job->request.id) : 0;
}

static int make(struct host *h, const struct job *job, struct slot *used, struct cell *c,
		struct meta *ret, struct err *e)
{
	_cleanup_close_ int folder = -1, listener = -1;
	struct ends x;
	int r;

	if (!h->up && bring_up(h, e) < 0)
		return -1;
	if (h->zygote_pidfd < 0)
		return err_set(e, 0, "the Python zygote has ended");
	if (nest_cell(&h->nest, &job->spec, used, c, e) < 0)
		return -1;
	r = make_ends(&c->slot, &x, e);
	if (r == 0)
		r = join(h, c, job->request.prepared, &x, e);
	if (r == 0) {
		give_priority(h, c);
		r = worker_make_folder(h->place, job->request.id, &folder, &listener, e);
	}
	if (r == 0)
		r = describe(h, job, c, folder, ret, e);
	if (r == 0)
		r = serve_cell(c, listener, &x, e);
	close_ends(&x);
	return r < 0 && !e->stage[0] ? err_stage(e, "zygote") : r;
}

/* What is the spawner's now: this process keeps nothing of it. */
static void let_go(struct cell *c)
{
	fd_close(&c->control);
	fd_close(&c->seat);
	fd_close(&c->pidfd);
	fd_close(&c->slot.lock);
	for (size_t i = 0; i < c->task_count; i++)
		fd_close(&c->tasks[i]);
	for (size_t i = 0; i < c->place_count; i++)
		fd_close(&c->places[i]);
	cgroup_close(&c->cgroup);
}

static void do_job(struct host *h, int jobs, struct job *job, struct slot *used)
{
	struct worker_report r = {0};
	struct cell c = CELL_NONE;
	struct err ignored;

	r.made = create_check((struct policy *)(uintptr_t)h->place->policy, &job->request, 0,
			      &job->spec, &r.err) == 0 &&
		 make(h, job, used, &c, &r.meta, &r.err) == 0;
	if (worker_send_report(jobs, &r, c.pidfd, c.slot.lock) < 0)
		_exit(1);
	if (r.made) {
		let_go(&c);
	} else {
		if (c.pidfd >= 0 && nest_end_cell(&h->nest, &c, 0, &ignored) < 0)
			_exit(1); /* with the nest it ends */
		worker_remove_folder(h->place->sandboxes, job->request.id);
	}
	fd_close(&used->lock); /* when it did not come to that */
	spec_done(&job->spec);
	if (!r.made && h->up == false)
		_exit(1); /* no zygote here: the next job is another host's */
}

/* Nobody asks this process how its children ended: what the nest tells of them is taken and forgotten. */
static void take_reports(struct host *h)
{
	struct nest_end end;

	if (nest_wait(&h->nest, -1, 0, &end) == -EPIPE)
		_exit(1);
	h->nest.end_count = 0;
}

static void take_output(struct host *h)
{
	char text[4096];

	while (read(h->said[0], text, sizeof text) > 0)
		;
}

int nest_job_send(int jobs, const struct nest_job *j, int lock)
{
	union {
		char space[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} control = {0};
	struct iovec iov = {(void *)(uintptr_t)j, sizeof *j};
	struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1};

	if (j->has_place) {
		struct cmsghdr *c;

		m.msg_control = &control;
		m.msg_controllen = sizeof control;
		c = CMSG_FIRSTHDR(&m);
		*c = (struct cmsghdr){CMSG_LEN(sizeof lock), SOL_SOCKET, SCM_RIGHTS};
		memcpy(CMSG_DATA(c), &lock, sizeof lock);
	}
	return sendmsg(jobs, &m, MSG_NOSIGNAL) == sizeof *j ? 0 : -errno;
}

static int receive_job(int jobs, struct spawner_create *ret, struct slot *ret_used)
{
	static struct nest_job j;
	union {
		char space[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} control;
	struct iovec iov = {&j, sizeof j};
	struct msghdr m = {.msg_iov = &iov,
			   .msg_iovlen = 1,
			   .msg_control = &control,
			   .msg_controllen = sizeof control};
	struct cmsghdr *c;

	if (recvmsg(jobs, &m, MSG_CMSG_CLOEXEC) != sizeof j)
		return -1;
	c = CMSG_FIRSTHDR(&m);
	if (j.has_place && c && c->cmsg_type == SCM_RIGHTS) {
		*ret_used = (struct slot){.number = j.slot, .realm = j.realm};
		memcpy(&ret_used->lock, CMSG_DATA(c), sizeof(int));
	}
	*ret = j.create;
	return 0;
}

__attribute__((noreturn)) static void serve(struct host *h, int jobs)
{
	for (;;) {
		struct pollfd p[] = {{.fd = jobs, .events = POLLIN},
				     {.fd = h->up ? h->nest.report : -1, .events = POLLIN},
				     {.fd = h->up ? h->said[0] : -1, .events = POLLIN},
				     {.fd = h->up ? h->zygote_pidfd : -1, .events = POLLIN}};
		static struct job job;
		struct slot used = {.lock = -1};

		if (poll(p, ARRAY_SIZE(p), -1) < 0 && errno != EINTR)
			_exit(1);
		if (p[1].revents)
			take_reports(h);
		if (p[2].revents)
			take_output(h);
		if (p[3].revents) /* its children live on, and end with their sandboxes */
			fd_close(&h->zygote_pidfd);
		if (!p[0].revents)
			continue;
		job = (struct job){0};
		if (receive_job(jobs, &job.request, &used) < 0)
			break;
		do_job(h, jobs, &job, &used);
	}
	nest_stop(&h->nest);
	_exit(0);
}

int nest_host_start(const struct worker_place *w, pid_t *ret_pid, int *ret_jobs, struct err *e)
{
	static struct host host;
	int p[2], init, keep[3];
	pid_t parent = getpid(), pid;

	if (launch_prepare(&init, e) < 0)
		return -1;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, p) < 0)
		return err_set(e, errno, "make a socket pair");
	pid = fork();
	if (pid == 0) {
		int priority = getpriority(PRIO_PROCESS, 0);

		worker_become_child(parent);
		if (nice(HOST_NICE) < 0)
			errno = 0;
		keep[0] = p[1];
		keep[1] = w->sandboxes;
		keep[2] = init;
		worker_close_others(keep, 3);
		host = (struct host){.place = w,
				     .requests = -1,
				     .zygote_pidfd = -1,
				     .said = {-1, -1},
				     .priority = priority};
		serve(&host, p[1]);
	}
	close(p[1]);
	if (pid < 0) {
		close(p[0]);
		return err_set(e, errno, "start a nest's host");
	}
	*ret_pid = pid;
	*ret_jobs = p[0];
	return 0;
}
