/* SPDX-License-Identifier: Apache-2.0 */
#include "http/head.h"

#include <string.h>
#include <strings.h>

/* Method, two spaces, version and line end, beside the target. */
enum { REQUEST_LINE_REST = 32 };

static enum head_state bad(struct refusal *why, int status, const char *detail)
{
	*why = (struct refusal){status, detail};
	return HEAD_BAD;
}

static enum head_state scan_line_end(struct head_scan *s, size_t at, const char *data,
				     const struct http_limits *limits, struct refusal *why)
{
	if (at == s->line || data[at - 1] != '\r')
		return bad(why, 400, "a line of the header that ends without CR");
	if (at - 1 == s->line)
		return s->lines ? HEAD_COMPLETE : bad(why, 400, "no request line");
	if (s->lines++ > limits->fields)
		return bad(why, 431, "too many header fields");
	s->line = at + 1;
	return HEAD_MORE;
}

static enum head_state scan_byte(struct head_scan *s, size_t at, const char *data,
				 const struct http_limits *limits, struct refusal *why)
{
	unsigned char c = (unsigned char)data[at];

	if (at == 0 && (c < 'A' || c > 'Z'))
		return bad(why, 400, "no request line");
	if (c == '\n')
		return scan_line_end(s, at, data, limits, why);
	if (at > s->line && data[at - 1] == '\r')
		return bad(why, 400, "a CR in the header that no LF follows");
	if ((c < 0x20 && c != '\t' && c != '\r') || c == 0x7f)
		return bad(why, 400, "a control character in the header");
	if (s->lines > 0 && at == s->line && (c == ' ' || c == '\t'))
		return bad(why, 400, "a folded header line");
	if (s->lines == 0 && at > limits->path_bytes + REQUEST_LINE_REST)
		return bad(why, 414, "the request target is too long");
	return HEAD_MORE;
}

enum head_state head_scan(struct head_scan *s, const char *data, size_t size,
			  const struct http_limits *limits, struct refusal *ret_why)
{
	enum head_state state = HEAD_MORE;

	while (state == HEAD_MORE && s->seen < size) {
		state = scan_byte(s, s->seen, data, limits, ret_why);
		s->seen++;
		if (state != HEAD_BAD && s->seen > limits->header_bytes)
			state = bad(ret_why, 431, "the header is too large");
	}
	return state;
}

/* What llhttp's callbacks fill. Pieces point into the scanned header, which is parsed in one go. */
struct piece {
	const char *at;
	size_t size;
};
struct builder {
	struct piece text, *names, *values;
	size_t count, room;
	bool complete, too_many;
};

static void piece_add(struct piece *p, const char *at, size_t size)
{
	if (!p->at)
		p->at = at;
	p->size += size;
}

/* The request's target, or the reason of an answer. */
static int on_text(llhttp_t *p, const char *at, size_t size)
{
	struct builder *b = p->data;

	piece_add(&b->text, at, size);
	return 0;
}

static int on_field(llhttp_t *p, const char *at, size_t size)
{
	struct builder *b = p->data;

	if (b->count == b->room) {
		b->too_many = true;
		return -1;
	}
	piece_add(&b->names[b->count], at, size);
	return 0;
}

static int on_value(llhttp_t *p, const char *at, size_t size)
{
	struct builder *b = p->data;

	piece_add(&b->values[b->count], at, size);
	return 0;
}

static int on_value_complete(llhttp_t *p)
{
	struct builder *b = p->data;

	b->count++;
	return 0;
}

static int on_headers_complete(llhttp_t *p)
{
	struct builder *b = p->data;

	b->complete = true;
	return 0;
}

static const llhttp_settings_t head_settings = {
	.on_url = on_text,
	.on_status = on_text,
	.on_header_field = on_field,
	.on_header_value = on_value,
	.on_header_value_complete = on_value_complete,
	.on_headers_complete = on_headers_complete,
};

static int refuse(struct refusal *why, int status, const char *detail)
{
	*why = (struct refusal){status, detail};
	return -1;
}

