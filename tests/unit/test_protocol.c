/* SPDX-License-Identifier: Apache-2.0 */
/* The guest protocol: every row in both directions, hostile headers, split streams, descriptors. */
#include "unit.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include "protocol/protocol.h"

static const struct row {
	enum frame_type type;
	unsigned from;
	uint32_t min, max;
} rows[] = {
	{FRAME_READY, FROM_GUEST, 0, 0},
	{FRAME_FAILED, FROM_GUEST, 220, 220},
	{FRAME_STARTED, FROM_GUEST, 0, 0},
	{FRAME_DATA, FROM_GUEST | FROM_HOST, 1, 65536},
	{FRAME_EXITED, FROM_GUEST, 16, 16},
	{FRAME_CREDIT, FROM_GUEST, 4, 4},
	{FRAME_EOF, FROM_GUEST | FROM_HOST, 0, 0},
	{FRAME_LISTENERS, FROM_GUEST, 72, 72},
	{FRAME_EXEC, FROM_HOST, 24, 4 << 20},
	{FRAME_PUT, FROM_HOST, 26, 9216},
	{FRAME_SIGNAL, FROM_HOST, 4, 4},
	{FRAME_PLAN, FROM_HOST, 1, 262144},
	{FRAME_CGROUP, FROM_HOST, 0, 0},
	{FRAME_USERNS, FROM_HOST, 0, 0},
	{FRAME_MAPME, FROM_GUEST, 0, 0},
	{FRAME_SERVE, FROM_HOST, 0, 0},
	{FRAME_NETNS, FROM_HOST, 0, 0},
	{FRAME_NEST, FROM_HOST, 36, 36},
	{FRAME_CELL, FROM_HOST, 16, 65536},
	{FRAME_ZYGOTE, FROM_HOST, 16, 131072},
	{FRAME_TRUST, FROM_HOST, 1, 8192},
	{FRAME_START, FROM_HOST, 90, 4 << 20},
	{FRAME_ATTACH, FROM_HOST, 24, 24},
	{FRAME_INPUT, FROM_HOST, 4, 4},
	{FRAME_KILL, FROM_HOST, 12, 12},
	{FRAME_RESIZE, FROM_HOST, 8, 8},
	{FRAME_FORGET, FROM_HOST, 4, 128},
	{FRAME_LIST, FROM_HOST, 0, 0},
	{FRAME_PS, FROM_HOST, 0, 0},
	{FRAME_SPACE, FROM_HOST, 0, 0},
	{FRAME_FINISH, FROM_HOST, 0, 0},
	{FRAME_TAKE, FROM_HOST, 24, 24},
	{FRAME_PORTS, FROM_HOST, 0, 0},
	{FRAME_READ, FROM_HOST, 18, 4128},
	{FRAME_WRITE, FROM_HOST, 10, 4128},
	{FRAME_STAT, FROM_HOST, 2, 4096},
	{FRAME_READDIR, FROM_HOST, 6, 4104},
	{FRAME_MKDIR, FROM_HOST, 10, 4128},
	{FRAME_REMOVE, FROM_HOST, 6, 4104},
	{FRAME_MOVE, FROM_HOST, 8, 8200},
	{FRAME_WALK, FROM_HOST, 2, 4096},
	{FRAME_UNPACK, FROM_HOST, 2, 4096},
	{FRAME_MEMBER, FROM_HOST, 34, 8232},
	{FRAME_WATCH, FROM_HOST, 2, 4096},
	{FRAME_DIAL, FROM_HOST, 4, 4},
	{FRAME_BEGUN, FROM_GUEST, 8, 8},
	{FRAME_OFFSET, FROM_GUEST, 16, 16},
	{FRAME_ENDED, FROM_GUEST, 88, 88},
	{FRAME_COMMAND, FROM_GUEST, 168, 168},
	{FRAME_PROCESS, FROM_GUEST, 41, 552},
	{FRAME_ROOM, FROM_GUEST, 34, 4128},
	{FRAME_ENTRY, FROM_GUEST, 34, 8232},
	{FRAME_EVENT, FROM_GUEST, 6, 4104},
	{FRAME_DONE, FROM_GUEST, 0, 0},
	{FRAME_SKIPPED, FROM_GUEST, 6, 4104},
	{FRAME_LISTENING, FROM_GUEST, 33, 544},
};

static bool has_stream(unsigned type)
{
	return type == FRAME_DATA || type == FRAME_EOF;
}

