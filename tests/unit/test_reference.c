/* SPDX-License-Identifier: Apache-2.0 */
/* Names of images: what they mean, how they are written, what is refused and why. */
#include "unit.h"

#include "image/reference.h"

#define HEX  "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define A16  "aaaaaaaaaaaaaaaa"
#define A64  A16 A16 A16 A16
#define A128 A64 A64

static const struct {
	const char *text, *whole, *familiar;
} good[] = {
	{"python", "docker.io/library/python:latest", "python:latest"},
	{"python:3.12-slim", "docker.io/library/python:3.12-slim", "python:3.12-slim"},
	{"library/python", "docker.io/library/python:latest", "python:latest"},
	{"docker.io/python", "docker.io/library/python:latest", "python:latest"},
	{"index.docker.io/python", "docker.io/library/python:latest", "python:latest"},
	{"me/tool:1", "docker.io/me/tool:1", "me/tool:1"},
	{"a/b/c", "docker.io/a/b/c:latest", "a/b/c:latest"},
	{"localhost/x", "localhost/x:latest", "localhost/x:latest"},
	{"localhost:5000", "docker.io/library/localhost:5000", "localhost:5000"},
	{"localhost:5000/x", "localhost:5000/x:latest", "localhost:5000/x:latest"},
	{"host.lan/x:T_a.g-1", "host.lan/x:T_a.g-1", "host.lan/x:T_a.g-1"},
	{"Host.LAN:80/x", "host.lan:80/x:latest", "host.lan:80/x:latest"},
	{"LOCALHOST/x", "localhost/x:latest", "localhost/x:latest"},
	{"127.0.0.1:5000/x", "127.0.0.1:5000/x:latest", "127.0.0.1:5000/x:latest"},
	{"[::1]/x", "[::1]/x:latest", "[::1]/x:latest"},
	{"[FE80::1]:5000/x/y:1", "[fe80::1]:5000/x/y:1", "[fe80::1]:5000/x/y:1"},
	{"x@sha256:" HEX, "docker.io/library/x@sha256:" HEX, "x@sha256:" HEX},
	{"x:1@sha256:" HEX, "docker.io/library/x:1@sha256:" HEX, "x:1@sha256:" HEX},
	{"h:1/x@sha256:" HEX, "h:1/x@sha256:" HEX, "h:1/x@sha256:" HEX},
	{"a__b", "docker.io/library/a__b:latest", "a__b:latest"},
	{"a-----b.c_d", "docker.io/library/a-----b.c_d:latest", "a-----b.c_d:latest"},
	{"x:" A128, "docker.io/library/x:" A128, "x:" A128},
	{"me/" HEX, "docker.io/me/" HEX ":latest", "me/" HEX ":latest"},
	{"docker.io/a.b/c", "docker.io/a.b/c:latest", "docker.io/a.b/c:latest"},
	{"docker.io/localhost/c", "docker.io/localhost/c:latest", "docker.io/localhost/c:latest"},
	{"library/" HEX, "docker.io/library/" HEX ":latest", "library/" HEX ":latest"},
	{"library/a/b", "docker.io/library/a/b:latest", "library/a/b:latest"},
};