/* Three words parted by single spaces, the last HTTP/1.0 or HTTP/1.1: llhttp forgives more. */
static bool request_line_ok(const char *data)
{
	unsigned spaces = 0;
	const char *last = data;

	for (; *data != '\r'; data++) {
		if (*data == '\t' || (*data == ' ' && (data[1] == ' ' || data[1] == '\r')))
			return false;
		if (*data == ' ') {
			spaces++;
			last = data + 1;
		}
	}
	return spaces == 2 && data - last == 8 && memcmp(last, "HTTP/1.", 7) == 0 &&
	       (last[7] == '0' || last[7] == '1');
}

/* "HTTP/1.1 200 OK", or without the reason. */
static bool status_line_ok(const char *data)
{
	static const char shape[] = "HTTP/1.";
	const char *p = data + sizeof shape;

	if (memcmp(data, shape, sizeof shape - 1) != 0 || (p[-1] != '0' && p[-1] != '1') ||
	    *p++ != ' ')
		return false;
	if (*p < '1' || *p > '9' || strspn(p, "0123456789") != 3)
		return false;
	return p[3] == ' ' || p[3] == '\r';
}

static size_t trimmed(const struct piece *p)
{
	size_t n = p->size;

	while (n > 0 && (p->at[n - 1] == ' ' || p->at[n - 1] == '\t'))
		n--;
	return n;
}

static int copy_fields(struct head *h, const struct builder *b)
{
	size_t bytes = b->count * sizeof *h->fields + b->text.size + 1;
	char *text;

	for (size_t i = 0; i < b->count; i++)
		bytes += b->names[i].size + b->values[i].size + 2;
	h->memory = malloc(bytes);
	if (!h->memory)
		return -1;
	h->fields = (struct field *)(void *)h->memory;
	text = h->memory + b->count * sizeof *h->fields;
	h->text = text;
	if (b->text.size > 0)
		memcpy(text, b->text.at, b->text.size);
	text += b->text.size;
	*text++ = '\0';
	for (size_t i = 0; i < b->count; i++) {
		size_t n = trimmed(&b->values[i]);

		h->fields[i].name = text;
		for (size_t k = 0; k < b->names[i].size; k++) {
			char c = b->names[i].at[k];

			*text++ = c >= 'A' && c <= 'Z' ? (char)(c | 0x20) : c;
		}
		*text++ = '\0';
		h->fields[i].value = text;
		if (n > 0)
			memcpy(text, b->values[i].at, n);
		text[n] = '\0';
		text += n + 1;
	}
	h->field_count = b->count;
	return 0;
}

/* *ret_value is the field's; false when it is there twice. */
static bool single_field(const struct head *h, const char *name, const char **ret_value)
{
	*ret_value = NULL;
	for (size_t i = 0; i < h->field_count; i++) {
		if (strcmp(h->fields[i].name, name) != 0)
			continue;
		if (*ret_value)
			return false;
		*ret_value = h->fields[i].value;
	}
	return true;
}

bool list_has_token(const char *list, const char *token)
{
	size_t size = strlen(token);

	while (*list) {
		size_t n;

		list += strspn(list, " \t,");
		n = strcspn(list, " \t,");
		if (n == size && strncasecmp(list, token, n) == 0)
			return true;
		list += n;
	}
	return false;
}

const char *head_field(const struct head *h, const char *name)
{
	for (size_t i = 0; i < h->field_count; i++)
		if (strcmp(h->fields[i].name, name) == 0)
			return h->fields[i].value;
	return NULL;
}

static int judge_host(const struct head *h, enum head_form form, struct refusal *why)
{
	static const char allowed[] =
		"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
		"-._~!$&'()*+,;=%:[]";
	const char *host;

	if (!single_field(h, "host", &host))
		return refuse(why, 400, "two Host fields");
	if (!host && form == HEAD_PROXY && h->http10)
		return 0;
	if (!host || !*host)
		return refuse(why, 400, "no Host field");
	if (host[strspn(host, allowed)])
		return refuse(why, 400, "the Host field is no host name");
	return 0;
}

