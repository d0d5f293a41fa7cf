/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The reader of what comes from inside a sandbox: any bytes, in pieces of any size.
 *
 * The first byte of the input chooses the sizes of the pieces. Whatever they are, the same frames come
 * out, each allowed by the table, and after an error nothing more.
 */
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "protocol/protocol.h"

struct seen {
	unsigned frames;
	uint64_t bytes, digest;
	int error;
};

static void check_payload(const struct frame *f, const unsigned char *payload)
{
	struct failed_record failed;
	struct exited_record exited;

	if (f->type == FRAME_FAILED && failed_record_decode(payload, f->size, &failed) == 0) {
		CHECK(failed.errnum <= 4095);
		CHECK(strlen(failed.stage) < sizeof failed.stage);
		CHECK(strlen(failed.what) < sizeof failed.what);
		for (const char *p = failed.what; *p; p++)
			CHECK(*p >= 0x20 && *p < 0x7f);
	}
	if (f->type == FRAME_EXITED && exited_record_decode(payload, f->size, &exited) == 0) {
		CHECK(exited.signaled <= 1 && exited.core <= 1 && exited.survivors <= 1);
		CHECK(exited.signaled ? exited.status >= 1 && exited.status <= 64
				      : exited.status <= 255);
	}
}

static void check_frame(const struct frame *f, const unsigned char *payload, struct seen *s)
{
	CHECK((f->type >= 1 && f->type <= 7) || f->type == FRAME_MAPME);
	CHECK(f->size <= FRAME_DATA_MAX);
	if (f->type == FRAME_DATA || f->type == FRAME_EOF)
		CHECK(f->stream == 1 || f->stream == 2);
	else
		CHECK(f->stream == 0);
	s->frames++;
	s->bytes += f->size;
	s->digest = s->digest * 31 + (uint64_t)f->type * 7 + f->stream;
	for (uint32_t i = 0; i < f->size; i++)
		s->digest = s->digest * 31 + payload[i];
	check_payload(f, payload);
}

static struct seen read_all(const uint8_t *data, size_t size, size_t step)
{
	struct frame_reader *r = malloc(sizeof *r);
	const unsigned char *payload;
	struct seen s = {0};
	struct frame f;

	CHECK(r);
	r->filled = 0;
	while (size > 0 && s.error == 0) {
		size_t n = frame_reader_feed(r, data, size < step ? size : step);
		int got;

		CHECK(n > 0 && n <= step); /* there is always room for the rest of a frame */
		data += n;
		size -= n;
		while ((got = frame_reader_next(r, &f, &payload)) == 1) {
			check_frame(&f, payload, &s);
			frame_reader_done(r, &f);
		}
		s.error = got;
	}
	free(r);
	return s;
}

static void decode_records(const uint8_t *data, size_t size)
{
	struct failed_record failed;
	struct exited_record exited;

	(void)failed_record_decode(data, (uint32_t)size, &failed);
	(void)exited_record_decode(data, (uint32_t)size, &exited);
	if (size >= FRAME_HEADER_SIZE) {
		struct frame f;

		(void)frame_decode(data, FROM_HOST, &f);
		(void)frame_decode(data, FROM_GUEST, &f);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct seen whole, pieces;

	decode_records(data, size);
	if (size < 1)
		return 0;
	whole = read_all(data + 1, size - 1, SIZE_MAX);
	pieces = read_all(data + 1, size - 1, (size_t)data[0] + 1);
	CHECK(whole.frames == pieces.frames && whole.bytes == pieces.bytes);
	CHECK(whole.digest == pieces.digest && whole.error == pieces.error);
	return 0;
}
