/* SPDX-License-Identifier: Apache-2.0 */
/*
 * redact.c - secrets in a sequence of bytes, found wherever it is cut.
 *
 * The texts that are looked for (patterns) are each secret, the parts of it that servers take out of it, and the base64
 * of these in three alignments, without the characters that neighbours have a share in. Each byte of a pattern may
 * stand as it is or escaped (%41, \u0041, \/), every one on its own, so that one comparison finds all mixtures.
 *
 * At each place it is asked whether a pattern begins there. A bitmap of the two first bytes says no nearly always: that
 * is what every byte costs. What begins and is not whole yet holds back the rest, so the decision about a place never
 * depends on where the bytes were cut. A place may lie in several matches; all of them are covered.
 *
 * Patterns are secrets: one mapping, locked, in no core dump, wiped at its end, shared by all streams of the process.
 */
#include <ctype.h>
#include <string.h>
#include <sys/mman.h>

#include "base/base64.h"
#include "egress/credential.h"

enum {
	PART_MIN = 4, /* of a secret: shorter ones stand in any text */
	BASE64_MIN = 4,
	ESCAPE_MAX = 6, /* \u0041 */
	COVER = '*',
};

struct pattern {
	const char *text;
	uint32_t size;
	uint32_t next; /* with the same first byte: index + 1, or 0 */
};

struct patterns {
	size_t mapped;
	size_t references;
	uint32_t pairs[2048]; /* a bit for each two bytes that one may begin with */
	uint32_t first[256];  /* by the first byte: index + 1, or 0 */
	size_t count;
	struct pattern item[];
};

struct redactor {
	struct patterns *patterns;
	char *data;
	size_t capacity;
	size_t begin, end; /* what was held back, in data */
	size_t covered;    /* bytes from begin on that a match has already covered */
};

/* ---------------------------------------------------------------------------------------- patterns */

/* Passed over twice: first counting (to NULL), then writing. */
struct builder {
	struct patterns *to;
	char *text; /* where the next one goes */
	size_t count, bytes;
};

static void set_pair(struct patterns *p, unsigned char a, unsigned char b)
{
	unsigned pair = a | (unsigned)b << 8;

	p->pairs[pair / 32] |= 1u << pair % 32;
}

static bool has_pair(const struct patterns *p, const char *at)
{
	uint16_t pair;

	memcpy(&pair, at, sizeof pair);
	return p->pairs[pair / 32] >> pair % 32 & 1;
}

static bool is_short_escape(char c)
{
	return c == '"' || c == '\\' || c == '/';
}

/* a, and then whatever the second byte of the pattern may begin with. */
static void set_pairs_after(struct patterns *p, char a, const char *text, size_t size)
{
	if (size == 1) {
		for (int b = 0; b < 256; b++)
			set_pair(p, (unsigned char)a, (unsigned char)b);
		return;
	}
	set_pair(p, (unsigned char)a, (unsigned char)text[1]);
	set_pair(p, (unsigned char)a, '%');
	set_pair(p, (unsigned char)a, '\\');
	if (text[1] == ' ')
		set_pair(p, (unsigned char)a, '+');
}

static void set_pairs(struct patterns *p, const char *text, size_t size)
{
	static const char upper[] = "0123456789ABCDEF", lower[] = "0123456789abcdef";
	unsigned char c = (unsigned char)text[0];

	set_pairs_after(p, text[0], text, size);
	if (c == ' ')
		set_pairs_after(p, '+', text, size);
	set_pair(p, '%', (unsigned char)upper[c >> 4]);
	set_pair(p, '%', (unsigned char)lower[c >> 4]);
	set_pair(p, '\\', 'u');
	if (is_short_escape(text[0]))
		set_pair(p, '\\', c);
}

/* The pattern that was written to b->text, or would have been. */
static void add_written(struct builder *b, size_t size)
{
	struct patterns *p = b->to;

	b->bytes += size;
	b->count++;
	if (!p)
		return;
	p->item[p->count] = (struct pattern){.text = b->text,
					     .size = (uint32_t)size,
					     .next = p->first[(unsigned char)b->text[0]]};
	p->first[(unsigned char)b->text[0]] = (uint32_t)++p->count;
	set_pairs(p, b->text, size);
	b->text += size;
}

