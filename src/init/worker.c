/* SPDX-License-Identifier: Apache-2.0 */
#include "init/worker.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { CONNECTION = 0, LINGER_MS = 2000 };

/* Becoming another user than root clears every capability; there is no way back. */
static bool become_user(const struct guest *g)
{
	return g->uid != 0 && g->gid != 0 && syscall(SYS_setgroups, 0, NULL) == 0 &&
	       syscall(SYS_setresgid, g->gid, g->gid, g->gid) == 0 &&
	       syscall(SYS_setresuid, g->uid, g->uid, g->uid) == 0 &&
	       prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) == 0;
}

void worker_send(struct worker *w, enum frame_type type, unsigned stream, const void *payload,
		 uint32_t size)
{
	if (frame_send(w->fd, type, stream, payload, size, NULL, 0) < 0)
		_exit(1);
}

bool worker_receive(struct worker *w, struct frame *ret, void *payload)
{
	return frame_receive(w->fd, FROM_HOST, ret, payload, FRAME_DATA_MAX, NULL, NULL) == 0;
}

int worker_failed(struct worker *w, int errnum, const char *what)
{
	w->what = what;
	return -errnum;
}

void worker_send_entry(struct worker *w, const struct stat *st, const char *name,
		       const char *target)
{
	static char payload[sizeof(struct entry_record) + 2 * 4100];
	struct entry_record e = {.mode = st->st_mode & (S_IFMT | 07777),
				 .uid = st->st_uid,
				 .gid = st->st_gid,
				 .size_bytes = (uint64_t)st->st_size,
				 .mtime = st->st_mtim.tv_sec};
	size_t n = sizeof e, name_size = strlen(name) + 1, target_size = strlen(target) + 1;

	if (name_size > 4100 || target_size > 4100)
		_exit(1);
	memcpy(payload, &e, sizeof e);
	memcpy(payload + n, name, name_size);
	n += name_size;
	memcpy(payload + n, target, target_size);
	worker_send(w, FRAME_ENTRY, 0, payload, (uint32_t)(n + target_size));
}

/* A peer that is still sending must be able to read why not. */
static void linger(struct worker *w)
{
	struct pollfd p = {.fd = w->fd, .events = POLLIN};
	int64_t until = guest_now_us() / 1000 + LINGER_MS, left;
	static char data[FRAME_DATA_MAX];

	shutdown(w->fd, SHUT_WR);
	while ((left = until - guest_now_us() / 1000) > 0 && poll(&p, 1, (int)left) > 0)
		if (read(w->fd, data, sizeof data) <= 0)
			break;
}

void worker_run(struct worker *w, int (*work)(struct worker *w))
{
	struct failed_record f = {0};
	int r;

	if (dup2(w->fd, CONNECTION) < 0 || syscall(SYS_close_range, CONNECTION + 1, ~0u, 0) < 0 ||
	    !become_user(w->kept->g) || fcntl(CONNECTION, F_SETFL, 0) < 0)
		_exit(1);
	w->fd = CONNECTION;
	w->what = "";
	r = work(w);
	if (r == 0) {
		worker_send(w, FRAME_DONE, 0, NULL, 0);
		_exit(0);
	}
	f.errnum = (uint32_t)-r;
	snprintf(f.stage, sizeof f.stage, "%s", w->stage);
	snprintf(f.what, sizeof f.what, "%s", w->what);
	worker_send(w, FRAME_FAILED, 0, &f, sizeof f);
	linger(w);
	_exit(0);
}