static int decode(unsigned type, unsigned stream, uint32_t size, enum frame_from from,
		  struct frame *f)
{
	unsigned char header[FRAME_HEADER_SIZE];

	frame_encode(header, (enum frame_type)type, stream, size);
	return frame_decode(header, from, f);
}

/* A frame that is not in our table would be judged by no test. */
#define FRAME(name, ...) +1
enum {
	FRAMES =
#include "protocol/protocol.def"
};
#undef FRAME
_Static_assert(ARRAY_SIZE(rows) == FRAMES, "every frame has a row here");

static void test_numbers(void **state)
{
	static const unsigned numbers[] = {1,  2,   3,   4,   5,   6,   7,   8,  16, 17, 18, 32,
					   33, 34,  35,  36,  37,  38,  39,  40, 41, 64, 65, 66,
					   67, 68,  69,  70,  71,  72,  73,  74, 75, 80, 81, 82,
					   83, 84,  85,  86,  87,  88,  89,  90, 91, 96, 97, 98,
					   99, 100, 101, 102, 103, 104, 105, 106};

	(void)state;
	assert_int_equal(ARRAY_SIZE(numbers), ARRAY_SIZE(rows));
	for (size_t i = 0; i < ARRAY_SIZE(numbers); i++)
		assert_int_equal(rows[i].type, numbers[i]);
}

static void test_layout(void **state)
{
	static const unsigned char wanted[] = {0x78, 0x56, 0x34, 0x12, 4, 2, 0, 0};
	unsigned char header[FRAME_HEADER_SIZE];

	(void)state;
	frame_encode(header, FRAME_DATA, 2, 0x12345678);
	assert_memory_equal(header, wanted, sizeof wanted);
}

static const struct row *row_of(unsigned type, enum frame_from from)
{
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		if (rows[i].type == type && rows[i].from & from)
			return &rows[i];
	return NULL;
}

static bool allowed(const struct row *row, unsigned stream, uint32_t size, enum frame_from from)
{
	if (!row || size < row->min || size > row->max)
		return false;
	if (!has_stream(row->type) || from == FROM_HOST)
		return stream == 0;
	return stream == 1 || stream == 2;
}

static void decode_sizes(unsigned type, unsigned stream, enum frame_from from)
{
	const struct row *row = row_of(type, from);
	uint32_t min = row ? row->min : 2, max = row ? row->max : 3;
	const uint32_t sizes[] = {0,     1,   4,   16,      20,      26,        220,
				  65536, min, max, min - 1, max + 1, UINT32_MAX};

	for (size_t k = 0; k < ARRAY_SIZE(sizes); k++) {
		bool ok = allowed(row, stream, sizes[k], from);
		struct frame f = {0};

		if (decode(type, stream, sizes[k], from, &f) != (ok ? 0 : -EPROTO))
			fail_msg("type %u stream %u size %u from %d", type, stream, sizes[k], from);
		if (ok)
			assert_true(f.type == type && f.stream == stream && f.size == sizes[k]);
	}
}

/* Every type, streams, sizes around the row's limits, both directions: taken exactly when the row says
 * so. */
static void test_whole_space(void **state)
{
	(void)state;
	for (unsigned type = 0; type < 256; type++)
		for (unsigned stream = 0; stream < 256; stream += stream < 4 ? 1 : 63) {
			decode_sizes(type, stream, FROM_GUEST);
			decode_sizes(type, stream, FROM_HOST);
		}
}

static void test_reserved(void **state)
{
	unsigned char header[FRAME_HEADER_SIZE];
	struct frame f;

	(void)state;
	for (int i = 6; i < 8; i++)
		for (unsigned v = 1; v < 256; v++) {
			frame_encode(header, FRAME_STARTED, 0, 0);
			header[i] = (unsigned char)v;
			assert_int_equal(frame_decode(header, FROM_GUEST, &f), -EPROTO);
		}
}

/* ---------------------------------------------------------------------------------------- reader */

static size_t make_frames(unsigned char *out)
{
	unsigned char payload[300];
	struct exited_record exited = {1, 9, 0, 1};
	size_t n = 0;

	for (size_t i = 0; i < sizeof payload; i++)
		payload[i] = (unsigned char)i;
	frame_encode(out + n, FRAME_STARTED, 0, 0);
	n += FRAME_HEADER_SIZE;
	frame_encode(out + n, FRAME_DATA, 1, sizeof payload);
	memcpy(out + n + FRAME_HEADER_SIZE, payload, sizeof payload);
	n += FRAME_HEADER_SIZE + sizeof payload;
	frame_encode(out + n, FRAME_EOF, 2, 0);
	n += FRAME_HEADER_SIZE;
	frame_encode(out + n, FRAME_EXITED, 0, sizeof exited);
	memcpy(out + n + FRAME_HEADER_SIZE, &exited, sizeof exited);
	return n + FRAME_HEADER_SIZE + sizeof exited;
}

