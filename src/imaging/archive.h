/* SPDX-License-Identifier: Apache-2.0 */
/*
 * archive.h - an archive that may hold images (`docker save`, an OCI layout as a tar) or be a root file system.
 *
 * Which it is, its names say: as long as all of them are such as those tools write, its files are copied into a folder
 * of their own in the store's tmp/; the first other name makes it a root file system.
 */
#ifndef IMAGING_ARCHIVE_H
#define IMAGING_ARCHIVE_H

#include "imaging/install.h"

enum archive_kind { ARCHIVE_ROOTFS, ARCHIVE_SAVED, ARCHIVE_LAYOUT };

struct archive {
	const struct image_store *store;
	char folder[32]; /* below the store */
	int dir;
	struct archive_file *files;
	size_t count, room;
	int writing; /* of the file that comes just now */
	uint64_t written;
};

/* Look at all of fd, a file of this size. On success and on failure archive_done() is to be called. */
int archive_scan(struct archive *a, const struct image_store *s, int fd, uint64_t size,
		 struct meter *meter, enum archive_kind *ret, struct err *e) must_check;
struct blobs archive_blobs(struct archive *a);
void archive_done(struct archive *a);

#endif
