/* SPDX-License-Identifier: Apache-2.0 */
/* Questions: read strictly, answered exactly. Real resolvers ask in tests/egress/test_dns.py. */
#include "unit.h"

#include <arpa/inet.h>

#include "egress/dns.h"

#define BYTES(s) (s), sizeof(s) - 1
#define HEAD     "\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00"
#define A_TEST  \
	"\x01"  \
	"a\x04" \
	"test\0"
#define IN_A "\0\x01\0\x01"
#define OPT  "\0\0\x29\x04\xd0\0\0\0\0\0\0"

static void test_question(void **state)
{
	static const char m[] = HEAD A_TEST IN_A;
	struct dns_question q;

	(void)state;
	assert_int_equal(dns_read(BYTES(m), &q), 0);
	assert_int_equal(q.id, 0x1234);
	assert_int_equal(q.type, 1);
	assert_string_equal(q.host, "a.test");
	assert_int_equal(q.end, sizeof m - 1);
	assert_true(q.recursion);
}

/* The same message, with what may stand behind it or in its header. */
static void test_tolerated(void **state)
{
	static const struct {
		const char *data;
		size_t size;
		const char *host;
	} cases[] = {
		{BYTES("\0\0\0\0\0\x01\0\0\0\0\0\0" A_TEST IN_A), "a.test"},
		{BYTES("\0\0\x01\x20\0\x01\0\0\0\0\0\0" A_TEST IN_A), "a.test"}, /* AD */
		{BYTES("\0\0\x01\x10\0\x01\0\0\0\0\0\0" A_TEST IN_A), "a.test"}, /* CD */
		{BYTES("\0\0\x01\0\0\x01\0\0\0\0\0\x01" A_TEST IN_A OPT), "a.test"},
		{BYTES("\0\0\x01\0\0\x01\0\0\0\0\0\x01" A_TEST IN_A
		       "\0\0\x29\x04\xd0\0\0\x80\0\0\x0c\0\x0a\0\x08"
		       "cookies!"),
		 "a.test"},
		{BYTES(HEAD "\x01"
			    "A\x04"
			    "TeSt\0" IN_A),
		 "a.test"},
		{BYTES(HEAD "\x04"
			    "_srv\x04"
			    "test\0"
			    "\0\x21\0\x01"),
		 "_srv.test"},
	};
	struct dns_question q;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		print_message("case %zu\n", i);
		assert_int_equal(dns_read(cases[i].data, cases[i].size, &q), 0);
		assert_string_equal(q.host, cases[i].host);
	}
}

/* Read, but of no host that could be allowed. */
static void test_no_host(void **state)
{
	static const struct {
		const char *data;
		size_t size;
	} cases[] = {
		{BYTES(HEAD "\0" IN_A)},
		{BYTES(HEAD A_TEST "\0\x01\0\x03")}, /* CHAOS */
		{BYTES(HEAD A_TEST "\0\x01\0\xff")}, /* any class */
		{BYTES(HEAD "\x03"
			    "a.b\x04"
			    "test\0" IN_A)},
		{BYTES(HEAD "\x03"
			    "a\0b\x04"
			    "test\0" IN_A)},
		{BYTES(HEAD "\x06"
			    "a\0.com\x04"
			    "test\0" IN_A)},
		{BYTES(HEAD "\x03"
			    "a b\x04"
			    "test\0" IN_A)},
		{BYTES(HEAD "\x03"
			    "\xc3\xa4"
			    "b\x04"
			    "test\0" IN_A)},
		{BYTES(HEAD "\x01"
			    "*\x04"
			    "test\0" IN_A)},
		{BYTES(HEAD "\x03"
			    "127\x01"
			    "0\x01"
			    "0\x01"
			    "1\0" IN_A)},
		{BYTES(HEAD "\x03"
			    "127\x01"
			    "1\0" IN_A)},
		{BYTES(HEAD "\x03"
			    "::1\0" IN_A)},
		{BYTES(HEAD "\x05"
			    "[::1]\0" IN_A)},
		{BYTES(HEAD "\x0a"
			    "2130706433\0" IN_A)},
		{BYTES(HEAD "\x0a"
			    "0x7f000001\0" IN_A)},
		{BYTES(HEAD "\x02"
			    "a\n\x04"
			    "test\0" IN_A)},
		{BYTES(HEAD "\x02"
			    "a\x7f\x04"
			    "test\0" IN_A)},
	};
	struct dns_question q;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		print_message("case %zu\n", i);
		assert_int_equal(dns_read(cases[i].data, cases[i].size, &q), 0);
		assert_string_equal(q.host, "");
		assert_int_equal(q.end, cases[i].size);
	}
}

