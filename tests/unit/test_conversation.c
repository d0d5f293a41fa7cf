/* SPDX-License-Identifier: Apache-2.0 */
/* What comes from inside a kept sandbox: every field at and beyond its edges; and what init keeps of a stream. */
#include "unit.h"

#include <sys/stat.h>

#include "init/keep.h"
#include "protocol/conversation.h"

/* ---------------------------------------------------------------------------------------- decoders */

#define OK  0
#define BAD (-EPROTO)

static void test_begun(void **state)
{
	static const struct {
		struct begun_record r;
		int wanted;
	} cases[] = {
		{{1, 1}, OK},  {{UINT32_MAX, 1 << 22}, OK}, {{0, 1}, BAD},
		{{1, 0}, BAD}, {{1, (1 << 22) + 1}, BAD},
	};
	struct begun_record got;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
		assert_int_equal(begun_record_decode(&cases[i].r, 8, &got), cases[i].wanted);
	assert_int_equal(begun_record_decode(&cases[0].r, 7, &got), BAD);
	assert_int_equal(begun_record_decode(&cases[0].r, 9, &got), BAD);
	assert_int_equal(begun_record_decode(&cases[0].r, 0, &got), BAD);
}

static void test_offset(void **state)
{
	static const struct {
		struct offset_record r;
		int wanted;
	} cases[] = {
		{{0, 1, 0}, OK},
		{{INT64_MAX, 2, 0}, OK},
		{{0, 0, 0}, BAD},
		{{0, 3, 0}, BAD},
		{{(uint64_t)INT64_MAX + 1, 1, 0}, BAD},
		{{0, 1, 1}, BAD},
	};
	struct offset_record got = {7, 7, 7};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
		assert_int_equal(offset_record_decode(&cases[i].r, 16, &got), cases[i].wanted);
	assert_int_equal(got.offset, INT64_MAX); /* untouched by what was refused */
	assert_int_equal(offset_record_decode(&cases[0].r, 15, &got), BAD);
}

static const struct ended_record an_end = {.status = 3,
					   .wall_us = 10,
					   .cpu_us = 5,
					   .bytes = {10, 0},
					   .first = {6, 0},
					   .kept = {4, 0}};

#define END_WITH(assignment)                             \
	({                                               \
		struct ended_record e = an_end, end;     \
		assignment;                              \
		ended_record_decode(&e, sizeof e, &end); \
	})

static void test_ended(void **state)
{
	struct ended_record got;

	(void)state;
	assert_int_equal(END_WITH((void)0), OK);
	assert_int_equal(END_WITH(e.status = 255), OK);
	assert_int_equal(END_WITH(e.status = 256), BAD);
	assert_int_equal(END_WITH(e.signaled = 2), BAD);
	assert_int_equal(END_WITH((e.signaled = 1, e.status = 0)), BAD);
	assert_int_equal(END_WITH((e.signaled = 1, e.status = 64)), OK);
	assert_int_equal(END_WITH((e.signaled = 1, e.status = 65)), BAD);
	assert_int_equal(END_WITH((e.signaled = 1, e.core = 1)), OK);
	assert_int_equal(END_WITH(e.core = 1), BAD); /* a core without a signal */
	assert_int_equal(END_WITH(e.survivors = 2), BAD);
	assert_int_equal(END_WITH(e.timed_out = 2), BAD);
	assert_int_equal(END_WITH(e.alone = 1), OK);
	assert_int_equal(END_WITH(e.alone = 2), BAD);
	assert_int_equal(END_WITH((e.alone = 1, e.survivors = 1)), BAD); /* who, then? */
	assert_int_equal(END_WITH(e.full = FULL_DISK | FULL_INODES), OK);
	assert_int_equal(END_WITH(e.full = 4), BAD);
	assert_int_equal(END_WITH(e.wall_us = UINT64_MAX), BAD);
	assert_int_equal(END_WITH(e.cpu_us = UINT64_MAX), BAD);
	assert_int_equal(END_WITH(e.kept[0] = 5), BAD); /* beyond what was written */
	assert_int_equal(END_WITH(e.first[0] = 11), BAD);
	assert_int_equal(END_WITH((e.first[0] = 10, e.kept[0] = 0)), OK);
	assert_int_equal(END_WITH(e.first[1] = 1), BAD);
	assert_int_equal(END_WITH(e.kept[1] = UINT64_MAX), BAD); /* no sum may overflow */
	assert_int_equal(END_WITH((e.bytes[1] = 9 << 20, e.kept[1] = 8 << 20)), OK);
	assert_int_equal(END_WITH((e.bytes[1] = 9 << 20, e.kept[1] = (8 << 20) + 1)), BAD);
	assert_int_equal(END_WITH(e.bytes[1] = UINT64_MAX), BAD);
	assert_int_equal(ended_record_decode(&an_end, sizeof an_end - 1, &got), BAD);
}

