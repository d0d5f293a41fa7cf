/* SPDX-License-Identifier: Apache-2.0 */
/* reader.c - a state machine over blocks; every byte is hostile (tests/fuzz/fuzz_untar.c). */
#include <string.h>
#include <sys/types.h>

#include "tar/format.h"

void tar_reader_init(struct tar_reader *r, const struct tar_sink *sink)
{
	memset(r, 0, offsetof(struct tar_reader, path));
	r->sink = *sink;
}

static int refuse(struct err *e, const char *why)
{
	return err_set(e, 0, "archive: %s", why);
}

/* ---- numbers ---- */

/* Octal digits between blanks and NULs; or 0x80 and a big-endian number. 0xff, a negative one, is none. */
static int parse_number(const char *field, size_t size, uint64_t *ret)
{
	uint64_t v = 0;
	size_t i = 0;

	if ((unsigned char)field[0] == 0x80) {
		for (i = 1; i < size; i++) {
			if (v >> 55)
				return -1;
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
			return -1;
	*ret = v;
	return 0;
}

/* Decimal digits, as many as an int64_t surely holds. Returns how many, 0 when they are none or too many. */
static size_t parse_decimal(const char *text, size_t size, uint64_t *ret)
{
	uint64_t v = 0;
	size_t n = 0;

	for (; n < size && text[n] >= '0' && text[n] <= '9'; n++) {
		if (n == 18)
			return 0;
		v = v * 10 + (uint64_t)(text[n] - '0');
	}
	*ret = v;
	return n;
}

/* ---- extended headers ---- */

static int keep_name(char *field, bool *has, const char *value, size_t size)
{
	if (size == 0 || size >= TAR_PATH_SIZE || memchr(value, '\0', size))
		return -1;
	memcpy(field, value, size);
	field[size] = '\0';
	*has = true;
	return 0;
}

static int keep_size(struct tar_reader *r, const char *value, size_t size)
{
	r->has_size = true;
	return size > 0 && parse_decimal(value, size, &r->size) == size ? 0 : -1;
}

/* "-12.5" is -12: the fraction is of no use here. */
static int keep_mtime(struct tar_reader *r, const char *value, size_t size)
{
	bool negative = size > 0 && *value == '-';
	uint64_t v = 0, fraction;
	size_t n;

	value += negative;
	size -= negative;
	n = parse_decimal(value, size, &v);
	if (n == 0 || (n < size && value[n] != '.'))
		return -1;
	for (size_t i = n + 1; i < size; i++)
		if (parse_decimal(value + i, 1, &fraction) != 1)
			return -1;
	r->mtime = negative ? -(int64_t)v : (int64_t)v;
	r->has_mtime = true;
	return 0;
}

static bool is_key(const char *text, size_t size, const char *key)
{
	return size == strlen(key) && memcmp(text, key, size) == 0;
}

/* "key=value", its length already checked. Keys that change nothing here are passed over. */
static int use_record(struct tar_reader *r, const char *text, size_t size)
{
	const char *equals = memchr(text, '=', size), *value;
	size_t key = equals ? (size_t)(equals - text) : 0, n;
	bool for_all = r->kind == 'g', is_path = is_key(text, key, "path");

	if (!equals)
		return -1;
	value = equals + 1;
	n = size - key - 1;
	/* GNU's sparse files have another layout behind such a header. */
	if (key >= 10 && memcmp(text, "GNU.sparse", 10) == 0)
		return -1;
	if (is_path || is_key(text, key, "linkpath"))
		return for_all ? -1
			       : keep_name(is_path ? r->path : r->target,
					   is_path ? &r->has_path : &r->has_target, value, n);
	if (is_key(text, key, "size"))
		return for_all ? -1 : keep_size(r, value, n);
	if (is_key(text, key, "mtime") && !for_all)
		return keep_mtime(r, value, n);
	return 0;
}

/* Records of "LENGTH key=value\n", the length counting itself. */
static int use_pax(struct tar_reader *r, struct err *e)
{
	const char *p = r->extension, *end = p + r->filled;

	while (p < end) {
		size_t room = (size_t)(end - p);
		uint64_t length;
		size_t digits = parse_decimal(p, room < 6 ? room : 6, &length);

		if (digits == 0 || length < digits + 3 || length > room || p[digits] != ' ' ||
		    p[length - 1] != '\n' ||
		    use_record(r, p + digits + 1, (size_t)length - digits - 2) < 0)
			return refuse(e, "a pax record is malformed or not taken");
		p += length;
	}
	return 0;
}

/* A name, its NUL, and nothing but more of them. */
static int use_long_name(struct tar_reader *r, struct err *e)
{
	size_t n = strnlen(r->extension, r->filled);
	bool is_path = r->kind == 'L';

	for (size_t i = n; i < r->filled; i++)
		if (r->extension[i])
			return refuse(e, "a long name has more behind its end");
	if (keep_name(is_path ? r->path : r->target, is_path ? &r->has_path : &r->has_target,
		      r->extension, n) < 0)
		return refuse(e, "a long name is empty or too long");
	return 0;
}

static int use_extension(struct tar_reader *r, struct err *e)
{
	int result = r->kind == 'x' || r->kind == 'g' ? use_pax(r, e) : use_long_name(r, e);

	r->filled = 0;
	return result;
}

static int begin_extension(struct tar_reader *r, char kind, uint64_t size, struct err *e)
{
	if (size == 0 || size > sizeof r->extension)
		return refuse(e, "an extended header is empty or too large");
	/* Two that say the same: which of them counts is answered differently by different programs. */
	if (kind == 'x' ? r->has_path || r->has_target || r->has_size || r->has_mtime
			: (kind == 'L' && r->has_path) || (kind == 'K' && r->has_target))
		return refuse(e, "two extended headers for one entry");
	r->kind = kind;
	r->left = size;
	r->padding = tar_padding(size);
	r->state = TAR_EXTENSION;
	return 0;
}

/* ---- entries ---- */

/* PREFIX/NAME of the block; each field may lack its NUL. GNU's header has other things at the prefix. */
static void join_path(const struct tar_block *h, char *path)
{
	size_t prefix =
		memcmp(h->magic, "ustar", 6) == 0 ? strnlen(h->prefix, sizeof h->prefix) : 0;
	size_t name = strnlen(h->name, sizeof h->name);

	memcpy(path, h->prefix, prefix);
	if (prefix)
		path[prefix++] = '/';
	memcpy(path + prefix, h->name, name);
	path[prefix + name] = '\0';
}

/* Empty and "." components go; -1 when it could name something outside. */
static int clean_path(char *path)
{
	char *to = path;

	if (*path == '/')
		return -1;
	for (const char *p = path; *p;) {
		size_t n = strcspn(p, "/");
		bool more = p[n] == '/';

		if (n == 2 && memcmp(p, "..", 2) == 0)
			return -1;
		if (n > 1 || (n == 1 && *p != '.')) {
			if (to != path)
				*to++ = '/';
			memmove(to, p, n);
			to += n;
		}
		p += n + more;
	}
	*to = '\0';
	return 0;
}

/* Whether it is spelled as only a folder's name can be. */
static bool ends_as_folder(const char *path)
{
	size_t n = strlen(path);

	return n == 0 || path[n - 1] == '/' || strcmp(path, ".") == 0 ||
	       (n > 1 && strcmp(path + n - 2, "/.") == 0);
}

static int type_of(char c, enum tar_type *ret, struct err *e)
{
	switch (c) {
	case '\0':
	case '0':
	case '7': /* contiguous: POSIX wants it taken for a file */
		*ret = TAR_FILE;
		return 0;
	case '5':
		*ret = TAR_FOLDER;
		return 0;
	case '2':
		*ret = TAR_LINK;
		return 0;
	case '1':
		return refuse(e, "hard links are not taken");
	case '3':
	case '4':
	case '6':
		return refuse(e, "devices and pipes are not taken");
	case 'S':
		return refuse(e, "sparse files are not taken");
	case 'M':
	case 'V':
		return refuse(e, "volumes are not taken");
	default:
		return refuse(e, "only files, folders and symbolic links are taken");
	}
}

/* The names of the entry, into r->path and r->target. */
static int take_names(struct tar_reader *r, const struct tar_block *h, enum tar_type type,
		      struct err *e)
{
	size_t n = strnlen(h->target, sizeof h->target);

	if (!r->has_path)
		join_path(h, r->path);
	if (type == TAR_FILE && ends_as_folder(r->path))
		return refuse(e, "a file without a name, or with a folder's");
	if (clean_path(r->path) < 0)
		return refuse(e, "a name that leads elsewhere (absolute, or with ..)");
	if (type != TAR_LINK) {
		if (r->has_target)
			return refuse(e, "a target of what is no link");
		r->target[0] = '\0';
		return 0;
	}
	if (!r->has_target) {
		memcpy(r->target, h->target, n);
		r->target[n] = '\0';
	}
	return r->target[0] && r->path[0] ? 0 : refuse(e, "a link without name or target");
}

static int begin_content(struct tar_reader *r, uint64_t size, struct err *e)
{
	if (size == 0)
		return r->sink.end ? r->sink.end(r->sink.context, e) : 0;
	r->left = size;
	r->padding = tar_padding(size);
	r->state = TAR_DATA;
	return 0;
}

static int begin_entry(struct tar_reader *r, const struct tar_block *h, uint64_t size,
		       struct err *e)
{
	struct tar_entry t = {.path = r->path, .target = r->target};
	uint64_t mode, mtime;

	if (type_of(h->type, &t.type, e) < 0)
		return -1;
	if (parse_number(h->mode, sizeof h->mode, &mode) < 0 ||
	    parse_number(h->mtime, sizeof h->mtime, &mtime) < 0 || mtime > INT64_MAX)
		return refuse(e, "a number in a header is malformed");
	if (take_names(r, h, t.type, e) < 0)
		return -1;
	t.size = r->has_size ? r->size : size;
	t.mode = (unsigned)(mode & 0777);
	t.mtime = r->has_mtime ? r->mtime : (int64_t)mtime;
	r->has_path = r->has_target = r->has_size = r->has_mtime = false;
	if (t.type != TAR_FILE && t.size > 0)
		return refuse(e, "content of what is no file");
	if (++r->entries > TAR_MAX_ENTRIES)
		return refuse(e, "more than 1000000 entries");
	if (!r->path[0])
		return 0;
	if (r->sink.entry(r->sink.context, &t, e) < 0)
		return -1;
	return t.type == TAR_FILE ? begin_content(r, t.size, e) : 0;
}

static int use_zeros(struct tar_reader *r, struct err *e)
{
	if (r->has_path || r->has_target || r->has_size || r->has_mtime)
		return refuse(e, "an extended header for nothing");
	if (++r->zero_blocks == 2)
		r->state = TAR_TRAILER;
	return 0;
}

static int use_block(struct tar_reader *r, struct err *e)
{
	static const char zeros[TAR_BLOCK];
	struct tar_block h;
	uint64_t size, sum;

	r->filled = 0;
	if (memcmp(r->block, zeros, TAR_BLOCK) == 0)
		return use_zeros(r, e);
	if (r->zero_blocks)
		return refuse(e, "more behind its end");
	memcpy(&h, r->block, sizeof h);
	if ((memcmp(h.magic, "ustar", 6) != 0 && memcmp(h.magic, "ustar ", 6) != 0) ||
	    parse_number(h.sum, sizeof h.sum, &sum) < 0 || sum != tar_sum(&h))
		return refuse(e,
			      "no header block where one belongs (is it a tar, not compressed?)");
	if (parse_number(h.size, sizeof h.size, &size) < 0 || size >> 62)
		return refuse(e, "a size in a header is malformed");
	if (h.type == 'x' || h.type == 'g' || h.type == 'L' || h.type == 'K')
		return begin_extension(r, h.type, size, e);
	return begin_entry(r, &h, size, e);
}

/* ---- bytes ---- */

/* Copy towards `want` bytes of a buffer. Returns how many were taken. */
static size_t fill(char *buffer, size_t *filled, size_t want, const char *data, size_t size)
{
	size_t n = want - *filled < size ? want - *filled : size;

	memcpy(buffer + *filled, data, n);
	*filled += n;
	return n;
}

static ssize_t feed_extension(struct tar_reader *r, const char *data, size_t size, struct err *e)
{
	size_t n = fill(r->extension, &r->filled, (size_t)r->left, data, size);

	if (r->filled < r->left)
		return (ssize_t)n;
	r->state = r->padding ? TAR_PADDING : TAR_HEADER;
	return use_extension(r, e) < 0 ? -1 : (ssize_t)n;
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
	return r->sink.end && r->sink.end(r->sink.context, e) < 0 ? -1 : (ssize_t)n;
}

static ssize_t feed_some(struct tar_reader *r, const char *data, size_t size, struct err *e)
{
	size_t n;

	switch (r->state) {
	case TAR_HEADER:
		n = fill(r->block, &r->filled, TAR_BLOCK, data, size);
		return r->filled == TAR_BLOCK && use_block(r, e) < 0 ? -1 : (ssize_t)n;
	case TAR_EXTENSION:
		return feed_extension(r, data, size, e);
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
	return r->state == TAR_TRAILER ? 0 : refuse(e, "it is cut off");
}
