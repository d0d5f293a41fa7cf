/* SPDX-License-Identifier: Apache-2.0 */
/* archive.c - a folder as tar, out of a sandbox and into it. Init carries entries; tar is made here. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "service/ask.h"
#include "service/handlers.h"
#include "tar/tar.h"

/* Names of what was left out, in one field behind the archive. */
enum { SKIPPED_MAX = 8192 };

struct archive {
	struct tar_reader reader;
	uint64_t left; /* of the file that is being written out */
	uint64_t padding;
	unsigned skipped;
	size_t names_size;
	char names[SKIPPED_MAX];
};

static struct archive *archive_of(struct call *c)
{
	return c->data;
}

static struct archive *begin(struct call *c, const char **ret_path)
{
	const char *path = exchange_query(c->x, "path");
	struct archive *a = calloc(1, sizeof *a);
	struct err e = {0};

	c->data = a;
	if (!a)
		e.code = PROBLEM_UNAVAILABLE;
	else if (check_path("path", path, path ? strlen(path) : 0, &e) == 0) {
		*ret_path = path;
		return a;
	}
	call_problem(c, &e);
	return NULL;
}

/* ---- out ---- */

static bool write_out(struct call *c, const void *data, size_t size)
{
	if (size && !exchange_write(c->x, data, size))
		talk_pause(c->talk);
	return true;
}

static bool pad(struct call *c)
{
	static const char zero[TAR_BLOCK];
	struct archive *a = archive_of(c);
	size_t n = (size_t)a->padding;

	a->padding = 0;
	return write_out(c, zero, n);
}

/* Init fills up a file that shrank while it was read (conversation.h): what is missing here is a lie, and is
 * not made good at the cost of our memory. */
static bool end_file(struct call *c)
{
	return archive_of(c)->left == 0 && pad(c);
}

static void begin_tar(struct call *c)
{
	if (!exchange_began(c->x))
		exchange_begin(c->x, 200, "application/x-tar",
			       exchange_takes_trailers(c->x) ? "Trailer: Cloche-Skipped\r\n" : NULL,
			       UINT64_MAX);
}

/* Another name, when there is room for it: encoded, so that it can hold neither separators nor lines. */
static bool on_skipped(struct archive *a, const struct frame *f, const unsigned char *payload)
{
	size_t at = a->names_size;
	const char *path;
	int errnum;

	if (skipped_decode(payload, f->size, &errnum, &path) < 0)
		return false;
	a->skipped++;
	if (at + 2 + strlen(path) * 3 >= sizeof a->names)
		return true;
	memcpy(a->names + at, ", ", 2);
	for (at += 2; *path; path++)
		if (isalnum((unsigned char)*path) || strchr("-._~/", *path))
			a->names[at++] = *path;
		else
			at += (size_t)snprintf(a->names + at, 4, "%%%02X", (unsigned char)*path);
	a->names_size = at;
	return true;
}

static bool on_entry(struct call *c, const struct frame *f, const unsigned char *payload)
{
	struct archive *a = archive_of(c);
	char header[TAR_HEADER_MAX];
	struct entry_record r;
	struct tar_entry t;
	size_t size;

	if (f->type == FRAME_DATA) {
		size_t n = f->size < a->left ? f->size : (size_t)a->left;

		a->left -= n;
		return write_out(c, payload, n);
	}
	if (f->type == FRAME_EOF)
		return true;
	if (f->type == FRAME_SKIPPED)
		return on_skipped(a, f, payload);
	if (f->type != FRAME_ENTRY ||
	    entry_record_decode(payload, f->size, ENTRY_BELOW, &r, &t.path, &t.target) < 0 ||
	    !end_file(c))
		return false;
	t.type = S_ISDIR(r.mode) ? TAR_FOLDER : S_ISLNK(r.mode) ? TAR_LINK : TAR_FILE;
	t.size = t.type == TAR_FILE ? r.size_bytes : 0;
	t.mode = r.mode & 0777;
	t.mtime = r.mtime;
	size = tar_header(header, &t);
	if (size == 0)
		return false;
	begin_tar(c);
	a->left = t.size;
	a->padding = tar_padding(a->left);
	return write_out(c, header, size);
}

