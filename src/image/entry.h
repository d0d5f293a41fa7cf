/* SPDX-License-Identifier: Apache-2.0 */
/*
 * entry.h - how the program that reads archives (cloche-decode) tells what is in them: frames on a pipe.
 *
 * The reader of an archive is the part that a hostile one might take over, so what it sends is hostile, too: fixed
 * structs, every length bounded, nothing taken on trust. A frame is its head and then `size` bytes. Names are bytes
 * without NUL, as they stand in the archive: the other side cleans them.
 */
#ifndef IMAGE_ENTRY_H
#define IMAGE_ENTRY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum {
	ENTRY_PATH_MAX = 4095,
	ENTRY_XATTRS_MAX = 64 << 10, /* all names and values of one entry */
	ENTRY_DATA_MAX = 256 << 10,
	ENTRY_FRAME_MAX = 2 * (ENTRY_PATH_MAX + 1) + ENTRY_XATTRS_MAX + 512,
	ENTRY_ERROR_MAX = 512,
	ENTRY_BUFFER = 1 << 20,
};

enum entry_frame_type {
	ENTRY_FRAME_HEAD = 1, /* struct entry_wire, path, target, xattrs */
	ENTRY_FRAME_DATA,     /* struct data_wire, bytes: of the last head, which is a file */
	ENTRY_FRAME_END,      /* struct end_wire: the archive was complete */
	ENTRY_FRAME_ERROR,    /* text: it is not */
	ENTRY_FRAME_COUNT,
};

enum entry_kind {
	ENTRY_FILE,
	ENTRY_FOLDER,
	ENTRY_SYMLINK,
	ENTRY_HARDLINK,
	ENTRY_FIFO,
	ENTRY_DEVICE, /* character or block */
	ENTRY_OTHER,
	ENTRY_KIND_COUNT,
};

struct frame_head {
	uint32_t type, size;
};

struct entry_wire {
	uint32_t kind, mode; /* permission bits with set-id and sticky */
	uint64_t uid, gid;
	int64_t mtime;
	uint32_t mtime_ns;
	uint32_t path_size, target_size; /* without NUL */
	uint32_t xattrs_size;            /* each: name, NUL, uint32_t length, value */
	uint64_t size;                   /* of a file */
};

struct data_wire {
	uint64_t offset;
};

struct end_wire {
	uint64_t bytes; /* of the archive, decompressed */
	unsigned char sha256[32];
};

/* One frame, checked for its own shape. Pointers into the reader's buffer, good until the next. */
struct entry_frame {
	enum entry_frame_type type;
	struct entry_wire head;
	const char *path, *target; /* NUL-terminated */
	const char *xattrs;
	uint64_t offset; /* of data */
	const char *data;
	size_t data_size;
	struct end_wire end;
	const char *error;
};

struct entry_reader {
	int fd;
	char *buffer; /* of ENTRY_BUFFER bytes, the owner's */
	size_t begin, end;
	char path[ENTRY_PATH_MAX + 1], target[ENTRY_PATH_MAX + 1], error[ENTRY_ERROR_MAX + 1];
};

void entry_reader_init(struct entry_reader *r, int fd, char *buffer);

/* The next frame: 0; -EPIPE at an end that is none, -EBADMSG for what no reader of ours sends, or -errno. */
int entry_read(struct entry_reader *r, struct entry_frame *ret) must_check;

/* Walk attributes: false at the end. *position begins at 0. Shape was checked by entry_read(). */
bool entry_next_xattr(const struct entry_frame *entry, size_t *position, const char **ret_name,
		      const void **ret_value, uint32_t *ret_size);

/* Write frames, whole; -errno. */
int entry_write_head(int fd, const struct entry_wire *w, const char *path, const char *target,
		     const void *xattrs) must_check;
int entry_write_data(int fd, uint64_t offset, const void *data, size_t size) must_check;
int entry_write_end(int fd, const struct end_wire *end) must_check;
int entry_write_error(int fd, const char *text) must_check;

#endif
