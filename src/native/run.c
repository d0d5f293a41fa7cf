/* SPDX-License-Identifier: Apache-2.0 */
/*
 * run.c - one command, one sandbox, from nothing to gone.
 *
 * create() makes the sandbox, supervise() watches it, finish() kills and counts, destroy() removes.
 * Each part can be entered with the earlier ones half done: struct sandbox says what exists.
 */
#include "native/native.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/write_signals.h"
#include "image/image.h"
#include "protocol/protocol.h"
#include "native/cgroup.h"
#include "native/claim.h"
#include "native/collect.h"
#include "native/feed.h"
#include "native/idmap.h"
#include "native/launch.h"
#include "native/netns.h"
#include "native/network.h"
#include "native/plan_make.h"
#include "native/report.h"
#include "native/sandbox.h"
#include "native/slot.h"
#include "native/supervise.h"
#include "native/volume.h"

/* Longest we wait for our own init's next word while the sandbox is made, and for a killed sandbox to
 * be gone. Both take milliseconds; a machine that needs this long is broken. */
#define CREATE_LIMIT_S 20
#define DEATH_LIMIT_MS 20000

struct sandbox {
	const struct places *places;
	const struct spec *spec;
	const struct native_io *io;
	const struct kept_request *kept; /* NULL: a one-shot */
	struct result *result;
	struct cgroup_host host;
	struct cgroup cgroup;
	struct slot slot;
	struct image image;
	struct plan *plan;
	struct network network;
	int control, pidfd;
	pid_t pid;
	int volumes[PLAN_MAX_VOLUMES];
	int pipes[3]; /* our ends: stdin write, stdout read, stderr read */
	/* tmpfs mounts in plan order; rootless: then the user namespace */
	int places_fd[MAX_PLACES + 1];
	size_t places_count;
	struct evidence evidence;
	struct supervision watch;
	int proc;                    /* of its own, or -1 (own_proc()) */
	struct userns_holder holder; /* reaped when there is time for it */
};

/* /workspace is a mount of its own, first in the plan: other volumes may lie in it. Their mount points are
 * made now, as nothing is ever made in a volume later. */
static int plan_disk(struct sandbox *b, struct err *e)
{
	struct plan *p = b->plan;
	uint32_t n = p->volume_count;

	if (n == PLAN_MAX_VOLUMES)
		return err_set(e, 0, "at most %d volumes, the disk among them", PLAN_MAX_VOLUMES);
	memmove(p->volumes + 1, p->volumes, n * sizeof *p->volumes);
	memmove(b->volumes + 1, b->volumes, n * sizeof *b->volumes);
	p->volumes[0] = (struct plan_volume){.box = "/workspace", .writable = 1};
	b->volumes[0] = -1;
	p->volume_count++;
	if (p->rlimit[RLIMIT_FSIZE] < b->kept->disk_bytes)
		p->rlimit[RLIMIT_FSIZE] = b->kept->disk_bytes;
	if (b->kept->make_disk(b->kept, p->user_mount_id, p->user_mount_gid, &b->volumes[0], e) < 0)
		return err_stage(e, "disk");
	for (uint32_t i = 1; i < p->volume_count; i++)
		if (volume_point(b->volumes[0], &p->volumes[i], "/workspace/", p->user_mount_id,
				 p->user_mount_gid, e) < 0)
			return -1;
	return 0;
}

static bool is_captured(const struct sandbox *b)
{
	return b->spec->network.mode != NETWORK_NONE;
}

static int make_plan(struct sandbox *b, struct err *e)
{
	bool has_disk = b->kept && b->kept->disk_bytes;

	b->plan = calloc(1, sizeof *b->plan);
	if (!b->plan)
		return err_set(e, ENOMEM, "make a plan");
	if (plan_make(b->plan, b->places, b->spec, &b->slot, &b->image, has_disk, e) < 0 ||
	    volumes_prepare(b->spec, b->kept ? b->kept->volumes : NULL, &b->slot,
			    b->places->rootless, b->plan, b->volumes, e) < 0)
		return -1;
	b->plan->captured = is_captured(b);
	b->plan->trust = b->kept ? b->kept->authority != NULL : b->io->network_opens_tls;
	return has_disk ? plan_disk(b, e) : 0;
}