static void on_walked(struct call *c)
{
	static const char end[2 * TAR_BLOCK];
	struct exchange *x = c->x;
	const struct archive *a = archive_of(c);
	char field[SKIPPED_MAX + 64] = "";
	bool complete = end_file(c);

	begin_tar(c);
	exchange_write(x, end, sizeof end);
	if (a->skipped)
		snprintf(field, sizeof field, "Cloche-Skipped: %u%.*s\r\n", a->skipped,
			 (int)a->names_size, a->names);
	c->service->metrics.requests[2]++;
	call_free(c);
	if (complete)
		exchange_end_with(x, field);
	else
		exchange_end(x, false);
}

static const struct asking walking = {on_entry, on_walked, NULL};

static void on_room(struct exchange *x)
{
	struct call *c = exchange_data(x);

	if (c->talk)
		talk_resume(c->talk);
}

void archive_get(struct call *c)
{
	const char *path;

	if (!begin(c, &path))
		return;
	c->ops.on_room = on_room;
	ask(c, &walking, FRAME_WALK, path, strlen(path) + 1, NULL, 0);
}

/* ---- in ---- */

static int send_member(void *context, const struct tar_entry *t, struct err *e)
{
	static const uint32_t types[] = {
		[TAR_FILE] = S_IFREG, [TAR_FOLDER] = S_IFDIR, [TAR_LINK] = S_IFLNK};
	const struct entry_record r = {
		.mode = types[t->type] | t->mode, .size_bytes = t->size, .mtime = t->mtime};
	struct call *c = context;
	char names[2 * TAR_PATH_SIZE];
	size_t n = strlen(t->path) + 1, m = strlen(t->target) + 1;

	(void)e;
	memcpy(names, t->path, n);
	memcpy(names + n, t->target, m);
	talk_send(c->talk, FRAME_MEMBER, &r, sizeof r, names, n + m);
	return 0;
}

static int send_content(void *context, const char *data, size_t size, struct err *e)
{
	struct call *c = context;

	(void)e;

	for (size_t done = 0; done < size;) {
		size_t n = size - done < FRAME_DATA_MAX ? size - done : FRAME_DATA_MAX;

		if (!talk_send(c->talk, FRAME_DATA, data + done, n, NULL, 0))
			exchange_pause(c->x);
		done += n;
	}
	return 0;
}

/* Init is hung up on: what it has begun to write is not completed. */
static void refuse(struct call *c, struct err *e)
{
	e->code = e->errnum ? PROBLEM_UNAVAILABLE : 0;
	call_problem(c, e);
}

static void on_body(struct exchange *x, const void *data, size_t size)
{
	struct call *c = exchange_data(x);
	struct err e = {0};

	if (tar_feed(&archive_of(c)->reader, data, size, &e) < 0)
		refuse(c, &e);
}

static void on_body_end(struct exchange *x)
{
	struct call *c = exchange_data(x);
	struct err e = {0};

	if (tar_eof(&archive_of(c)->reader, &e) < 0)
		refuse(c, &e);
	else
		talk_send(c->talk, FRAME_FINISH, NULL, 0, NULL, 0);
}

static void on_unpacked(struct call *c)
{
	call_reply(c, 204, NULL);
}

static void on_talk_room(struct call *c)
{
	exchange_resume(c->x);
}

static const struct asking unpacking = {.on_done = on_unpacked,
					.on_room = on_talk_room,
					.link = PROBLEM_INVALID_REQUEST};

void archive_put(struct call *c)
{
	const struct tar_sink members = {send_member, send_content, NULL, c};
	const char *path;

	if (!begin(c, &path))
		return;
	tar_reader_init(&archive_of(c)->reader, &members);
	c->ops.on_body = on_body;
	c->ops.on_body_end = on_body_end;
	ask(c, &unpacking, FRAME_UNPACK, path, strlen(path) + 1, NULL, 0);
}