/* Takes what is whole; returns how many frames there were and checks them in order. */
static unsigned take(struct frame_reader *r, unsigned from)
{
	static const enum frame_type order[] = {FRAME_STARTED, FRAME_DATA, FRAME_EOF, FRAME_EXITED};
	const unsigned char *payload;
	struct frame f;
	int got;

	while ((got = frame_reader_next(r, &f, &payload)) == 1) {
		assert_true(from < ARRAY_SIZE(order));
		assert_int_equal(f.type, order[from++]);
		for (uint32_t i = 0; f.type == FRAME_DATA && i < f.size; i++)
			assert_int_equal(payload[i], (unsigned char)i);
		frame_reader_done(r, &f);
	}
	assert_int_equal(got, 0);
	return from;
}

static void test_reader_split_at_every_byte(void **state)
{
	static unsigned char stream[1024];
	struct frame_reader *r = malloc(sizeof *r);
	size_t size = make_frames(stream);

	(void)state;
	for (size_t split = 0; split <= size; split++) {
		unsigned seen;

		r->filled = 0;
		assert_int_equal(frame_reader_feed(r, stream, split), split);
		seen = take(r, 0);
		assert_int_equal(frame_reader_feed(r, stream + split, size - split), size - split);
		assert_int_equal(take(r, seen), 4);
		assert_int_equal(r->filled, 0);
	}
	free(r);
}

static void test_reader_one_byte_at_a_time(void **state)
{
	static unsigned char stream[1024];
	struct frame_reader *r = malloc(sizeof *r);
	size_t size = make_frames(stream);
	unsigned seen = 0;

	(void)state;
	r->filled = 0;
	for (size_t i = 0; i < size; i++) {
		assert_int_equal(frame_reader_feed(r, stream + i, 1), 1);
		seen = take(r, seen);
	}
	assert_int_equal(seen, 4);
	free(r);
}

static void test_reader_largest_frame(void **state)
{
	struct frame_reader *r = malloc(sizeof *r);
	unsigned char *data = calloc(1, FRAME_HEADER_SIZE + FRAME_DATA_MAX + 100);
	const unsigned char *payload;
	struct frame f;

	(void)state;
	r->filled = 0;
	frame_encode(data, FRAME_DATA, 2, FRAME_DATA_MAX);
	assert_int_equal(frame_reader_feed(r, data, FRAME_HEADER_SIZE + FRAME_DATA_MAX + 100),
			 FRAME_HEADER_SIZE + FRAME_DATA_MAX);
	assert_int_equal(frame_reader_feed(r, data, 1), 0);
	assert_int_equal(frame_reader_next(r, &f, &payload), 1);
	assert_int_equal(f.size, FRAME_DATA_MAX);
	frame_reader_done(r, &f);
	assert_int_equal(r->filled, 0);
	free(data);
	free(r);
}

/* A header that can never be right is an error at its eighth byte, whatever follows. */
static void test_reader_refuses_early(void **state)
{
	static const unsigned char bad[][FRAME_HEADER_SIZE] = {
		{0, 0, 0, 0, 0, 0, 0, 0},         {1, 0, 1, 0, 4, 1, 0, 0},
		{1, 0, 0, 0, 4, 0, 0, 0},         {1, 0, 0, 0, 4, 3, 0, 0},
		{24, 0, 0, 0, 16, 0, 0, 0},       {4, 0, 0, 0, 18, 0, 0, 0},
		{0, 0, 0, 0, 1, 1, 0, 0},         {0, 0, 0, 0, 1, 0, 1, 0},
		{255, 255, 255, 255, 4, 1, 0, 0},
	};
	struct frame_reader *r = malloc(sizeof *r);
	const unsigned char *payload;
	struct frame f;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		r->filled = 0;
		frame_reader_feed(r, bad[i], 7);
		assert_int_equal(frame_reader_next(r, &f, &payload), 0);
		frame_reader_feed(r, bad[i] + 7, 1);
		assert_int_equal(frame_reader_next(r, &f, &payload), -EPROTO);
		assert_int_equal(frame_reader_next(r, &f, &payload), -EPROTO);
	}
	free(r);
}

