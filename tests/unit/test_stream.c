/* SPDX-License-Identifier: Apache-2.0 */
/* Output streams: exact counts, caps, slow and closed readers, and text that is safe on a terminal. */
#include "unit.h"

#include <poll.h>
#include <signal.h>
#include <sys/wait.h>

#include "native/stream.h"

/* What the supervisor does once every writer is dead. */
static void finish(struct stream *s)
{
	stream_drain(s);
	stream_flush(s, -1);
}

static void make_pipe(int p[2], int flags)
{
	assert_int_equal(pipe2(p, O_CLOEXEC | flags), 0);
}

/* Read the source to its end as the supervisor does, without a sink. */
static void drain(struct stream *s)
{
	while (stream_wants_input(s) && stream_read(s) != 0)
		;
}

static void capped(uint64_t cap, size_t size, uint64_t kept)
{
	struct captured c = {0};
	struct stream s;
	int p[2];

	make_pipe(p, 0);
	for (size_t i = 0; i < size; i++)
		assert_int_equal(write(p[1], &(char){(char)('a' + i % 26)}, 1), 1);
	close(p[1]);
	stream_init(&s, p[0], -1, false, cap, &c);
	drain(&s);
	assert_int_equal(s.source, -1);
	assert_int_equal(c.bytes, size);
	assert_int_equal(c.kept, kept);
	assert_int_equal(c.size, kept);
	for (size_t i = 0; i < kept; i++)
		assert_int_equal(c.data[i], (char)('a' + i % 26));
	free(c.data);
}

static void test_caps(void **state)
{
	(void)state;
	capped(10, 0, 0);
	capped(10, 9, 9);
	capped(10, 10, 10);
	capped(10, 11, 10);
	capped(1, 60000, 1);
	capped(8192, 8193, 8192);
	capped(UINT64_MAX, 60000, 60000);
}

/* Every way to cut a text into reads keeps the same bytes. */
static void test_cap_over_many_reads(void **state)
{
	(void)state;
	for (size_t step = 1; step < 12; step++) {
		struct captured c = {0};
		struct stream s;
		int p[2];

		make_pipe(p, O_NONBLOCK);
		stream_init(&s, p[0], -1, false, 7, &c);
		assert_int_equal(stream_read(&s), -EAGAIN);
		for (size_t i = 0; i < 12; i += step) {
			size_t n = step < 12 - i ? step : 12 - i;

			assert_int_equal(write(p[1], "0123456789ab" + i, n), (ssize_t)n);
			assert_int_equal(stream_read(&s), (ssize_t)n);
		}
		close(p[1]);
		assert_int_equal(stream_read(&s), 0);
		assert_int_equal(c.bytes, 12);
		assert_int_equal(c.kept, 7);
		assert_memory_equal(c.data, "0123456", 7);
		free(c.data);
	}
}

/* Bytes go through unchanged, a zero and all. */
static void test_sink_is_byte_exact(void **state)
{
	struct captured c = {0};
	char all[1024], got[2048];
	int in[2], out[2];
	struct stream s;

	(void)state;
	for (size_t i = 0; i < sizeof all; i++)
		all[i] = (char)i;
	make_pipe(in, 0);
	make_pipe(out, 0);
	assert_int_equal(write(in[1], all, sizeof all), sizeof all);
	close(in[1]);
	stream_init(&s, in[0], out[1], false, UINT64_MAX, &c);
	finish(&s);
	assert_int_equal(read(out[0], got, sizeof got), sizeof all);
	assert_memory_equal(all, got, sizeof all);
	assert_int_equal(c.bytes, sizeof all);
	assert_int_equal(c.kept, sizeof all);
	assert_false(s.sink_gone);
	free(c.data);
	close(out[0]);
	close(out[1]);
}

