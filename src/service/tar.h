/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tar.h - tar on the API's side: entries of a sandbox as pax (POSIX.1-2001), and a hostile tar as entries.
 *
 * The reader takes bytes as they come and holds one header at a time. Understood: ustar, pax (path,
 * linkpath, size, mtime), GNU long names. Everything else that would change what is unpacked (sparse files,
 * devices, hard links, multi-volume) is refused by name, not skipped. Numbers are octal or base-256, never
 * negative; sizes and the number of entries are bounded.
 */
#ifndef SERVICE_TAR_H
#define SERVICE_TAR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "protocol/conversation.h"
#include "base/err.h"

enum { TAR_BLOCK = 512, TAR_HEADER_MAX = 3 * TAR_BLOCK + 2 * 8192, TAR_MAX_ENTRIES = 1000000 };

/* Write the header of one entry (and a pax header before it where needed). Returns its size. */
size_t tar_header(char out[TAR_HEADER_MAX], const struct entry_record *r, const char *name,
		  const char *target);
/* Zero bytes that fill the last block of a file of this size. */
size_t tar_padding(uint64_t size);

struct tar_reader {
	char block[TAR_BLOCK];
	size_t filled;
	char *extension; /* of a pax or GNU record being read */
	size_t extension_size, extension_filled;
	char extension_kind;
	char name[4096], target[4096]; /* from extensions, for the next entry */
	uint64_t size;
	int64_t mtime;
	bool has_size, has_mtime;
	uint64_t left, padding; /* of the content being read */
	uint64_t entries;
	bool in_content, ended;
};

struct tar_ops {
	/* An entry; its content follows as on_content. 0, or -1 with e. */
	int (*on_entry)(void *context, const struct entry_record *r, const char *name,
			const char *target, struct err *e);
	void (*on_content)(void *context, const void *data, size_t size);
};

/* Take the next bytes. 0, or -1: what is wrong with the archive. */
int tar_read(struct tar_reader *t, const void *data, size_t size, const struct tar_ops *ops,
	     void *context, struct err *e) must_check;
/* At the end of the bytes: -1 when it ends in the middle. */
int tar_finish(const struct tar_reader *t, struct err *e) must_check;
void tar_done(struct tar_reader *t);

#endif
