/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a kept sandbox's init answers, as cloched reads it: the first byte chooses the decoder, the rest is
 * the payload, or for 0 a stream of frames, each given to the decoder of its type. What is accepted has to
 * keep every promise of conversation.h.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "fuzz.h"
#include "protocol/conversation.h"

/* A string of the payload: ended inside it. */
static size_t check_string(const uint8_t *data, size_t size, const char *s)
{
	size_t at = (size_t)((const uint8_t *)s - data);

	CHECK((const uint8_t *)s >= data && at < size);
	CHECK(memchr(s, '\0', size - at));
	return strlen(s);
}

static void check_end(const struct ended_record *e)
{
	CHECK(e->signaled <= 1 && e->core <= 1 && e->survivors <= 1 && e->timed_out <= 1);
	CHECK(e->signaled ? e->status >= 1 && e->status <= 64 : e->status <= 255);
	for (int i = 0; i < 2; i++)
		CHECK(e->kept[i] <= 8u << 20 && e->first[i] + e->kept[i] <= e->bytes[i]);
}

static void check_line(const char *s)
{
	for (; *s; s++)
		CHECK((unsigned char)*s >= 0x20 && *s != 0x7f);
}

static void check_name(const char *name, enum entry_kind kind)
{
	CHECK(*name && strlen(name) < 4096);
	if (kind == ENTRY_STAT)
		return;
	CHECK(*name != '/' && strcmp(name, ".") != 0 && strcmp(name, "..") != 0);
	CHECK(strncmp(name, "../", 3) != 0 && strncmp(name, "./", 2) != 0);
	CHECK(!strstr(name, "//") && !strstr(name, "/../") && !strstr(name, "/./"));
	CHECK(name[strlen(name) - 1] != '/');
	CHECK(kind == ENTRY_BELOW || !strchr(name, '/'));
}

static void decode_entry(const uint8_t *data, uint32_t size, enum entry_kind kind)
{
	const char *name, *target;
	struct entry_record e;

	if (entry_record_decode(data, size, kind, &e, &name, &target) < 0)
		return;
	CHECK(check_string(data, size, name) + check_string(data, size, target) + 2 + sizeof e ==
	      size);
	check_name(name, kind);
	CHECK(!S_ISLNK(e.mode) == !*target && e.size_bytes <= INT64_MAX);
	CHECK(kind != ENTRY_BELOW || S_ISREG(e.mode) || S_ISDIR(e.mode) || S_ISLNK(e.mode));
}

static void decode_command(const uint8_t *data, uint32_t size)
{
	struct command_record c;

	if (command_record_decode(data, size, &c) < 0)
		return;
	CHECK(memchr(c.tag, '\0', sizeof c.tag) && c.number && c.pid && c.running <= 1);
	check_line(c.tag);
	if (!c.running)
		check_end(&c.ended);
}

static void decode_listening(const uint8_t *data, uint32_t size)
{
	struct listening_record l;
	const char *text;

	if (listening_record_decode(data, size, &l, &text) < 0)
		return;
	CHECK((l.family == 4 || l.family == 6) && l.port >= 1 && l.port <= 65535);
	CHECK(check_string(data, size, text) + 1 + sizeof l == size && (l.pid || !*text));
	check_line(text);
}

static void decode_lines(enum frame_type type, const uint8_t *data, uint32_t size)
{
	const char *text = NULL;
	struct process_record p;
	enum watch_event event;
	struct room_record r;
	int number;

	if (type == FRAME_PROCESS && process_record_decode(data, size, &p, &text) == 0)
		CHECK(p.pid && check_string(data, size, text) + 1 + sizeof p == size);
	else if (type == FRAME_ROOM && room_record_decode(data, size, &r, &text) == 0)
		CHECK(*text == '/' && r.used_bytes <= r.size_bytes && r.used_inodes <= r.inodes);
	else if (type == FRAME_EVENT && watch_event_decode(data, size, &event, &text) == 0)
		CHECK(event >= 1 && event <= 6 && check_string(data, size, text) > 0 &&
		      !strchr(text, '/'));
	else if (type == FRAME_SKIPPED && skipped_decode(data, size, &number, &text) == 0)
		CHECK(number >= 1 && number <= 4095 && check_string(data, size, text) > 0 &&
		      *text != '/');
	else
		return;
	if (type != FRAME_EVENT && type != FRAME_SKIPPED)
		check_line(text);
}

static void decode(enum frame_type type, const uint8_t *data, uint32_t size)
{
	struct ended_record ended;
	struct begun_record begun;
	struct offset_record offset;

	switch (type) {
	case FRAME_BEGUN:
		if (begun_record_decode(data, size, &begun) == 0)
			CHECK(begun.number && begun.pid);
		break;
	case FRAME_OFFSET:
		if (offset_record_decode(data, size, &offset) == 0)
			CHECK(offset.stream == 1 || offset.stream == 2);
		break;
	case FRAME_ENDED:
		if (ended_record_decode(data, size, &ended) == 0)
			check_end(&ended);
		break;
	case FRAME_COMMAND:
		decode_command(data, size);
		break;
	case FRAME_ENTRY:
		decode_entry(data, size, ENTRY_STAT);
		decode_entry(data, size, ENTRY_CHILD);
		decode_entry(data, size, ENTRY_BELOW);
		break;
	case FRAME_LISTENING:
		decode_listening(data, size);
		break;
	default:
		decode_lines(type, data, size);
	}
}

static void decode_stream(const uint8_t *data, size_t size)
{
	struct frame_reader *r = malloc(sizeof *r);
	const unsigned char *payload;
	struct frame f;
	int got = 0;

	CHECK(r);
	r->filled = 0;
	while (size > 0 && got == 0) {
		size_t n = frame_reader_feed(r, data, size);

		CHECK(n > 0);
		data += n;
		size -= n;
		while ((got = frame_reader_next(r, &f, &payload)) == 1) {
			decode(f.type, payload, f.size);
			frame_reader_done(r, &f);
		}
	}
	free(r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t *payload;

	if (size < 1)
		return 0;
	if (data[0] == 0) {
		decode_stream(data + 1, size - 1);
		return 0;
	}
	/* aligned as a frame_reader's, and of exactly this size */
	payload = malloc(size > 1 ? size - 1 : 1);
	CHECK(payload);
	memcpy(payload, data + 1, size - 1);
	decode((enum frame_type)data[0], payload, (uint32_t)(size - 1));
	free(payload);
	return 0;
}
