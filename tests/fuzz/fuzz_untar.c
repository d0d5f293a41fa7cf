/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A tar from a sandbox or a client: any bytes, in pieces of any size. The reader gives the same entries whatever the
 * pieces, and no name that could lead anywhere; then it is unpacked for real into a folder in memory, beside
 * which nothing may appear.
 */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fuzz.h"
#include "base/tree.h"
#include "client/untar.h"

struct seen {
	uint64_t digest, bytes;
	unsigned entries, ends;
	int error;
};

static void check_path(const char *path)
{
	CHECK(path[0] != '/');
	for (const char *p = path; *p;) {
		size_t n = strcspn(p, "/");

		CHECK(n > 0);
		CHECK(!(n == 1 && p[0] == '.') && !(n == 2 && p[0] == '.' && p[1] == '.'));
		p += n;
		if (*p) {
			p++;
			CHECK(*p);
		}
	}
}

static int is_same(void *context, const struct tar_entry *t, struct err *e)
{
	const struct tar_entry *want = context;

	(void)e;
	CHECK(strcmp(t->path, want->path) == 0 && strcmp(t->target, want->target) == 0);
	CHECK(t->type == want->type && t->size == want->size && t->mode == want->mode);
	return 0;
}

static int no_data(void *context, const char *data, size_t size, struct err *e)
{
	(void)context;
	(void)data;
	(void)size;
	(void)e;
	abort();
}

/* What is read can be written, and read again. */
static void check_written_back(const struct tar_entry *t)
{
	const struct tar_sink sink = {is_same, no_data, NULL, (void *)(uintptr_t)t};
	struct tar_reader *r = malloc(sizeof *r);
	char header[TAR_HEADER_MAX];
	size_t size = tar_header(header, t);
	struct err e;

	CHECK(r && size > 0 && size % TAR_BLOCK == 0);
	tar_reader_init(r, &sink);
	CHECK(tar_feed(r, header, size, &e) == 0 && r->entries == 1);
	free(r);
}

static int take_entry(void *context, const struct tar_entry *t, struct err *e)
{
	struct seen *s = context;

	(void)e;
	CHECK(strlen(t->path) > 0 && strlen(t->path) < TAR_PATH_SIZE);
	CHECK(strlen(t->target) < TAR_PATH_SIZE && !*t->target == (t->type != TAR_LINK));
	check_path(t->path);
	check_written_back(t);
	CHECK((t->mode & ~0777u) == 0);
	CHECK(t->type == TAR_FILE || t->size == 0);
	s->entries++;
	for (const char *p = t->path; *p; p++)
		s->digest = s->digest * 31 + (unsigned char)*p;
	s->digest = s->digest * 31 + t->size + (uint64_t)t->type;
	return 0;
}

static int take_data(void *context, const char *data, size_t size, struct err *e)
{
	struct seen *s = context;

	(void)e;
	CHECK(size > 0);
	s->bytes += size;
	for (size_t i = 0; i < size; i++)
		s->digest = s->digest * 31 + (unsigned char)data[i];
	return 0;
}

static int take_end(void *context, struct err *e)
{
	struct seen *s = context;

	(void)e;
	s->ends++;
	return 0;
}

static struct seen read_all(const char *data, size_t size, size_t step)
{
	struct tar_reader *r = malloc(sizeof *r);
	struct seen s = {0};
	const struct tar_sink sink = {take_entry, take_data, take_end, &s};
	struct err e;

	CHECK(r);
	tar_reader_init(r, &sink);
	for (size_t i = 0; i < size && s.error == 0; i += step)
		s.error = tar_feed(r, data + i, size - i < step ? size - i : step, &e);
	CHECK(s.ends <= s.entries);
	free(r);
	return s;
}

static void unpack(const char *data, size_t size)
{
	static char outer[64];
	struct untar *u = malloc(sizeof *u);
	unsigned count = 0;
	struct err e;
	DIR *d;
	int dir;

	if (!outer[0]) {
		snprintf(outer, sizeof outer, "%s/cloche-fuzz.XXXXXX",
			 access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
		CHECK(mkdtemp(outer));
	}
	CHECK(u && (mkdir(outer, 0700) == 0 || errno == EEXIST));
	dir = open(outer, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	CHECK(dir >= 0 && mkdirat(dir, "in", 0700) == 0);
	{
		int in = openat(dir, "in", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

		CHECK(in >= 0);
		untar_init(u, in, true, 1 << 20);
		if (untar_feed(u, data, size, &e) == 0 && untar_end(u, &e) < 0)
			CHECK(e.text[0]);
		untar_done(u);
		close(in);
	}
	d = fdopendir(dir);
	CHECK(d);
	while (readdir(d))
		count++;
	CHECK(count == 3); /* ".", ".." and "in" */
	closedir(d);
	CHECK(tree_remove(AT_FDCWD, outer) == 0);
	free(u);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct seen whole, pieces;

	if (size < 1)
		return 0;
	whole = read_all((const char *)data + 1, size - 1, SIZE_MAX / 2);
	pieces = read_all((const char *)data + 1, size - 1, (size_t)data[0] + 1);
	CHECK(whole.error == pieces.error && whole.digest == pieces.digest);
	CHECK(whole.entries == pieces.entries && whole.ends == pieces.ends);
	CHECK(whole.bytes == pieces.bytes);
	unpack((const char *)data + 1, size - 1);
	return 0;
}
