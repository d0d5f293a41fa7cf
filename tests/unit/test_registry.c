/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of the registry client that need no network: addresses, URLs, proxies, challenges, configuration. */
#include "unit.h"

#include <arpa/inet.h>

#include "base/json.h"
#include "base/address.h"
#include "registry/challenge.h"
#include "registry/proxy.h"
#include "registry/registry.h"
#include "registry/url.h"

static const struct {
	const char *url; /* the forms of PX-05, as libcurl takes them apart */
	enum reach reach;
} places[] = {
	{"http://127.0.0.1/", REACH_LOCAL},
	{"http://127.1/", REACH_LOCAL},
	{"http://0x7f000001/", REACH_LOCAL},
	{"http://2130706433/", REACH_LOCAL},
	{"http://0177.0.0.1/", REACH_LOCAL},
	{"http://localhost/", REACH_LOCAL},
	{"http://LOCALHOST./", REACH_LOCAL},
	{"http://a.localhost:80/", REACH_LOCAL},
	{"http://[::1]/", REACH_LOCAL},
	{"http://[::ffff:127.0.0.1]/", REACH_LOCAL},
	{"http://[::127.0.0.1]/", REACH_LOCAL},
	{"http://[64:ff9b::7f00:1]/", REACH_LOCAL},
	{"http://[2002:7f00:1::]/", REACH_LOCAL},
	{"http://[2001:0:1:2:3:4:5:6]/", REACH_NEVER}, /* Teredo */
	{"http://[fe80::1%25lo]/", REACH_NEVER},
	{"http://[fe80::1]/", REACH_NEVER},
	{"http://[ff02::1]/", REACH_NEVER},
	{"http://[::]/", REACH_NEVER},
	{"http://0.0.0.0/", REACH_NEVER},
	{"http://0/", REACH_NEVER},
	{"http://169.254.169.254/", REACH_NEVER},
	{"http://[::ffff:169.254.169.254]/", REACH_NEVER},
	{"http://224.0.0.1/", REACH_NEVER},
	{"http://255.255.255.255/", REACH_NEVER},
	{"http://10.1.2.3/", REACH_PRIVATE},
	{"http://172.31.255.255/", REACH_PRIVATE},
	{"http://172.32.0.0/", REACH_PUBLIC},
	{"http://192.168.0.1/", REACH_PRIVATE},
	{"http://100.64.0.1/", REACH_PRIVATE},
	{"http://100.128.0.1/", REACH_PUBLIC},
	{"http://[fd00::1]/", REACH_PRIVATE},
	{"http://[2606:4700::1]/", REACH_PUBLIC},
	{"http://[4000::1]/", REACH_NEVER},
	{"http://1.1.1.1/", REACH_PUBLIC},
	{"http://example.com/", REACH_PUBLIC},
	{"http://notlocalhost/", REACH_PUBLIC},
};

static void test_places(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(places); i++) {
		struct url u;
		struct err e;

		if (url_read(places[i].url, NULL, &u, &e) < 0)
			fail_msg("%s: %s", places[i].url, e.text);
		if (reach_of_host(u.host) != places[i].reach)
			fail_msg("%s (%s): %s", places[i].url, u.host,
				 reach_name(reach_of_host(u.host)));
		url_done(&u);
	}
}

static void test_sockets(void **state)
{
	struct sockaddr other = {.sa_family = AF_UNIX};
	struct sockaddr_in four = {.sin_family = AF_INET};

	(void)state;
	assert_int_equal(reach_of(&other), REACH_NEVER);
	four.sin_addr.s_addr = htonl(0x7f000001);
	assert_int_equal(reach_of((struct sockaddr *)&four), REACH_LOCAL);
}