static void test_sink_with_a_cap(void **state)
{
	struct captured c = {0};
	int in[2], out[2];
	struct stream s;
	char got[64];

	(void)state;
	make_pipe(in, 0);
	make_pipe(out, 0);
	assert_int_equal(write(in[1], "0123456789", 10), 10);
	close(in[1]);
	stream_init(&s, in[0], out[1], false, 4, &c);
	finish(&s);
	assert_int_equal(read(out[0], got, sizeof got), 4);
	assert_memory_equal(got, "0123", 4);
	assert_int_equal(c.bytes, 10);
	assert_int_equal(c.kept, 4);
	free(c.data);
	close(out[0]);
	close(out[1]);
}

static void test_sink_closed(void **state)
{
	struct captured c = {0};
	int in[2], out[2];
	struct stream s;

	(void)state;
	signal(SIGPIPE, SIG_IGN);
	make_pipe(in, 0);
	make_pipe(out, 0);
	close(out[0]);
	assert_int_equal(write(in[1], "abc", 3), 3);
	stream_init(&s, in[0], out[1], false, UINT64_MAX, &c);
	assert_int_equal(stream_read(&s), 3);
	assert_true(stream_wants_room(&s));
	stream_flush_some(&s);
	assert_true(s.sink_gone);
	assert_false(stream_wants_room(&s));
	close(in[1]);
	finish(&s); /* does not wait for a reader that is gone */
	assert_int_equal(c.bytes, 3);
	free(c.data);
	close(out[1]);
}

/* One round of the supervisor's loop, with a source that never runs dry. */
static void round_of_loop(struct stream *s, int feed, int out)
{
	static char data[65536], taken[4096];
	struct pollfd p = {.fd = s->sink, .events = POLLOUT};

	while (write(feed, data, sizeof data) > 0)
		;
	if (stream_wants_input(s))
		(void)stream_read(s);
	if (stream_wants_room(s) && poll(&p, 1, 0) > 0)
		stream_flush_some(s);
	(void)!read(out, taken, sizeof taken);
}

/* A reader slower than the writer, for ever: the writer waits, memory does not grow. */
static void test_unlimited_slow_sink_memory(void **state)
{
	struct captured c = {0};
	int in[2], out[2];
	struct stream s;

	(void)state;
	make_pipe(in, O_NONBLOCK);
	make_pipe(out, O_NONBLOCK);
	stream_init(&s, in[0], out[1], false, UINT64_MAX, &c);
	for (int i = 0; i < 4000; i++)
		round_of_loop(&s, in[1], out[0]);
	assert_true(c.bytes > 12u << 20);
	if (s.room > 4u << 20)
		fail_msg("%zu bytes of memory for a slow reader, after %llu bytes", s.room,
			 (unsigned long long)c.bytes);
	close(in[0]);
	close(in[1]);
	close(out[0]);
	close(out[1]);
	free(c.data);
}

static void test_back_pressure(void **state)
{
	struct captured c = {0};
	int in[2], out[2];
	static char data[65536];
	struct stream s;

	(void)state;
	make_pipe(in, O_NONBLOCK);
	make_pipe(out, O_NONBLOCK);
	stream_init(&s, in[0], out[1], false, UINT64_MAX, &c);
	while (stream_wants_input(&s)) {
		(void)!write(in[1], data, sizeof data);
		assert_true(stream_read(&s) > 0);
		assert_true(c.size < 2 * STREAM_BACKLOG);
	}
	assert_true(c.size >= STREAM_BACKLOG);
	stream_init(&s, in[0], out[1], false, 65536, &c); /* capped: always drained */
	s.captured = &(struct captured){.bytes = 70000, .kept = 65536};
	assert_true(stream_wants_input(&s));
	close(in[0]);
	close(in[1]);
	close(out[0]);
	close(out[1]);
	free(c.data);
}

/* ---------------------------------------------------------------------------------------- escape */

static void shows_as(const char *data, size_t size, bool last, const char *wanted, size_t taken)
{
	char out[400];
	size_t n = 999, used = terminal_escape(data, size, last, out, &n);

	assert_true(n <= 4 * size);
	out[n] = '\0';
	assert_string_equal(out, wanted);
	assert_int_equal(used, taken);
}

