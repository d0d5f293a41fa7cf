/* SPDX-License-Identifier: Apache-2.0 */
/*
 * client_side.c - the one client: who it is, what it asks, what it is told.
 *
 * A later connection takes an earlier one's place: the old service is dead, or about to be. While what
 * was sent has not been taken, nothing more is read; so only events can pile up, and those are bounded
 * by the sandboxes there are.
 */
#include "spawner/spawner.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"
#include "spawner/egress.h"

void client_close(struct spawner *s)
{
	while (s->out) {
		struct outgoing *o = s->out;

		s->out = o->next;
		free(o);
	}
	s->out_end = &s->out;
	spawner_unwatch(s, &s->client);
	s->greeted = s->writing = false;
	pulls_forget(s);
}

void client_accept(struct spawner *s)
{
	int fd = accept4(s->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	struct ucred who;
	socklen_t size = sizeof who;

	if (fd < 0)
		return;
	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &size) < 0 ||
	    (who.uid != 0 && who.uid != s->service_uid)) {
		fprintf(stderr, "cloche-spawner: user %d may not ask for sandboxes\n",
			(int)who.uid);
		close(fd);
		return;
	}
	client_close(s);
	if (spawner_watch(s, fd, &s->client_source, EPOLLIN) < 0) {
		close(fd);
		return;
	}
	s->client = fd;
	s->client_number++;
}

static void want_to_write(struct spawner *s, bool writing)
{
	struct epoll_event e = {.events = writing ? EPOLLOUT : EPOLLIN,
				.data.ptr = &s->client_source};

	if (s->writing == writing)
		return;
	s->writing = writing;
	if (epoll_ctl(s->epoll, EPOLL_CTL_MOD, s->client, &e) < 0)
		client_close(s);
}

void client_send(struct spawner *s, unsigned number, const void *message, size_t size)
{
	struct outgoing *o;

	if (s->client < 0 || number != s->client_number)
		return;
	if (!s->out) {
		if (send(s->client, message, size, MSG_NOSIGNAL) >= 0)
			return;
		if (errno != EAGAIN && errno != EINTR && errno != ENOBUFS) {
			client_close(s);
			return;
		}
	}
	o = malloc(sizeof *o + size);
	if (!o) { /* it will ask again when it has come back */
		client_close(s);
		return;
	}
	o->next = NULL;
	o->size = size;
	memcpy(o->data, message, size);
	*s->out_end = o;
	s->out_end = &o->next;
	want_to_write(s, true);
}

void client_done(struct spawner *s, unsigned number, uint32_t sequence)
{
	const struct spawner_done m = {{SPAWNER_DONE, sequence}};

	client_send(s, number, &m, sizeof m);
}

void client_refuse(struct spawner *s, unsigned number, uint32_t sequence, const struct err *e)
{
	struct spawner_refused m = {
		.header = {SPAWNER_REFUSED, sequence},
		.code = (uint32_t)e->code,
		.errnum = (uint32_t)e->errnum,
	};

	snprintf(m.stage, sizeof m.stage, "%s", e->stage);
	snprintf(m.text, sizeof m.text, "%s", e->text);
	client_send(s, number, &m, sizeof m);
}

static void flush(struct spawner *s)
{
	while (s->out) {
		struct outgoing *o = s->out;

		if (send(s->client, o->data, o->size, MSG_NOSIGNAL) < 0) {
			if (errno != EAGAIN && errno != EINTR && errno != ENOBUFS)
				client_close(s);
			return;
		}
		s->out = o->next;
		free(o);
	}
	s->out_end = &s->out;
	want_to_write(s, false);
}

static void hello(struct spawner *s, uint32_t sequence)
{
	unsigned number = s->client_number;

	s->greeted = true;
	client_done(s, number, sequence);
	for (struct end *x = s->ends; x; x = x->next)
		client_send(s, number, &x->ended, sizeof x->ended);
}

static void list(struct spawner *s, uint32_t sequence)
{
	for (size_t i = 0; i < BOX_BUCKETS; i++)
		for (struct box *b = s->buckets[i]; b; b = b->next) {
			struct spawner_live m = {
				.header = {SPAWNER_LIVE, sequence},
				.created = b->meta.created,
				.started_ms = b->meta.started_ms,
				.paused = b->frozen && !b->freeze_sequence,
			};

			if (b->state == BOX_LIVE && !b->silent)
				client_send(s, s->client_number, &m, sizeof m);
		}
	client_done(s, s->client_number, sequence);
}