static int make_control(struct sandbox *b, int *ret_theirs, struct err *e)
{
	const struct timeval limit = {.tv_sec = CREATE_LIMIT_S};
	int p[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, p) < 0)
		return err_set(e, errno, "make a socket pair");
	b->control = p[0];
	*ret_theirs = p[1];
	if (setsockopt(p[0], SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) < 0 ||
	    setsockopt(p[0], SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit) < 0)
		return err_set(e, errno, "limit the control socket");
	return 0;
}

static int start_init(struct sandbox *b, struct err *e)
{
	_cleanup_close_ int control = -1;
	struct launch l = {
		.keep = b->slot.lock, .cgroup = b->cgroup.dir, .rootless = b->places->rootless};

	if (make_control(b, &control, e) < 0)
		return -1;
	l.control = control;
	return launch(&l, &b->pid, &b->pidfd, e);
}

/* What init says next while the sandbox is made: this frame, with a payload of this size, or why it could not be. */
static int expect_payload(struct sandbox *b, enum frame_type type, void *ret, size_t size, int *fds,
			  size_t *fd_count, struct err *e)
{
	unsigned char payload[sizeof(struct failed_record)];
	struct failed_record failed;
	struct frame f;
	int r = frame_receive(b->control, FROM_GUEST, &f, payload, sizeof payload, fds, fd_count);

	if (r == 0 && f.type == FRAME_FAILED &&
	    failed_record_decode(payload, f.size, &failed) == 0) {
		err_set(e, (int)failed.errnum, "%s", failed.what);
		return err_stage(e, failed.stage);
	}
	if (r < 0 || f.type != type || f.size != size) {
		b->evidence.init_vanished = true;
		err_set(e, r == -EPIPE || r == 0 ? 0 : -r, "init ended while the sandbox was made");
		return err_stage(e, "init");
	}
	if (size)
		memcpy(ret, payload, size);
	return 0;
}

static int expect(struct sandbox *b, enum frame_type type, int *fds, size_t *fd_count,
		  struct err *e)
{
	return expect_payload(b, type, NULL, 0, fds, fd_count, e);
}

static int send_to_init(struct sandbox *b, enum frame_type type, const void *payload, size_t size,
			const int *fds, size_t fd_count, struct err *e)
{
	int r = frame_send(b->control, type, 0, payload, (uint32_t)size, fds, fd_count);

	if (r == 0)
		return 0;
	/* Init has given up: its report is waiting and says why. */
	if ((r == -EPIPE || r == -ECONNRESET) && expect(b, FRAME_READY, NULL, NULL, e) < 0)
		return -1;
	return err_set(e, -r, "talk to init");
}

static int send_plan(struct sandbox *b, struct err *e)
{
	int fds[2 + PLAN_MAX_VOLUMES] = {b->image.dir, b->image.lease};
	size_t n = b->plan->has_lease ? 2 : 1;

	for (uint32_t i = 0; i < b->plan->volume_count && b->volumes[i] >= 0; i++)
		fds[n++] = b->volumes[i];
	return send_to_init(b, FRAME_PLAN, b->plan,
			    offsetof(struct plan, volumes) +
				    b->plan->volume_count * sizeof b->plan->volumes[0],
			    fds, n, e);
}

static int send_cgroups(struct sandbox *b, struct err *e)
{
	int fds[CONTROLLER_COUNT];
	size_t n = 0;
	int r = cgroup_create_v1(&b->cgroup, b->spec, fds, &n, e);

	if (r < 0)
		err_stage(e, "cgroup");
	else
		r = send_to_init(b, FRAME_CGROUP, NULL, 0, fds, n, e);
	for (size_t i = 0; i < n; i++)
		close(fds[i]);
	return r;
}

static int give_ids(struct sandbox *b, struct err *e)
{
	const struct slot *k = &b->slot;
	const struct id_pair uids[] = {{0, k->root_uid}, {b->spec->uid, k->user_uid}};
	const struct id_pair gids[] = {{0, k->root_gid}, {b->spec->gid, k->user_gid}};
	const struct userns_owner owner = {k->root_uid, k->root_gid};
	_cleanup_close_ int userns = -1;
	int r;

	if (!b->places->rootless) {
		r = userns_make(uids, 2, gids, 2, &owner, &b->holder, &userns, e);
		if (r == 0)
			r = send_to_init(b, FRAME_USERNS, NULL, 0, (int[]){userns, b->proc},
					 b->proc < 0 ? 1 : 2, e);
	} else {
		r = expect(b, FRAME_MAPME, NULL, NULL, e);
		if (r == 0)
			r = userns_map_by_helper(b->pid, uids, gids, 2, e);
		if (r == 0)
			r = send_to_init(b, FRAME_USERNS, NULL, 0, NULL, 0, e);
	}
	return r < 0 && !e->stage[0] ? err_stage(e, "userns") : r;
}