static void test_malformed(void **state)
{
	static const struct {
		const char *data;
		size_t size;
		int error;
	} cases[] = {
		{BYTES(""), -EBADMSG},
		{BYTES("\0\0\x01\0\0\x01\0\0\0\0\0"), -EBADMSG},
		{BYTES("\0\0\x81\x80\0\x01\0\0\0\0\0\0" A_TEST IN_A), -EBADMSG}, /* an answer */
		{BYTES("\0\0\x29\0\0\x01\0\0\0\0\0\0" A_TEST IN_A), -EPROTO},    /* UPDATE */
		{BYTES("\0\0\x09\0\0\x01\0\0\0\0\0\0" A_TEST IN_A), -EPROTO},
		{BYTES("\0\0\x03\0\0\x01\0\0\0\0\0\0" A_TEST IN_A), -EPROTO}, /* TC */
		{BYTES("\0\0\x01\0\0\0\0\0\0\0\0\0"), -EPROTO},
		{BYTES("\0\0\x01\0\0\0\0\0\0\0\0\0" A_TEST IN_A), -EPROTO},
		{BYTES("\0\0\x01\0\0\x02\0\0\0\0\0\0" A_TEST IN_A A_TEST IN_A), -EPROTO},
		{BYTES("\0\0\x01\0\0\x01\0\x01\0\0\0\0" A_TEST IN_A), -EPROTO},
		{BYTES("\0\0\x01\0\0\x01\0\0\0\x01\0\0" A_TEST IN_A), -EPROTO},
		{BYTES(HEAD), -EPROTO},
		{BYTES(HEAD "\x01"), -EPROTO},
		{BYTES(HEAD "\x01"
			    "a"),
		 -EPROTO},
		{BYTES(HEAD "\x05"
			    "a"),
		 -EPROTO},
		{BYTES(HEAD A_TEST), -EPROTO},
		{BYTES(HEAD A_TEST "\0\x01\0"), -EPROTO},
		{BYTES(HEAD A_TEST IN_A "\0"), -EPROTO},
		{BYTES(HEAD "\xc0\x0c" IN_A), -EPROTO}, /* a pointer to itself */
		{BYTES(HEAD "\x01"
			    "a\xc0\x0c" IN_A),
		 -EPROTO},
		{BYTES(HEAD "\x41"
			    "a\0" IN_A),
		 -EPROTO}, /* extended label */
		{BYTES(HEAD "\x80\0" IN_A), -EPROTO},
		{BYTES("\0\0\x01\0\0\x01\0\0\0\0\0\x01" A_TEST IN_A), -EPROTO},
		{BYTES("\0\0\x01\0\0\x01\0\0\0\0\0\0" A_TEST IN_A OPT), -EPROTO},
		{BYTES("\0\0\x01\0\0\x01\0\0\0\0\0\x02" A_TEST IN_A OPT OPT), -EPROTO},
		{BYTES("\0\0\x01\0\0\x01\0\0\0\0\0\x01" A_TEST IN_A OPT "x"), -EPROTO},
		{BYTES("\0\0\x01\0\0\x01\0\0\0\0\0\x01" A_TEST IN_A
		       "\0\0\x29\x04\xd0\0\0\0\0\0\x05x"),
		 -EPROTO},
		{BYTES("\0\0\x01\0\0\x01\0\0\0\0\0\x01" A_TEST IN_A
		       "\xc0\x0c\0\x29\x04\xd0\0\0\0\0\0\0"),
		 -EPROTO},
		{BYTES("\0\0\x01\0\0\x01\0\0\0\0\0\x01" A_TEST IN_A
		       "\0\0\xfa\0\xff\0\0\0\0\0\0"), /* TSIG */
		 -EPROTO},
	};
	struct dns_question q;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		print_message("case %zu\n", i);
		assert_int_equal(dns_read(cases[i].data, cases[i].size, &q), cases[i].error);
	}
}

