/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tar.h - the one reader of archives that others made, and the one writer of headers.
 *
 * The reader takes bytes as they come and holds one header at a time. Understood: ustar, pax (path,
 * linkpath, size, mtime), GNU's long names (L, K) and base-256 numbers. Everything else that would
 * change what is unpacked (sparse files, devices, pipes, hard links, several volumes, a name or size for
 * all entries) is refused by name, not skipped; so are a wrong checksum, a negative or absurd number,
 * an absolute name, one with "..", and an archive without its two blocks of zeros or with anything but
 * zeros behind them. "./a//b/" is given as a/b: no name that is given can lead out of a folder or is
 * spelled in two ways. Names are bytes; what is no UTF-8 or has control characters is the caller's matter.
 */
#ifndef TAR_TAR_H
#define TAR_TAR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum {
	TAR_BLOCK = 512,
	TAR_PATH_SIZE = 4096,
	TAR_EXTENSION_BYTES = 16 << 10, /* of one extended header */
	TAR_MAX_ENTRIES = 1000000,
	TAR_HEADER_MAX =
		2 * TAR_PATH_SIZE + 4 * TAR_BLOCK, /* a pax header with both names, and one block */
};

enum tar_type { TAR_FILE, TAR_FOLDER, TAR_LINK };

struct tar_entry {
	enum tar_type type;
	const char *path;
	const char *target; /* of a link: any text, for nobody to follow; else "" */
	uint64_t size;      /* of a file; else 0 */
	unsigned mode;      /* permission bits only, no set-id */
	int64_t mtime;      /* seconds of the epoch */
};

/* Write the headers of one entry. Returns their size, 0 when a name is TAR_PATH_SIZE or longer. */
size_t tar_header(char out[TAR_HEADER_MAX], const struct tar_entry *t) must_check;
/* Zero bytes that fill the last block of a file of this size. */
size_t tar_padding(uint64_t size);

/* Any may end everything by -1 with e. data and end come for files only; end may be NULL. The folder that
 * the archive is of is no entry. */
struct tar_sink {
	int (*entry)(void *context, const struct tar_entry *t, struct err *e);
	int (*data)(void *context, const char *data, size_t size, struct err *e);
	int (*end)(void *context, struct err *e);
	void *context;
};

enum tar_state { TAR_HEADER, TAR_EXTENSION, TAR_DATA, TAR_PADDING, TAR_TRAILER };

struct tar_reader {
	struct tar_sink sink;
	enum tar_state state;
	char kind;      /* of the extended header that is read: x, g, L or K */
	uint64_t left;  /* of it, or of a file's content */
	size_t padding; /* behind that */
	size_t filled;  /* of block or extension */
	unsigned zero_blocks, entries;
	bool has_path, has_target, has_size, has_mtime; /* for the next entry */
	uint64_t size;
	int64_t mtime;
	char path[TAR_PATH_SIZE], target[TAR_PATH_SIZE];
	char block[TAR_BLOCK], extension[TAR_EXTENSION_BYTES];
};

/* Holds nothing that has to be freed. */
void tar_reader_init(struct tar_reader *r, const struct tar_sink *sink);
/* Take the next bytes. -1: what is wrong with the archive, or what the sink said; it is over then. */
int tar_feed(struct tar_reader *r, const char *data, size_t size, struct err *e) must_check;
/* No more will come: -1 unless the archive is complete. */
int tar_eof(const struct tar_reader *r, struct err *e) must_check;

#endif
