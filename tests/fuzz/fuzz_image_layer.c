/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Frames from a decoder that was taken over, through the reader into the writer of a layer: nothing outside the layer's
 * folder is touched. The canary is a folder beside it, which must stay as it is.
 */
#include <dirent.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fuzz.h"
#include "base/tree.h"
#include "imaging/writer.h"

static char top[64];
static int top_fd = -1;
static char buffer[ENTRY_BUFFER];

static void clean_up(void)
{
	tree_remove(AT_FDCWD, top);
}

static void set_up(void)
{
	const char *base = getenv("TMPDIR");

	snprintf(top, sizeof top, "%.40s/clo-fuzz.XXXXXX", base && *base ? base : "/tmp");
	if (!mkdtemp(top))
		abort();
	atexit(clean_up);
	umask(0);
	top_fd = open(top, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (top_fd < 0 || mkdirat(top_fd, "canary", 0700) < 0 ||
	    mkdirat(top_fd, "canary/below", 0700) < 0)
		abort();
}

static int count_names(const char *path)
{
	int fd = openat(top_fd, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC), n = 0;
	DIR *d = fd < 0 ? NULL : fdopendir(fd);

	if (!d)
		abort();
	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

/* Links that lead out are there from the start, as an earlier entry could have made them. */
static int make_layer(void)
{
	char target[80];
	int fd;

	tree_remove(top_fd, "layer");
	if (mkdirat(top_fd, "layer", 0700) < 0)
		abort();
	fd = openat(top_fd, "layer", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	snprintf(target, sizeof target, "%s/canary", top);
	if (fd < 0 || symlinkat(target, fd, "out") < 0 || symlinkat("../canary", fd, "up") < 0)
		abort();
	return fd;
}

static void unpack(int input, int dir)
{
	const struct tree_limits limits = {1 << 20, 100};
	struct entry_reader reader;
	struct entry_frame entry;
	struct err e = {0};
	struct tree_writer *w = tree_writer_new(dir, geteuid() != 0, &limits, -1, NULL, 0, &e);

	if (!w)
		abort();
	entry_reader_init(&reader, input, buffer);
	while (entry_read(&reader, &entry) == 0) {
		if (entry.type == ENTRY_FRAME_HEAD || entry.type == ENTRY_FRAME_DATA) {
			if (tree_writer_take(w, &entry, &e) < 0)
				break;
		} else if (tree_writer_finish(w, &e) < 0) {
			break;
		}
	}
	tree_writer_free(w);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	int input = memfd_create("frames", MFD_CLOEXEC), dir;

	if (top_fd < 0)
		set_up();
	if (input < 0 || write(input, data, size) != (ssize_t)size || lseek(input, 0, SEEK_SET) < 0)
		abort();
	dir = make_layer();
	unpack(input, dir);
	close(dir);
	close(input);
	if (count_names("canary") != 3 || count_names("canary/below") != 2 || count_names(".") != 4)
		abort();
	return 0;
}