/* Base64 with so many bytes in front of it, of its alphabet; only what the secret alone decides. */
static void add_base64(struct builder *b, const char *text, size_t size, size_t before, bool url)
{
	static const char alphabet[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
	size_t begin = (8 * before + 5) / 6, end = 8 * (before + size) / 6;

	if (end - begin < BASE64_MIN)
		return;
	for (size_t i = begin; b->to && i < end; i++) {
		size_t bit = 6 * i - 8 * before, at = bit / 8, shift = bit % 8;
		unsigned pair = (unsigned)(unsigned char)text[at] << 8 |
				(at + 1 < size ? (unsigned char)text[at + 1] : 0);
		unsigned value = pair >> (10 - shift) & 63;

		b->text[i - begin] = value < 62 ? alphabet[value] : (url ? "-_" : "+/")[value - 62];
	}
	add_written(b, end - begin);
}

/* As names of fields arrive (head.h). */
static void add_lower(struct builder *b, const char *text, size_t size)
{
	bool differs = false;

	for (size_t i = 0; i < size; i++)
		differs |= isupper((unsigned char)text[i]);
	if (!differs)
		return;
	for (size_t i = 0; b->to && i < size; i++)
		b->text[i] = (char)tolower((unsigned char)text[i]);
	add_written(b, size);
}

static void add_text(struct builder *b, const char *text, size_t size)
{
	if (size == 0)
		return;
	for (size_t before = 0; before < 3; before++)
		for (int url = 0; url < 2; url++)
			add_base64(b, text, size, before, url);
	if (b->to)
		memcpy(b->text, text, size);
	add_written(b, size);
	add_lower(b, text, size);
}

static void add_part(struct builder *b, const char *text, size_t size)
{
	if (size >= PART_MIN)
		add_text(b, text, size);
}

/* "Basic" with user and password: they, and the password. */
static void add_basic(struct builder *b, const char *text, size_t size)
{
	char *plain = NULL;
	const char *colon;
	size_t n;

	if (base64_decode(text, size, &plain, &n) < 0)
		return;
	add_part(b, plain, n);
	colon = memchr(plain, ':', n);
	if (colon)
		add_part(b, colon + 1, n - (size_t)(colon + 1 - plain));
	explicit_bzero(plain, n);
	free(plain);
}

/* The values of "name=value; name=value". */
static void add_cookies(struct builder *b, const char *text, size_t size)
{
	const char *end = text + size;

	while (text < end) {
		const char *semicolon = memchr(text, ';', (size_t)(end - text));
		const char *stop = semicolon ? semicolon : end;
		const char *equals = memchr(text, '=', (size_t)(stop - text));

		if (equals)
			add_part(b, equals + 1, (size_t)(stop - equals - 1));
		text = stop + 1;
	}
}

/* A secret, and what a server makes of it before it shows it to anybody. */
static void add_credential(struct builder *b, const struct credential *c)
{
	const char *space = memchr(c->value, ' ', c->size);

	add_text(b, c->value, c->size);
	if (strcasecmp(c->header, "cookie") == 0) {
		add_cookies(b, c->value, c->size);
	} else if (c->header[0] && space) {
		size_t scheme = (size_t)(space - c->value), rest = c->size - scheme - 1;

		add_part(b, space + 1, rest);
		if (scheme == 5 && strncasecmp(c->value, "basic", 5) == 0)
			add_basic(b, space + 1, rest);
	}
}

static void add_all(struct builder *b, const struct egress_settings *s)
{
	for (size_t i = 0; i < s->credential_count; i++)
		add_credential(b, &s->credentials[i]);
}

static void unmap(struct patterns *p)
{
	size_t size = p->mapped;

	explicit_bzero(p, size);
	munmap(p, size);
}

static struct patterns *make_patterns(const struct egress_settings *s)
{
	struct builder counted = {0}, b = {0};
	struct patterns *p;
	size_t size, items;

	add_all(&counted, s);
	items = counted.count * sizeof p->item[0];
	size = sizeof *p + items + counted.bytes;
	p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (p == MAP_FAILED)
		return NULL;
	p->mapped = size;
	p->references = 1;
	if (madvise(p, size, MADV_DONTDUMP) < 0 || mlock(p, size) < 0) {
		unmap(p);
		return NULL;
	}
	b.to = p;
	b.text = (char *)p + sizeof *p + items;
	add_all(&b, s);
	if (b.count != counted.count) { /* no memory for one of them, once */
		unmap(p);
		return NULL;
	}
	return p;
}

/* -------------------------------------------------------------------------------------- comparison */

/* Instead of a number of bytes. PARTLY: all that there is fits, and it ends before the pattern does. */
enum { NOTHING = -1, PARTLY = -2 };

static const char hex_digits[] = "0123456789abcdef";

static bool is_hex(char c, unsigned value)
{
	return tolower((unsigned char)c) == hex_digits[value];
}

/* So many bytes that are looked at already, then two hexadecimal digits of this byte. */
static long escaped_hex(const char *t, size_t size, size_t before, char byte)
{
	unsigned char c = (unsigned char)byte;

	if ((size > before && !is_hex(t[before], c >> 4)) ||
	    (size > before + 1 && !is_hex(t[before + 1], c & 15)))
		return NOTHING;
	return size > before + 1 ? (long)before + 2 : PARTLY;
}

/* How many bytes of t (of at least one) are this byte, escaped. */
static long escaped(const char *t, size_t size, char byte)
{
	if (t[0] == '+')
		return byte == ' ' ? 1 : NOTHING;
	if (t[0] == '%')
		return escaped_hex(t, size, 1, byte);
	if (t[0] != '\\')
		return NOTHING;
	if (size < 2)
		return PARTLY;
	if (t[1] != 'u')
		return t[1] == byte && is_short_escape(byte) ? 2 : NOTHING;
	for (size_t i = 2; i < 4 && i < size; i++)
		if (t[i] != '0')
			return NOTHING;
	return size > 4 ? escaped_hex(t, size, 4, byte) : PARTLY;
}

static long longer(long a, long b)
{
	return a == PARTLY || b == PARTLY ? PARTLY : a > b ? a : b;
}

/* How many bytes of t are the pattern. last: there will be no more of t, so nothing is PARTLY. */
static long compare(const char *pattern, size_t left, const char *t, size_t size, bool last)
{
	size_t at = 0;

	for (; left > 0; pattern++, left--) {
		bool itself;
		long width;

		if (at == size)
			return last ? NOTHING : PARTLY;
		itself = t[at] == *pattern;
		width = escaped(t + at, size - at, *pattern);
		if (width == PARTLY && last)
			width = NOTHING;
		if (itself &&
		    width != NOTHING) { /* "%" or "\", which may be itself or begin an escape */
			long a = compare(pattern + 1, left - 1, t + at + 1, size - at - 1, last);
			long b = width;

			if (b > 0)
				b = compare(pattern + 1, left - 1, t + at + width,
					    size - at - (size_t)width, last);
			a = a >= 0 ? a + (long)at + 1 : a;
			b = b >= 0 ? b + (long)at + width : b;
			return longer(a, b);
		}
		if (!itself && width < 0)
			return width;
		at += itself ? 1 : (size_t)width;
	}
	return (long)at;
}

struct match {
	size_t size; /* of the longest; 0: none */
	bool partly; /* one would go on behind the end */
};

static void try_chain(const struct patterns *p, unsigned char first, const char *t, size_t size,
		      bool last, struct match *m)
{
	for (uint32_t i = p->first[first]; i; i = p->item[i - 1].next) {
		const struct pattern *one = &p->item[i - 1];
		long n = compare(one->text, one->size, t, size, last);

		m->partly |= n == PARTLY;
		if (n > 0 && (size_t)n > m->size)
			m->size = (size_t)n;
	}
}

static int hex_value(char c)
{
	const char *digit = c ? strchr(hex_digits, tolower((unsigned char)c)) : NULL;

	return digit ? (int)(digit - hex_digits) : -1;
}

/* The byte that t begins with, escaped; NOTHING; PARTLY if its end is not there. */
static int unescaped(const char *t, size_t size)
{
	bool percent = t[0] == '%';
	size_t before = percent ? 1 : 4;

	if (t[0] == '+')
		return ' ';
	if (size < 2)
		return PARTLY;
	if (!percent && t[1] != 'u')
		return is_short_escape(t[1]) ? (unsigned char)t[1] : NOTHING;
	if (size < before + 2)
		return PARTLY;
	if (!percent && (t[2] != '0' || t[3] != '0'))
		return NOTHING;
	if (hex_value(t[before]) < 0 || hex_value(t[before + 1]) < 0)
		return NOTHING;
	return hex_value(t[before]) << 4 | hex_value(t[before + 1]);
}

static struct match match_at(const struct patterns *p, const char *t, size_t size, bool last)
{
	struct match m = {0};
	int c;

	try_chain(p, (unsigned char)t[0], t, size, last, &m);
	if (t[0] != '%' && t[0] != '\\' && t[0] != '+')
		return m;
	c = unescaped(t, size);
	if (c >= 0 && c != (unsigned char)t[0])
		try_chain(p, (unsigned char)c, t, size, last, &m);
	if (c == PARTLY && !last)
		for (c = 0; c < 256; c++)
			try_chain(p, (unsigned char)c, t, size, last, &m);
	return m;
}

/* Covers what is found. The bytes that are decided; fewer than size only if not last. *covered: carried on. */
static size_t scan(const struct patterns *p, char *t, size_t size, bool last, size_t *covered,
		   bool *ret_found)
{
	size_t left = *covered, i = 0;

	while (i < size) {
		struct match m = {0};

		if (!left)
			while (i + 1 < size && !has_pair(p, t + i))
				i++;
		if (i + 1 == size || has_pair(p, t + i))
			m = match_at(p, t + i, size - i, last);
		if (m.partly)
			break;
		if (m.size > left)
			left = m.size;
		*ret_found |= m.size > 0;
		if (left) {
			t[i] = COVER;
			left--;
		}
		i++;
	}
	*covered = left;
	return i;
}

/* ---------------------------------------------------------------------------------------- redactor */

struct redactor *redactor_new(const struct egress_settings *s)
{
	struct redactor *r = calloc(1, sizeof *r);

	if (r && !(r->patterns = make_patterns(s))) {
		free(r);
		return NULL;
	}
	return r;
}

struct redactor *redactor_dup(const struct redactor *other)
{
	struct redactor *r = calloc(1, sizeof *r);

	if (r) {
		r->patterns = other->patterns;
		r->patterns->references++;
	}
	return r;
}

static void drop_data(struct redactor *r)
{
	if (r->data)
		explicit_bzero(r->data, r->capacity);
	free(r->data);
	r->data = NULL;
}

void redactor_free(struct redactor *r)
{
	if (!r)
		return;
	drop_data(r);
	if (--r->patterns->references == 0)
		unmap(r->patterns);
	free(r);
}

/* Held bytes to the front, with room for size more. */
static int make_room(struct redactor *r, size_t size)
{
	size_t held = r->end - r->begin;

	if (held + size <= r->capacity) {
		if (held)
			memmove(r->data, r->data + r->begin, held);
	} else {
		char *data = malloc(held + size);

		if (!data)
			return -ENOMEM;
		if (held)
			memcpy(data, r->data + r->begin, held);
		drop_data(r);
		r->data = data;
		r->capacity = held + size;
	}
	r->begin = 0;
	r->end = held;
	return 0;
}

int redactor_feed(struct redactor *r, const void *data, size_t size, bool last, const char **ret,
		  size_t *ret_size)
{
	bool found = false;

	if (make_room(r, size) < 0)
		return -ENOMEM;
	if (size)
		memcpy(r->data + r->end, data, size);
	r->end += size;
	r->begin = scan(r->patterns, r->data, r->end, last, &r->covered, &found);
	*ret = r->data;
	*ret_size = r->begin;
	return 0;
}

bool redact(const struct redactor *r, char *text, size_t size)
{
	size_t covered = 0;
	bool found = false;

	scan(r->patterns, text, size, true, &covered, &found);
	return found;
}
