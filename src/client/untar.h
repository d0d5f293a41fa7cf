/* SPDX-License-Identifier: Apache-2.0 */
/*
 * untar.h - a sandbox's tar onto this machine, strictly beneath one folder.
 *
 * Every step is relative to a descriptor and resolved by openat2(2) beneath the folder with links
 * refused, so neither the archive nor a link that is already there leads elsewhere. Regular files and
 * folders are made; links only when asked for, and never followed; set-id bits never. What a terminal
 * or a script could misread (control characters, bytes that are no UTF-8) is left out.
 */
#ifndef CLIENT_UNTAR_H
#define CLIENT_UNTAR_H

#include "tar/tar.h"

enum { UNTAR_MAX_DEPTH = 64 };

struct untar {
	struct tar_reader reader;
	int root;                                            /* not owned */
	bool links;                                          /* make symbolic links */
	uint64_t max_bytes;                                  /* of all files together */
	void (*left_out)(const char *path, const char *why); /* told of each; may be NULL */
	unsigned left_out_count;
	uint64_t bytes;
	int parent, file; /* of the file that is being written; file -1: its content is left out */
	char name[256];
};

void untar_init(struct untar *u, int root, bool links, uint64_t max_bytes);

/* A response_sink; context is the struct untar. */
int untar_feed(void *untar, const char *data, size_t size, struct err *e) must_check;

/* The end: an error unless the archive was complete. A file that is half written is removed. */
int untar_end(struct untar *u, struct err *e) must_check;
void untar_done(struct untar *u);

#endif