static int judge_body(struct head *h, const llhttp_t *parser, struct refusal *why)
{
	const char *length, *encoding;

	if (!single_field(h, "content-length", &length))
		return refuse(why, 400, "two Content-Length fields");
	if (!single_field(h, "transfer-encoding", &encoding))
		return refuse(why, 400, "two Transfer-Encoding fields");
	if (length && encoding)
		return refuse(why, 400, "both Content-Length and Transfer-Encoding");
	if (encoding && h->http10)
		return refuse(why, 400, "Transfer-Encoding in HTTP/1.0");
	if (encoding && strcasecmp(encoding, "chunked") != 0)
		return refuse(why, 400, "a Transfer-Encoding other than chunked");
	if (encoding && !(parser->flags & F_CHUNKED))
		return refuse(why, 400, "a Transfer-Encoding that cannot be read");
	/* 18 digits: an exbyte, and never near an overflow */
	if (length && (!*length || length[strspn(length, "0123456789")]))
		return refuse(why, 400, "the Content-Length is no number");
	if (length && strlen(length) > 18)
		return refuse(why, 413, "the body is too large");
	h->body_size = encoding ? UINT64_MAX : length ? strtoull(length, NULL, 10) : 0;
	return 0;
}

static void judge_close(struct head *h)
{
	h->close = h->http10;
	for (size_t i = 0; i < h->field_count; i++)
		if (strcmp(h->fields[i].name, "connection") == 0)
			h->close |= list_has_token(h->fields[i].value, "close");
}

static int judge_request(struct head *h, enum head_form form, const llhttp_t *parser,
			 struct refusal *why)
{
	const char *expect;

	if (judge_host(h, form, why) < 0 || judge_body(h, parser, why) < 0)
		return -1;
	if (!single_field(h, "expect", &expect) ||
	    (expect && strcasecmp(expect, "100-continue") != 0))
		return refuse(why, 400, "an Expect other than 100-continue");
	h->expects = expect && !h->http10 && h->body_size > 0;
	judge_close(h);
	return 0;
}

static int judge_answer(struct head *h, const llhttp_t *parser, struct refusal *why)
{
	if (judge_body(h, parser, why) < 0)
		return -1;
	h->to_end = !head_field(h, "content-length") && h->body_size != UINT64_MAX;
	judge_close(h);
	return 0;
}

static int refuse_llhttp(struct refusal *why, llhttp_errno_t error, bool too_many)
{
	if (too_many)
		return refuse(why, 431, "too many header fields");
	switch (error) {
	case HPE_INVALID_METHOD:
		return refuse(why, 400, "the method is unknown");
	case HPE_INVALID_URL:
		return refuse(why, 400, "the request target is not origin-form");
	case HPE_INVALID_VERSION:
	case HPE_INVALID_CONSTANT:
		return refuse(why, 400, "the version is not HTTP/1.1");
	case HPE_INVALID_CONTENT_LENGTH:
	case HPE_UNEXPECTED_CONTENT_LENGTH:
		return refuse(why, 400, "the Content-Length is no number");
	case HPE_INVALID_TRANSFER_ENCODING:
		return refuse(why, 400, "a Transfer-Encoding other than chunked");
	default:
		return refuse(why, 400, "a header field that breaks the rules");
	}
}

static const char *byte_fault(const struct piece *p)
{
	for (size_t i = 0; i < p->size; i++)
		if (p->at[i] <= 0x20 || p->at[i] >= 0x7f || p->at[i] == '#')
			return p->at[i] == '#' ? "a fragment in the target"
					       : "a byte in the target that has to be encoded";
	return NULL;
}

static int judge_target(const struct builder *b, struct head *h, struct refusal *why)
{
	const char *fault = NULL;
	int r = target_parse(b->text.at, b->text.size, &h->target, &fault);

	return r < 0 ? refuse(why, fault ? 400 : 503, fault ? fault : "out of memory") : 0;
}

