/* SPDX-License-Identifier: Apache-2.0 */
/* Made-up addresses: one for each name, for as long as anybody may remember it. */
#include "unit.h"

#include <arpa/inet.h>

#include "egress/names.h"

enum { MOST = 4096, REST_MS = 600 * 1000 };

static struct in_addr give(struct names *n, const char *host, uint64_t now_ms)
{
	struct in_addr a = {0};

	assert_true(names_address(n, host, now_ms, &a));
	return a;
}

static struct in_addr give_number(struct names *n, unsigned number, uint64_t now_ms)
{
	char host[32];

	snprintf(host, sizeof host, "n%u.test", number);
	return give(n, host, now_ms);
}

/* Every name there is room for, all different; nothing is unused any longer. */
static void fill(struct names *n, unsigned first, unsigned count, uint64_t now_ms)
{
	for (unsigned i = first; i < first + count; i++)
		give_number(n, i, now_ms);
}

static void test_same_name_same_address(void **state)
{
	struct names *n = names_new();
	struct in_addr a, b;

	(void)state;
	assert_non_null(n);
	a = give(n, "a.test", 1000);
	b = give(n, "b.test", 1000);
	assert_int_not_equal(a.s_addr, b.s_addr);
	assert_int_equal(give(n, "a.test", 99000).s_addr, a.s_addr);
	assert_string_equal(names_host(n, a, 1000), "a.test");
	assert_string_equal(names_host(n, b, 1000), "b.test");
	names_free(n);
	names_free(NULL);
}

static void test_range(void **state)
{
	struct names *n = names_new();

	(void)state;
	for (unsigned i = 0; i < 300; i++) {
		uint32_t a = ntohl(give_number(n, i, 0).s_addr);

		assert_int_equal(a >> 17, 0xc6120000u >> 17);
		assert_true(a != 0xc6120000u && a != 0xc613ffffu);
	}
	names_free(n);
}

static void test_unknown(void **state)
{
	static const char *const others[] = {"198.18.0.0",   "198.19.255.255", "198.20.0.1",
					     "198.17.255.9", "0.0.0.0",        "255.255.255.255",
					     "127.0.0.1",    "198.18.0.2"};
	struct names *n = names_new();
	char long_name[300] = {0};
	struct in_addr a;

	(void)state;
	give(n, "a.test", 0);
	for (size_t i = 0; i < ARRAY_SIZE(others); i++) {
		assert_int_equal(inet_pton(AF_INET, others[i], &a), 1);
		assert_null(names_host(n, a, 0));
		names_hold(n, a, 1);
		names_hold(n, a, -1);
	}
	memset(long_name, 'a', sizeof long_name - 1);
	assert_false(names_address(n, long_name, 0, &a));
	names_free(n);
}

/* The one unused for longest makes room, and asking for it counts as use. */
static void test_room(void **state)
{
	struct names *n = names_new();
	struct in_addr first, second, third;

	(void)state;
	first = give_number(n, 0, 0);
	second = give_number(n, 1, 0);
	third = give_number(n, 2, 0);
	fill(n, 3, MOST - 3, 10);
	assert_string_equal(names_host(n, first, 20), "n0.test");
	give(n, "more.test", 30);
	assert_string_equal(names_host(n, first, 30), "n0.test");
	assert_null(names_host(n, second, 30));
	give_number(n, 2, 40);
	give(n, "still-more.test", 40);
	assert_string_equal(names_host(n, third, 40), "n2.test");
	names_free(n);
}

static void test_held(void **state)
{
	struct names *n = names_new();
	struct in_addr first, refused;

	(void)state;
	first = give_number(n, 0, 0);
	names_hold(n, first, 1);
	names_hold(n, first, 1);
	names_hold(n, first, -1);
	fill(n, 1, 3 * MOST, 10); /* comes round three times */
	assert_string_equal(names_host(n, first, 10), "n0.test");
	names_hold(n, first, -1);
	names_hold(n, first, -1); /* one too many is nothing */
	fill(n, 5 * MOST, MOST, 20);
	assert_null(names_host(n, first, 20));

	for (unsigned i = 5 * MOST; i < 6 * MOST; i++)
		names_hold(n, give_number(n, i, 30), 1);
	assert_false(names_address(n, "no-room.test", 30, &refused));
	assert_int_equal(names_host(n, give_number(n, 5 * MOST, 30), 30) != NULL, 1);
	names_hold(n, give_number(n, 5 * MOST, 30), -1);
	assert_true(names_address(n, "no-room.test", 30, &refused));
	names_free(n);
}

/* All addresses are given once; then none, until ten minutes after the last use of the one that rested longest. */
static void test_rest(void **state)
{
	enum { ADDRESSES = (1 << 17) - 2 };
	struct names *n = names_new();
	struct in_addr first, again;
	unsigned i;

	(void)state;
	first = give_number(n, 0, 0);
	for (i = 1; i < ADDRESSES; i++)
		assert_int_not_equal(give_number(n, i, 1000).s_addr, first.s_addr);
	assert_false(names_address(n, "more.test", 1000, &again));
	assert_false(names_address(n, "more.test", REST_MS, &again));
	assert_true(names_address(n, "more.test", REST_MS + 1000, &again));
	assert_int_equal(again.s_addr, first.s_addr);
	assert_string_equal(names_host(n, first, REST_MS), "more.test");
	names_free(n);
}

/* A connection that was open for an hour: its address rests from its end on. */
static void test_rest_from_the_end(void **state)
{
	const uint64_t hour_ms = 3600 * 1000;
	enum { ADDRESSES = (1 << 17) - 2 };
	struct names *n = names_new();
	struct in_addr first, again;

	(void)state;
	first = give_number(n, 0, 0);
	names_hold(n, first, 1);
	fill(n, 1, MOST - 1, 0);
	names_hold(n, first, -1);
	fill(n, MOST, ADDRESSES - MOST,
	     hour_ms); /* all that are left: those of the beginning rest */
	assert_null(names_host(n, first, hour_ms));
	/* the others had their last use an hour ago */
	for (unsigned i = 0; i < MOST - 1; i++) {
		again = give_number(n, ADDRESSES + i, hour_ms + 1000);
		assert_int_not_equal(again.s_addr, first.s_addr);
	}
	assert_false(names_address(n, "none.test", hour_ms + REST_MS - 1000, &again));
	assert_true(names_address(n, "one.test", hour_ms + REST_MS + 1000, &again));
	names_free(n);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_same_name_same_address),
		cmocka_unit_test(test_range),
		cmocka_unit_test(test_unknown),
		cmocka_unit_test(test_room),
		cmocka_unit_test(test_held),
		cmocka_unit_test(test_rest),
		cmocka_unit_test(test_rest_from_the_end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