static struct command_record a_command(void)
{
	struct command_record c = {.tag = "run_0123", .number = 1, .pid = 2, .flags = KEEP_TAIL};

	c.ended = an_end;
	c.bytes[0] = 10;
	return c;
}

#define COMMAND_WITH(assignment)                            \
	({                                                  \
		struct command_record c = a_command(), got; \
		assignment;                                 \
		command_record_decode(&c, sizeof c, &got);  \
	})

static void test_command(void **state)
{
	(void)state;
	assert_int_equal(COMMAND_WITH((void)0), OK);
	assert_int_equal(COMMAND_WITH(memset(c.tag, 0, TAG_SIZE)), OK);
	assert_int_equal(COMMAND_WITH(memset(c.tag, 'x', TAG_SIZE - 1)), OK);
	assert_int_equal(COMMAND_WITH(memset(c.tag, 'x', TAG_SIZE)), BAD); /* no end */
	assert_int_equal(COMMAND_WITH(c.tag[TAG_SIZE - 1] = 'x'), BAD);    /* behind its end */
	assert_int_equal(COMMAND_WITH(c.tag[0] = '\n'), BAD);
	assert_int_equal(COMMAND_WITH(c.tag[0] = (char)0x80), BAD);
	assert_int_equal(COMMAND_WITH(c.number = 0), BAD);
	assert_int_equal(COMMAND_WITH(c.pid = 0), BAD);
	assert_int_equal(COMMAND_WITH(c.flags = 0), BAD);
	assert_int_equal(COMMAND_WITH(c.flags = KEEP_HEAD | KEEP_TAIL), BAD);
	assert_int_equal(COMMAND_WITH(c.flags |= START_WAITS), OK);
	assert_int_equal(COMMAND_WITH(c.flags |= START_WAITS | START_JOINED), OK);
	assert_int_equal(COMMAND_WITH(c.flags |= INPUT_IS_CUT), OK);
	assert_int_equal(COMMAND_WITH(c.flags |= 512), BAD);
	assert_int_equal(
		COMMAND_WITH(c.flags = START_PTY | START_STDIN | START_ATTACH | KEEP_LOSSLESS), OK);
	assert_int_equal(COMMAND_WITH(c.running = 1), BAD); /* and yet ended */
	assert_int_equal(COMMAND_WITH((c.running = 1, memset(&c.ended, 0, sizeof c.ended))), OK);
	assert_int_equal(COMMAND_WITH(c.running = 2), BAD);
	assert_int_equal(COMMAND_WITH(c.bytes[0] = 11), BAD); /* another count than at its end */
	assert_int_equal(COMMAND_WITH(c.ended.status = 256), BAD);
	assert_int_equal(COMMAND_WITH(c.started_ms = UINT64_MAX), BAD);
}

/* A record and text behind it; -1 of size: all of it. */
static int process(struct process_record r, const void *text, size_t size)
{
	unsigned char payload[1024];
	struct process_record got;
	const char *line;
	int result;

	memcpy(payload, &r, sizeof r);
	memcpy(payload + sizeof r, text, size);
	result = process_record_decode(payload, (uint32_t)(sizeof r + size), &got, &line);
	if (result == 0)
		assert_memory_equal(line, text, size);
	return result;
}