static void test_urls(void **state)
{
	static const struct {
		const char *text, *base, *result; /* NULL: refused */
	} rows[] = {
		{"https://Host.lan/a?b#c", NULL, "https://Host.lan/a?b"},
		{"/x", "https://h/a/b", "https://h/x"},
		{"x", "https://h/a/b", "https://h/a/x"},
		{"?q", "https://h/a/b?p", "https://h/a/b?q"},
		{"//other/x", "https://h/a/b", "https://other/x"},
		{"http://other:81/x", "https://h/a/b", "http://other:81/x"},
		{"file:///etc/passwd", "https://h/a/b", NULL},
		{"FILE:///etc/passwd", NULL, NULL},
		{"gopher://h/x", NULL, NULL},
		{"ftp://h/x", "https://h/", NULL},
		{"dict://h/x", NULL, NULL},
		{"javascript:alert(1)", NULL, NULL},
		{"http://user:pw@h/", NULL, NULL},
		{"http://user@h/", NULL, NULL},
		{"//u@h/x", "https://h/a/b", NULL},
		{"http://h:0/", NULL, NULL},
		{"http://h:70000/", NULL, NULL},
		{"http://h /x", NULL, NULL},
		{"http://h/\r\nX: y", NULL, NULL},
		{"", NULL, NULL},
		{"no scheme", NULL, NULL},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct url base = {0}, u = {0};
		struct err e;
		int r;

		if (rows[i].base)
			assert_int_equal(url_read(rows[i].base, NULL, &base, &e), 0);
		r = url_read(rows[i].text, rows[i].base ? &base : NULL, &u, &e);
		if ((r == 0) != (rows[i].result != NULL))
			fail_msg("%s: %s", rows[i].text, r ? e.text : u.text);
		if (r == 0)
			assert_string_equal(u.text, rows[i].result);
		else
			assert_null(strstr(e.text, "pw"));
		url_done(&base);
		url_done(&u);
	}
}

static void test_proxies(void **state)
{
	static const struct {
		const char *list, *host;
		unsigned port;
		bool excepted;
	} rows[] = {
		{"", "h.lan", 80, false},
		{"*", "h.lan", 80, true},
		{"lan", "h.lan", 80, true},
		{".lan", "h.lan", 80, true},
		{"*.lan", "h.lan", 80, true},
		{"an", "h.lan", 80, false},
		{"h.lan", "xh.lan", 80, false},
		{"a, H.LAN ,b", "h.lan", 80, true},
		{"a b h.lan", "h.lan", 80, true},
		{"h.lan:443", "h.lan", 443, true},
		{"h.lan:443", "h.lan", 80, false},
		{"10.0.0.0/8", "10.9.8.7", 80, true},
		{"10.0.0.0/8", "11.9.8.7", 80, false},
		{"10.0.0.0/8", "h.lan", 80, false},
		{"192.168.0.0/17", "192.168.127.1", 80, true},
		{"192.168.0.0/17", "192.168.128.1", 80, false},
		{"fd00::/8", "fd12::1", 80, true},
		{"0.0.0.0/0", "8.8.8.8", 80, true},
		{"10.0.0.0/33", "10.9.8.7", 80, false},
		{"fd12::1", "fd12::1", 80, true},
		{"[fd12::1]:80", "fd12::1", 80, true},
		{"[fd12::1]:81", "fd12::1", 80, false},
		{"[fd12", "fd12::1", 80, false},
		{",,, .", "h.lan", 80, false},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		if (proxy_is_excepted(rows[i].list, rows[i].host, rows[i].port) != rows[i].excepted)
			fail_msg("NO_PROXY=%s %s:%u", rows[i].list, rows[i].host, rows[i].port);
}

static void test_proxy_choice(void **state)
{
	static const char *const all[] = {"http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY",
					  "all_proxy",  "ALL_PROXY",  "no_proxy",    "NO_PROXY"};
	char host[] = "h.lan", local[] = "127.0.0.1";
	struct url plain = {.host = host, .port = 80},
		   tls = {.host = host, .port = 443, .tls = true};
	struct url here = {.host = local, .port = 80};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(all); i++)
		unsetenv(all[i]);
	assert_null(proxy_for(&plain));
	setenv("ALL_PROXY", "socks5://s", 1);
	assert_string_equal(proxy_for(&tls), "socks5://s");
	setenv("HTTPS_PROXY", "http://t", 1);
	setenv("HTTP_PROXY", "http://p", 1);
	assert_string_equal(proxy_for(&tls), "http://t");
	assert_string_equal(proxy_for(&plain), "http://p");
	setenv("http_proxy", "http://lower", 1);
	assert_string_equal(proxy_for(&plain), "http://lower");
	assert_null(proxy_for(&here));
	setenv("NO_PROXY", "lan", 1);
	assert_null(proxy_for(&plain));
	for (size_t i = 0; i < ARRAY_SIZE(all); i++)
		unsetenv(all[i]);
}