static void test_escape(void **state)
{
	(void)state;
	shows_as("", 0, true, "", 0);
	shows_as("plain\n\tok", 9, false, "plain\n\tok", 9);
	shows_as("\x1b[2J", 4, false, "\\x1b[2J", 4);
	shows_as("\x1b]0;title\x07", 10, false, "\\x1b]0;title\\x07", 10);
	shows_as("a\rb\b\0\x7f", 6, false, "a\\x0db\\x08\\x00\\x7f", 6);
	shows_as("\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80", 9, false,
		 "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80", 9);
	shows_as("\xc2\x9b"
		 "31m",
		 5, false, "\\xc2\\x9b31m", 5);
	shows_as("\xc2\x80\xc2\x9f\xc2\xa0", 6, false, "\\xc2\\x80\\xc2\\x9f\xc2\xa0", 6);
	shows_as("\x9b", 1, false, "\\x9b", 1);
	shows_as("\xff\xfe", 2, false, "\\xff\\xfe", 2);
	shows_as("\xc0\xaf", 2, false, "\\xc0\\xaf", 2);
	shows_as("\xed\xa0\x80", 3, false, "\\xed\\xa0\\x80", 3);
	shows_as("\xf4\x90\x80\x80", 4, false, "\\xf4\\x90\\x80\\x80", 4);
	shows_as("\xe2\x82"
		 "a",
		 3, false, "\\xe2\\x82a", 3);
}

static void test_escape_split(void **state)
{
	(void)state;
	shows_as("a\xc3", 2, false, "a", 1);
	shows_as("a\xe2\x82", 3, false, "a", 1);
	shows_as("\xf0\x9f\x98", 3, false, "", 0);
	shows_as("a\xc3", 2, true, "a\\xc3", 2);
	shows_as("\xf0\x9f\x98", 3, true, "\\xf0\\x9f\\x98", 3);
	shows_as("\xc2", 1, false, "", 0);
	shows_as("\xed\xa0", 2, false, "\\xed\\xa0", 2); /* can become nothing good */
	shows_as("\xf5", 1, false, "\\xf5", 1);
	shows_as("\xc1", 1, false, "\\xc1", 1);
	shows_as("\x80", 1, false, "\\x80", 1);
}

/* A stream of text, escaped with any split, reads the same. */
static void test_escape_over_a_pipe(void **state)
{
	static const char text[] = "\xc3\xa9\x1b\xe2\x82\xac\xff\xf0\x9f\x98\x80\xc2\x9b\xf0\x9f";
	static const char wanted[] =
		"\xc3\xa9\\x1b\xe2\x82\xac\\xff\xf0\x9f\x98\x80\\xc2\\x9b\\xf0\\x9f";

	(void)state;
	for (size_t step = 1; step < sizeof text; step++) {
		struct captured c = {0};
		char got[200] = "";
		int in[2], out[2];
		struct stream s;

		make_pipe(in, O_NONBLOCK);
		make_pipe(out, 0);
		stream_init(&s, in[0], out[1], true, UINT64_MAX, &c);
		for (size_t i = 0; i < sizeof text - 1; i += step) {
			size_t n = step < sizeof text - 1 - i ? step : sizeof text - 1 - i;

			assert_int_equal(write(in[1], text + i, n), (ssize_t)n);
			assert_int_equal(stream_read(&s), (ssize_t)n);
			for (int rounds = 0; stream_wants_room(&s); rounds++) {
				assert_true(rounds <
					    10); /* half a character is not tried for ever */
				stream_flush_some(&s);
			}
		}
		close(in[1]);
		finish(&s);
		assert_int_equal(read(out[0], got, sizeof got - 1), sizeof wanted - 1);
		assert_string_equal(got, wanted);
		assert_int_equal(c.bytes, sizeof text - 1);
		assert_int_equal(c.kept, sizeof text - 1);
		free(c.data);
		close(out[0]);
		close(out[1]);
	}
}

