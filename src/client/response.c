/* SPDX-License-Identifier: Apache-2.0 */
#include "client/response.h"

#include <string.h>
#include <strings.h>

struct text {
	const char *p;
	size_t size;
};

void response_init(struct response *r)
{
	memset(r, 0, offsetof(struct response, header));
}

static int refuse(struct err *e, const char *why)
{
	return err_set(e, 0, "the service's answer is not understood: %s", why);
}

static bool is_token(unsigned char c)
{
	return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
	       (c && strchr("!#$%&'*+-.^_`|~", c));
}

static bool named(const struct text *name, const char *want)
{
	return name->size == strlen(want) && strncasecmp(name->p, want, name->size) == 0;
}

static bool is_value(const struct text *value, const char *want)
{
	return named(value, want);
}

static int parse_length(const struct text *value, uint64_t *ret, struct err *e)
{
	uint64_t v = 0;

	if (value->size == 0 || value->size > 18)
		return refuse(e, "its length");
	for (size_t i = 0; i < value->size; i++) {
		if (value->p[i] < '0' || value->p[i] > '9')
			return refuse(e, "its length");
		v = v * 10 + (uint64_t)(value->p[i] - '0');
	}
	*ret = v;
	return 0;
}

/* The media type alone; one that does not fit is none that we know. */
static void keep_type(struct response *r, const struct text *value)
{
	size_t n = 0;

	while (n < value->size && n < sizeof r->content_type - 1 && value->p[n] != ';' &&
	       value->p[n] != ' ') {
		char c = value->p[n];

		r->content_type[n++] = c >= 'A' && c <= 'Z' ? (char)(c + 32) : c;
	}
	r->content_type[n] = '\0';
}

static int use_field(struct response *r, const struct text *name, const struct text *value,
		     bool *has_length, struct err *e)
{
	if (named(name, "content-length")) {
		if (*has_length)
			return refuse(e, "two lengths");
		*has_length = true;
		return parse_length(value, &r->size, e);
	}
	if (named(name, "transfer-encoding")) {
		if (r->chunked || !is_value(value, "chunked"))
			return refuse(e, "its transfer encoding");
		r->chunked = true;
	} else if (named(name, "connection")) {
		r->closes = r->closes || is_value(value, "close");
	} else if (named(name, "content-type")) {
		keep_type(r, value);
	}
	return 0;
}

static int split_field(const struct text *line, struct text *ret_name, struct text *ret_value,
		       struct err *e)
{
	struct text name = {line->p, 0}, value;

	while (name.size < line->size && is_token((unsigned char)line->p[name.size]))
		name.size++;
	if (name.size == 0 || name.size == line->size || line->p[name.size] != ':')
		return refuse(e, "a field's name");
	value = (struct text){line->p + name.size + 1, line->size - name.size - 1};
	while (value.size > 0 && (*value.p == ' ' || *value.p == '\t')) {
		value.p++;
		value.size--;
	}
	while (value.size > 0 &&
	       (value.p[value.size - 1] == ' ' || value.p[value.size - 1] == '\t'))
		value.size--;
	for (size_t i = 0; i < value.size; i++) {
		unsigned char c = (unsigned char)value.p[i];

		if ((c < 0x20 && c != '\t') || c == 0x7f)
			return refuse(e, "a control character in a field");
	}
	*ret_name = name;
	*ret_value = value;
	return 0;
}

static int parse_field(struct response *r, const struct text *line, bool *has_length, struct err *e)
{
	struct text name, value;

	if (split_field(line, &name, &value, e) < 0)
		return -1;
	return use_field(r, &name, &value, has_length, e);
}

/* "HTTP/1.1 200 OK"; the words behind the number are for nobody. */
static int parse_status(struct response *r, const struct text *line, struct err *e)
{
	static const char version[] = "HTTP/1.1 ";
	const char *p = line->p + sizeof version - 1;

	if (line->size < sizeof version + 2 || memcmp(line->p, version, sizeof version - 1) != 0)
		return refuse(e, "not HTTP/1.1");
	for (int i = 0; i < 3; i++)
		if (p[i] < '0' || p[i] > '9')
			return refuse(e, "its status");
	if (line->size > sizeof version + 2 && p[3] != ' ')
		return refuse(e, "its status");
	for (size_t i = sizeof version + 2; i < line->size; i++)
		if ((unsigned char)line->p[i] < 0x20 || line->p[i] == 0x7f)
			return refuse(e, "a control character in its status line");
	r->status = (p[0] - '0') * 100 + (p[1] - '0') * 10 + (p[2] - '0');
	if (r->status < 100 || r->status > 599 || r->status == 101)
		return refuse(e, "its status");
	return 0;
}

