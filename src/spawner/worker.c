/* SPDX-License-Identifier: Apache-2.0 */
#include "spawner/worker.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/tree.h"
#include "image/image.h"
#include "native/launch.h"
#include "spawner/disk.h"

enum { BACKLOG = 128, CREATION_NICE = 10 };

struct work {
	const struct worker_place *place;
	const struct job *job;
	int folder;
	struct meta meta;
	struct spare egress;
	struct egress_ready ready;
};

/* Bound by way of the open folder: paths of any length fit, and nobody inside learns of the host's. */
static int bind_listener(int folder, int *ret_fd, struct err *e)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	_cleanup_close_ int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	snprintf(a.sun_path, sizeof a.sun_path, "/proc/self/fd/%d/ctl", folder);
	if (fd < 0 || bind(fd, (struct sockaddr *)&a, sizeof a) < 0 || listen(fd, BACKLOG) < 0)
		return err_set(e, errno, "listen for a sandbox's conversations");
	*ret_fd = TAKE_FD(fd);
	return 0;
}

/* Connecting needs to reach the socket and to write to it: the service's group may, others may not. The
 * folder is opened to the group last. */
int worker_make_folder(const struct worker_place *place, const char *id, int *ret_folder,
		       int *ret_listener, struct err *e)
{
	int folder;

	if (mkdirat(place->sandboxes, id, 0700) < 0)
		return err_set(e, errno, "make the folder of %s", id);
	folder = openat(place->sandboxes, id, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (folder < 0)
		return err_set(e, errno, "open the folder of %s", id);
	*ret_folder = folder;
	if (bind_listener(folder, ret_listener, e) < 0)
		return -1;
	if (fchownat(folder, "ctl", (uid_t)-1, place->service_gid, 0) < 0 ||
	    fchmodat(folder, "ctl", 0660, 0) < 0 ||
	    fchown(folder, (uid_t)-1, place->service_gid) < 0 || fchmod(folder, 0710) < 0)
		return err_set(e, errno, "give the folder of %s to the service", id);
	return 0;
}

static int make_disk(const struct kept_request *k, uint32_t uid, uint32_t gid, int *ret_mount,
		     struct err *e)
{
	const struct work *w = k->context;

	return disk_make(w->place->disks, k->disk_bytes, uid, gid, ret_mount, e);
}

/* From here on a later spawner knows of it: what connects for it serves it by then. */
static int write_meta(const struct kept_request *k, const struct kept_sandbox *made, struct err *e)
{
	struct work *w = k->context;
	int r;

	if (k->spec->network.mode != NETWORK_NONE &&
	    egress_hand_over(&w->egress, w->folder, made, e) < 0)
		return err_stage(e, "network");
	r = meta_fill(&w->meta, made, w->place->host, w->job->request.id, k->spec->memory_bytes);

	if (r == 0)
		r = meta_write(w->folder, &w->meta);
	return r < 0 ? err_set(e, -r, "write down %s", w->job->request.id) : 0;
}

/* What the image wants its programs to find: for cloched, which cannot read the store. */
static int leave_image(const struct work *w, struct err *e)
{
	const char *image = w->job->spec.image;
	_cleanup_image_config_ struct image_config config = {0};
	_cleanup_close_ int fd = -1;
	_cleanup_free_ char *text = NULL;
	json_t *env = json_array(), *root = json_pack("{so}", "Env", env);
	int r = -ENOMEM;

	if (image_is_host(image)) {
		json_decref(root);
		return 0;
	}
	if (image_look(w->place->places, image, &config, e) < 0) {
		json_decref(root);
		return -1;
	}
	for (size_t i = 0; root && i < config.env.count; i++)
		json_array_append_new(env, json_string(config.env.item[i]));
	text = root ? json_dumps(root, JSON_COMPACT) : NULL;
	json_decref(root);
	if (text) {
		fd = openat(w->folder, "image", O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
		r = fd < 0 ? -errno : fd_write_all(fd, text, strlen(text));
	}
	if (r == 0 && (fchown(fd, (uid_t)-1, w->place->service_gid) < 0 || fchmod(fd, 0640) < 0))
		r = -errno;
	return r < 0 ? err_set(e, -r, "write down the environment of %.200s", image) : 0;
}

static int prepare_network(struct work *w, struct kept_request *k, struct err *e)
{
	if (k->spec->network.mode == NETWORK_NONE)
		return 0;
	if (egress_prepare(&w->egress, w->place->policy, k->spec, w->job->request.network.owner,
			   w->folder, w->place->service_gid, &w->ready, e) < 0)
		return e->stage[0] ? -1 : err_stage(e, "network");
	if (w->ready.ca_size) {
		k->authority = w->ready.ca;
		k->authority_size = w->ready.ca_size;
	}
	return 0;
}

static int make(struct work *w, struct kept_sandbox *made, struct err *e)
{
	struct kept_request k = {
		.places = w->place->places,
		.spec = &w->job->spec,
		.uid_range = w->place->policy->settings.uid_range,
		.disk_bytes = w->job->request.disk_bytes,
		.make_disk = make_disk,
		.before_serve = write_meta,
		.context = w,
	};
	int listener = -1, r;

	if (create_volumes(w->place->policy, &w->job->request, &w->job->spec, w->job->fds,
			   k.volumes, e) < 0)
		return err_stage(e, "volume");
	if (worker_make_folder(w->place, w->job->request.id, &w->folder, &listener, e) < 0)
		return err_stage(e, "folder");
	if (leave_image(w, e) < 0) {
		close(listener);
		return err_stage(e, "image");
	}
	k.listener = listener;
	r = prepare_network(w, &k, e) < 0 ? -1 : sandbox_keep(&k, made, e);
	close(listener);
	for (size_t i = 0; i < ARRAY_SIZE(k.volumes); i++)
		fd_close(&k.volumes[i]);
	return r;
}

int worker_send_report(int fd, const struct worker_report *r, int pidfd, int lock)
{
	union {
		char space[CMSG_SPACE(2 * sizeof(int))];
		struct cmsghdr align;
	} control = {0};
	struct iovec iov = {(void *)(uintptr_t)r, sizeof *r};
	struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1};

	if (r->made) {
		const int fds[] = {pidfd, lock};
		struct cmsghdr *c;

		m.msg_control = &control;
		m.msg_controllen = sizeof control;
		c = CMSG_FIRSTHDR(&m);
		*c = (struct cmsghdr){CMSG_LEN(sizeof fds), SOL_SOCKET, SCM_RIGHTS};
		memcpy(CMSG_DATA(c), fds, sizeof fds);
	}
	return sendmsg(fd, &m, MSG_NOSIGNAL) < 0 ? -errno : 0;
}

__attribute__((noreturn)) static void work(struct work *w, int report)
{
	struct worker_report r = {0};
	struct kept_sandbox made = {.pidfd = -1};

	r.made = make(w, &made, &r.err) == 0;
	if (r.made)
		r.meta = w->meta;
	else if (w->folder >= 0)
		worker_remove_folder(w->place->sandboxes, w->job->request.id);
	_exit(worker_send_report(report, &r, made.pidfd, made.slot.lock) < 0);
}

static int compare(const void *a, const void *b)
{
	return *(const int *)a - *(const int *)b;
}

/* Nothing of the spawner's stays open in a child but 0 to 2 and these. */
void worker_close_others(int *keep, size_t count)
{
	unsigned from = 3;

	qsort(keep, count, sizeof *keep, compare);
	for (size_t i = 0; i < count; i++) {
		if ((unsigned)keep[i] > from)
			syscall(SYS_close_range, from, keep[i] - 1, 0);
		if ((unsigned)keep[i] >= from)
			from = (unsigned)keep[i] + 1;
	}
	syscall(SYS_close_range, from, ~0u, 0);
}

/* In the child: it dies with its parent and takes signals as any program does. */
void worker_become_child(pid_t parent)
{
	sigset_t none;

	prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
	if (getppid() != parent)
		_exit(1);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
}

int worker_start(const struct worker_place *w, const struct job *job, pid_t *ret_pid,
		 int *ret_report, struct err *e)
{
	struct work context = {.place = w, .job = job, .folder = -1, .egress = job->egress};
	int p[2], keep[SPAWNER_MAX_FDS + 4], init;
	pid_t parent = getpid(), pid;
	size_t n = 0;

	/* One init for all sandboxes, in memory once. */
	if (launch_prepare(&init, e) < 0)
		return -1;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, p) < 0)
		return err_set(e, errno, "make a socket pair");
	pid = fork();
	if (pid < 0) {
		err_set(e, errno, "start a worker");
		close(p[0]);
		close(p[1]);
		return -1;
	}
	if (pid == 0) {
		worker_become_child(parent);
		/* Who runs commands goes first; box_add() gives it back. Only root can give it back. */
		if (!w->places->rootless && nice(CREATION_NICE) < 0)
			errno = 0;
		keep[n++] = p[1];
		keep[n++] = w->sandboxes;
		keep[n++] = init;
		for (size_t i = 0; i < job->fd_count; i++)
			keep[n++] = job->fds[i];
		if (job->egress.process.pid)
			keep[n++] = job->egress.process.setup;
		worker_close_others(keep, n);
		work(&context, p[1]);
	}
	close(p[1]);
	*ret_pid = pid;
	*ret_report = p[0];
	return 0;
}