static void test_process(void **state)
{
	const struct process_record good = {.pid = 2, .parent = 0, .state = 'S', .threads = 1};
	struct process_record r = good;
	char longest[513];

	(void)state;
	memset(longest, 'x', sizeof longest);
	assert_int_equal(process(r, "a b", 4), OK);
	assert_int_equal(process(r, "", 1), OK);
	assert_int_equal(process(r, "", 0), BAD);
	assert_int_equal(process(r, "a b", 3), BAD);  /* no NUL */
	assert_int_equal(process(r, "a\0b", 4), BAD); /* two strings */
	assert_int_equal(process(r, "a\nb", 4), BAD); /* a control character */
	assert_int_equal(process(r, "a\x1b[m", 5), BAD);
	assert_int_equal(process(r, "a\x7f", 3), BAD);
	assert_int_equal(process(r, "\xc3\xa4", 3), OK);
	longest[511] = '\0';
	assert_int_equal(process(r, longest, 512), OK);
	longest[511] = 'x';
	longest[512] = '\0';
	assert_int_equal(process(r, longest, 513), BAD);
	r.pid = 0;
	assert_int_equal(process(r, "a", 2), BAD);
	r = good;
	r.state = 0;
	assert_int_equal(process(r, "a", 2), BAD);
	r.state = 'S' + 256;
	assert_int_equal(process(r, "a", 2), BAD);
	r = good;
	r.rss_bytes = UINT64_MAX;
	assert_int_equal(process(r, "a", 2), BAD);
}

static int listening(struct listening_record r, const void *text, size_t size)
{
	unsigned char payload[1024];
	struct listening_record got;
	const char *line;
	int result;

	memcpy(payload, &r, sizeof r);
	memcpy(payload + sizeof r, text, size);
	result = listening_record_decode(payload, (uint32_t)(sizeof r + size), &got, &line);
	if (result == 0) {
		assert_memory_equal(&got, &r, sizeof r);
		assert_memory_equal(line, text, size);
	}
	return result;
}

static void test_listening(void **state)
{
	const struct listening_record good = {
		.address = {127, 0, 0, 1}, .family = 4, .port = 80, .pid = 7, .number = 1};
	struct listening_record r = good;

	(void)state;
	assert_int_equal(listening(r, "a b", 4), OK);
	assert_int_equal(listening(r, "a\nb", 4), BAD);
	assert_int_equal(listening(r, "a", 1), BAD);
	r.address[15] = 1; /* more of an IPv4 address than it has */
	assert_int_equal(listening(r, "a", 2), BAD);
	r.family = 6;
	assert_int_equal(listening(r, "a", 2), OK);
	r.family = 5;
	assert_int_equal(listening(r, "a", 2), BAD);
	r = good;
	r.port = 0;
	assert_int_equal(listening(r, "a", 2), BAD);
	r.port = 65536;
	assert_int_equal(listening(r, "a", 2), BAD);
	r = good;
	r.pid = 0; /* nobody, and yet a command */
	assert_int_equal(listening(r, "", 1), BAD);
	r.number = 0;
	assert_int_equal(listening(r, "", 1), OK);
	assert_int_equal(listening(r, "a", 2), BAD);
	r.pid = 1u << 30;
	assert_int_equal(listening(r, "a", 2), BAD);
}

static int room(struct room_record r, const char *path, size_t size)
{
	unsigned char payload[8192];
	struct room_record got;
	const char *text;

	memcpy(payload, &r, sizeof r);
	memcpy(payload + sizeof r, path, size);
	return room_record_decode(payload, (uint32_t)(sizeof r + size), &got, &text);
}

static void test_room(void **state)
{
	(void)state;
	assert_int_equal(room((struct room_record){10, 10, 5, 5}, "/w", 3), OK);
	assert_int_equal(room((struct room_record){10, 11, 5, 5}, "/w", 3), BAD);
	assert_int_equal(room((struct room_record){10, 10, 5, 6}, "/w", 3), BAD);
	assert_int_equal(room((struct room_record){UINT64_MAX, 0, 5, 5}, "/w", 3), BAD);
	assert_int_equal(room((struct room_record){10, 10, 5, 5}, "w", 2), BAD);
	assert_int_equal(room((struct room_record){10, 10, 5, 5}, "/w\n", 4), BAD);
	assert_int_equal(room((struct room_record){10, 10, 5, 5}, "/w", 2), BAD);
}

static int entry(uint32_t mode, enum entry_kind kind, const void *text, size_t size)
{
	static unsigned char payload[16384];
	struct entry_record e = {.mode = mode}, got;
	const char *name, *target;

	memcpy(payload, &e, sizeof e);
	memcpy(payload + sizeof e, text, size);
	return entry_record_decode(payload, (uint32_t)(sizeof e + size), kind, &got, &name,
				   &target);
}

