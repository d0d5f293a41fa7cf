/* SPDX-License-Identifier: Apache-2.0 */
/* Sizes, durations, CPUs and counts as people write them: each row a text and what must come out. */
#include "unit.h"

#include "base/units.h"

#define UNTOUCHED 0x5a5a5a5a5a5a5a5aull

struct row {
	const char *text;
	int result;
	uint64_t value;
};

static void check(const char *what, int (*parse)(const char *, uint64_t *), const struct row *rows,
		  size_t count)
{
	for (size_t i = 0; i < count; i++) {
		uint64_t v = UNTOUCHED;
		int r = parse(rows[i].text, &v);

		if (r != rows[i].result || v != (r ? UNTOUCHED : rows[i].value))
			fail_msg("%s(\"%s\"): %d, %llu", what, rows[i].text, r,
				 (unsigned long long)v);
	}
}
#define CHECK(parse, rows) check(#parse, parse, rows, ARRAY_SIZE(rows))

/* What no grammar of ours takes, whatever the unit. */
static const struct row never[] = {
	{"", -EINVAL},
	{" ", -EINVAL},
	{"-1", -EINVAL},
	{"+1", -EINVAL},
	{"1e30", -EINVAL},
	{"1e3", -EINVAL},
	{"0x10", -EINVAL},
	{" 1", -EINVAL},
	{"1 ", -EINVAL},
	{"1\n", -EINVAL},
	{"\t1", -EINVAL},
	{"1,5", -EINVAL},
	{"1.", -EINVAL},
	{".5", -EINVAL},
	{"1.5.5", -EINVAL},
	{"--1", -EINVAL},
	{"inf", -EINVAL},
	{"nan", -EINVAL},
	{"unlimited", -EINVAL},
	{"1_000", -EINVAL},
	{"1'000", -EINVAL},
	{"\xd9\xa1", -EINVAL},
	{"1\xc2\xa0", -EINVAL},
	{"0", -ERANGE},
	{"18446744073709551616", -ERANGE},
	{"99999999999999999999999999", -ERANGE},
};

static void test_size(void **state)
{
	static const struct row rows[] = {
		{"1", 0, 1},
		{"1b", 0, 1},
		{"65536", 0, 65536},
		{"007", 0, 7},
		{"1k", 0, 1024},
		{"1K", 0, 1024},
		{"1kb", 0, 1024},
		{"1KiB", 0, 1024},
		{"64KiB", 0, 65536},
		{"256m", 0, 256u << 20},
		{"1.5g", 0, 3ull << 29},
		{"0.5k", 0, 512},
		{"2T", 0, 2ull << 40},
		{"1.9999999999999999999b", 0, 1},
		{"0.001k", 0, 1},
		{"8388607t", 0, 8388607ull << 40},
		{"9223372036854775807", 0, INT64_MAX},
		{"9223372036854775808", -ERANGE},
		{"8388608t", -ERANGE},
		{"16777216t", -ERANGE},
		{"0m", -ERANGE},
		{"0.0001k", -ERANGE},
		{"1 m", -EINVAL},
		{"1mm", -EINVAL},
		{"1p", -EINVAL},
		{"1ms", -EINVAL},
		{"m", -EINVAL},
		{"1m\n", -EINVAL},
		{"-1m", -EINVAL},
		{"1e30m", -EINVAL},
		{"0x1m", -EINVAL},
	};

	(void)state;
	CHECK(parse_size, rows);
	CHECK(parse_size, never);
}

static void test_duration(void **state)
{
	static const struct row rows[] = {
		{"1", 0, 1000000},
		{"5s", 0, 5000000},
		{"5S", 0, 5000000},
		{"1.5", 0, 1500000},
		{"0.5s", 0, 500000},
		{"500ms", 0, 500000},
		{"1us", 0, 1},
		{"0.000001", 0, 1},
		{"2m", 0, 120000000},
		{"1.5h", 0, 5400000000},
		{"9223372036854775807us", 0, INT64_MAX},
		{"9223372036855s", -ERANGE},
		{"0s", -ERANGE},
		{"0.0000001", -ERANGE},
		{"0.9us", -ERANGE},
		{"9999999999999h", -ERANGE},
		{"1d", -EINVAL},
		{"1 s", -EINVAL},
		{"1m30s", -EINVAL},
		{"off", -EINVAL},
		{"1e3s", -EINVAL},
	};

	(void)state;
	CHECK(parse_duration, rows);
	CHECK(parse_duration, never);
}

static void test_cpus(void **state)
{
	static const struct row rows[] = {
		{"1", 0, 1000},
		{"0.5", 0, 500},
		{"2", 0, 2000},
		{"0.01", 0, 10},
		{"0.0109", 0, 10},
		{"1.2345", 0, 1234},
		{"64", 0, 64000},
		{"0.009", -ERANGE},
		{"0.0", -ERANGE},
		{"0.5cpu", -EINVAL},
		{"500m", -EINVAL},
		{"1s", -EINVAL},
		{"9223372036854775", 0, 9223372036854775000},
		{"9223372036854776", -ERANGE},
	};

	(void)state;
	CHECK(parse_cpus, rows);
	CHECK(parse_cpus, never);
}

static int parse_1_to_100(const char *text, uint64_t *ret)
{
	return parse_count(text, 1, 100, ret);
}

static void test_count(void **state)
{
	static const struct row rows[] = {
		{"1", 0, 1},      {"100", 0, 100}, {"0100", 0, 100}, {"101", -ERANGE},
		{"1.5", -EINVAL}, {"5k", -EINVAL}, {"5s", -EINVAL},
	};
	uint64_t v = UNTOUCHED;

	(void)state;
	CHECK(parse_1_to_100, rows);
	CHECK(parse_1_to_100, never);
	assert_int_equal(parse_count("0", 0, 0, &v), 0);
	assert_int_equal(v, 0);
	assert_int_equal(parse_count("18446744073709551615", 0, UINT64_MAX, &v), 0);
	assert_true(v == UINT64_MAX);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_size),
		cmocka_unit_test(test_duration),
		cmocka_unit_test(test_cpus),
		cmocka_unit_test(test_count),
	};

	return cmocka_run_group_tests_name("units", tests, NULL, NULL);
}