/* --------------------------------------------------------------------------------------- records */

static void test_failed_record(void **state)
{
	struct failed_record f = {.errnum = 2}, got;

	(void)state;
	memset(f.stage, 'a', sizeof f.stage);
	memset(f.what, '\n', sizeof f.what);
	f.what[0] = '\x1b';
	f.what[1] = '\xff';
	f.what[2] = 'z';
	assert_int_equal(failed_record_decode(&f, sizeof f, &got), 0);
	assert_int_equal(strlen(got.stage), sizeof f.stage - 1);
	assert_int_equal(strlen(got.what), sizeof f.what - 1);
	assert_memory_equal(got.what, "?\?z?", 4);
	assert_int_equal(failed_record_decode(&f, sizeof f - 1, &got), -EPROTO);
	assert_int_equal(failed_record_decode(&f, sizeof f + 1, &got), -EPROTO);
	assert_int_equal(failed_record_decode(&f, 0, &got), -EPROTO);
	f.errnum = 4095;
	assert_int_equal(failed_record_decode(&f, sizeof f, &got), 0);
	f.errnum = 4096;
	assert_int_equal(failed_record_decode(&f, sizeof f, &got), -EPROTO);
	f.errnum = UINT32_MAX;
	assert_int_equal(failed_record_decode(&f, sizeof f, &got), -EPROTO);
}

static void test_exited_record(void **state)
{
	static const struct {
		struct exited_record r;
		int result;
	} records[] = {
		{{0, 0, 0, 0}, 0},
		{{0, 255, 0, 1}, 0},
		{{1, 9, 1, 0}, 0},
		{{1, 64, 0, 0}, 0},
		{{0, 256, 0, 0}, -EPROTO},
		{{1, 0, 0, 0}, -EPROTO},
		{{1, 65, 0, 0}, -EPROTO},
		{{2, 9, 0, 0}, -EPROTO},
		{{0, 0, 2, 0}, -EPROTO},
		{{0, 0, 0, 2}, -EPROTO},
		{{0, UINT32_MAX, 0, 0}, -EPROTO},
		{{UINT32_MAX, 1, 0, 0}, -EPROTO},
	};
	struct exited_record got;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(records); i++)
		assert_int_equal(exited_record_decode(&records[i].r, sizeof got, &got),
				 records[i].result);
	assert_int_equal(exited_record_decode(&records[0].r, sizeof got - 1, &got), -EPROTO);
	assert_int_equal(exited_record_decode(&records[0].r, sizeof got + 1, &got), -EPROTO);
}

/* ----------------------------------------------------------------------------- send and receive */

static void pair(int p[2])
{
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, p), 0);
}

static void test_send_receive(void **state)
{
	static char data[70000], got[70000];
	static const uint32_t sizes[] = {1, 503, 504, 505, 512, 4096, 65536};
	struct frame f;
	int p[2];

	(void)state;
	for (size_t i = 0; i < sizeof data; i++)
		data[i] = (char)(i * 7);
	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
		pair(p);
		assert_int_equal(frame_send(p[0], FRAME_DATA, 1, data, sizes[i], NULL, 0), 0);
		assert_int_equal(frame_receive(p[1], FROM_GUEST, &f, got, sizeof got, NULL, NULL),
				 0);
		assert_int_equal(f.type, FRAME_DATA);
		assert_int_equal(f.stream, 1);
		assert_int_equal(f.size, sizes[i]);
		assert_memory_equal(data, got, sizes[i]);
		close(p[0]);
		assert_int_equal(frame_receive(p[1], FROM_GUEST, &f, got, sizeof got, NULL, NULL),
				 -EPIPE);
		close(p[1]);
	}
}

