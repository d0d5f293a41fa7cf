/* SPDX-License-Identifier: Apache-2.0 */
/*
 * map_results.c - the file of --results, and what --resume finds in it.
 *
 * Each line was written by one program, in order of time, and begins with its index; the last one may be cut off where
 * the program, or the machine, ended. Only these first bytes are read: a file of a million results is gone through at
 * the disk's pace. What does not look like that is somebody else's file and is not touched.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "cli/map.h"

static const char beginning[] = "{\"index\":";

enum { PREFIX = sizeof beginning - 1, DIGITS = 10, PIECE = 1 << 16 };

/* Reading on through a file. */
struct scan {
	char head[PREFIX + DIGITS + 2]; /* the first bytes of this line */
	size_t head_size;
	uint64_t line, at, complete; /* complete: up to the end of the last whole line */
};

bool map_seen_has(const struct map_seen *s, uint64_t index)
{
	return index < s->room && s->bits[index / 8] & 1u << index % 8;
}

void map_seen_done(struct map_seen *s)
{
	free(s->bits);
	*s = (struct map_seen){0};
}

static int add(struct map_seen *s, uint64_t index, struct err *e)
{
	if (index >= s->room) {
		uint64_t room = s->room ? s->room : 1 << 16;
		unsigned char *more;

		while (room <= index)
			room *= 2;
		more = realloc(s->bits, room / 8);
		if (!more)
			return err_set(e, ENOMEM, "remember %llu results",
				       (unsigned long long)index);
		memset(more + s->room / 8, 0, (room - s->room) / 8);
		s->bits = more;
		s->room = room;
	}
	s->count += !map_seen_has(s, index);
	s->bits[index / 8] |= (unsigned char)(1u << index % 8);
	return 0;
}

/* What the beginning of a whole line says. -1: it is none of ours. */
static int64_t index_of(const struct scan *s)
{
	int64_t n = 0;
	size_t i = PREFIX;

	if (s->head_size < PREFIX + 2 || memcmp(s->head, beginning, PREFIX) != 0)
		return -1;
	for (; i < s->head_size && s->head[i] >= '0' && s->head[i] <= '9'; i++)
		n = n * 10 + (s->head[i] - '0');
	return i > PREFIX && i <= PREFIX + DIGITS && i < s->head_size && s->head[i] == ',' ? n : -1;
}

static int scan_piece(struct scan *s, const char *data, size_t size, struct map_seen *ret,
		      const char *name, struct err *e)
{
	for (size_t i = 0; i < size;) {
		const char *end = memchr(data + i, '\n', size - i);
		size_t n = end ? (size_t)(end - data) - i : size - i;
		size_t room = sizeof s->head - s->head_size, keep = n < room ? n : room;
		int64_t index;

		memcpy(s->head + s->head_size, data + i, keep);
		s->head_size += keep;
		i += n + !!end;
		s->at += n + !!end;
		if (!end)
			break;
		s->line++;
		index = index_of(s);
		if (index < 0)
			return err_set(e, 0, "%.200s line %llu is no result of --map", name,
				       (unsigned long long)s->line);
		if (add(ret, (uint64_t)index, e) < 0)
			return -1;
		s->head_size = 0;
		s->complete = s->at;
	}
	return 0;
}

static int scan_file(int fd, const char *name, struct map_seen *ret, struct err *e)
{
	_cleanup_free_ char *data = malloc(PIECE);
	struct scan s = {0};
	ssize_t n;

	if (!data)
		return err_set(e, ENOMEM, "read %.200s", name);
	while ((n = read(fd, data, PIECE)) != 0) {
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return err_set(e, errno, "read %.200s", name);
		if (scan_piece(&s, data, (size_t)n, ret, name, e) < 0)
			return -1;
	}
	if (s.complete != s.at && ftruncate(fd, (off_t)s.complete) < 0)
		return err_set(e, errno, "take the cut line off %.200s", name);
	return 0;
}

/* A file of ours alone from here on. */
static int take_file(int fd, const struct map_options *o, struct map_seen *ret, struct err *e)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return err_set(e, errno, "--results %.200s", o->results);
	if (!S_ISREG(st.st_mode))
		return o->resume ? err_set(e, 0, "--resume: %.200s is no file", o->results) : 0;
	if (flock(fd, LOCK_EX | LOCK_NB) < 0)
		return err_set(e, errno, "--results %.200s: another one writes it", o->results);
	if (st.st_size > 0 && !o->resume)
		return err_set(e, EEXIST,
			       "--results %.200s has results in it (--resume goes on with them)",
			       o->results);
	return o->resume ? scan_file(fd, o->results, ret, e) : 0;
}

int map_results_open(const struct map_options *o, struct map_seen *ret, struct err *e)
{
	int fd;

	*ret = (struct map_seen){0};
	if (!o->results)
		return 1;
	fd = open(o->results,
		  (o->resume ? O_RDWR : O_WRONLY) | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY,
		  0666);
	if (fd < 0)
		return err_set(e, errno, "--results %.200s", o->results);
	if (take_file(fd, o, ret, e) == 0)
		return fd;
	map_seen_done(ret);
	close(fd);
	return -1;
}
