/* SPDX-License-Identifier: Apache-2.0 */
#include "protocol/protocol.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { MAX_FDS = 64 };

static const struct frame_row {
	unsigned char number, from;
	uint32_t min, max;
} rows[] = {
#define FRAME(name, number, from, min, max) {number, from, min, max},
#include "protocol/protocol.def"
#undef FRAME
};

_Static_assert(sizeof(struct failed_record) == 220, "failed_record is packed");
_Static_assert(sizeof(struct exited_record) == 16, "exited_record is packed");
_Static_assert(sizeof(struct exec_record) == 24, "exec_record is packed");
_Static_assert(sizeof(struct put_record) == 24, "put_record is packed");

static const struct frame_row *find_row(unsigned number)
{
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
		if (rows[i].number == number)
			return &rows[i];
	return NULL;
}

void frame_encode(unsigned char header[FRAME_HEADER_SIZE], enum frame_type type, unsigned stream,
		  uint32_t size)
{
	header[0] = (unsigned char)size;
	header[1] = (unsigned char)(size >> 8);
	header[2] = (unsigned char)(size >> 16);
	header[3] = (unsigned char)(size >> 24);
	header[4] = (unsigned char)type;
	header[5] = (unsigned char)stream;
	header[6] = header[7] = 0;
}

int frame_decode(const unsigned char header[FRAME_HEADER_SIZE], enum frame_from from,
		 struct frame *ret)
{
	const struct frame_row *row = find_row(header[4]);
	uint32_t size = (uint32_t)header[0] | (uint32_t)header[1] << 8 | (uint32_t)header[2] << 16 |
			(uint32_t)header[3] << 24;
	unsigned stream = header[5];

	if (!row || !(row->from & from) || header[6] || header[7])
		return -EPROTO;
	if (size < row->min || size > row->max)
		return -EPROTO;
	if (row->number == FRAME_DATA || row->number == FRAME_EOF) {
		if (from == FROM_GUEST ? stream != 1 && stream != 2 : stream != 0)
			return -EPROTO;
	} else if (stream != 0) {
		return -EPROTO;
	}
	ret->type = (enum frame_type)row->number;
	ret->stream = stream;
	ret->size = size;
	return 0;
}

static int write_all(int fd, const void *data, size_t size)
{
	const char *p = data;

	while (size > 0) {
		ssize_t n = write(fd, p, size);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		p += n;
		size -= (size_t)n;
	}
	return 0;
}

static int send_header(int fd, const unsigned char *header, const int *fds, size_t fd_count)
{
	union {
		char bytes[CMSG_SPACE(sizeof(int) * MAX_FDS)];
		struct cmsghdr align;
	} control = {{0}};
	struct iovec io = {(void *)(uintptr_t)header, FRAME_HEADER_SIZE};
	struct msghdr m = {.msg_iov = &io, .msg_iovlen = 1};
	struct cmsghdr *c;
	ssize_t n;

	if (fd_count > MAX_FDS)
		return -EINVAL;
	m.msg_control = control.bytes;
	m.msg_controllen = CMSG_SPACE(sizeof(int) * fd_count);
	c = CMSG_FIRSTHDR(&m);
	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof(int) * fd_count);
	memcpy(CMSG_DATA(c), fds, sizeof(int) * fd_count);
	do
		n = sendmsg(fd, &m, MSG_NOSIGNAL);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return -errno;
	return write_all(fd, header + n, FRAME_HEADER_SIZE - (size_t)n);
}

int frame_send(int fd, enum frame_type type, unsigned stream, const void *payload, uint32_t size,
	       const int *fds, size_t fd_count)
{
	unsigned char small[512];
	int r;

	frame_encode(small, type, stream, size);
	if (fd_count > 0) {
		r = send_header(fd, small, fds, fd_count);
	} else if (size <= sizeof small - FRAME_HEADER_SIZE) {
		if (size)
			memcpy(small + FRAME_HEADER_SIZE, payload, size);
		return write_all(fd, small, FRAME_HEADER_SIZE + size);
	} else {
		r = write_all(fd, small, FRAME_HEADER_SIZE);
	}
	return r < 0 || size == 0 ? r : write_all(fd, payload, size);
}

