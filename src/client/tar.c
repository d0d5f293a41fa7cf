/* SPDX-License-Identifier: Apache-2.0 */
#include "client/tar.h"

#include <string.h>

/* The fields of a header block (POSIX.1-2017, pax, "ustar Interchange Format"). */
enum {
	AT_NAME = 0,
	AT_MODE = 100,
	AT_SIZE = 124,
	AT_SUM = 148,
	AT_TYPE = 156,
	AT_LINK = 157,
	AT_MAGIC = 257,
	AT_PREFIX = 345,
	NAME_SIZE = 100,
	PREFIX_SIZE = 155,
};

void tar_reader_init(struct tar_reader *r, const struct tar_sink *sink)
{
	memset(r, 0, offsetof(struct tar_reader, block));
	r->sink = *sink;
}

static int refuse(struct err *e, const char *why)
{
	return err_set(e, 0, "the archive is not understood: %s", why);
}

/* Octal digits, then blanks or NULs; or, for sizes of 8 GiB and more, 0x80 and a big-endian number. */
static int parse_number(const char *field, size_t size, uint64_t *ret)
{
	uint64_t v = 0;
	size_t i = 0;

	if ((unsigned char)field[0] == 0x80) {
		for (i = 1; i < size; i++) {
			if (v >> 55)
				return -EINVAL;
			v = v << 8 | (unsigned char)field[i];
		}
		*ret = v;
		return 0;
	}
	while (i < size && field[i] == ' ')
		i++;
	for (; i < size && field[i] >= '0' && field[i] <= '7'; i++)
		v = v << 3 | (uint64_t)(field[i] - '0');
	for (; i < size; i++)
		if (field[i] != ' ' && field[i] != '\0')
			return -EINVAL;
	*ret = v;
	return 0;
}

static bool sum_is_right(const char *block)
{
	uint64_t want;
	unsigned sum = 8 * ' ';

	for (int i = 0; i < TAR_BLOCK; i++)
		if (i < AT_SUM || i >= AT_SUM + 8)
			sum += (unsigned char)block[i];
	return parse_number(block + AT_SUM, 8, &want) == 0 && want == sum;
}

/* Clean a path in place; -1 when it could name something outside. */
static int check_path(char *path)
{
	size_t n;

	if (*path == '/')
		return -1;
	while (strncmp(path, "./", 2) == 0)
		memmove(path, path + 2, strlen(path + 2) + 1);
	n = strlen(path);
	if (n > 0 && path[n - 1] == '/')
		path[--n] = '\0';
	if (strcmp(path, ".") == 0)
		path[0] = '\0';
	if (path[0] == '\0')
		return 0;
	for (const char *p = path;; p++) {
		size_t part = strcspn(p, "/");

		if (part == 0 || (part <= 2 && strncmp(p, "..", part) == 0))
			return -1;
		p += part;
		if (!*p)
			return 0;
	}
}

/* PREFIX/NAME of the block; each field may lack its NUL. */
static void join_path(const char *block, char *path)
{
	size_t prefix = strnlen(block + AT_PREFIX, PREFIX_SIZE);
	size_t name = strnlen(block + AT_NAME, NAME_SIZE);

	memcpy(path, block + AT_PREFIX, prefix);
	if (prefix)
		path[prefix++] = '/';
	memcpy(path + prefix, block + AT_NAME, name);
	path[prefix + name] = '\0';
}

static enum tar_type type_of(char c)
{
	return c == '0' || c == '\0' ? TAR_FILE
	       : c == '5'            ? TAR_FOLDER
	       : c == '2'            ? TAR_LINK
				     : TAR_OTHER;
}

static int begin_entry(struct tar_reader *r, uint64_t size, uint64_t mode, struct err *e)
{
	struct tar_entry *t = &r->entry;
	size_t link = strnlen(r->block + AT_LINK, NAME_SIZE);

	t->type = type_of(r->block[AT_TYPE]);
	t->mode = (unsigned)(mode & 0777);
	t->size = r->has_size ? r->pax_size : size;
	if (r->has_path)
		memcpy(t->path, r->path, sizeof t->path);
	else
		join_path(r->block, t->path);
	memcpy(t->target, r->block + AT_LINK, link);
	t->target[link] = '\0';
	if (r->has_target)
		memcpy(t->target, r->target, sizeof t->target);
	r->has_path = r->has_target = r->has_size = false;
	if (check_path(t->path) < 0)
		return refuse(e, "a name that leads elsewhere");
	if (t->type != TAR_FILE && t->size != 0)
		return refuse(e, "content of what is no file");
	if (t->type == TAR_FILE && !t->path[0])
		return refuse(e, "a file without a name");
	if (r->sink.entry(r->sink.context, t, e) < 0)
		return -1;
	if (t->type != TAR_FILE)
		return 0;
	r->left = t->size;
	r->padding = (size_t)(-t->size % TAR_BLOCK);
	r->state = TAR_DATA;
	return r->left == 0 ? (r->state = TAR_HEADER, r->sink.end(r->sink.context, e)) : 0;
}