static void cut(struct spawner *s, const char *id)
{
	_cleanup_close_ int folder =
		openat(s->place.sandboxes, id, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	if (folder >= 0)
		egress_end(folder);
}

static void by_id(struct spawner *s, const struct spawner_by_id *m)
{
	uint32_t type = m->header.type, sequence = m->header.sequence;
	struct box *b = box_find(s, m->id);
	struct err e = {0};

	bool kill = type == SPAWNER_KILL || type == SPAWNER_DISCARD;

	if (type == SPAWNER_RELEASE || (kill && end_find(s, m->id))) {
		if (type != SPAWNER_KILL)
			end_release(s, m->id);
		client_done(s, s->client_number, sequence);
		return;
	}
	if (kill && (b || creation_pending(s, m->id, true))) {
		if (b && type == SPAWNER_DISCARD)
			box_discard(b);
		else if (b)
			box_kill(b, s);
		client_done(s, s->client_number, sequence);
		return;
	}
	if (!b || b->state != BOX_LIVE || b->silent) {
		err_set(&e, ESRCH, "%s", m->id);
		client_refuse(s, s->client_number, sequence, &e);
		return;
	}
	if (type == SPAWNER_CUT) {
		cut(s, m->id);
		client_done(s, s->client_number, sequence);
	} else if (type == SPAWNER_PAUSE) {
		box_pause(s, b, sequence);
	} else if (type == SPAWNER_RESUME) {
		box_resume(s, b, sequence);
	} else {
		box_stats(s, b, sequence);
	}
}

static void request(struct spawner *s, void *message, size_t size, int *fds, size_t fd_count)
{
	const struct spawner_header *h = message;
	struct err e = {0};

	if (request_check(message, size, fd_count, s->greeted, &e) < 0) {
		client_refuse(s, s->client_number, size >= sizeof *h ? h->sequence : 0, &e);
		return;
	}
	switch (h->type) {
	case SPAWNER_HELLO:
		hello(s, h->sequence);
		break;
	case SPAWNER_CREATE:
		creation_request(s, message, fds, fd_count);
		break;
	case SPAWNER_NETWORK:
		changes_request(s, message);
		break;
	case SPAWNER_LIST:
		list(s, h->sequence);
		break;
	default:
		by_id(s, message);
	}
}

static size_t take_descriptors(struct msghdr *m, int *fds, size_t room)
{
	size_t n = 0;

	for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c)) {
		size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);

		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		for (size_t i = 0; i < count; i++) {
			int fd;

			memcpy(&fd, CMSG_DATA(c) + i * sizeof fd, sizeof fd);
			if (n < room)
				fds[n++] = fd;
			else
				close(fd);
		}
	}
	return n;
}

static void receive(struct spawner *s)
{
	static _Alignas(8) char data[SPAWNER_MESSAGE_MAX];
	union {
		char space[CMSG_SPACE(SPAWNER_MAX_FDS * sizeof(int))];
		struct cmsghdr align;
	} control;
	struct iovec iov = {data, sizeof data};
	struct msghdr m = {.msg_iov = &iov,
			   .msg_iovlen = 1,
			   .msg_control = &control,
			   .msg_controllen = sizeof control};
	ssize_t n = recvmsg(s->client, &m, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
	int fds[SPAWNER_MAX_FDS];
	size_t fd_count;

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0) {
		client_close(s);
		return;
	}
	fd_count = take_descriptors(&m, fds, SPAWNER_MAX_FDS);
	if (m.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) {
		struct err e = {0};

		err_set(&e, EMSGSIZE, "a request with more than there is room for");
		client_refuse(s, s->client_number,
			      n >= (ssize_t)sizeof(struct spawner_header)
				      ? ((struct spawner_header *)data)->sequence
				      : 0,
			      &e);
	} else {
		request(s, data, (size_t)n, fds, fd_count);
	}
	for (size_t i = 0; i < fd_count; i++)
		fd_close(&fds[i]);
}

void client_event(struct spawner *s, uint32_t events)
{
	if (s->client < 0)
		return;
	if (events & EPOLLOUT)
		flush(s);
	else if (events & EPOLLIN)
		receive(s);
	else if (events & (EPOLLHUP | EPOLLERR))
		client_close(s);
}
