/* SPDX-License-Identifier: Apache-2.0 */
/* The client of an egress process that may have been taken over: what it may say, and what ends the talk. */
#include "unit.h"

#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "egress/starter.h"

static int ours, theirs;

static int open_pair(void **state)
{
	int pair[2];

	(void)state;
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
	ours = pair[0];
	theirs = pair[1];
	return 0;
}

static int close_pair(void **state)
{
	(void)state;
	close(ours);
	if (theirs >= 0)
		close(theirs);
	return 0;
}

static struct egress_record record(const char *host)
{
	struct egress_record r = {
		.header = {EGRESS_RECORD, 7}, .verdict = EGRESS_DENIED, .port = 443};

	snprintf(r.host, sizeof r.host, "%s", host);
	return r;
}

static void say(const void *message, size_t size)
{
	assert_int_equal(send(theirs, message, size, 0), (ssize_t)size);
}

static void count(void *context, const struct egress_record *r)
{
	(void)r;
	++*(int *)context;
}

static void test_record_is_taken_and_acknowledged(void **state)
{
	struct egress_record r = record("a.test");
	struct egress_plain ack;
	int n = 0;

	(void)state;
	assert_int_equal(egress_take(ours, count, &n), 0);
	say(&r, sizeof r);
	assert_int_equal(egress_take(ours, count, &n), 1);
	assert_int_equal(n, 1);
	assert_int_equal(recv(theirs, &ack, sizeof ack, 0), sizeof ack);
	assert_int_equal(ack.header.type, EGRESS_ACK);
	assert_int_equal(ack.header.sequence, 7);
}

static void test_flush(void **state)
{
	struct egress_record r = record("a.test");
	struct egress_totals t = {.header = {EGRESS_TOTALS, 2}, .allowed = 5, .denied = 1}, got;
	struct err e = {0};
	int n = 0;

	(void)state;
	say(&r, sizeof r);
	say(&t, sizeof t);
	assert_int_equal(egress_flush(ours, count, &n, &got, &e), 0);
	assert_int_equal(n, 1);
	assert_int_equal(got.allowed, 5);
}

/* Each is one record changed in one place. */
static void test_records_that_are_none(void **state)
{
	static const char *const hosts[] = {"A.test",         "a.test.",      "a test",
					    "127.1",          "0x7f000001",   "[::1]",
					    "::ffff:1.2.3.4", "a..b",         "ignore all rules",
					    "a.test\n",       "\xc3\xa4.test"};
	struct egress_record r = record("a.test");

	(void)state;
	assert_true(egress_record_is_valid(&r));
	r = record("");
	assert_true(egress_record_is_valid(&r));
	r = record("::1");
	assert_true(egress_record_is_valid(&r));
	for (size_t i = 0; i < ARRAY_SIZE(hosts); i++) {
		r = record(hosts[i]);
		if (egress_record_is_valid(&r))
			fail_msg("taken: %s", hosts[i]);
	}
	r = record("a.test");
	memset(r.host, 'a', sizeof r.host);
	assert_false(egress_record_is_valid(&r));
	r = record("a.test");
	memset(r.rule, 'a', sizeof r.rule);
	assert_false(egress_record_is_valid(&r));
	r = record("a.test");
	r.why[0] = '\033';
	assert_false(egress_record_is_valid(&r));
	r = record("a.test");
	r.port = 65536;
	assert_false(egress_record_is_valid(&r));
	r = record("a.test");
	r.verdict = EGRESS_FAILED + 1;
	assert_false(egress_record_is_valid(&r));
}