/* count labels of 63 bytes, and one of the rest; size in *ret_size. */
static void long_name(unsigned count, unsigned rest, char m[static 600], size_t *ret_size)
{
	size_t at = sizeof HEAD - 1;

	memcpy(m, HEAD, at);
	for (unsigned i = 0; i <= count; i++) {
		unsigned n = i < count ? 63 : rest;

		m[at++] = (char)n;
		memset(m + at, 'x', n);
		at += n;
	}
	m[at++] = '\0';
	memcpy(m + at, IN_A, 4);
	*ret_size = at + 4;
}

static void test_sizes(void **state)
{
	char m[600], answer[DNS_ANSWER_MAX];
	struct dns_question q;
	size_t size;

	(void)state;
	long_name(3, 61, m, &size); /* 255 bytes */
	assert_int_equal(dns_read(m, size, &q), 0);
	assert_int_equal(strlen(q.host), 253);
	assert_int_equal(dns_write(m, &q, DNS_ADDRESS, (struct in_addr){1}, answer), size + 16);
	long_name(3, 62, m, &size);
	assert_int_equal(dns_read(m, size, &q), -EPROTO);
	long_name(8, 2, m, &size);
	assert_true(size > DNS_QUESTION_MAX);
	assert_int_equal(dns_read(m, size, &q), -EPROTO);
	assert_int_equal(q.id, 0x1234);
}

static void test_answers(void **state)
{
	static const char m[] = HEAD A_TEST IN_A;
	static const struct {
		enum dns_result result;
		uint16_t type;
		unsigned rcode, answers;
	} cases[] = {
		{DNS_ADDRESS, 1, 0, 1}, {DNS_ADDRESS, 28, 0, 0}, {DNS_EMPTY, 1, 0, 0},
		{DNS_REFUSED, 1, 5, 0}, {DNS_NO_NAME, 1, 3, 0},  {DNS_FAILED, 1, 2, 0},
	};
	struct in_addr address = {.s_addr = htonl(0xc6120001)};
	char answer[DNS_ANSWER_MAX];
	struct dns_question q;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		size_t size;

		assert_int_equal(dns_read(BYTES(m), &q), 0);
		q.type = cases[i].type;
		size = dns_write(m, &q, cases[i].result, address, answer);
		assert_memory_equal(answer, "\x12\x34\x81", 3);
		assert_int_equal((unsigned char)answer[3], 0x80 | cases[i].rcode);
		assert_memory_equal(answer + 4, "\0\x01", 2);
		assert_int_equal(answer[7], cases[i].answers);
		assert_memory_equal(answer + 8, "\0\0\0\0", 4);
		assert_memory_equal(answer + 12, m + 12, sizeof m - 1 - 12);
		assert_int_equal(size, sizeof m - 1 + (cases[i].answers ? 16 : 0));
	}
	assert_int_equal(dns_read(BYTES(m), &q), 0);
	assert_int_equal(dns_write(m, &q, DNS_ADDRESS, address, answer), sizeof m - 1 + 16);
	assert_memory_equal(answer + sizeof m - 1,
			    "\xc0\x0c\0\x01\0\x01\0\0\0\x3c\0\x04\xc6\x12\0\x01", 16);
	assert_int_equal(dns_write_formerr(0xabcd, answer), 12);
	assert_memory_equal(answer, "\xab\xcd\x80\x81\0\0\0\0\0\0\0\0", 12);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_question), cmocka_unit_test(test_tolerated),
		cmocka_unit_test(test_no_host),  cmocka_unit_test(test_malformed),
		cmocka_unit_test(test_sizes),    cmocka_unit_test(test_answers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
