/* SPDX-License-Identifier: Apache-2.0 */
#include "service/tar.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* POSIX.1-2001 ustar interchange format. */
struct header {
	char name[100], mode[8], uid[8], gid[8], size[12], mtime[12], sum[8], type, target[100];
	char magic[6], version[2], user[32], group[32], major[8], minor[8], prefix[155], pad[12];
};
_Static_assert(sizeof(struct header) == TAR_BLOCK, "a header is one block");

enum { EXTENSION_MAX = 16384 };

/* ---- writing ---- */

static void octal(char *field, size_t size, uint64_t value)
{
	field[size - 1] = '\0';
	for (size_t i = size - 1; i-- > 0; value >>= 3)
		field[i] = (char)('0' + (value & 7));
}

static unsigned sum_of(const struct header *h)
{
	const unsigned char *p = (const unsigned char *)h;
	unsigned sum = 0;

	for (size_t i = 0; i < sizeof *h; i++)
		sum += i >= offsetof(struct header, sum) && i < offsetof(struct header, type) ? ' '
											       : p[i];
	return sum;
}

static void seal(struct header *h)
{
	memcpy(h->magic, "ustar", 6);
	memcpy(h->version, "00", 2);
	octal(h->sum, 7, sum_of(h));
	h->sum[7] = ' ';
}

/* "LENGTH key=value\n", where LENGTH counts itself. */
static size_t pax_record(char *out, const char *key, const char *value)
{
	size_t rest = strlen(key) + strlen(value) + 3, n = rest, digits;

	for (;;) {
		digits = (size_t)snprintf(NULL, 0, "%zu", n);
		if (n == rest + digits)
			break;
		n = rest + digits;
	}
	snprintf(out, n + 1, "%zu %s=%s\n", n, key, value);
	return n;
}

size_t tar_padding(uint64_t size)
{
	return (size_t)((TAR_BLOCK - size % TAR_BLOCK) % TAR_BLOCK);
}

size_t tar_header(char out[TAR_HEADER_MAX], const struct entry_record *r, const char *name,
		  const char *target)
{
	struct header h = {0};
	char records[2 * 8192], text[32];
	size_t n = 0, at = 0;
	uint64_t size = S_ISREG(r->mode) ? r->size_bytes : 0;

	if (strlen(name) >= sizeof h.name)
		n += pax_record(records + n, "path", name);
	if (strlen(target) >= sizeof h.target)
		n += pax_record(records + n, "linkpath", target);
	if (size >= 1ull << 33) {
		snprintf(text, sizeof text, "%llu", (unsigned long long)size);
		n += pax_record(records + n, "size", text);
	}
	if (n) {
		memcpy(h.name, "pax", 3);
		octal(h.mode, sizeof h.mode, 0644);
		octal(h.size, sizeof h.size, n);
		octal(h.mtime, sizeof h.mtime, 0);
		h.type = 'x';
		seal(&h);
		memcpy(out, &h, sizeof h);
		memcpy(out + sizeof h, records, n);
		at = sizeof h + n + tar_padding(n);
		memset(out + sizeof h + n, 0, tar_padding(n));
		h = (struct header){0};
	}
	memcpy(h.name, name, strnlen(name, sizeof h.name - 1));
	memcpy(h.target, target, strnlen(target, sizeof h.target - 1));
	octal(h.mode, sizeof h.mode, r->mode & 0777);
	octal(h.uid, sizeof h.uid, 0);
	octal(h.gid, sizeof h.gid, 0);
	octal(h.size, sizeof h.size, size < 1ull << 33 ? size : 0);
	octal(h.mtime, sizeof h.mtime, r->mtime > 0 && r->mtime < 1ll << 33 ? (uint64_t)r->mtime : 0);
	h.type = S_ISDIR(r->mode) ? '5' : S_ISLNK(r->mode) ? '2' : '0';
	seal(&h);
	memcpy(out + at, &h, sizeof h);
	return at + sizeof h;
}

/* ---- reading ---- */

void tar_done(struct tar_reader *t)
{
	free(t->extension);
	t->extension = NULL;
}

static int wrong(struct err *e, const char *text)
{
	return err_set(e, 0, "archive: %s", text);
}