static void test_entry_names(void **state)
{
	static const struct {
		const char *name;
		int child, below;
	} cases[] = {
		{"a", OK, OK},      {"a/b", BAD, OK},   {"a/b/c", BAD, OK},  {"...", OK, OK},
		{".a", OK, OK},     {"..a", OK, OK},    {"a/..b", BAD, OK},  {"\xff\n", OK, OK},
		{".", BAD, BAD},    {"..", BAD, BAD},   {"/", BAD, BAD},     {"/a", BAD, BAD},
		{"a/", BAD, BAD},   {"a//b", BAD, BAD}, {"a/./b", BAD, BAD}, {"a/../b", BAD, BAD},
		{"../a", BAD, BAD}, {"./a", BAD, BAD},  {"a/..", BAD, BAD},  {"a/.", BAD, BAD},
		{"", BAD, BAD},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		const char *name = cases[i].name;
		char text[64] = {0};
		size_t n = strlen(name) + 2;

		memcpy(text, name, n - 2);
		assert_int_equal(entry(S_IFREG | 0644, ENTRY_CHILD, text, n), cases[i].child);
		assert_int_equal(entry(S_IFREG | 0644, ENTRY_BELOW, text, n), cases[i].below);
		assert_int_equal(entry(S_IFREG | 0644, ENTRY_STAT, text, n), *name ? OK : BAD);
	}
}

static void test_entry_lengths(void **state)
{
	static char text[8300];

	(void)state;
	memset(text, 'x', sizeof text);
	text[255] = text[256] = '\0';
	assert_int_equal(entry(S_IFREG, ENTRY_CHILD, text, 257), OK);
	text[255] = 'x';
	text[257] = '\0';
	assert_int_equal(entry(S_IFREG, ENTRY_CHILD, text, 258), BAD);
	for (size_t i = 200; i < 4095; i += 200)
		text[i] = '/';
	memset(text + 256, 'x', 2);
	text[4095] = text[4096] = '\0';
	assert_int_equal(entry(S_IFREG, ENTRY_BELOW, text, 4097), OK);
	text[4095] = 'x';
	text[4097] = '\0';
	assert_int_equal(entry(S_IFREG, ENTRY_BELOW, text, 4098), BAD);
}

static void test_entry_shape(void **state)
{
	(void)state;
	assert_int_equal(entry(S_IFREG, ENTRY_STAT, "a\0", 2), BAD);    /* no target at all */
	assert_int_equal(entry(S_IFREG, ENTRY_STAT, "a\0\0x", 4), BAD); /* something behind */
	assert_int_equal(entry(S_IFREG, ENTRY_STAT, "a\0\0\0", 4), BAD);
	assert_int_equal(entry(S_IFREG, ENTRY_STAT, "aaa", 3), BAD);
	assert_int_equal(entry(S_IFREG, ENTRY_STAT, "a\0b\0", 4), BAD); /* no link */
	assert_int_equal(entry(S_IFLNK, ENTRY_STAT, "a\0b\0", 4), OK);
	assert_int_equal(entry(S_IFLNK, ENTRY_STAT, "a\0\0", 3), BAD); /* no target */
	assert_int_equal(entry(S_IFDIR | 07777, ENTRY_BELOW, "a\0\0", 3), OK);
	assert_int_equal(entry(S_IFDIR | 0200000, ENTRY_BELOW, "a\0\0", 3), BAD);
	assert_int_equal(entry(0644, ENTRY_STAT, "a\0\0", 3), BAD);
	for (size_t i = 0; i < 4; i++) {
		static const mode_t special[] = {S_IFIFO, S_IFSOCK, S_IFCHR, S_IFBLK};

		assert_int_equal(entry(special[i], ENTRY_STAT, "a\0\0", 3), OK);
		assert_int_equal(entry(special[i], ENTRY_CHILD, "a\0\0", 3), OK);
		assert_int_equal(entry(special[i], ENTRY_BELOW, "a\0\0", 3), BAD);
	}
	assert_int_equal(entry(S_IFREG, ENTRY_STAT, "", 0), BAD);
	assert_int_equal(entry(S_IFREG, ENTRY_STAT, "", 1), BAD);
}