static void test_challenges(void **state)
{
	static const struct {
		const char *text;
		int result;
		enum challenge_scheme scheme;
		const char *realm, *service;
	} rows[] = {
		{"Bearer realm=\"https://a/t\",service=\"s\",scope=\"repository:x:pull\"", 0,
		 CHALLENGE_BEARER, "https://a/t", "s"},
		{"bearer REALM=https://a/t , Service = s", 0, CHALLENGE_BEARER, "https://a/t", "s"},
		{"Basic realm=\"x\"", 0, CHALLENGE_BASIC, "x", ""},
		{"Basic realm=\"x\", Bearer realm=\"https://a\"", 0, CHALLENGE_BEARER, "https://a",
		 ""},
		{"Bearer realm=\"https://a\",Basic realm=\"x\"", 0, CHALLENGE_BEARER, "https://a",
		 ""},
		{"Bearer realm=\"https://a\", Bearer realm=\"https://b\"", 0, CHALLENGE_BEARER,
		 "https://a", ""},
		{"Bearer realm=\"https://a\", realm=\"https://b\"", 0, CHALLENGE_BEARER,
		 "https://a", ""},
		{"Negotiate", 0, CHALLENGE_NONE, "", ""},
		{"Negotiate abc/d==, Basic realm=\"x\"", 0, CHALLENGE_BASIC, "x", ""},
		{"Bearer realm=\"a\\\"b\"", 0, CHALLENGE_BEARER, "a\"b", ""},
		{"Digest realm=\"d\", nonce=\"a,b=c\", Basic realm=\"x\"", 0, CHALLENGE_BASIC, "x",
		 ""},
		{"Basic", 0, CHALLENGE_BASIC, "", ""},
		{",,Basic realm=x,,", 0, CHALLENGE_BASIC, "x", ""},
		{"", 0, CHALLENGE_NONE, "", ""},
		{"Bearer realm=\"open", -EINVAL, 0, "", ""},
		{"Bearer realm=\"a\\", -EINVAL, 0, "", ""},
		{"Bearer realm=\"a\"b", -EINVAL, 0, "", ""},
		{"Bearer realm=\"a\nb\"", -EINVAL, 0, "", ""},
		{"Bearer realm=", 0, CHALLENGE_BEARER, "", ""},
		/* one word of base64 */
		{"=x", -EINVAL, 0, "", ""},
		{"\"x\"", -EINVAL, 0, "", ""},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct challenge c = {0};
		int r = challenge_read(rows[i].text, &c);

		if (r != rows[i].result || c.scheme != rows[i].scheme)
			fail_msg("%s: %d, scheme %d", rows[i].text, r, c.scheme);
		assert_string_equal(c.realm, rows[i].realm);
		assert_string_equal(c.service, rows[i].service);
	}
}

static void test_long_challenges(void **state)
{
	char text[CHALLENGE_MAX + 2];
	struct challenge c = {0};

	(void)state;
	memset(text, 'x', sizeof text);
	memcpy(text, "Basic realm=", 12);
	text[12 + CHALLENGE_REALM - 1] = '\0';
	assert_int_equal(challenge_read(text, &c), 0);
	text[12 + CHALLENGE_REALM - 1] = 'x';
	text[12 + CHALLENGE_REALM] = '\0';
	assert_int_equal(challenge_read(text, &c), -EINVAL);
	memset(text, ',', sizeof text);
	text[CHALLENGE_MAX + 1] = '\0';
	assert_int_equal(challenge_read(text, &c), -EINVAL);
	assert_int_equal(c.scheme, CHALLENGE_BASIC);
}