/* Octal, ended by space or NUL; or base-256 with the top bit set. */
static int number(const char *field, size_t size, uint64_t *ret)
{
	uint64_t v = 0;
	size_t i = 0;

	if ((unsigned char)field[0] & 0x80) {
		if ((unsigned char)field[0] != 0x80)
			return -1;
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

static int take_pax(struct tar_reader *t, const char *key, const char *value, size_t size,
		    struct err *e)
{
	char *field = strcmp(key, "path") == 0	     ? t->name
		      : strcmp(key, "linkpath") == 0 ? t->target
						     : NULL;
	char *end;

	if (strncmp(key, "GNU.sparse.", 11) == 0)
		return wrong(e, "sparse files are not taken");
	if (field) {
		if (size >= sizeof t->name || memchr(value, '\0', size))
			return wrong(e, "a name is too long or has a NUL");
		memcpy(field, value, size);
		field[size] = '\0';
	} else if (strcmp(key, "size") == 0) {
		t->size = strtoull(value, &end, 10);
		t->has_size = true;
		if (end != value + size || size == 0 || *value == '-' || size > 19)
			return wrong(e, "a size is no number");
	} else if (strcmp(key, "mtime") == 0) {
		t->mtime = strtoll(value, NULL, 10);
		t->has_mtime = true;
	}
	return 0;
}

static int read_pax(struct tar_reader *t, struct err *e)
{
	char *p = t->extension, *end = p + t->extension_size;

	while (p < end && *p) {
		char *after, *space = memchr(p, ' ', (size_t)(end - p)), *equals;
		unsigned long n = strtoul(p, &after, 10);

		if (!space || after != space || n < 5 || n > (size_t)(end - p) || p[n - 1] != '\n')
			return wrong(e, "a pax record is malformed");
		p[n - 1] = '\0';
		equals = memchr(space, '=', (size_t)(p + n - 1 - space));
		if (!equals)
			return wrong(e, "a pax record is malformed");
		*equals = '\0';
		if (take_pax(t, space + 1, equals + 1, (size_t)(p + n - 1 - (equals + 1)), e) < 0)
			return -1;
		p += n;
	}
	return 0;
}

static int extension_ended(struct tar_reader *t, struct err *e)
{
	int r = 0;

	t->extension[t->extension_size] = '\0';
	if (t->extension_kind == 'x') {
		r = read_pax(t, e);
	} else if (t->extension_kind != 'g') {
		char *field = t->extension_kind == 'L' ? t->name : t->target;

		if (strlen(t->extension) >= sizeof t->name)
			r = wrong(e, "a name is too long");
		else
			memcpy(field, t->extension, strlen(t->extension) + 1);
	}
	tar_done(t);
	return r;
}

static int begin_extension(struct tar_reader *t, char kind, uint64_t size, struct err *e)
{
	if (size == 0 || size > EXTENSION_MAX)
		return wrong(e, "an extended header is too large");
	t->extension = malloc(size + 1);
	if (!t->extension)
		return err_set(e, ENOMEM, "archive");
	t->extension_size = (size_t)size;
	t->extension_filled = 0;
	t->extension_kind = kind;
	t->left = size;
	t->padding = tar_padding(size);
	t->in_content = true;
	return 0;
}

static void name_of(const struct tar_reader *t, const struct header *h, char name[4096])
{
	if (t->name[0])
		memcpy(name, t->name, sizeof t->name);
	else if (h->prefix[0] && memcmp(h->magic, "ustar\0", 6) == 0)
		snprintf(name, 4096, "%.155s/%.100s", h->prefix, h->name);
	else
		snprintf(name, 4096, "%.100s", h->name);
}

/* "./a/b/" is a/b; what leads out is refused by name. 1: the root itself. */
static int normalise(char *name, struct err *e)
{
	char *to = name;

	if (*name == '/')
		return wrong(e, "an absolute name");
	for (char *p = name; *p;) {
		size_t n = strcspn(p, "/");

		if (n == 2 && memcmp(p, "..", 2) == 0)
			return wrong(e, "a name with ..");
		if (n > 0 && !(n == 1 && *p == '.')) {
			if (to != name)
				*to++ = '/';
			memmove(to, p, n);
			to += n;
		}
		p += n + (p[n] == '/');
	}
	*to = '\0';
	return to == name;
}

static int begin_entry(struct tar_reader *t, const struct header *h, const struct tar_ops *ops,
		       void *context, struct err *e)
{
	struct entry_record r = {0};
	uint64_t mode, size, mtime;
	char name[4096], target[4096] = "";
	int root;

	if (number(h->mode, sizeof h->mode, &mode) < 0 || number(h->size, sizeof h->size, &size) < 0 ||
	    number(h->mtime, sizeof h->mtime, &mtime) < 0)
		return wrong(e, "a number in a header is malformed");
	if (h->type == 'x' || h->type == 'g' || h->type == 'L' || h->type == 'K')
		return begin_extension(t, h->type, size, e);
	if (t->has_size)
		size = t->size;
	if (size > INT64_MAX)
		return wrong(e, "a size is too large");
	if (++t->entries > TAR_MAX_ENTRIES)
		return wrong(e, "more than 1000000 entries");
	name_of(t, h, name);
	root = normalise(name, e);
	if (root < 0)
		return -1;
	switch (h->type) {
	case '0':
	case '\0':
	case '7':
		r.mode = S_IFREG;
		r.size_bytes = size;
		break;
	case '5':
		r.mode = S_IFDIR;
		break;
	case '2':
		r.mode = S_IFLNK;
		if (t->target[0])
			memcpy(target, t->target, sizeof target);
		else
			snprintf(target, sizeof target, "%.100s", h->target);
		if (!target[0])
			return wrong(e, "a link without target");
		break;
	case '1':
		return wrong(e, "hard links are not taken");
	default:
		return wrong(e, "only files, folders and symbolic links are taken");
	}
	if (!S_ISREG(r.mode) && size > 0)
		return wrong(e, "content where none belongs");
	r.mode |= (uint32_t)mode & 0777;
	r.mtime = t->has_mtime ? t->mtime : mtime > INT64_MAX ? 0 : (int64_t)mtime;
	t->name[0] = t->target[0] = '\0';
	t->has_size = t->has_mtime = false;
	t->left = r.size_bytes;
	t->padding = tar_padding(r.size_bytes);
	t->in_content = t->left > 0;
	if (root)
		return S_ISDIR(r.mode) ? 0 : wrong(e, "an empty name");
	return ops->on_entry(context, &r, name, target, e);
}

static bool is_zero(const char *block)
{
	for (size_t i = 0; i < TAR_BLOCK; i++)
		if (block[i])
			return false;
	return true;
}

static int on_block(struct tar_reader *t, const struct tar_ops *ops, void *context, struct err *e)
{
	struct header h;
	uint64_t sum;

	if (t->ended)
		return 0; /* what follows the end is filling */
	if (is_zero(t->block)) {
		t->ended = true;
		return t->name[0] || t->target[0] || t->has_size ? wrong(e, "ends after an extended header")
								  : 0;
	}
	memcpy(&h, t->block, sizeof h);
	if (number(h.sum, sizeof h.sum, &sum) < 0 || sum != sum_of(&h))
		return wrong(e, "a header's checksum is wrong (is it a tar, not compressed?)");
	return begin_entry(t, &h, ops, context, e);
}

static int take_content(struct tar_reader *t, const char **p, size_t *size, const struct tar_ops *ops,
			void *context, struct err *e)
{
	size_t n = *size < t->left ? *size : (size_t)t->left;

	if (t->extension) {
		memcpy(t->extension + t->extension_filled, *p, n);
		t->extension_filled += n;
	} else if (n) {
		ops->on_content(context, *p, n);
	}
	t->left -= n;
	*p += n;
	*size -= n;
	if (t->left > 0)
		return 0;
	t->in_content = false;
	return t->extension ? extension_ended(t, e) : 0;
}

int tar_read(struct tar_reader *t, const void *data, size_t size, const struct tar_ops *ops,
	     void *context, struct err *e)
{
	const char *p = data;

	while (size > 0) {
		size_t n;

		if (t->in_content) {
			if (take_content(t, &p, &size, ops, context, e) < 0)
				return -1;
			continue;
		}
		if (t->padding > 0) {
			n = size < t->padding ? size : (size_t)t->padding;
			t->padding -= n;
			p += n;
			size -= n;
			continue;
		}
		n = TAR_BLOCK - t->filled < size ? TAR_BLOCK - t->filled : size;
		memcpy(t->block + t->filled, p, n);
		t->filled += n;
		p += n;
		size -= n;
		if (t->filled == TAR_BLOCK) {
			t->filled = 0;
			if (on_block(t, ops, context, e) < 0)
				return -1;
		}
	}
	return 0;
}

int tar_finish(const struct tar_reader *t, struct err *e)
{
	if (t->in_content || t->filled || t->padding || t->extension)
		return wrong(e, "ends in the middle");
	if (!t->ended && t->entries == 0)
		return wrong(e, "is empty");
	return 0;
}
