/* SPDX-License-Identifier: Apache-2.0 */
/*
 * control.c - cloched, the spawner, or a run without a service: they change the policy and take the records.
 *
 * A client's place is the number of the record it gets next, so a slow one costs nothing. A request is answered
 * before the next is read, and FLUSH when all records before it have been sent to who asked and watches.
 */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "egress/egress.h"

struct client {
	uv_poll_t poll;
	struct client *next;
	struct egress *egress;
	int fd, mask;
	bool gone;       /* hung up: freed when its poll is closed */
	bool may_change; /* the policy */
	bool watches;
	uint32_t place; /* the next record it gets */
	bool flushing;  /* it waits for TOTALS */
	uint32_t flush_sequence, flush_to;
};

static void on_client(uv_poll_t *poll, int status, int events);

static void client_freed(uv_handle_t *handle)
{
	free(handle->data);
}

/* While one is served, what it asks for may be told to all that watch: to itself, too, which may end it there. */
static void hang_up(struct client *k)
{
	struct egress *g = k->egress;

	if (k->gone)
		return;
	k->gone = true;
	for (struct client **p = &g->clients; *p; p = &(*p)->next)
		if (*p == k) {
			*p = k->next;
			break;
		}
	uv_poll_stop(&k->poll);
	uv_close((uv_handle_t *)&k->poll, client_freed);
	close(k->fd);
	if (!g->listening)
		uv_stop(&g->loop);
}

/* 1: sent, 0: no room now, -1: it is gone. */
static int send_to(struct client *k, const void *message, size_t size)
{
	ssize_t n;

	if (k->gone)
		return -1;
	n = send(k->fd, message, size, MSG_DONTWAIT | MSG_NOSIGNAL);
	return n >= 0 ? 1 : errno == EAGAIN || errno == ENOBUFS ? 0 : -1;
}

static int send_totals(struct client *k)
{
	struct egress *g = k->egress;
	struct egress_totals t = g->totals;

	t.header = (struct egress_header){EGRESS_TOTALS, k->flush_sequence};
	t.open = g->open;
	return send_to(k, &t, sizeof t);
}

static int send_record(struct client *k)
{
	const struct egress_record *r = k->egress->records[k->place % LIMIT_RECORDS_MAX];

	return r ? send_to(k, r, sizeof *r) : 1; /* lost at ENOMEM: counted */
}

static int send_next(struct client *k)
{
	struct egress *g = k->egress;
	int r;

	if (k->watches && k->place - g->first > g->next - g->first)
		k->place = g->first; /* dropped before it got them */
	if (k->flushing && (!k->watches || (int32_t)(k->place - k->flush_to) >= 0)) {
		r = send_totals(k);
		k->flushing = r == 0;
		return r;
	}
	if (!k->watches || k->place == g->next)
		return 2;
	r = send_record(k);
	k->place += r > 0;
	return r;
}

/* False: it has hung up. */
static bool send_all(struct client *k)
{
	int r, mask;

	do {
		r = send_next(k);
	} while (r == 1);
	if (r < 0) {
		hang_up(k);
		return false;
	}
	mask = UV_DISCONNECT | (r == 0 ? UV_WRITABLE : 0) | (k->flushing ? 0 : UV_READABLE);
	if (mask != k->mask)
		uv_poll_start(&k->poll, mask, on_client);
	k->mask = mask;
	return true;
}

void control_tell(struct egress *g)
{
	for (struct client *k = g->clients, *next; k; k = next) {
		next = k->next;
		if (k->watches)
			(void)send_all(k);
	}
}

/* ---- requests ---- */

/* Whoever is connected from the start asks for totals behind the end, and hangs up. */
bool control_is_done(const struct egress *g)
{
	return g->ending && g->listening && g->first == g->next;
}

static void acknowledged(struct egress *g, uint32_t last)
{
	if (last + 1 - g->first > g->next - g->first)
		return; /* of none that there is */
	for (; g->first != last + 1; g->first++)
		free(TAKE_PTR(g->records[g->first % LIMIT_RECORDS_MAX]));
	if (control_is_done(g))
		uv_stop(&g->loop);
}

static void change_policy(struct egress *g, struct network_policy *policy)
{
	struct network_policy *old = g->settings.request;

	g->settings.request = policy;
	g->quota = network_quota(policy, g->settings.ceiling);
	for (struct connection *c = g->connections, *next; c; c = next) {
		next = c->next;
		connect_judge_again(c);
	}
	network_policy_free(old);
	listen_room(g);
}

static int read_policy(struct client *k, int memfd, struct network_policy **ret, struct err *e)
{
	if (!k->may_change)
		return err_set(e, EPERM, "change the policy");
	if (memfd < 0)
		return err_set(e, 0, "a change of the policy without its descriptor");
	if (egress_policy_read(memfd, ret, e) < 0)
		return -1;
	if (!k->egress->authority && egress_opens_tls(&k->egress->settings, *ret)) {
		network_policy_free(*ret);
		return err_set(
			e, 0,
			"the new rules need TLS to be opened, and this sandbox was made without an authority: "
			"make one with such a rule, or name these hosts without method and path");
	}
	return 0;
}

