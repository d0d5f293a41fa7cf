/* SPDX-License-Identifier: Apache-2.0 */
/*
 * protocol.h - the guest protocol: how the outside talks to our init inside a sandbox.
 *
 * One byte stream in each direction (a socketpair here; a hypervisor's serial port or an engine's
 * attach stream elsewhere). Everything is a frame:
 *
 *	offset 0  u32  payload length, little endian
 *	offset 4  u8   type, a row of protocol.def
 *	offset 5  u8   stream (FRAME_DATA: 0 stdin or file content, 1 stdout, 2 stderr), else 0
 *	offset 6  u16  0
 *
 * Framing is by length, so no output can forge an end. The reader on the outside treats every byte
 * as hostile: a type that cannot come from inside, a length above the row's maximum, a stream or a
 * reserved field that is not as above, or a payload of the wrong shape ends the conversation.
 *
 * Both sides include this header. Integers in payloads are little endian and packed in the order of
 * the structs below, which have no padding.
 */
#ifndef PROTOCOL_PROTOCOL_H
#define PROTOCOL_PROTOCOL_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum { FRAME_HEADER_SIZE = 8, FRAME_DATA_MAX = 65536 };
#define FRAME_EXEC_MAX (4u << 20)
/* stdin bytes the outside may have sent and init has not yet acknowledged by CREDIT. */
#define STDIN_WINDOW 65536u
/* What comes along with SERVE where a zygote's child has joined: our ends of its control socket and streams. */
enum joined_fd { JOINED_CONTROL, JOINED_STDIN, JOINED_STDOUT, JOINED_STDERR, JOINED_FDS };
#define FORGET_MAX 32u /* numbers in a FORGET */

enum frame_from { FROM_GUEST = 1, FROM_HOST = 2 };

enum frame_type {
#define FRAME(name, number, from, min, max) FRAME_##name = number,
#include "protocol/protocol.def"
#undef FRAME
};

struct frame {
	enum frame_type type;
	unsigned stream;
	uint32_t size;
};

/* FAILED: the sandbox or the command could not be started. */
struct failed_record {
	uint32_t errnum;
	char stage[16]; /* NUL-padded */
	char what[200]; /* NUL-padded: the object */
};

/* EXITED: how the command ended. */
struct exited_record {
	uint32_t signaled;  /* 0 or 1 */
	uint32_t status;    /* exit code or signal number */
	uint32_t core;      /* 0 or 1 */
	uint32_t survivors; /* 0 or 1: processes of the sandbox are still alive */
};

/* LISTENERS: what catches the sandbox's connections (native/capture.h); kinds are enum egress_listener. */
enum { LISTENERS_MAX = 16 };
struct listeners_record {
	uint32_t redirect; /* 0 or 1 */
	uint32_t count;    /* as many descriptors come along */
	uint32_t kinds[LISTENERS_MAX];
};

/* EXEC is followed by NUL-terminated strings: workdir, then argc arguments, then envc entries. */
struct exec_record {
	uint32_t uid, gid;
	uint32_t argc, envc;
	uint32_t flags;
	uint32_t limit_ms; /* init ends itself this long after the start; 0: never */
};
enum exec_flag {
	EXEC_STDIO_FRAMES = 1 << 0, /* stdin, stdout and stderr travel as DATA frames */
	EXEC_LAST = 1 << 1,         /* one-shot: init ends when the command and all else have */
};

/* PUT is followed by one NUL-terminated absolute path; a regular file's content follows as DATA
 * frames of stream 0, size_bytes in all; a link's target stands behind the path. */
struct put_record {
	uint64_t size_bytes;
	uint32_t mode; /* S_IFDIR, S_IFREG or S_IFLNK, and permission bits */
	uint32_t uid, gid;
	uint32_t zero;
};

void frame_encode(unsigned char header[FRAME_HEADER_SIZE], enum frame_type type, unsigned stream,
		  uint32_t size);

/* Decode and check a header that came from this side. 0 or -EPROTO. */
int frame_decode(const unsigned char header[FRAME_HEADER_SIZE], enum frame_from from,
		 struct frame *ret);

/* Write a whole frame, blocking; descriptors (may be none) travel with its first byte. 0 or -errno. */
int frame_send(int fd, enum frame_type type, unsigned stream, const void *payload, uint32_t size,
	       const int *fds, size_t fd_count);

/* Receive one whole frame, blocking. payload has room for `room` bytes; up to *fd_count descriptors
 * are stored (close-on-exec) and counted. -EPIPE at a clean end of the stream, -EPROTO for anything
 * malformed, -EMSGSIZE when payload does not fit. */
int frame_receive(int fd, enum frame_from from, struct frame *ret, void *payload, size_t room,
		  int *fds, size_t *fd_count);

/* Incremental reader for the hostile side: no blocking, no allocation, one frame's payload at most. */
struct frame_reader {
	unsigned char buffer[FRAME_HEADER_SIZE + FRAME_DATA_MAX];
	size_t filled;
};

/* Take bytes in: copies as many as fit and returns how many. */
size_t frame_reader_feed(struct frame_reader *r, const void *data, size_t size);

/* The next whole frame: 1 and *ret, *ret_payload (valid until the next call); 0 if more bytes are
 * needed; -EPROTO. frame_reader_done() removes the frame. */
int frame_reader_next(struct frame_reader *r, struct frame *ret, const unsigned char **ret_payload);
void frame_reader_done(struct frame_reader *r, const struct frame *frame);

/* Checked payloads: 0 or -EPROTO. Text fields come out NUL-terminated and printable. */
int failed_record_decode(const void *payload, uint32_t size, struct failed_record *ret);
int exited_record_decode(const void *payload, uint32_t size, struct exited_record *ret);

#endif
