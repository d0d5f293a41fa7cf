/* SPDX-License-Identifier: Apache-2.0 */
#include "http/framing.h"

#include <string.h>

#include "base/cleanup.h"

struct seen {
	bool header, complete;
};

static int on_chunk_header(llhttp_t *p)
{
	struct seen *seen = p->data;

	seen->header = true;
	return 0;
}

static int on_message_complete(llhttp_t *p)
{
	struct seen *seen = p->data;

	seen->complete = true;
	return 0;
}

static const llhttp_settings_t chunk_settings = {
	.on_chunk_header = on_chunk_header,
	.on_message_complete = on_message_complete,
};

void framing_begin(struct framing *f, uint64_t size)
{
	*f = (struct framing){.chunked = size == UINT64_MAX};
	if (!f->chunked)
		f->left = size;
}

/* Size of the line with its CRLF; 0: not complete; -1: none that we take. */
static long line_size(const char *data, size_t size)
{
	size_t look = size < CHUNK_LINE_MAX ? size : CHUNK_LINE_MAX;
	const char *lf = memchr(data, '\n', look), *cr = memchr(data, '\r', look);

	if (!lf)
		return look == CHUNK_LINE_MAX || (cr && cr < data + look - 1) ? -1 : 0;
	return cr && cr == lf - 1 ? lf - data + 1 : -1;
}

/* Digits, then nothing or an extension; at most 15 digits: never near an overflow. */
static bool size_line_ok(struct framing *f, const char *line, size_t size)
{
	size_t digits = 0;

	while (digits < size && strchr("0123456789abcdefABCDEF", line[digits]) && line[digits])
		digits++;
	if (digits == 0 || digits > 15 || (digits < size && line[digits] != ';'))
		return false;
	for (size_t i = digits; i < size; i++)
		if ((unsigned char)line[i] < 0x20 || (unsigned char)line[i] > 0x7e)
			return false;
	f->extensions += (uint32_t)(size - digits);
	return f->extensions <= CHUNK_EXTENSIONS_MAX;
}

/* Give llhttp what was checked; false when it dislikes it. */
static bool feed(llhttp_t *parser, const char *data, size_t size, struct seen *seen)
{
	llhttp_errno_t error;

	parser->settings = (void *)(uintptr_t)&chunk_settings;
	parser->data = seen;
	error = llhttp_execute(parser, data, size);
	parser->data = NULL;
	return error == HPE_OK || (error == HPE_PAUSED_UPGRADE && seen->complete);
}

static enum framing_state step_line(struct framing *f, llhttp_t *parser, const char *data,
				    size_t size, size_t *ret_used)
{
	long n = line_size(data, size);
	struct seen seen = {0};
	bool size_line = f->at == AT_SIZE && !f->last;

	if (n <= 0)
		return n < 0 ? FRAMING_BAD : FRAMING_MORE;
	if (size_line ? !size_line_ok(f, data, (size_t)n - 2) : n != 2)
		return FRAMING_BAD;
	if (!feed(parser, data, (size_t)n, &seen) || seen.header != size_line)
		return FRAMING_BAD;
	*ret_used = (size_t)n;
	if (f->last)
		return seen.complete ? FRAMING_END : FRAMING_BAD;
	if (size_line) {
		f->left = parser->content_length;
		f->last = f->left == 0;
		f->at = f->last ? AT_SIZE : AT_DATA;
	} else {
		f->at = AT_SIZE;
	}
	return FRAMING_ON;
}

enum framing_state framing_step(struct framing *f, llhttp_t *parser, const char *data, size_t size,
				size_t *ret_used, const char **ret_piece, size_t *ret_size)
{
	struct seen seen = {0};
	size_t n;

	*ret_used = 0;
	if (!f->chunked && f->left == 0)
		return FRAMING_END;
	if (size == 0)
		return FRAMING_MORE;
	if (f->chunked && f->at != AT_DATA)
		return step_line(f, parser, data, size, ret_used);
	n = f->left < size ? (size_t)f->left : size;
	if (f->chunked && !feed(parser, data, n, &seen))
		return FRAMING_BAD;
	f->left -= n;
	if (f->chunked && f->left == 0)
		f->at = AT_DATA_END;
	*ret_used = n;
	*ret_piece = data;
	*ret_size = n;
	return FRAMING_PIECE;
}