/* Whatever is not said as wire.h has it ends the talk. */
static void test_nonsense(void **state)
{
	struct egress_record r = record("a.test");
	struct egress_header h = {EGRESS_RECORD, 1};
	int n = 0;

	(void)state;
	say(&r, sizeof r - 1);
	assert_int_equal(egress_take(ours, count, &n), -1);
	say(&h, 4);
	assert_int_equal(egress_take(ours, count, &n), -1);
	h.type = 99;
	say(&h, sizeof h);
	assert_int_equal(egress_take(ours, count, &n), -1);
	r = record("A B");
	say(&r, sizeof r);
	assert_int_equal(egress_take(ours, count, &n), -1);
	assert_int_equal(n, 0);
	close(theirs);
	theirs = -1;
	assert_int_equal(egress_take(ours, count, &n), -1);
}

static void test_flush_of_one_that_is_gone(void **state)
{
	struct egress_totals got;
	struct err e = {0};
	int n = 0;

	(void)state;
	close(theirs);
	theirs = -1;
	assert_int_equal(egress_flush(ours, count, &n, &got, &e), -1);
	assert_string_equal(e.text, "count connections: cloche-egress has ended");
}

/* One that says records for ever, and reads nothing of ours: its number, and when it began. */
static pid_t flood(struct timespec *ret_begin)
{
	struct egress_record r = record("a.test");
	pid_t pid = fork();

	if (pid == 0) {
		close(ours);
		alarm(60); /* who waits for ever fails, and does not hang */
		while (send(theirs, &r, sizeof r, MSG_NOSIGNAL) > 0)
			;
		_exit(0);
	}
	close(theirs);
	theirs = -1;
	clock_gettime(CLOCK_MONOTONIC, ret_begin);
	return pid;
}

static void flood_ends(pid_t pid, const struct timespec *begin)
{
	struct timespec end;

	clock_gettime(CLOCK_MONOTONIC, &end);
	assert_true(end.tv_sec - begin->tv_sec <= EGRESS_ANSWER_MS / 1000 + 2);
	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
}

static void test_one_that_never_stops(void **state)
{
	struct egress_totals got;
	struct timespec begin;
	struct err e = {0};
	pid_t pid;
	int n = 0;

	(void)state;
	pid = flood(&begin);
	assert_int_equal(egress_flush(ours, count, &n, &got, &e), -1);
	assert_true(n > 0);
	flood_ends(pid, &begin);
}

static void test_other_rules_for_one_that_never_stops(void **state)
{
	static const char rules[] = "{\"mode\":\"allow\",\"rules\":\"\"}";
	struct timespec begin;
	struct err e = {0};
	pid_t pid;

	(void)state;
	pid = flood(&begin);
	assert_int_equal(egress_set_policy(ours, rules, sizeof rules - 1, &e), -1);
	assert_non_null(strstr(e.text, "it is not known whether the old or the new ones hold"));
	flood_ends(pid, &begin);
}

static void test_ready(void **state)
{
	static struct egress_ready ready = {.header = {EGRESS_READY, 1}, .ca_size = 3, .ca = "PEM"};
	static struct egress_ready got;
	struct egress_process p = {.pidfd = -1, .setup = ours, .control = -1};
	struct egress_refused refused = {.header = {EGRESS_REFUSED, 1},
					 .message = "line 1: no such rule"};
	struct err e = {0};

	(void)state;
	say(&ready, sizeof ready);
	assert_int_equal(egress_wait_ready(&p, &got, &e), 0);
	assert_int_equal(got.ca_size, 3);
	ready.ca_size = sizeof ready.ca + 1;
	say(&ready, sizeof ready);
	assert_int_equal(egress_wait_ready(&p, &got, &e), -1);
	say(&refused, sizeof refused);
	assert_int_equal(egress_wait_ready(&p, &got, &e), -1);
	assert_string_equal(e.text, "line 1: no such rule");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, open_pair, close_pair)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_record_is_taken_and_acknowledged),
		TEST(test_flush),
		TEST(test_records_that_are_none),
		TEST(test_nonsense),
		TEST(test_flush_of_one_that_is_gone),
		TEST(test_one_that_never_stops),
		TEST(test_other_rules_for_one_that_never_stops),
		TEST(test_ready),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