static int judge_line(const struct builder *b, enum head_form form, const llhttp_t *parser,
		      const struct http_limits *limits, struct head *h, struct refusal *why)
{
	const char *fault = form == HEAD_PROXY ? byte_fault(&b->text) : NULL;

	if (form == HEAD_SERVER && (parser->method == HTTP_CONNECT || parser->method == HTTP_TRACE))
		return refuse(why, 405, "this method is not served");
	if (b->text.size > limits->path_bytes)
		return refuse(why, 414, "the request target is too long");
	if (fault)
		return refuse(why, 400, fault);
	h->method = llhttp_method_name(parser->method);
	return form == HEAD_SERVER ? judge_target(b, h, why) : 0;
}

/* Everything that requests and answers have in common; texts of b point into data. */
static int parse(const char *data, size_t size, llhttp_type_t type,
		 const struct http_limits *limits, llhttp_t *parser, struct builder *b,
		 struct refusal *why)
{
	llhttp_errno_t error;

	b->names = calloc(2 * ((size_t)limits->fields + 1), sizeof *b->names);
	if (!b->names)
		return refuse(why, 503, "out of memory");
	b->room = limits->fields;
	b->values = b->names + limits->fields + 1;
	llhttp_init(parser, type, &head_settings);
	parser->data = b;
	error = llhttp_execute(parser, data, size);
	parser->data = NULL;
	if ((error != HPE_OK && error != HPE_PAUSED_UPGRADE) || !b->complete)
		return refuse_llhttp(why, error, b->too_many);
	for (size_t i = 0; i < b->count; i++)
		if (b->names[i].size == 0)
			return refuse(why, 400, "a header field without a name");
	if (parser->http_major != 1 || parser->http_minor > 1)
		return refuse(why, 400, "the version is not HTTP/1.1");
	return 0;
}

static void builder_done(struct builder *b)
{
	free(b->names);
}

int head_parse(const char *data, size_t size, enum head_form form, const struct http_limits *limits,
	       llhttp_t *parser, struct head *ret, struct refusal *ret_why)
{
	_cleanup_(builder_done) struct builder b = {0};
	struct head h = {0};
	int r;

	if (!request_line_ok(data))
		return refuse(ret_why, 400, "the request line is not \"METHOD /path HTTP/1.1\"");
	if (parse(data, size, HTTP_REQUEST, limits, parser, &b, ret_why) < 0)
		return -1;
	if (b.text.size == 0)
		return refuse_llhttp(ret_why, HPE_INVALID_URL, false);
	h.http10 = parser->http_minor == 0;
	r = judge_line(&b, form, parser, limits, &h, ret_why);
	if (r == 0 && copy_fields(&h, &b) < 0)
		r = refuse(ret_why, 503, "out of memory");
	if (r == 0)
		r = judge_request(&h, form, parser, ret_why);
	if (r < 0)
		head_done(&h);
	else
		*ret = h;
	return r;
}

int head_parse_answer(const char *data, size_t size, const struct http_limits *limits,
		      llhttp_t *parser, struct head *ret, struct refusal *ret_why)
{
	_cleanup_(builder_done) struct builder b = {0};
	struct head h = {0};
	int r;

	if (!status_line_ok(data))
		return refuse(ret_why, 400, "the status line is not \"HTTP/1.1 200 OK\"");
	if (parse(data, size, HTTP_RESPONSE, limits, parser, &b, ret_why) < 0)
		return -1;
	h.http10 = parser->http_minor == 0;
	h.status = parser->status_code;
	r = copy_fields(&h, &b) < 0 ? refuse(ret_why, 503, "out of memory") : 0;
	if (r == 0)
		r = judge_answer(&h, parser, ret_why);
	if (r < 0)
		head_done(&h);
	else
		*ret = h;
	return r;
}

void head_done(struct head *h)
{
	target_done(&h->target);
	free(h->memory);
	*h = (struct head){0};
}