static int event(uint32_t number, const char *name, size_t size)
{
	unsigned char payload[512];
	enum watch_event got;
	const char *text;

	memcpy(payload, &number, sizeof number);
	memcpy(payload + sizeof number, name, size);
	return watch_event_decode(payload, (uint32_t)(sizeof number + size), &got, &text);
}

static void test_event(void **state)
{
	(void)state;
	assert_int_equal(event(1, "a", 2), OK);
	assert_int_equal(event(6, ".", 2), OK);
	assert_int_equal(event(0, "a", 2), BAD);
	assert_int_equal(event(7, "a", 2), BAD);
	assert_int_equal(event(1, "a/b", 4), BAD);
	assert_int_equal(event(1, "..", 3), BAD);
	assert_int_equal(event(1, "", 1), BAD);
	assert_int_equal(event(1, "ab", 2), BAD);
	assert_int_equal(event(1, "a\0b", 4), BAD);
}

/* --------------------------------------------------------------------------------------------- keep */

static unsigned char byte_at(uint64_t offset)
{
	return (unsigned char)(offset * 7 + offset / 251);
}

/* Written in pieces of every size around the cap; what is kept has to be what was written there. */
static void keep_and_check(bool head, size_t cap, size_t total, size_t piece)
{
	unsigned char *data = malloc(total + 1), *got = malloc(total + 1);
	size_t wanted = total < cap ? total : cap;
	struct keep k;

	keep_init(&k, head, cap);
	for (size_t i = 0; i < total; i++)
		data[i] = byte_at(i);
	for (size_t done = 0; done < total;) {
		size_t n = total - done < piece ? total - done : piece;

		keep_append(&k, data + done, n);
		done += n;
		assert_true(k.end - k.first <= cap && k.room <= cap);
	}
	assert_int_equal(k.bytes, total);
	assert_int_equal(k.end - k.first, wanted);
	assert_int_equal(k.first, head ? 0 : total - wanted);
	assert_int_equal(keep_copy(&k, k.first, got, total + 1), wanted);
	assert_memory_equal(got, data + k.first, wanted);
	if (wanted > 1) {
		assert_int_equal(keep_copy(&k, k.end - 1, got, total), 1);
		assert_int_equal(got[0], data[k.end - 1]);
	}
	assert_int_equal(keep_copy(&k, k.end, got, total), 0);
	keep_done(&k);
	free(data);
	free(got);
}

static void test_keep(void **state)
{
	static const size_t caps[] = {0, 1, 2, 1000, 1024, 1025, 5000},
			    pieces[] = {1, 3, 999, 4096, 70000};
	static const size_t totals[] = {0, 1, 999, 1000, 1001, 1024, 2500, 20000};

	(void)state;
	for (size_t c = 0; c < ARRAY_SIZE(caps); c++)
		for (size_t p = 0; p < ARRAY_SIZE(pieces); p++)
			for (size_t t = 0; t < ARRAY_SIZE(totals); t++) {
				keep_and_check(true, caps[c], totals[t], pieces[p]);
				keep_and_check(false, caps[c], totals[t], pieces[p]);
			}
}

static void test_keep_cap(void **state)
{
	struct keep k;

	(void)state;
	keep_init(&k, false, UINT64_MAX);
	assert_int_equal(k.cap, KEEP_MAX);
	assert_int_equal(k.room, 0); /* nothing is allocated before it is needed */
	keep_append(&k, (const unsigned char *)"x", 1);
	assert_true(k.room <= 1024);
	keep_done(&k);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_begun),         cmocka_unit_test(test_offset),
		cmocka_unit_test(test_ended),         cmocka_unit_test(test_command),
		cmocka_unit_test(test_process),       cmocka_unit_test(test_listening),
		cmocka_unit_test(test_room),          cmocka_unit_test(test_entry_names),
		cmocka_unit_test(test_entry_lengths), cmocka_unit_test(test_entry_shape),
		cmocka_unit_test(test_event),         cmocka_unit_test(test_keep),
		cmocka_unit_test(test_keep_cap),
	};

	return cmocka_run_group_tests_name("conversation", tests, NULL, NULL);
}