int worker_receive(int report, struct worker_report *ret, int *ret_pidfd, int *ret_lock)
{
	union {
		char space[CMSG_SPACE(2 * sizeof(int))];
		struct cmsghdr align;
	} control;
	struct iovec iov = {ret, sizeof *ret};
	struct msghdr m = {.msg_iov = &iov,
			   .msg_iovlen = 1,
			   .msg_control = &control,
			   .msg_controllen = sizeof control};
	ssize_t n = recvmsg(report, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	struct cmsghdr *c;
	int fds[2];

	if (n < 0)
		return errno == EAGAIN || errno == EINTR ? 0 : -errno;
	if (n == 0)
		return -EPIPE;
	if (n != sizeof *ret)
		return -EPROTO;
	if (!ret->made)
		return 1;
	c = CMSG_FIRSTHDR(&m);
	if (!c || c->cmsg_type != SCM_RIGHTS || c->cmsg_len != CMSG_LEN(sizeof fds))
		return -EPROTO; /* our table is full: nothing could be received */
	memcpy(fds, CMSG_DATA(c), sizeof fds);
	*ret_pidfd = fds[0];
	*ret_lock = fds[1];
	return 1;
}

pid_t worker_sweep(const struct worker_place *w)
{
	pid_t parent = getpid(), pid = fork();
	int nothing = -1;

	if (pid == 0) {
		worker_become_child(parent);
		worker_close_others(&nothing, 0);
		cgroup_sweep(w->host, w->places);
		_exit(0);
	}
	return pid < 0 ? -errno : pid;
}

void worker_remove_folder(int sandboxes, const char *id)
{
	_cleanup_close_ int folder =
		openat(sandboxes, id, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	if (folder >= 0)
		egress_end(folder);
	tree_remove(sandboxes, id);
}
