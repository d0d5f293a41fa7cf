/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tar.h - reading a tar that came from a sandbox, and making one of a folder of ours.
 *
 * The reader is strict: POSIX ustar with checksums, pax headers for long names and large files and for
 * nothing else, both zero blocks at the end. A path is relative, without empty, "." or ".." components
 * (a "./" in front and a "/" behind are taken off), so no entry can name anything outside.
 */
#ifndef CLIENT_TAR_H
#define CLIENT_TAR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

enum { TAR_BLOCK = 512, TAR_PATH_SIZE = 4096, TAR_PAX_BYTES = 16 << 10, TAR_MAX_DEPTH = 64 };

enum tar_type { TAR_FILE, TAR_FOLDER, TAR_LINK, TAR_OTHER };

struct tar_entry {
	enum tar_type type;
	char path[TAR_PATH_SIZE];   /* "" is the folder itself */
	char target[TAR_PATH_SIZE]; /* of a link: any text, for nobody to follow */
	uint64_t size;              /* of a file */
	unsigned mode;              /* permission bits only */
};

/* Any may end everything by -1 with e. data and end come for files only. */
struct tar_sink {
	int (*entry)(void *context, const struct tar_entry *entry, struct err *e);
	int (*data)(void *context, const char *data, size_t size, struct err *e);
	int (*end)(void *context, struct err *e);
	void *context;
};

enum tar_state { TAR_HEADER, TAR_PAX, TAR_DATA, TAR_PADDING, TAR_TRAILER };

struct tar_reader {
	struct tar_sink sink;
	enum tar_state state;
	uint64_t left; /* of this entry's data */
	size_t padding;
	unsigned zero_blocks;
	bool pax_counts; /* the pax header in hand is for the next entry, not for all */
	size_t filled;   /* of block, or of pax */
	bool has_path, has_target, has_size;
	uint64_t pax_size;
	char block[TAR_BLOCK];
	char pax[TAR_PAX_BYTES];
	char path[TAR_PATH_SIZE], target[TAR_PATH_SIZE]; /* from the pax header */
	struct tar_entry entry;
};

void tar_reader_init(struct tar_reader *r, const struct tar_sink *sink);
int tar_feed(struct tar_reader *r, const char *data, size_t size, struct err *e) must_check;
/* No more will come: an error unless the archive is complete. */
int tar_eof(const struct tar_reader *r, struct err *e) must_check;

/* A tar of what is below the folder: regular files, folders and links as links. Sockets, devices and
 * what is nested too deep are counted in *ret_left_out. Files are read as they are when their turn
 * comes; one that becomes shorter while it is read is an error. */
struct tar_maker;
struct tar_maker *tar_maker_new(int folder, struct err *e) must_check;
void tar_maker_free(struct tar_maker *m);
/* A call_source. */
ssize_t tar_maker_read(void *maker, char *data, size_t room);
unsigned tar_maker_left_out(const struct tar_maker *m);
/* Where it was when reading failed. */
const char *tar_maker_path(const struct tar_maker *m);

#endif