/* What follows the header, by RFC 9112 6.3; without a length it could be cut and nobody would know. */
static int choose_body(struct response *r, bool has_length, struct err *e)
{
	if (r->status < 200) {
		if (has_length || r->chunked || ++r->interim > RESPONSE_INTERIM)
			return refuse(e, "too many of them");
		r->filled = 0;
		r->closes = false;
		r->content_type[0] = '\0';
		return 0;
	}
	if (has_length && r->chunked)
		return refuse(e, "two kinds of length");
	if (r->status == 204 || r->status == 304) {
		if (r->chunked || r->size > 0)
			return refuse(e, "a body where there can be none");
		r->state = RESPONSE_DONE;
		return 0;
	}
	if (!has_length && !r->chunked)
		return refuse(e, "no length");
	r->left = r->size;
	r->filled = 0;
	r->state = r->chunked ? RESPONSE_CHUNK_SIZE : r->left ? RESPONSE_BODY : RESPONSE_DONE;
	return 0;
}

static int parse_header(struct response *r, struct err *e)
{
	const char *p = r->header, *end = r->header + r->filled - 2; /* without the empty line */
	bool has_length = false, first = true;
	unsigned fields = 0;

	while (p < end) {
		const char *cr = memmem(p, (size_t)(end - p), "\r\n", 2);
		struct text line = {p, (size_t)(cr - p)};

		if ((first ? parse_status(r, &line, e) : parse_field(r, &line, &has_length, e)) < 0)
			return -1;
		if (!first && ++fields > RESPONSE_FIELDS)
			return refuse(e, "too many fields");
		first = false;
		p = cr + 2;
	}
	return choose_body(r, has_length, e);
}

/* Bytes up to the empty line. Returns how many were used. */
static ssize_t feed_header(struct response *r, const char *data, size_t size, struct err *e)
{
	for (size_t i = 0; i < size; i++) {
		char before = r->filled ? r->header[r->filled - 1] : '\0';

		if (r->filled == sizeof r->header)
			return refuse(e, "its header is too long");
		if ((data[i] == '\n') != (before == '\r'))
			return refuse(e, "a line that does not end with CR LF");
		r->header[r->filled++] = data[i];
		if (data[i] == '\n' && r->filled >= 4 &&
		    memcmp(r->header + r->filled - 4, "\r\n\r\n", 4) == 0)
			return parse_header(r, e) < 0 ? -1 : (ssize_t)i + 1;
	}
	return (ssize_t)size;
}

static int hex_digit(char c)
{
	return c >= '0' && c <= '9'   ? c - '0'
	       : c >= 'a' && c <= 'f' ? c - 'a' + 10
	       : c >= 'A' && c <= 'F' ? c - 'A' + 10
				      : -1;
}

static void end_chunk_size(struct response *r)
{
	uint64_t v = 0;

	for (size_t i = 0; r->line[i] != '\r'; i++)
		v = v * 16 + (uint64_t)hex_digit(r->line[i]);
	r->filled = 0;
	r->left = v;
	r->state = v ? RESPONSE_CHUNK : RESPONSE_LAST;
}

/* One byte of a chunk's size line, at most 15 digits: the sum cannot overflow. */
static int feed_chunk_size(struct response *r, char c, struct err *e)
{
	bool after_cr = r->filled > 0 && r->line[r->filled - 1] == '\r';

	if (after_cr && c == '\n') {
		end_chunk_size(r);
		return 0;
	}
	if (after_cr || (c == '\r' ? r->filled == 0 : hex_digit(c) < 0 || r->filled == 15))
		return refuse(e, "a chunk's size");
	r->line[r->filled++] = c;
	return 0;
}