static int read_config(struct registry_config *c, const char *quoted, struct err *e)
{
	char *text = strdup(quoted);
	json_t *root;
	int r;

	for (char *p = text; *p; p++)
		if (*p == '\'')
			*p = '"';
	root = json_read(text, strlen(text), e);
	assert_non_null(root);
	r = registry_config_read(c, root, e);
	json_decref(root);
	free(text);
	return r;
}

static void test_config(void **state)
{
	static const struct {
		const char *text, *why;
	} bad[] = {
		{"[]", "must be a mapping"},
		{"{'docker.io':[]}", "must be a mapping"},
		{"{'docker.io':{'mirror':'x'}}", "unknown key mirror"},
		{"{'docker.io':{'mirrors':'https://m'}}", "must be a list"},
		{"{'docker.io':{'mirrors':[]}}", "must be a list"},
		{"{'docker.io':{'mirrors':['m.lan']}}", "mirrors"},
		{"{'docker.io':{'mirrors':['file:///x']}}", "neither http nor https"},
		{"{'docker.io':{'mirrors':['https://u:p@m']}}", "holds a login"},
		{"{'docker.io':{'mirrors':['https://m/?x']}}", "each must be a URL"},
		{"{'docker.io':{'only_mirrors':'true'}}", "needs mirrors"},
		{"{'r.lan':{'insecure':'yes'}}", "true or false"},
		{"{'r.lan':{'ca_file':'x.pem'}}", "absolute path"},
		{"{'lan':{}}", "no host name"},
		{"{'R.lan':{}}", "no host name"},
		{"{'r.lan/x':{}}", "no host name"},
		{"{'https://r.lan':{}}", "no host name"},
		{"{'':{}}", "registries"},
	};
	struct registry_config c = {0};
	struct err e;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		if (read_config(&c, bad[i].text, &e) == 0)
			fail_msg("taken: %s", bad[i].text);
		assert_contains(e.text, bad[i].why);
		assert_int_equal(c.site_count, 0);
	}
	assert_int_equal(read_config(&c,
				     "{'docker.io':{'mirrors':['https://a/x','http://b:5000'],"
				     "'only_mirrors':'true'},'r.lan:5000':{'insecure':'true'},"
				     "'[::1]:5000':{'ca_file':'/ca'}}",
				     &e),
			 0);
	assert_int_equal(c.site_count, 3);
	/* a later file's site replaces the earlier one */
	assert_int_equal(read_config(&c, "{'r.lan:5000':{'insecure':'false'}}", &e), 0);
	assert_int_equal(c.site_count, 3);
	for (size_t i = 0; i < c.site_count; i++)
		if (strcmp(c.sites[i].name, "r.lan:5000") == 0)
			assert_false(c.sites[i].insecure);
		else if (strcmp(c.sites[i].name, "docker.io") == 0)
			assert_int_equal(c.sites[i].mirror_count, 2);
	registry_config_done(&c);
}

static void test_causes(void **state)
{
	(void)state;
	assert_string_equal(registry_cause_name(REGISTRY_NOT_FOUND), "NOT_FOUND");
	assert_string_equal(registry_cause_name(REGISTRY_INTERNAL), "INTERNAL");
	assert_true(strlen(registry_cause_text(REGISTRY_DIGEST)) > 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_places),
		cmocka_unit_test(test_sockets),
		cmocka_unit_test(test_urls),
		cmocka_unit_test(test_proxies),
		cmocka_unit_test(test_proxy_choice),
		cmocka_unit_test(test_challenges),
		cmocka_unit_test(test_long_challenges),
		cmocka_unit_test(test_config),
		cmocka_unit_test(test_causes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
