/* SPDX-License-Identifier: Apache-2.0 */
/* header.c - headers as pax (POSIX.1-2001): ustar, and before it a pax header where ustar has no room. */
#include <stdio.h>
#include <string.h>

#include "tar/format.h"

/* What eleven octal digits hold. */
#define OCTAL_END   (1ull << 33)
#define RECORDS_MAX (2 * TAR_PATH_SIZE + 128)

unsigned tar_sum(const struct tar_block *h)
{
	const unsigned char *p = (const unsigned char *)h;
	unsigned sum = 0;

	for (size_t i = 0; i < sizeof *h; i++)
		sum += i - offsetof(struct tar_block, sum) < sizeof h->sum ? ' ' : p[i];
	return sum;
}

static void octal(char *field, size_t size, uint64_t value)
{
	field[size - 1] = '\0';
	for (size_t i = size - 1; i-- > 0; value >>= 3)
		field[i] = (char)('0' + (value & 7));
}

static void put_block(char *out, const struct tar_entry *t, char type)
{
	struct tar_block h = {.type = type};

	memcpy(h.name, t->path, strnlen(t->path, sizeof h.name - 1));
	memcpy(h.target, t->target, strnlen(t->target, sizeof h.target - 1));
	octal(h.mode, sizeof h.mode, t->mode & 0777);
	octal(h.uid, sizeof h.uid, 0); /* owners mean nothing on the other side */
	octal(h.gid, sizeof h.gid, 0);
	octal(h.size, sizeof h.size, t->size < OCTAL_END ? t->size : 0);
	octal(h.mtime, sizeof h.mtime,
	      t->mtime > 0 && (uint64_t)t->mtime < OCTAL_END ? (uint64_t)t->mtime : 0);
	memcpy(h.magic, "ustar", sizeof h.magic);
	memcpy(h.version, "00", sizeof h.version);
	octal(h.sum, sizeof h.sum - 1, tar_sum(&h));
	h.sum[sizeof h.sum - 1] = ' ';
	memcpy(out, &h, sizeof h);
}

/* "LENGTH key=value\n", where LENGTH counts itself. */
static size_t put_record(char *out, const char *key, const char *value)
{
	size_t rest = strlen(key) + strlen(value) + 3, n = rest + 1;

	while (n != rest + (size_t)snprintf(NULL, 0, "%zu", n))
		n = rest + (size_t)snprintf(NULL, 0, "%zu", n);
	snprintf(out, n + 1, "%zu %s=%s\n", n, key, value);
	return n;
}

size_t tar_padding(uint64_t size)
{
	return (size_t)(-size % TAR_BLOCK);
}

size_t tar_header(char out[TAR_HEADER_MAX], const struct tar_entry *t)
{
	static const char types[] = {[TAR_FILE] = '0', [TAR_FOLDER] = '5', [TAR_LINK] = '2'};
	char records[RECORDS_MAX], number[24];
	size_t n = 0, at = 0;

	if (strlen(t->path) >= TAR_PATH_SIZE || strlen(t->target) >= TAR_PATH_SIZE)
		return 0;
	if (strlen(t->path) >= sizeof((struct tar_block *)0)->name)
		n += put_record(records + n, "path", t->path);
	if (strlen(t->target) >= sizeof((struct tar_block *)0)->target)
		n += put_record(records + n, "linkpath", t->target);
	if (t->size >= OCTAL_END) {
		snprintf(number, sizeof number, "%llu", (unsigned long long)t->size);
		n += put_record(records + n, "size", number);
	}
	if (n > 0) {
		put_block(out,
			  &(struct tar_entry){.path = "pax", .target = "", .size = n, .mode = 0644},
			  'x');
		memcpy(out + TAR_BLOCK, records, n);
		memset(out + TAR_BLOCK + n, 0, tar_padding(n));
		at = TAR_BLOCK + n + tar_padding(n);
	}
	put_block(out + at, t, types[t->type]);
	return at + TAR_BLOCK;
}