static int use_header(struct tar_reader *r, struct err *e)
{
	static const char zeros[TAR_BLOCK];
	uint64_t size, mode;
	char type = r->block[AT_TYPE];

	r->filled = 0;
	if (memcmp(r->block, zeros, TAR_BLOCK) == 0) {
		if (r->has_path || r->has_target || r->has_size)
			return refuse(e, "a header for nothing");
		r->state = ++r->zero_blocks == 2 ? TAR_TRAILER : TAR_HEADER;
		return 0;
	}
	if (r->zero_blocks)
		return refuse(e, "more behind its end");
	if (memcmp(r->block + AT_MAGIC, "ustar\0", 6) != 0 || !sum_is_right(r->block))
		return refuse(e, "a header block");
	if (parse_number(r->block + AT_SIZE, 12, &size) < 0 || size >> 62 ||
	    parse_number(r->block + AT_MODE, 8, &mode) < 0)
		return refuse(e, "a number");
	if (type != 'x' && type != 'g')
		return begin_entry(r, size, mode, e);
	if (size == 0 || size > sizeof r->pax || r->has_path || r->has_target || r->has_size)
		return refuse(e, "a pax header");
	r->pax_counts = type == 'x';
	r->left = size;
	r->padding = (size_t)(-size % TAR_BLOCK);
	r->state = TAR_PAX;
	return 0;
}

static int keep_path(char *field, const char *value, size_t size, bool *has)
{
	if (size == 0 || size >= TAR_PATH_SIZE || memchr(value, '\0', size))
		return -EINVAL;
	memcpy(field, value, size);
	field[size] = '\0';
	*has = true;
	return 0;
}

static int keep_size(struct tar_reader *r, const char *value, size_t size)
{
	uint64_t v = 0;

	if (size == 0 || size > 18)
		return -EINVAL;
	for (size_t i = 0; i < size; i++) {
		if (value[i] < '0' || value[i] > '9')
			return -EINVAL;
		v = v * 10 + (uint64_t)(value[i] - '0');
	}
	r->pax_size = v;
	r->has_size = true;
	return 0;
}

/* "key=value", the line's length already checked. Keys that change nothing here are passed over. */
static int use_record(struct tar_reader *r, const char *text, size_t size)
{
	const char *eq = memchr(text, '=', size);
	size_t key = eq ? (size_t)(eq - text) : 0, value = eq ? size - key - 1 : 0;

	if (!eq)
		return -EINVAL;
	if (key == 4 && memcmp(text, "path", 4) == 0)
		return keep_path(r->path, eq + 1, value, &r->has_path);
	if (key == 8 && memcmp(text, "linkpath", 8) == 0)
		return keep_path(r->target, eq + 1, value, &r->has_target);
	if (key == 4 && memcmp(text, "size", 4) == 0)
		return keep_size(r, eq + 1, value);
	/* GNU's sparse files have another layout behind such a header. */
	return key >= 10 && memcmp(text, "GNU.sparse", 10) == 0 ? -EINVAL : 0;
}

/* "LENGTH key=value\n", the length counting itself. */
static int use_pax(struct tar_reader *r, struct err *e)
{
	const char *p = r->pax, *end = r->pax + r->filled;

	r->filled = 0;
	if (!r->pax_counts)
		return 0;
	while (p < end) {
		size_t length = 0, digits = 0;

		while (p + digits < end && digits < 6 && p[digits] >= '0' && p[digits] <= '9')
			length = length * 10 + (size_t)(p[digits++] - '0');
		if (digits == 0 || length < digits + 3 || length > (size_t)(end - p) ||
		    p[digits] != ' ' || p[length - 1] != '\n' ||
		    use_record(r, p + digits + 1, length - digits - 2) < 0)
			return refuse(e, "a pax record");
		p += length;
	}
	return 0;
}

/* Copy towards `want` bytes of a buffer. Returns how many were taken. */
static size_t fill(char *buffer, size_t *filled, size_t want, const char *data, size_t size)
{
	size_t n = want - *filled < size ? want - *filled : size;

	memcpy(buffer + *filled, data, n);
	*filled += n;
	return n;
}

static ssize_t feed_pax(struct tar_reader *r, const char *data, size_t size, struct err *e)
{
	size_t n = fill(r->pax, &r->filled, (size_t)r->left, data, size);

	if (r->filled < r->left)
		return (ssize_t)n;
	r->state = r->padding ? TAR_PADDING : TAR_HEADER;
	return use_pax(r, e) < 0 ? -1 : (ssize_t)n;
}

static ssize_t feed_content(struct tar_reader *r, const char *data, size_t size, struct err *e)
{
	size_t n = size < r->left ? size : (size_t)r->left;

	if (r->sink.data(r->sink.context, data, n, e) < 0)
		return -1;
	r->left -= n;
	if (r->left > 0)
		return (ssize_t)n;
	r->state = r->padding ? TAR_PADDING : TAR_HEADER;
	return r->sink.end(r->sink.context, e) < 0 ? -1 : (ssize_t)n;
}

static ssize_t feed_some(struct tar_reader *r, const char *data, size_t size, struct err *e)
{
	size_t n;

	switch (r->state) {
	case TAR_HEADER:
		n = fill(r->block, &r->filled, TAR_BLOCK, data, size);
		if (r->filled == TAR_BLOCK && use_header(r, e) < 0)
			return -1;
		return (ssize_t)n;
	case TAR_PAX:
		return feed_pax(r, data, size, e);
	case TAR_DATA:
		return feed_content(r, data, size, e);
	case TAR_PADDING:
		n = size < r->padding ? size : r->padding;
		r->padding -= n;
		if (r->padding == 0)
			r->state = TAR_HEADER;
		return (ssize_t)n;
	case TAR_TRAILER:
		break;
	}
	for (n = 0; n < size; n++)
		if (data[n] != '\0')
			return refuse(e, "more behind its end");
	return (ssize_t)size;
}

int tar_feed(struct tar_reader *r, const char *data, size_t size, struct err *e)
{
	while (size > 0) {
		ssize_t n = feed_some(r, data, size, e);

		if (n < 0)
			return -1;
		data += n;
		size -= (size_t)n;
	}
	return 0;
}

int tar_eof(const struct tar_reader *r, struct err *e)
{
	return r->state == TAR_TRAILER ? 0 : err_set(e, 0, "the archive is cut off");
}