/* Last, because it takes longest: init isolates itself meanwhile and needs it late. Made first, it had one
 * of two processors for so long that init waited for us. Rootless the namespace has to belong to the
 * sandbox's user namespace: init makes it. */
static int send_network(struct sandbox *b, struct err *e)
{
	_cleanup_close_ int netns = -1;
	struct netns_maker m;
	int r;

	if (b->places->rootless)
		return 0;
	m.capture.wanted = is_captured(b);
	r = netns_begin(&m, b->proc);
	if (r == 0)
		r = netns_finish(&m, &netns);
	if (r < 0) {
		err_set(e, -r, "make a network namespace");
		return err_stage(e, "net");
	}
	b->network.listeners = m.capture;
	if (network_serve(&b->network, b->pidfd, e) < 0)
		return err_stage(e, "network");
	return send_to_init(b, FRAME_NETNS, NULL, 0, &netns, 1, e);
}

/* An authority that the sandbox shall trust: known when its cloche-egress is ready. */
static int send_trust(struct sandbox *b, struct err *e)
{
	const struct egress_ready *ready = &b->network.ready;
	const char *authority = b->kept ? b->kept->authority : ready->ca;

	if (!b->plan->trust)
		return 0;
	if (network_wait(&b->network, e) < 0)
		return err_stage(e, "network");
	return send_to_init(b, FRAME_TRUST, authority,
			    b->kept ? b->kept->authority_size : ready->ca_size, NULL, 0, e);
}

/* Init's own clock runs out a second after ours. */
static uint32_t init_limit_ms(uint64_t timeout_us)
{
	uint64_t ms = timeout_us / 1000 + 1000;

	return ms > UINT32_MAX ? 0 : (uint32_t)ms;
}

static int send_command(struct sandbox *b, struct err *e)
{
	const struct spec *s = b->spec;
	struct exec_record exec = {.uid = s->uid,
				   .gid = s->gid,
				   .argc = (uint32_t)s->command.count,
				   .envc = (uint32_t)s->env.count,
				   .flags = EXEC_LAST,
				   .limit_ms = init_limit_ms(s->timeout_us)};
	size_t size = sizeof exec + strlen(s->workdir) + 1, n;
	_cleanup_free_ char *payload = NULL;
	const struct strings *lists[] = {&s->command, &s->env};

	for (size_t l = 0; l < ARRAY_SIZE(lists); l++)
		for (size_t i = 0; i < lists[l]->count; i++)
			size += strlen(lists[l]->item[i]) + 1;
	payload = malloc(size);
	if (!payload)
		return err_set(e, ENOMEM, "make the command");
	memcpy(payload, &exec, sizeof exec);
	n = sizeof exec;
	memcpy(payload + n, s->workdir, strlen(s->workdir) + 1);
	n += strlen(s->workdir) + 1;
	for (size_t l = 0; l < ARRAY_SIZE(lists); l++)
		for (size_t i = 0; i < lists[l]->count; i++) {
			size_t m = strlen(lists[l]->item[i]) + 1;

			memcpy(payload + n, lists[l]->item[i], m);
			n += m;
		}
	return send_to_init(b, FRAME_EXEC, payload, size, NULL, 0, e);
}

/* What killed runs have left is removed by the first run of a later process. */
static void sweep_once(const struct sandbox *b)
{
	static atomic_flag done = ATOMIC_FLAG_INIT;

	if (!atomic_flag_test_and_set(&done))
		cgroup_sweep(&b->host, b->places);
}

/* The kernel keeps the settings of all namespaces under /proc/sys in one list per name and instance of proc, and walks it for each
 * that is opened: of thousands of sandboxes each gets an instance, which is gone when it has been made. Without one the host's does. */