/* Descriptors that do not fit, or that nobody expects, are closed, not leaked. */
static void take_fds(struct msghdr *m, int *fds, size_t room, size_t *count)
{
	for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c)) {
		size_t n;

		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		for (size_t i = 0; i < n; i++) {
			int fd;

			memcpy(&fd, CMSG_DATA(c) + i * sizeof fd, sizeof fd);
			if (*count < room)
				fds[(*count)++] = fd;
			else
				close(fd);
		}
	}
}

static int read_exact(int fd, void *data, size_t size, int *fds, size_t room, size_t *count)
{
	size_t got = 0;

	while (got < size) {
		union {
			char bytes[CMSG_SPACE(sizeof(int) * MAX_FDS)];
			struct cmsghdr align;
		} control;
		struct iovec io = {(char *)data + got, size - got};
		struct msghdr m = {.msg_iov = &io,
				   .msg_iovlen = 1,
				   .msg_control = control.bytes,
				   .msg_controllen = sizeof control.bytes};
		ssize_t n =
			fds ? recvmsg(fd, &m, MSG_CMSG_CLOEXEC) : read(fd, io.iov_base, io.iov_len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (fds)
			take_fds(&m, fds, room, count);
		if (n == 0)
			return got == 0 ? -EPIPE : -EPROTO;
		got += (size_t)n;
	}
	return 0;
}

int frame_receive(int fd, enum frame_from from, struct frame *ret, void *payload, size_t room,
		  int *fds, size_t *fd_count)
{
	unsigned char header[FRAME_HEADER_SIZE];
	size_t fd_room = fd_count ? *fd_count : 0, count = 0;
	struct frame f;
	int r = read_exact(fd, header, sizeof header, fd_count ? fds : NULL, fd_room, &count);

	if (fd_count)
		*fd_count = count;
	if (r < 0)
		return r;
	r = frame_decode(header, from, &f);
	if (r < 0)
		return r;
	if (f.size > room)
		return -EMSGSIZE;
	if (f.size) {
		r = read_exact(fd, payload, f.size, NULL, 0, &count);
		if (r < 0)
			return r == -EPIPE ? -EPROTO : r;
	}
	*ret = f;
	return 0;
}

size_t frame_reader_feed(struct frame_reader *r, const void *data, size_t size)
{
	size_t room = sizeof r->buffer - r->filled;

	if (size > room)
		size = room;
	memcpy(r->buffer + r->filled, data, size);
	r->filled += size;
	return size;
}

int frame_reader_next(struct frame_reader *r, struct frame *ret, const unsigned char **ret_payload)
{
	struct frame f;
	int e;

	if (r->filled < FRAME_HEADER_SIZE)
		return 0;
	e = frame_decode(r->buffer, FROM_GUEST, &f);
	if (e < 0)
		return e;
	if (r->filled < FRAME_HEADER_SIZE + (size_t)f.size)
		return 0;
	*ret = f;
	*ret_payload = r->buffer + FRAME_HEADER_SIZE;
	return 1;
}

void frame_reader_done(struct frame_reader *r, const struct frame *frame)
{
	size_t n = FRAME_HEADER_SIZE + (size_t)frame->size;

	memmove(r->buffer, r->buffer + n, r->filled - n);
	r->filled -= n;
}

static void make_printable(char *text, size_t size)
{
	text[size - 1] = '\0';
	for (char *p = text; *p; p++)
		if ((unsigned char)*p < 0x20 || (unsigned char)*p >= 0x7f)
			*p = '?';
}

int failed_record_decode(const void *payload, uint32_t size, struct failed_record *ret)
{
	if (size != sizeof *ret)
		return -EPROTO;
	memcpy(ret, payload, sizeof *ret);
	if (ret->errnum > 4095)
		return -EPROTO;
	make_printable(ret->stage, sizeof ret->stage);
	make_printable(ret->what, sizeof ret->what);
	return 0;
}

int exited_record_decode(const void *payload, uint32_t size, struct exited_record *ret)
{
	if (size != sizeof *ret)
		return -EPROTO;
	memcpy(ret, payload, sizeof *ret);
	if (ret->signaled > 1 || ret->core > 1 || ret->survivors > 1)
		return -EPROTO;
	if (ret->signaled ? ret->status < 1 || ret->status > 64 : ret->status > 255)
		return -EPROTO;
	return 0;
}