static int feed_crlf(struct response *r, char c, enum response_state next, struct err *e)
{
	if (c != "\r\n"[r->filled])
		return refuse(e, next == RESPONSE_DONE ? "fields behind its body"
						       : "the end of a chunk");
	if (++r->filled == 2) {
		r->filled = 0;
		r->state = next;
	}
	return 0;
}

/* Each line of r->header's first size bytes, CR LF at the end of all. found (or NULL): the value of `want`. */
static int each_trailer(const struct response *r, size_t size, const char *want, struct text *found,
			struct err *e)
{
	const char *p = r->header, *end = r->header + size;

	for (unsigned fields = 1; p < end; fields++) {
		const char *cr = memmem(p, (size_t)(end - p), "\r\n", 2);
		struct text line = {p, (size_t)(cr - p)}, name, value;

		if (fields > RESPONSE_FIELDS)
			return refuse(e, "too many fields");
		if (split_field(&line, &name, &value, e) < 0)
			return -1;
		if (found && named(&name, want))
			*found = value;
		p = cr + 2;
	}
	return 0;
}

/* Fields and the empty line behind the last chunk, or that alone. */
static int feed_trailer(struct response *r, char c, struct err *e)
{
	char before = r->filled ? r->header[r->filled - 1] : '\0';

	if (r->filled == sizeof r->header)
		return refuse(e, "its fields behind the body are too long");
	if ((c == '\n') != (before == '\r'))
		return refuse(e, "a line that does not end with CR LF");
	r->header[r->filled++] = c;
	if (c != '\n' || (r->filled > 2 && memcmp(r->header + r->filled - 4, "\r\n\r\n", 4) != 0))
		return 0;
	r->trailer_size = r->filled - 2;
	r->state = RESPONSE_DONE;
	return each_trailer(r, r->trailer_size, "", NULL, e);
}

const char *response_trailer(const struct response *r, const char *name, size_t *ret_size)
{
	struct text found = {NULL, 0};
	struct err e = {0};

	if (r->state != RESPONSE_DONE || each_trailer(r, r->trailer_size, name, &found, &e) < 0)
		return NULL;
	*ret_size = found.size;
	return found.p;
}

static ssize_t feed_data(struct response *r, const char *data, size_t size, response_sink sink,
			 void *context, struct err *e)
{
	size_t n = size < r->left ? size : (size_t)r->left;

	if (sink && sink(context, data, n, e) < 0)
		return -1;
	r->left -= n;
	if (r->left == 0)
		r->state = r->state == RESPONSE_BODY ? RESPONSE_DONE : RESPONSE_CHUNK_END;
	return (ssize_t)n;
}

/* Returns the number of bytes used, at least one; or -1. */
static ssize_t feed_some(struct response *r, const char *data, size_t size, response_sink sink,
			 void *context, struct err *e)
{
	switch (r->state) {
	case RESPONSE_HEADER:
		return feed_header(r, data, size, e);
	case RESPONSE_BODY:
	case RESPONSE_CHUNK:
		return feed_data(r, data, size, sink, context, e);
	case RESPONSE_CHUNK_SIZE:
		return feed_chunk_size(r, *data, e) < 0 ? -1 : 1;
	case RESPONSE_CHUNK_END:
		return feed_crlf(r, *data, RESPONSE_CHUNK_SIZE, e) < 0 ? -1 : 1;
	case RESPONSE_LAST:
		if (r->takes_trailers)
			return feed_trailer(r, *data, e) < 0 ? -1 : 1;
		return feed_crlf(r, *data, RESPONSE_DONE, e) < 0 ? -1 : 1;
	case RESPONSE_DONE:
		break;
	}
	return refuse(e, "more than one answer");
}

int response_feed(struct response *r, const char *data, size_t size, response_sink sink,
		  void *context, struct err *e)
{
	while (size > 0) {
		ssize_t n = feed_some(r, data, size, sink, context, e);

		if (n < 0)
			return -1;
		data += n;
		size -= (size_t)n;
	}
	return 0;
}

int response_eof(const struct response *r, struct err *e)
{
	if (r->state == RESPONSE_DONE)
		return 0;
	return err_set(e, 0, "the service hung up %s",
		       r->state == RESPONSE_HEADER ? "without an answer"
						   : "in the middle of its answer");
}