static int own_proc(void)
{
	_cleanup_close_ int context = fsopen("proc", FSOPEN_CLOEXEC);

	if (context < 0 || fsconfig(context, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
		return -1;
	return fsmount(context, FSMOUNT_CLOEXEC, 0);
}

/* Everything up to a sandbox in the making that has all it needs. What differs between root and rootless is in give_ids(). */
static int create(struct sandbox *b, struct err *e)
{
	struct id_range range;

	if (id_range_find(b->places, b->io->uid_range, &range, e) < 0)
		return err_stage(e, "ids");
	if (!b->kept && network_begin(&b->network, b->io->network, b->places, &range, e) < 0)
		return err_stage(e, "network");
	if (image_open(b->places, b->spec->image, &b->image, e) < 0)
		return err_stage(e, "image");
	cgroup_host_find(b->places, &b->host);
	if (!b->kept)
		sweep_once(b);
	else if (!b->places->rootless)
		b->proc = own_proc();
	if (claim(b->places, &range, &b->host, b->spec, &b->slot, &b->cgroup, e) < 0)
		return -1;
	if (make_plan(b, e) < 0)
		return e->stage[0] ? -1 : err_stage(e, "plan");
	if (start_init(b, e) < 0)
		return err_stage(e, "namespaces");
	if (send_plan(b, e) < 0 || give_ids(b, e) < 0 || send_cgroups(b, e) < 0 ||
	    send_trust(b, e) < 0 || send_network(b, e) < 0)
		return -1;
	return 0;
}

/* Rootless: what its maker has made. Nothing but our init has run inside by now. */
static int expect_listeners(struct sandbox *b, struct err *e)
{
	struct capture *c = &b->network.listeners;
	struct listeners_record l;
	size_t count = ARRAY_SIZE(c->fds);

	if (!b->places->rootless || !is_captured(b))
		return 0;
	if (expect_payload(b, FRAME_LISTENERS, &l, sizeof l, c->fds, &count, e) < 0)
		return -1;
	c->count = (uint32_t)count;
	c->redirect = l.redirect;
	for (size_t i = 0; i < count; i++)
		c->kinds[i] = l.kinds[i];
	if (l.count != count)
		return err_set(e, EMFILE, "take the %u sockets that catch connections, got %zu",
			       l.count, count);
	return network_serve(&b->network, b->pidfd, e) < 0 ? err_stage(e, "network") : 0;
}

static int expect_places(struct sandbox *b, struct err *e)
{
	if (expect_listeners(b, e) < 0)
		return -1;
	b->places_count = ARRAY_SIZE(b->places_fd);
	if (expect(b, FRAME_READY, b->places_fd, &b->places_count, e) < 0) {
		b->places_count = 0;
		return -1;
	}
	if (b->places_count == b->plan->tmpfs_count + b->places->rootless)
		return 0;
	err_set(e, EMFILE, "take the %u writable places, got %zu", b->plan->tmpfs_count,
		b->places_count);
	return err_stage(e, "streams");
}

static int expect_start(struct sandbox *b, struct err *e)
{
	size_t count = ARRAY_SIZE(b->pipes);

	if (expect(b, FRAME_STARTED, b->pipes, &count, e) < 0)
		return -1;
	if (count == ARRAY_SIZE(b->pipes))
		return 0;
	err_set(e, EMFILE, "take the command's %zu streams, got %zu", ARRAY_SIZE(b->pipes), count);
	return err_stage(e, "streams");
}

/* Files and the command are sent ahead, while the sandbox is still being made. When init has given up
 * meanwhile, its report is waiting and says why; our own failure to send is then only its echo. */
static int start_command(struct sandbox *b, struct err *e)
{
	struct err sending = {0};
	bool sent = feed_inputs(b->control, b->spec, b->io->cancel_fd, &sending) == 0, broken;

	/* No code runs before it is sure that its policy holds. */
	if (sent && !b->plan->trust && network_wait(&b->network, e) < 0)
		return err_stage(e, "network");
	sent = sent && send_command(b, &sending) == 0;
	broken = sending.errnum == EPIPE || sending.errnum == ECONNRESET;

	if (sending.errnum == ECANCELED) {
		b->evidence.has_verdict = true;
		b->evidence.verdict = REASON_CANCELLED;
		return -1;
	}
	userns_holder_reap(&b->holder); /* while init is busy */
	if (expect_places(b, e) < 0)
		return -1;
	if (sent || broken)
		return expect_start(b, e);
	*e = sending;
	return err_stage(e, "files");
}

/* Without a counter --cpu-time would be a promise that nobody keeps. */
static int check_cpu_counter(struct sandbox *b, struct err *e)
{
	if (b->spec->cpu_time_us == SPEC_UNLIMITED || b->spec->best_effort ||
	    cgroup_cpu_us(&b->cgroup) != UINT64_MAX)
		return 0;
	err_set(e, 0, "--cpu-time: this host counts no CPU time for a cgroup (cpuacct is missing)");
	return err_stage(e, "cgroup");
}

static void watch(struct sandbox *b)
{
	struct supervision *w = &b->watch;
	bool keep = b->io->out_fd < 0;

	w->spec = b->spec;
	w->io = b->io;
	w->cgroup = &b->cgroup;
	w->control = b->control;
	w->pidfd = b->pidfd;
	w->network = &b->network;
	w->usage = &b->result->network;
	w->stdin_pipe = TAKE_FD(b->pipes[0]);
	w->places = b->places_fd;
	w->place_count = b->plan->tmpfs_count;
	w->evidence = &b->evidence;
	w->started_us = w->last_output_us = now_us();
	w->stdin_source = b->io->stdin_data ? -1 : b->io->stdin_fd;
	w->stdin_data = b->io->stdin_size ? b->io->stdin_data : NULL;
	w->stdin_size = b->io->stdin_size;
	stream_init(&w->out, TAKE_FD(b->pipes[1]), keep ? -1 : b->io->out_fd, b->io->escape_out,
		    b->spec->max_output_bytes, &b->result->out);
	stream_init(&w->err, TAKE_FD(b->pipes[2]), keep ? -1 : b->io->err_fd, b->io->escape_err,
		    b->spec->max_output_bytes, &b->result->err);
	if (w->stdin_source < 0 && !w->stdin_data)
		fd_close(&w->stdin_pipe);
	supervise(w);
}

/* Every process dies, and is seen dead: init is the last of its pid namespace, and the kernel lets it
 * go only after all the others. */
static int end_all(struct sandbox *b, bool ending_by_itself, struct err *e)
{
	struct pollfd p = {.fd = b->pidfd, .events = POLLIN};
	int n;

	if (!ending_by_itself) {
		cgroup_kill(&b->cgroup);
		syscall(SYS_pidfd_send_signal, b->pidfd, SIGKILL, NULL, 0);
	}
	do
		n = poll(&p, 1, DEATH_LIMIT_MS);
	while (n < 0 && errno == EINTR);
	if (n == 0)
		return err_set(e, 0, "sandbox %s did not die within %d s of its kill",
			       b->result->sandbox, DEATH_LIMIT_MS / 1000);
	n = launch_wait(b->pidfd, &b->evidence.init_signaled, &b->evidence.init_status);
	b->evidence.init_ended = true;
	if (n < 0) { /* someone else waited for it: it is dead, but how is not known */
		b->evidence.init_signaled = true;
		b->evidence.init_status = SIGKILL;
	}
	fd_close(&b->pidfd);
	return 0;
}

static void count(struct sandbox *b)
{
	struct result *r = b->result;
	struct cgroup_counters c;

	if (b->watch.place_count)
		supervise_sample_disk(&b->watch);
	cgroup_read(&b->cgroup, &c);
	b->evidence.oom_kills = r->oom_kills = c.oom_kills;
	r->cpu_us = c.cpu_us;
	r->memory_peak_bytes = c.memory_peak_bytes;
	r->pids_peak = c.pids_peak;
	r->limits_hit =
		b->watch.limits_hit | (c.memory_hit ? HIT_MEMORY : 0) | (c.pids_hit ? HIT_PIDS : 0);
	if (b->watch.ended_us)
		r->wall_ms = (double)(b->watch.ended_us - b->watch.started_us) / 1000;
}

static int place_of(const struct sandbox *b, const char *path)
{
	for (uint32_t i = 0; i < b->plan->tmpfs_count; i++)
		if (strcmp(b->plan->tmpfs[i].path, path) == 0)
			return b->places_fd[i];
	return -1;
}

static uint64_t size_of(const struct sandbox *b, const char *path)
{
	for (uint32_t i = 0; i < b->plan->tmpfs_count; i++)
		if (strcmp(b->plan->tmpfs[i].path, path) == 0)
			return b->plan->tmpfs[i].size_bytes;
	return 0;
}

static void export_artifacts(struct sandbox *b)
{
	struct collect_source from = {
		.output = place_of(b, "/output"),
		.workspace = place_of(b, "/workspace"),
		.userns = b->places->rootless ? b->places_fd[b->plan->tmpfs_count] : -1,
		.cancel_fd = b->io->cancel_fd,
		.bytes_max = size_of(b, "/output") + size_of(b, "/workspace"),
	};

	/* All of it was charged to the memory limit: what seems larger is mostly holes. */
	if (from.bytes_max > b->spec->memory_bytes)
		from.bytes_max = b->spec->memory_bytes;
	/* A cancelled run's own signal is still there to be read: it must not end the export too. */
	if (b->evidence.has_verdict && b->evidence.verdict == REASON_CANCELLED)
		from.cancel_fd = -1;
	collect_artifacts(b->spec, &from, b->result);
}

/* Idempotent; runs whatever was reached. */
static void destroy(struct sandbox *b)
{
	struct err e = {0};

	userns_holder_reap(&b->holder);
	network_end(&b->network);
	for (int i = 0; i < 3; i++)
		fd_close(&b->pipes[i]);
	for (size_t i = 0; i < ARRAY_SIZE(b->volumes); i++)
		fd_close(&b->volumes[i]);
	for (size_t i = 0; i < b->places_count; i++)
		fd_close(&b->places_fd[i]);
	stream_close(&b->watch.out);
	stream_close(&b->watch.err);
	fd_close(&b->watch.stdin_pipe);
	fd_close(&b->control);
	fd_close(&b->pidfd);
	fd_close(&b->proc);
	image_done(&b->image);
	if (b->cgroup.host && cgroup_destroy(&b->cgroup, &e) < 0 && !b->result->message[0])
		snprintf(b->result->message, sizeof b->result->message, "%s", e.text);
	slot_release(&b->slot);
	free(TAKE_PTR(b->plan));
}

static void creation_failed(struct sandbox *b, const struct err *e)
{
	struct result *r = b->result;

	b->evidence.create_failed = true;
	b->evidence.failed_as =
		e->code == CODE_SANDBOX_IMAGE_MISSING ? REASON_IMAGE_MISSING : REASON_CREATE_FAILED;
	if (b->evidence.failed_as == REASON_CREATE_FAILED) /* others have none */
		memcpy(r->stage, e->stage, sizeof r->stage);
	r->errnum = e->errnum;
	if (e->errnum == ENOENT && strcmp(e->stage, "exec") == 0 && !image_is_host(b->spec->image))
		snprintf(r->message, sizeof r->message,
			 "%.400s: the image %.200s has no such program", e->text, b->spec->image);
	else
		snprintf(r->message, sizeof r->message, "%s", e->text);
}

/* After the last process: drain, count, collect, judge. */
static void finish(struct sandbox *b, bool made)
{
	struct err e = {0};

	bool settled = b->evidence.main_ended && !b->watch.survivors;

	/* With nothing left alive but init, the counters stand still: read them while it goes. */
	if (settled)
		count(b);
	if (b->pidfd >= 0 && end_all(b, settled, &e) < 0 && !b->evidence.create_failed)
		snprintf(b->result->message, sizeof b->result->message, "%s", e.text);
	stream_drain(&b->watch.out);
	stream_drain(&b->watch.err);
	if (b->cgroup.host && !settled)
		count(b);
	network_count(&b->network, &b->result->network);
	if (b->result->network.denied)
		b->result->limits_hit |= HIT_NETWORK_DENIED;
	if (b->result->out.bytes > b->result->out.kept ||
	    b->result->err.bytes > b->result->err.kept)
		b->result->limits_hit |= HIT_OUTPUT;
	if (made)
		export_artifacts(b);
	b->evidence.cpu_limited = b->spec->cpu_time_us != SPEC_UNLIMITED;
	judge(&b->evidence, b->result);
	if (b->result->reason == REASON_OOM)
		b->result->stage[0] = b->result->message[0] = '\0';
	report_message(b->result, b->spec);
	report_enforced(b->result, b->spec, &b->cgroup, made ? b->plan : NULL);
	if (made && b->network.ended)
		b->result->enforced.network_denials = "observed until cloche-egress ended";
}

static void run_sandbox(struct sandbox *b, const struct native_io *io, struct err *e)
{
	bool made = false;

	if (create(b, e) < 0 || check_cpu_counter(b, e) < 0 || start_command(b, e) < 0) {
		if (!b->evidence.has_verdict)
			creation_failed(b, e);
	} else {
		made = true;
		watch(b);
	}
	finish(b, made);
	destroy(b);
	/* The reader of our output may take its time: nothing of the sandbox is held for it. */
	stream_flush(&b->watch.out, io->cancel_fd);
	stream_flush(&b->watch.err, io->cancel_fd);
}

static void nothing_open(struct sandbox *b)
{
	b->slot.lock = b->image.dir = b->image.lease = b->control = b->pidfd = b->proc = -1;
	b->cgroup.dir = -1;
	b->watch.stdin_pipe = b->watch.out.source = b->watch.err.source = -1;
	b->watch.out.sink = b->watch.err.sink = -1;
	memset(b->pipes, -1, sizeof b->pipes);
	memset(b->volumes, -1, sizeof b->volumes);
}

int native_run(const struct places *places, const struct spec *s, const struct native_io *io,
	       struct result *r, struct err *e)
{
	struct sandbox *b = calloc(1, sizeof *b);
	struct write_signals signals;

	*r = (struct result){.cpu_us = RESULT_UNKNOWN,
			     .memory_peak_bytes = RESULT_UNKNOWN,
			     .pids_peak = RESULT_UNKNOWN,
			     .timeout_us = s->timeout_us};
	if (!b)
		return err_set(e, ENOMEM, "start a run");
	b->places = places;
	b->spec = s;
	b->io = io;
	b->result = r;
	nothing_open(b);
	network_init(&b->network, s);
	b->watch.out.captured = &r->out;
	b->watch.err.captured = &r->err;
	if (plan_id(r->id, sizeof r->id, "run_", e) < 0 ||
	    plan_id(r->sandbox, sizeof r->sandbox, "sbx_", e) < 0) {
		free(b);
		return -1;
	}
	write_signals_block(&signals);
	run_sandbox(b, io, e);
	write_signals_restore(&signals);
	free(b);
	return 0;
}

/* Init lets go of its maker when it serves. */
static int hand_over(struct sandbox *b, struct kept_sandbox *made, struct err *e)
{
	struct result *r = b->result;

	userns_holder_reap(&b->holder);
	if (expect_places(b, e) < 0)
		return -1;
	report_enforced(r, b->spec, &b->cgroup, b->plan);
	if (b->kept->disk_bytes)
		r->enforced.disk = "ext4 loop";
	*made = (struct kept_sandbox){b->pid, b->pidfd, b->slot, r->enforced, b->network.listeners};
	if (b->kept->before_serve(b->kept, made, e) < 0 ||
	    send_to_init(b, FRAME_SERVE, NULL, 0, &b->kept->listener, 1, e) < 0)
		return -1;
	return expect(b, FRAME_DONE, NULL, NULL, e);
}

int sandbox_keep(const struct kept_request *k, struct kept_sandbox *ret, struct err *e)
{
	struct sandbox *b = calloc(1, sizeof *b);
	const struct native_io io = {.cancel_fd = -1, .uid_range = k->uid_range};
	struct result result = {0};
	struct kept_sandbox made;
	struct err ignored;
	int r;

	if (!b)
		return err_set(e, ENOMEM, "make a sandbox");
	*b = (struct sandbox){
		.places = k->places, .spec = k->spec, .io = &io, .kept = k, .result = &result};
	nothing_open(b);
	network_init(&b->network, k->spec);
	b->network.wanted = false; /* the caller's own serves what is made here */
	r = create(b, e);
	if (r == 0)
		r = hand_over(b, &made, e);
	if (r == 0) { /* destroy() finds nothing of what is given away */
		*ret = made;
		ret->listeners.count = 0; /* the caller's cloche-egress has them */
		b->pidfd = b->slot.lock = -1;
		cgroup_close(&b->cgroup);
		b->cgroup.host = NULL;
	} else if (b->pidfd >= 0 && end_all(b, false, &ignored) < 0) {
		b->cgroup.host = NULL; /* it will not die: left to whoever gets the slot next */
	}
	destroy(b);
	free(b);
	return r;
}