/* A child that writes 3 MB, a reader that is slow: nothing lost, order kept. */
static pid_t start_writer(const int in[2], unsigned total)
{
	pid_t pid = fork();

	if (pid == 0) {
		for (unsigned i = 0; i < total / 4; i++)
			(void)!write(in[1], &i, 4);
		_exit(0);
	}
	close(in[1]);
	return pid;
}

static pid_t start_reader(const int out[2], size_t total)
{
	static unsigned char data[4096];
	pid_t pid = fork();
	size_t seen = 0;
	ssize_t n;

	if (pid != 0) {
		close(out[0]);
		return pid;
	}
	close(out[1]);
	while ((n = read(out[0], data, sizeof data)) > 0) {
		for (ssize_t i = 0; i < n; i++, seen++)
			if (data[i] != (unsigned char)(seen / 4 >> 8 * (seen % 4)))
				_exit(2);
		usleep(100);
	}
	_exit(seen == total ? 0 : 1);
}

static void test_slow_reader_gets_everything(void **state)
{
	enum { TOTAL = 3 << 20 };
	struct captured c = {0};
	int in[2], out[2], status;
	pid_t writer, reader;
	struct stream s;

	(void)state;
	make_pipe(in, 0);
	make_pipe(out, 0);
	writer = start_writer(in, TOTAL);
	reader = start_reader(out, TOTAL);
	stream_init(&s, in[0], out[1], false, UINT64_MAX, &c);
	while (s.source >= 0) {
		struct pollfd p[] = {{stream_wants_input(&s) ? s.source : -1, POLLIN, 0},
				     {stream_wants_room(&s) ? s.sink : -1, POLLOUT, 0}};

		assert_true(poll(p, 2, 20000) > 0);
		if (p[0].revents)
			(void)stream_read(&s);
		if (p[1].revents)
			stream_flush_some(&s);
	}
	finish(&s);
	assert_int_equal(c.bytes, TOTAL);
	assert_int_equal(c.kept, TOTAL);
	assert_true(s.room <= 4u << 20);
	free(c.data);
	close(out[1]);
	assert_int_equal(waitpid(reader, &status, 0), reader);
	assert_int_equal(status, 0);
	assert_int_equal(waitpid(writer, &status, 0), writer);
}

/* A reader that never reads does not hold a caller who wants to go. */
static void test_flush_can_be_cancelled(void **state)
{
	static char data[65536];
	struct captured c = {0};
	int in[2], out[2], cancel[2];
	struct stream s;

	(void)state;
	make_pipe(in, 0);
	make_pipe(out, 0);
	make_pipe(cancel, 0);
	assert_int_equal(write(out[1], data, sizeof data), sizeof data); /* full */
	assert_int_equal(write(in[1], "abc", 3), 3);
	close(in[1]);
	assert_int_equal(write(cancel[1], "x", 1), 1);
	stream_init(&s, in[0], out[1], false, UINT64_MAX, &c);
	stream_drain(&s);
	stream_flush(&s, cancel[0]);
	assert_int_equal(c.bytes, 3);
	free(c.data);
	close(out[0]);
	close(out[1]);
	close(cancel[0]);
	close(cancel[1]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_caps),
		cmocka_unit_test(test_cap_over_many_reads),
		cmocka_unit_test(test_sink_is_byte_exact),
		cmocka_unit_test(test_sink_with_a_cap),
		cmocka_unit_test(test_sink_closed),
		cmocka_unit_test(test_unlimited_slow_sink_memory),
		cmocka_unit_test(test_back_pressure),
		cmocka_unit_test(test_escape),
		cmocka_unit_test(test_escape_split),
		cmocka_unit_test(test_escape_over_a_pipe),
		cmocka_unit_test(test_slow_reader_gets_everything),
		cmocka_unit_test(test_flush_can_be_cancelled),
	};

	return cmocka_run_group_tests_name("stream", tests, NULL, NULL);
}