static void handle_policy(struct client *k, uint32_t sequence, int memfd)
{
	struct egress_plain done = {{EGRESS_DONE, sequence}};
	struct egress_refused refused = {{EGRESS_REFUSED, sequence}, ""};
	struct network_policy *policy = NULL;
	struct err e = {0};

	if (read_policy(k, memfd, &policy, &e) < 0) {
		snprintf(refused.message, sizeof refused.message, "%.500s", e.text);
		(void)send_to(k, &refused, sizeof refused);
		return;
	}
	change_policy(k->egress, policy);
	(void)send_to(k, &done, sizeof done);
}

static void handle(struct client *k, const struct egress_header *h, int memfd)
{
	struct egress *g = k->egress;

	switch (h->type) {
	case EGRESS_POLICY:
		handle_policy(k, h->sequence, memfd);
		break;
	case EGRESS_FLUSH:
		k->flushing = true;
		k->flush_sequence = h->sequence;
		k->flush_to = g->next;
		break;
	case EGRESS_ACK:
		acknowledged(g, h->sequence);
		break;
	case EGRESS_WATCH:
		k->watches = true;
		k->place = g->first;
		break;
	default:
		break;
	}
}

/* The first descriptor of a message; others are closed. */
static int take_fd(struct msghdr *m)
{
	int taken = -1;

	for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c)) {
		const int *fds = (const int *)(const void *)CMSG_DATA(c);

		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		for (size_t i = 0; i < (c->cmsg_len - CMSG_LEN(0)) / sizeof *fds; i++) {
			if (taken < 0)
				taken = fds[i];
			else
				close(fds[i]);
		}
	}
	return taken;
}

/* 1: one was handled, 0: none now, -1: hung up, or nonsense. */
static int receive(struct client *k)
{
	union {
		char bytes[CMSG_SPACE(4 * sizeof(int))];
		struct cmsghdr align;
	} control;
	struct egress_plain message;
	struct iovec iov = {&message, sizeof message};
	struct msghdr m = {.msg_iov = &iov,
			   .msg_iovlen = 1,
			   .msg_control = &control,
			   .msg_controllen = sizeof control};
	ssize_t n = recvmsg(k->fd, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	_cleanup_close_ int fd = n >= 0 ? take_fd(&m) : -1;

	if (n < 0)
		return errno == EAGAIN || errno == EINTR ? 0 : -1;
	if (n != sizeof message || (m.msg_flags & MSG_TRUNC))
		return -1;
	handle(k, &message.header, fd);
	return 1;
}

static void on_client(uv_poll_t *poll, int status, int events)
{
	struct client *k = poll->data;
	int r = 1;

	if (status < 0)
		r = -1;
	while (r > 0 && !k->gone && !k->flushing && (events & (UV_READABLE | UV_DISCONNECT)))
		r = receive(k);
	if (r < 0)
		hang_up(k);
	else if (!k->gone)
		(void)send_all(k);
}

/* ---- clients ---- */

static int add_client(struct egress *g, int fd)
{
	struct client *k = calloc(1, sizeof *k);
	struct ucred peer = {.uid = (uid_t)-1};
	socklen_t size = sizeof peer;

	if (!k || uv_poll_init(&g->loop, &k->poll, fd) < 0) {
		free(k);
		close(fd);
		return -ENOMEM;
	}
	(void)getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size);
	k->may_change = peer.uid == 0 || peer.uid == g->starter;
	k->poll.data = k;
	k->egress = g;
	k->fd = fd;
	k->next = g->clients;
	g->clients = k;
	(void)send_all(k);
	return 0;
}

static void on_control(uv_poll_t *poll, int status, int events)
{
	struct egress *g = poll->data;
	size_t count = 0;
	int fd = accept4(g->control_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

	(void)status;
	(void)events;
	for (struct client *k = g->clients; k; k = k->next)
		count++;
	if (fd >= 0 && count >= LIMIT_CLIENTS_MAX)
		close(fd);
	else if (fd >= 0)
		(void)add_client(g, fd);
}

int control_begin(struct egress *g, int fd, struct err *e)
{
	socklen_t size = sizeof(int);
	int listening = 0, r;

	if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &size) < 0)
		return err_set(e, errno, "the control socket");
	g->listening = listening;
	if (!listening) {
		r = add_client(g, fd);
		return r < 0 ? err_set(e, -r, "the control socket") : 0;
	}
	g->control_fd = fd;
	r = uv_poll_init(&g->loop, &g->control, fd);
	if (r < 0)
		return err_set(e, -r, "the control socket");
	g->control.data = g;
	uv_poll_start(&g->control, UV_READABLE, on_control);
	return 0;
}