static void test_receive_errors(void **state)
{
	char got[64];
	struct frame f;
	int p[2];

	(void)state;
	pair(p);
	assert_int_equal(frame_send(p[0], FRAME_DATA, 1, "0123456789", 10, NULL, 0), 0);
	assert_int_equal(frame_receive(p[1], FROM_GUEST, &f, got, 9, NULL, NULL), -EMSGSIZE);
	close(p[0]);
	close(p[1]);
	pair(p); /* the wrong direction */
	assert_int_equal(frame_send(p[0], FRAME_SIGNAL, 0, "\1\0\0\0", 4, NULL, 0), 0);
	assert_int_equal(frame_receive(p[1], FROM_GUEST, &f, got, sizeof got, NULL, NULL), -EPROTO);
	close(p[0]);
	close(p[1]);
	for (size_t cut = 1; cut < 18; cut++) { /* the end inside a frame */
		unsigned char frame[18] = {0};

		pair(p);
		frame_encode(frame, FRAME_DATA, 1, 10);
		assert_int_equal(write(p[0], frame, cut), (ssize_t)cut);
		close(p[0]);
		assert_int_equal(frame_receive(p[1], FROM_GUEST, &f, got, sizeof got, NULL, NULL),
				 -EPROTO);
		close(p[1]);
	}
	pair(p);
	close(p[1]);
	signal(SIGPIPE, SIG_IGN);
	assert_int_equal(frame_send(p[0], FRAME_STARTED, 0, NULL, 0, NULL, 0), -EPIPE);
	assert_int_equal(frame_send(-1, FRAME_STARTED, 0, NULL, 0, NULL, 0), -EBADF);
	close(p[0]);
}

static int open_count(void)
{
	int n = 0;

	for (int fd = 0; fd < 1024; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

static void test_descriptors(void **state)
{
	int p[2], fds[8], got[8], before = open_count();
	size_t count = ARRAY_SIZE(got);
	struct frame f;
	char byte;

	(void)state;
	pair(p);
	for (size_t i = 0; i < ARRAY_SIZE(fds); i++) {
		fds[i] = memfd_create("unit", MFD_CLOEXEC);
		assert_int_equal(dprintf(fds[i], "%zu", i), 1);
	}
	assert_int_equal(frame_send(p[0], FRAME_READY, 0, NULL, 0, fds, ARRAY_SIZE(fds)), 0);
	assert_int_equal(frame_receive(p[1], FROM_GUEST, &f, NULL, 0, got, &count), 0);
	assert_int_equal(count, ARRAY_SIZE(fds));
	for (size_t i = 0; i < count; i++) {
		assert_int_equal(pread(got[i], &byte, 1, 0), 1);
		assert_int_equal(byte, '0' + (int)i);
		assert_int_equal(fcntl(got[i], F_GETFD), FD_CLOEXEC);
		close(got[i]);
	}
	/* more than expected, and not expected at all: closed */
	count = 2;
	assert_int_equal(frame_send(p[0], FRAME_READY, 0, NULL, 0, fds, ARRAY_SIZE(fds)), 0);
	assert_int_equal(frame_receive(p[1], FROM_GUEST, &f, NULL, 0, got, &count), 0);
	assert_int_equal(count, 2);
	close(got[0]);
	close(got[1]);
	assert_int_equal(frame_send(p[0], FRAME_READY, 0, NULL, 0, fds, ARRAY_SIZE(fds)), 0);
	assert_int_equal(frame_receive(p[1], FROM_GUEST, &f, NULL, 0, NULL, NULL), 0);
	/* with a frame that is refused they are counted, so that the caller can close them */
	count = ARRAY_SIZE(got);
	assert_int_equal(frame_send(p[0], FRAME_CGROUP, 0, NULL, 0, fds, 3), 0);
	assert_int_equal(frame_receive(p[1], FROM_GUEST, &f, NULL, 0, got, &count), -EPROTO);
	assert_int_equal(count, 3);
	for (size_t i = 0; i < count; i++)
		close(got[i]);
	for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
		close(fds[i]);
	close(p[0]);
	close(p[1]);
	assert_int_equal(open_count(), before);
}

static void test_too_many_descriptors(void **state)
{
	int fds[65], p[2];

	(void)state;
	pair(p);
	for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
		fds[i] = p[0];
	assert_int_equal(frame_send(p[0], FRAME_READY, 0, NULL, 0, fds, 65), -EINVAL);
	close(p[0]);
	close(p[1]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_numbers),
		cmocka_unit_test(test_layout),
		cmocka_unit_test(test_whole_space),
		cmocka_unit_test(test_reserved),
		cmocka_unit_test(test_reader_split_at_every_byte),
		cmocka_unit_test(test_reader_one_byte_at_a_time),
		cmocka_unit_test(test_reader_largest_frame),
		cmocka_unit_test(test_reader_refuses_early),
		cmocka_unit_test(test_failed_record),
		cmocka_unit_test(test_exited_record),
		cmocka_unit_test(test_send_receive),
		cmocka_unit_test(test_receive_errors),
		cmocka_unit_test(test_descriptors),
		cmocka_unit_test(test_too_many_descriptors),
	};

	return cmocka_run_group_tests_name("protocol", tests, NULL, NULL);
}
