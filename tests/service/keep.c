/* SPDX-License-Identifier: Apache-2.0 */
/*
 * keep.c - makes a kept sandbox of the command line's own parts, for the tests of its init.
 *
 * Linked with all of cloche and -Wl,--wrap=frame_send: everything is as `cloche run` makes it, but in the
 * place of the EXEC frame goes SERVE with a socket bound to $KEEP_SOCKET. Then it says "ready" on stdout
 * and holds the sandbox until its stdin ends.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "protocol/protocol.h"

int __real_frame_send(int fd, enum frame_type type, unsigned stream, const void *payload,
		      uint32_t size, const int *fds, size_t fd_count);
int __wrap_frame_send(int fd, enum frame_type type, unsigned stream, const void *payload,
		      uint32_t size, const int *fds, size_t fd_count);

static int listen_at(const char *path)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	snprintf(a.sun_path, sizeof a.sun_path, "%s", path);
	if (fd < 0 || bind(fd, (struct sockaddr *)&a, sizeof a) < 0 || listen(fd, 512) < 0)
		return -errno;
	return fd;
}

/* READY with its descriptors, which nobody here needs, then DONE. */
static int receive_done(int fd)
{
	for (;;) {
		struct failed_record failed;
		int fds[32], r;
		size_t count = 32;
		struct frame f;

		r = frame_receive(fd, FROM_GUEST, &f, &failed, sizeof failed, fds, &count);
		for (size_t i = 0; r == 0 && i < count; i++)
			close(fds[i]);
		if (r == 0 && f.type == FRAME_FAILED)
			fprintf(stderr, "%.16s: %.200s\n", failed.stage, failed.what);
		if (r < 0 || f.type != FRAME_READY)
			return r < 0 ? r : f.type == FRAME_DONE ? 0 : -EPROTO;
	}
}

/* -EPIPE once stdin has ended: the run fails, and takes the sandbox down. */
int __wrap_frame_send(int fd, enum frame_type type, unsigned stream, const void *payload,
		      uint32_t size, const int *fds, size_t fd_count)
{
	const char *path = getenv("KEEP_SOCKET");
	int listener, r;
	char c;

	if (type != FRAME_EXEC || !path)
		return __real_frame_send(fd, type, stream, payload, size, fds, fd_count);
	listener = listen_at(path);
	if (listener < 0)
		return listener;
	r = __real_frame_send(fd, FRAME_SERVE, 0, NULL, 0, &listener, 1);
	close(listener);
	if (r == 0)
		r = receive_done(fd);
	if (r < 0)
		return r;
	puts("ready");
	fflush(stdout);
	while (read(0, &c, 1) > 0)
		;
	return -EPIPE;
}