static const struct {
	const char *text, *why;
} bad[] = {
	{"", "is empty"},
	{" ", "a repository is words"},
	{"Python", "lower case"},
	{"me/Tool", "lower case"},
	{"LOCAL/x", "lower case"},
	{"x:", "a tag has"},
	{"x:.a", "a tag has"},
	{"x:-a", "a tag has"},
	{"x:a b", "a tag has"},
	{"x:" A128 "a", "a tag has"},
	{"x@", "after the @"},
	{"x@sha512:" HEX HEX, "other kinds"},
	{"x@sha256:" A16, "64 digits"},
	{"x@sha256:" HEX "0", "64 digits"},
	{"x@sha256:0123456789ABCDEF0123456789abcdef0123456789abcdef0123456789abcdef", "64 digits"},
	{"x@sha256:" HEX "@sha256:" HEX, "64 digits"},
	{HEX, "image's id"},
	{"scratch", "empty image"},
	{"../x", "no host name"},
	{"a/../b", "a repository is words"},
	{"a/./b", "a repository is words"},
	{".a", "a repository is words"},
	{"a.", "a repository is words"},
	{"a..b", "a repository is words"},
	{"a___b", "a repository is words"},
	{"a.-b", "a repository is words"},
	{"-a", "a repository is words"},
	{"_a", "a repository is words"},
	{"a//b", "a repository is words"},
	{"/a", "a repository is words"},
	{"a/", "a repository is words"},
	{"a\nb", "a repository is words"},
	{"a%00b", "a repository is words"},
	{"a?b", "a repository is words"},
	{"a#b", "a repository is words"},
	{"\xc3\xa4", "a repository is words"},
	{"http://host/x", "no host name"},
	{"user@host/x", "after the @"},
	{"h:0/x", "no host name"},
	{"h:/x", "no host name"},
	{"h:05000/x", "no host name"},
	{"h:65536/x", "no host name"},
	{"h:1:2/x", "no host name"},
	{"h..lan/x", "no host name"},
	{"-h.lan/x", "no host name"},
	{"h-.lan/x", "no host name"},
	{"h.lan./x", "no host name"},
	{"h_h.lan/x", "no host name"},
	{"[::1/x", "no host name"},
	{"[::1%25lo]/x", "no host name"},
	{"[::g]/x", "no host name"},
	{"[::1]a/x", "no host name"},
	{A64 "a.lan/x", "no host name"},
	{A128 A128 "/" A64, "longer than 255"},
	{A128 A128 A128 A128 A128, "longer than 255"},
};

static void test_good(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
		char text[REFERENCE_TEXT];
		struct reference r, again;
		struct err e;

		if (reference_parse(good[i].text, &r, &e) < 0)
			fail_msg("%s: %s", good[i].text, e.text);
		reference_format(&r, text);
		assert_string_equal(text, good[i].whole);
		assert_int_equal(reference_parse(text, &again, &e), 0);
		assert_memory_equal(&r, &again, sizeof r);
		reference_familiar(&r, text);
		assert_string_equal(text, good[i].familiar);
		assert_int_equal(reference_parse(text, &again, &e), 0);
		assert_memory_equal(&r, &again, sizeof r);
		assert_string_equal(reference_selector(&r), *r.digest ? r.digest : r.tag);
	}
}

static void test_bad(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		struct reference r, before;
		struct err e;

		memset(&r, 0x5a, sizeof r);
		before = r;
		if (reference_parse(bad[i].text, &r, &e) == 0)
			fail_msg("%s is taken as %s/%s", bad[i].text, r.registry, r.repository);
		assert_contains(e.text, bad[i].why);
		assert_memory_equal(&r, &before, sizeof r);
		/* it goes to terminals */
		for (const char *p = e.text; *p; p++)
			assert_true((unsigned char)*p >= ' ' && *p != 0x7f);
	}
}

static void test_lengths(void **state)
{
	char text[700];
	struct reference r;
	struct err e;

	(void)state;
	/* 247 and "library/" are 255 */
	memset(text, 'a', sizeof text);
	text[247] = '\0';
	assert_int_equal(reference_parse(text, &r, &e), 0);
	assert_int_equal(strlen(r.repository), REFERENCE_REPOSITORY_MAX);
	text[247] = 'a';
	text[248] = '\0';
	assert_int_equal(reference_parse(text, &r, &e), -1);
	text[248] = 'a';
	text[2] = '/';
	text[255] = '\0';
	assert_int_equal(reference_parse(text, &r, &e), 0);
	text[255] = 'a';
	text[256] = '\0';
	assert_int_equal(reference_parse(text, &r, &e), -1);
	memset(text, 'a', sizeof text);
	text[699] = '\0';
	assert_int_equal(reference_parse(text, &r, &e), -1);
	assert_contains(e.text, "longer than 255");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_good),
		cmocka_unit_test(test_bad),
		cmocka_unit_test(test_lengths),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
