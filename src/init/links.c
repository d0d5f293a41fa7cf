/* SPDX-License-Identifier: Apache-2.0 */
/* links.c - conversations that last, in a worker (worker.h): WATCH a folder, DIAL a port. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/socket.h>
#include <unistd.h>

#include "init/worker.h"
#include "protocol/relay.h"

enum { DIAL_MS = 5000 };

/* --------------------------------------------------------------------------------------------- WATCH */

static const struct {
	uint32_t mask;
	enum watch_event event;
} events[] = {
	{IN_CREATE | IN_MOVED_TO, WATCH_CREATE},
	{IN_MODIFY, WATCH_MODIFY},
	{IN_DELETE | IN_DELETE_SELF, WATCH_REMOVE},
	{IN_MOVED_FROM | IN_MOVE_SELF, WATCH_RENAME},
	{IN_ATTRIB, WATCH_ATTRIBUTES},
	{IN_Q_OVERFLOW, WATCH_OVERFLOW},
};

static bool is_temporary(const char *name)
{
	size_t n = sizeof TEMPORARY - 1;

	return strncmp(name, TEMPORARY, n) == 0 && strlen(name) == TEMPORARY_SIZE - 1 &&
	       strspn(name + n, "0123456789abcdef") == 16;
}

/* False: the folder itself is gone, nothing more will come. */
static bool send_event(struct worker *w, const struct inotify_event *e)
{
	char payload[sizeof(uint32_t) + NAME_MAX + 1];
	const char *name = e->len > 0 ? e->name : ".";
	size_t size = strlen(name) + 1; /* the kernel ends it */

	if (size > NAME_MAX + 1 || (e->len > 0 && is_temporary(name)))
		return true;
	memcpy(payload + sizeof(uint32_t), name, size);
	for (size_t i = 0; i < sizeof events / sizeof *events; i++) {
		uint32_t number = events[i].event;

		if (!(e->mask & events[i].mask))
			continue;
		memcpy(payload, &number, sizeof number);
		worker_send(w, FRAME_EVENT, 0, payload, (uint32_t)(sizeof number + size));
	}
	return !(e->mask & (IN_IGNORED | IN_DELETE_SELF | IN_MOVE_SELF | IN_UNMOUNT));
}

static bool send_events(struct worker *w, int watch)
{
	static char data[65536] __attribute__((aligned(8)));
	ssize_t n = read(watch, data, sizeof data);
	bool more = n > 0;

	for (ssize_t at = 0; more && at < n;) {
		const struct inotify_event *e = (const struct inotify_event *)(void *)(data + at);

		more = send_event(w, e);
		at += (ssize_t)(sizeof *e + e->len);
	}
	return more;
}

int work_watch(struct worker *w)
{
	size_t at = 0;
	const char *path = path_take(w, &at, true);
	int dir, watch = inotify_init1(IN_CLOEXEC);
	struct pollfd p[2];
	char link[40];

	if (!path)
		return worker_failed(w, EINVAL, "malformed request");
	dir = path_open(path, O_RDONLY | O_DIRECTORY, 0);
	if (dir < 0 || watch < 0)
		return worker_failed(w, dir < 0 ? -dir : errno, path);
	/* by the descriptor: what was checked is what is watched */
	snprintf(link, sizeof link, "/proc/self/fd/%d", dir);
	if (inotify_add_watch(watch, link,
			      IN_CREATE | IN_MOVED_TO | IN_MODIFY | IN_DELETE | IN_DELETE_SELF |
				      IN_MOVED_FROM | IN_MOVE_SELF | IN_ATTRIB) < 0)
		return worker_failed(w, errno, path);
	close(dir); /* or the folder would never be gone */
	worker_send(w, FRAME_DONE, 0, NULL, 0);
	p[0] = (struct pollfd){.fd = w->fd, .events = POLLIN};
	p[1] = (struct pollfd){.fd = watch, .events = POLLIN};
	for (;;) {
		if (poll(p, 2, -1) < 0 && errno != EINTR)
			_exit(1);
		if (p[0].revents || (p[1].revents && !send_events(w, watch)))
			_exit(0);
	}
}

/* ---------------------------------------------------------------------------------------------- DIAL */

static int connect_to(const struct sockaddr *address, socklen_t size)
{
	int fd = socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	struct pollfd p = {.fd = fd, .events = POLLOUT};
	int error = 0;
	socklen_t length = sizeof error;

	if (fd < 0)
		return -errno;
	if (connect(fd, address, size) < 0) {
		error = errno;
		if (error == EINPROGRESS) {
			error = ETIMEDOUT;
			if (poll(&p, 1, DIAL_MS) > 0 &&
			    getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) < 0)
				error = errno;
		}
	}
	if (error == 0)
		return fd;
	close(fd);
	return -error;
}

/* a is the client's connection. When all of it is gone, what it has said is still brought to b, if b takes
 * it in time. */
static void relay(int a, int b)
{
	static unsigned char data[2][65536];
	struct direction there = {.from = a, .to = b, .data = data[0], .room = sizeof data[0]};
	struct direction back = {.from = b, .to = a, .data = data[1], .room = sizeof data[1]};
	bool gone = false;

	while (!there.over || !back.over) {
		struct pollfd p[] = {direction_wait(&there),
				     direction_wait(&back),
				     {.fd = gone ? -1 : a, .events = 0}};
		int n = poll(p, 3, gone ? DIAL_MS : -1);

		if (n == 0 || (n < 0 && errno != EINTR))
			_exit(1);
		if (n < 0)
			continue;
		if (p[0].revents)
			direction_move(&there);
		if (p[1].revents)
			direction_move(&back);
		if (p[2].revents)
			gone = back.over = true;
	}
}

int work_dial(struct worker *w)
{
	struct sockaddr_in four = {.sin_family = AF_INET};
	struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
	uint32_t port;
	int fd, r;

	memcpy(&port, w->payload, sizeof port);
	if (port < 1 || port > 65535)
		return worker_failed(w, EINVAL, "port");
	four.sin_port = six.sin6_port = htons((uint16_t)port);
	four.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	r = fd = connect_to((struct sockaddr *)&four, sizeof four);
	if (fd < 0)
		fd = connect_to((struct sockaddr *)&six, sizeof six);
	if (fd < 0)
		return worker_failed(w, -r, "connect to the port");
	worker_send(w, FRAME_DONE, 0, NULL, 0);
	if (fcntl(w->fd, F_SETFL, O_NONBLOCK) < 0)
		_exit(1);
	relay(w->fd, fd);
	_exit(0);
}
