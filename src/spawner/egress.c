/* SPDX-License-Identifier: Apache-2.0 */
#include "spawner/egress.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "settings/egress.h"
#include "spawner/meta.h"

enum { CONTROL_BACKLOG = 8 };

/* ---- spares ---- */

static bool is_alive(const struct spare *s)
{
	struct pollfd p = {.fd = s->process.pidfd, .events = POLLIN};

	return s->process.pidfd >= 0 && poll(&p, 1, 0) == 0;
}

void spare_drop(struct spare *s)
{
	if (s->process.pidfd >= 0)
		syscall(SYS_pidfd_send_signal, s->process.pidfd, SIGKILL, NULL, 0);
	fd_close(&s->process.setup);
	fd_close(&s->process.control);
	fd_close(&s->process.pidfd);
	s->process.pid = 0;
}

void spares_end(struct spares *s)
{
	siginfo_t ignored;

	s->wanted = false;
	while (s->count) {
		struct spare *last = &s->spare[--s->count];
		pid_t pid = last->process.pid;

		spare_drop(last);
		while (waitid(P_PID, (id_t)pid, &ignored, WEXITED) < 0 && errno == EINTR)
			;
	}
}

/* Its slot's lock goes along, and is the process's alone from then on. */
static int start(const struct places *places, const char *uid_range, struct spare *ret,
		 struct err *e)
{
	struct slot ids = {.lock = -1};
	struct id_range range;
	int r;

	*ret = SPARE_EMPTY;
	ret->uid = ret->gid = UINT32_MAX;
	if (!places->rootless) {
		if (id_range_find(places, uid_range, &range, e) < 0 ||
		    slot_acquire(places, &range, 0, &ids, e) < 0)
			return -1;
		ret->uid = ids.user_uid;
		ret->gid = ids.user_gid;
	}
	r = egress_start(&ret->process, ids.lock, e);
	slot_release(&ids);
	if (r == 0 && process_start_ticks(ret->process.pid, &ret->start_ticks) < 0) {
		spare_drop(ret);
		r = err_set(e, ESRCH, "start cloche-egress");
	}
	return r;
}

int spare_take(struct spares *s, const struct places *places, const char *uid_range,
	       struct spare *ret, struct err *e)
{
	s->wanted = true;
	while (s->count) {
		*ret = s->spare[0];
		memmove(s->spare, s->spare + 1, --s->count * sizeof *s->spare);
		if (is_alive(ret))
			return 0;
		spare_drop(ret);
	}
	return start(places, uid_range, ret, e);
}

bool spares_lack(const struct spares *s)
{
	return s->wanted && s->count < SPARES_MAX;
}

void spares_fill(struct spares *s, const struct places *places, const char *uid_range)
{
	struct err e = {0};

	if (start(places, uid_range, &s->spare[s->count], &e) == 0)
		s->count++;
	else
		s->wanted = false;
}

/* ---- in a worker ---- */

static int listen_for_control(int folder, uint32_t service_gid, int *ret_fd, struct err *e)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	_cleanup_close_ int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	snprintf(a.sun_path, sizeof a.sun_path, "/proc/self/fd/%d/" EGRESS_SOCKET, folder);
	if (fd < 0 || bind(fd, (struct sockaddr *)&a, sizeof a) < 0 ||
	    listen(fd, CONTROL_BACKLOG) < 0 ||
	    fchownat(folder, EGRESS_SOCKET, (uid_t)-1, service_gid, 0) < 0 ||
	    fchmodat(folder, EGRESS_SOCKET, 0660, 0) < 0)
		return err_set(e, errno, "listen for who asks about connections");
	*ret_fd = TAKE_FD(fd);
	return 0;
}

int egress_prepare(struct spare *s, const struct policy *p, const struct spec *spec,
		   const char *owner, int folder, uint32_t service_gid, struct egress_ready *ret,
		   struct err *e)
{
	_cleanup_close_ int control = -1;
	char *json = NULL;
	int r;

	if (listen_for_control(folder, service_gid, &control, e) < 0 ||
	    settings_egress_config(&p->settings, p->places, spec, owner, &json, &s->has_authority,
				   e) < 0)
		return -1;
	r = egress_configure(&s->process, json, strlen(json), s->uid, s->gid, control, e);
	settings_egress_free(json);
	if (r == 0 && s->has_authority)
		r = egress_wait_ready(&s->process, ret, e);
	return r;
}

/* What names a process beyond its number, which may be another's later. */
struct mark {
	uint32_t pid, zero;
	uint64_t start_ticks;
};

static int write_mark(int folder, const struct spare *s)
{
	_cleanup_close_ int fd =
		openat(folder, EGRESS_MARK, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	struct mark m = {.pid = (uint32_t)s->process.pid, .start_ticks = s->start_ticks};

	return fd < 0 ? -errno : fd_write_all(fd, &m, sizeof m);
}

int egress_hand_over(struct spare *s, int folder, const struct kept_sandbox *made, struct err *e)
{
	const struct capture *c = &made->listeners;
	struct egress_ready ready;
	int r;

	if (!s->has_authority && egress_wait_ready(&s->process, &ready, e) < 0)
		return -1;
	r = write_mark(folder, s);
	if (r < 0)
		return err_set(e, -r, "write down the sandbox's cloche-egress");
	return egress_serve(&s->process, c->kinds, c->fds, c->count, made->pidfd, e);
}

/* ---- one that serves ---- */

void egress_end(int folder)
{
	_cleanup_close_ int fd = openat(folder, EGRESS_MARK, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	_cleanup_close_ int pidfd = -1;
	struct mark m;
	uint64_t ticks;

	if (fd < 0 || fd_read_all(fd, &m, sizeof m) != (ssize_t)sizeof m || m.pid < 2 ||
	    m.pid > INT32_MAX)
		return;
	pidfd = (int)syscall(SYS_pidfd_open, (pid_t)m.pid, 0);
	/* Behind the open: if it is that one now, the descriptor is of that one. */
	if (pidfd >= 0 && process_start_ticks((pid_t)m.pid, &ticks) == 0 && ticks == m.start_ticks)
		syscall(SYS_pidfd_send_signal, pidfd, SIGKILL, NULL, 0);
}

static int connect_to(int folder, int *ret_fd, struct err *e)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	_cleanup_close_ int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	snprintf(a.sun_path, sizeof a.sun_path, "/proc/self/fd/%d/" EGRESS_SOCKET, folder);
	if (fd < 0 || connect(fd, (struct sockaddr *)&a, sizeof a) < 0)
		return err_set(e, errno,
			       "the process that connects for this sandbox is gone: nothing is let "
			       "out of it any more");
	*ret_fd = TAKE_FD(fd);
	return 0;
}

int egress_change(int folder, const struct policy *p, const struct spec *spec, const char *owner,
		  struct err *e)
{
	_cleanup_close_ int control = -1;
	char *json = NULL;
	int r;

	if (settings_egress_rules(&p->settings, p->places, spec, owner, &json, e) < 0)
		return -1;
	r = connect_to(folder, &control, e);
	if (r == 0)
		r = egress_set_policy(control, json, strlen(json), e);
	settings_egress_free(json);
	return r;
}
