/* SPDX-License-Identifier: Apache-2.0 */
/* Policies: hosts, rules, decisions (SECURITY-BASIS PX-01 to PX-06, PX-22), and what has to hold for any rules. */
#include "unit.h"

#include <arpa/inet.h>

#include "base/address.h"
#include "network/policy.h"

static void parse(struct network_policy **p, const char *text, const char *where,
		  enum network_mode mode)
{
	struct err e = {0};

	if (network_policy_parse(text, strlen(text), where, mode, p, &e) < 0)
		fail_msg("%s: %s", text, e.text);
}

/* ---- hosts ---- */

static void test_hosts(void **state)
{
	static const char *const good[][2] = {
		{"pypi.org", "pypi.org"},
		{"PyPI.org.", "pypi.org"},
		{"a", "a"},
		{"_dmarc.example.org", "_dmarc.example.org"},
		{"xn--bcher-kva.example", "xn--bcher-kva.example"},
		{"1.example", "1.example"},
		{"1.2.3.a4", "1.2.3.a4"},
		{"192.0.2.7", "192.0.2.7"},
		{"[::1]", "::1"},
		{"::1", "::1"},
		{"[2001:DB8:0::1]", "2001:db8::1"},
		{"FE80::1", "fe80::1"},
	};
	static const char *const bad[] = {
		"",
		".",
		"a..b",
		".a",
		"a..",
		"-a.b",
		"a-.b",
		"a b",
		"a/b",
		"a:80",
		"a@b",
		"a%2eb",
		"b\xc3\xbc.de",
		"*.a",
		"a\n",
		"a,b",
		/* addresses that others would read */
		"127.1",
		"2130706433",
		"0x7f000001",
		"0X7F.1",
		"0177.0.0.1",
		"127.0.0.01",
		"1.2.3.4.5",
		"1.2.3.256",
		"a.1",
		"a.0x1",
		"0",
		"1.2.3.4.",
		"fe80::1%lo",
		"[fe80::1%25lo]",
		"[::1",
		"::1]",
		"[]",
		"[a]",
		"[1.2.3.4]",
		"::g",
		/* an IPv4 address in another coat */
		"::ffff:127.0.0.1",
		"::ffff:8.8.8.8",
		"[::ffff:7f00:1]",
		"::127.0.0.1",
		"64:ff9b::7f00:1",
		"2002:7f00:1::",
		"2001:0:4136:e378:8000:63bf:3fff:fdd2",
		"::ffff:0:127.0.0.1",
	};
	char host[HOST_SIZE], longest[300];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
		if (network_host(good[i][0], strlen(good[i][0]), host) < 0)
			fail_msg("%s is refused", good[i][0]);
		assert_string_equal(host, good[i][1]);
		/* once more: the form is stable */
		assert_int_equal(network_host(host, strlen(host), host), 0);
		assert_string_equal(host, good[i][1]);
	}
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		if (network_host(bad[i], strlen(bad[i]), host) != -EINVAL)
			fail_msg("\"%s\" is taken as %s", bad[i], host);
	assert_int_equal(network_host("a\0b", 3, host), -EINVAL);
	for (size_t i = 0; i < sizeof longest; i++)
		longest[i] = i % 50 == 49 ? '.' : 'a';
	assert_int_equal(network_host(longest, 253, host), 0);
	assert_int_equal(network_host(longest, 254, host), -EINVAL);
	memset(longest, 'a', sizeof longest);
	assert_int_equal(network_host(longest, 63, host), 0);
	assert_int_equal(network_host(longest, 64, host), -EINVAL);
}

/* ---- how far inside ---- */

static void test_reach(void **state)
{
	static const struct {
		const char *address;
		enum reach reach;
	} rows[] = {
		{"1.1.1.1", REACH_PUBLIC},
		{"8.8.8.8", REACH_PUBLIC},
		{"9.255.255.255", REACH_PUBLIC},
		{"11.0.0.0", REACH_PUBLIC},
		{"172.15.255.255", REACH_PUBLIC},
		{"172.32.0.0", REACH_PUBLIC},
		{"168.63.129.15", REACH_PUBLIC},
		{"168.63.129.17", REACH_PUBLIC},
		{"2606:4700::1111", REACH_PUBLIC},
		{"64:ff9b::808:808", REACH_PUBLIC},
		{"2002:808:808::1", REACH_PUBLIC},
		{"10.0.0.1", REACH_PRIVATE},
		{"172.16.0.1", REACH_PRIVATE},
		{"192.168.255.255", REACH_PRIVATE},
		{"100.64.0.1", REACH_PRIVATE},
		{"100.127.255.255", REACH_PRIVATE},
		{"198.18.0.1", REACH_PRIVATE},
		{"fd12::1", REACH_PRIVATE},
		{"fec0::1", REACH_PRIVATE},
		{"64:ff9b:1::1", REACH_PRIVATE},
		{"::ffff:10.0.0.1", REACH_PRIVATE},
		{"2002:a00:1::", REACH_PRIVATE},
		{"127.0.0.1", REACH_LOCAL},
		{"127.255.255.255", REACH_LOCAL},
		{"::1", REACH_LOCAL},
		{"::ffff:127.0.0.1", REACH_LOCAL},
		{"::127.0.0.1", REACH_LOCAL},
		{"::ffff:0:127.0.0.1", REACH_LOCAL},
		{"64:ff9b::7f00:1", REACH_LOCAL},
		{"2002:7f00:1::", REACH_LOCAL},
		{"0.0.0.0", REACH_NEVER},
		{"0.1.2.3", REACH_NEVER},
		{"::", REACH_NEVER},
		{"169.254.169.254", REACH_NEVER},
		{"::ffff:169.254.169.254", REACH_NEVER},
		{"64:ff9b::a9fe:a9fe", REACH_NEVER},
		{"100.100.100.200", REACH_NEVER},
		{"168.63.129.16", REACH_NEVER},
		{"fd00:ec2::254", REACH_NEVER},
		{"fe80::1", REACH_NEVER},
		{"ff02::1", REACH_NEVER},
		{"224.0.0.1", REACH_NEVER},
		{"240.0.0.1", REACH_NEVER},
		{"255.255.255.255", REACH_NEVER},
		{"192.0.2.1", REACH_NEVER},
		{"198.51.100.1", REACH_NEVER},
		{"203.0.113.1", REACH_NEVER},
		{"192.0.0.8", REACH_NEVER},
		{"192.88.99.1", REACH_NEVER},
		{"2001:db8::1", REACH_NEVER},
		{"2001:0:4136:e378:8000:63bf:3fff:fdd2", REACH_NEVER},
		{"2001:10::1", REACH_NEVER},
		{"3fff::1", REACH_NEVER},
		{"4000::1", REACH_NEVER},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct sockaddr_storage a;

		assert_true(network_host_address(rows[i].address, &a));
		if (reach_of((struct sockaddr *)&a) != rows[i].reach)
			fail_msg("%s is %s", rows[i].address,
				 reach_name(reach_of((struct sockaddr *)&a)));
	}
}

static void test_carried_addresses(void **state)
{
	static const struct {
		const char *address, *inner;
	} rows[] = {
		{"::ffff:1.2.3.4", "1.2.3.4"},
		{"::1.2.3.4", "1.2.3.4"},
		{"64:ff9b::102:304", "1.2.3.4"},
		{"2002:102:304::", "1.2.3.4"},
		{"2001:0:4136:e378:8000:63bf:3fff:fdd2",
		 "192.0.2.45"}, /* RFC 4380: of the client */
		{"::1", NULL},
		{"2606:4700::1111", NULL},
		{"1.2.3.4", NULL},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct sockaddr_storage a;
		struct in_addr in;
		char text[INET_ADDRSTRLEN];

		assert_true(network_host_address(rows[i].address, &a));
		assert_int_equal(address_carries((struct sockaddr *)&a, &in),
				 rows[i].inner != NULL);
		if (rows[i].inner)
			assert_string_equal(inet_ntop(AF_INET, &in, text, sizeof text),
					    rows[i].inner);
	}
}

/* ---- rules ---- */

static void test_rules_are_refused(void **state)
{
	static const struct {
		const char *line, *why;
	} rows[] = {
		{"allow", "names no host"},
		{"allow *", "--network open"},
		{"allow *:443", "--network open"},
		{"allow passthrough *", "--network open"},
		{"allow a.*.b", "leftmost label"},
		{"allow *a.b", "leftmost label"},
		{"allow ***.b", "leftmost label"},
		{"allow *.*.b", "leftmost label"},
		{"allow *.", "neither a name"},
		{"allow *.1.2.3", "neither a name"},
		{"allow *.10.0.0.1", "neither a name"},
		{"allow 127.1", "neither a name"},
		{"allow 0x7f000001", "neither a name"},
		{"allow ::1", "brackets"},
		{"allow [0:0::1]:80", "write the address as ::1"},
		{"allow [::ffff:1.2.3.4]", "neither a name"},
		{"allow [::1]x", "only :PORT"},
		{"allow b\xc3\xbc.de", "xn--"},
		{"allow a.b:0", "port"},
		{"allow a.b:65536", "port"},
		{"allow a.b:", "port"},
		{"allow a.b:1,2,3,4,5,6,7,8,9", "at most 8 ports"},
		{"allow a.b:http", "port"},
		{"allow a.b/c", "needs its scheme"},
		{"allow 10.0.0.0/8", "within="},
		{"allow ftp://a.b", "only https:// and http://"},
		{"allow https://u:p@a.b/*", "no user name"},
		{"allow https://a.b/", "leave it out"},
		{"allow https://a.b/c?d", "without query"},
		{"allow https://a.b/%41", "after decoding"},
		{"allow https://a.b/a/../b", "\"..\" part"},
		{"allow https://a.b?c", "without query"},
		{"allow TRACE a.b", "never passed on"},
		{"allow GET,,HEAD a.b", "methods"},
		{"allow GET POST a.b", "is a method without a host"},
		{"allow a.b c.d", "only within="},
		{"allow within=10.0.0.0/8 a.b", "behind the host"},
		{"allow a.b within=10.0.0.1/8", "bits behind"},
		{"allow a.b within=0.0.0.0/0", "too wide"},
		{"allow a.b within=::/0", "too wide"},
		{"allow a.b within=10.0.0.0", "ADDRESS/BITS"},
		{"allow a.b within=::ffff:0:0/96", "ADDRESS/BITS"},
		{"allow 10.0.0.1 within=10.0.0.0/8", "is an address already"},
		{"allow passthrough GET a.b", "never opened"},
		{"allow passthrough https://a.b/x", "never opened"},
		{"allow passthrough http://a.b", "never opened"},
		{"deny passthrough a.b", "belongs to allow"},
		{"deny GET * within=10.0.0.0/8", "as a whole"},
		{"permit a.b", "begins with allow"},
		{"Allow a.b", "begins with allow"},
		{"preset pypi", "not been put in"},
		{"preset ../x {", "name"},
		{"}", "ends no preset"},
		{"preset a {", "has no end"},
		{"credential GITHUB", "name"},
		{"credential github api.github.com", "its name only"},
		{"credential github for api.github.com", "its name only"},
		{"max-bytes -1", "size"},
		{"max-bytes 0", "size"},
		{"max-connections 0", "number"},
		{"max-open 2049", "2048"},
		{"allow a\x01.b", "control character"},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		char text[1024];
		struct network_policy *p = NULL;
		struct err e = {0};

		snprintf(text, sizeof text, "# first\n%s\n", rows[i].line);
		if (network_policy_parse(text, strlen(text), "rules", NETWORK_ALLOW, &p, &e) == 0)
			fail_msg("\"%s\" is taken", rows[i].line);
		assert_null(p);
		assert_contains(e.text, rows[i].why);
		assert_contains(e.text,
				strstr(rows[i].why, "no end") ? "rules: " : "rules line 2: ");
	}
}

static void test_texts(void **state)
{
	static const char text[] =
		"  allow\tpypi.org   # the index\r\n\n#\n  \ncredential a\ncredential b for x.y:8443\n"
		"credential a\nmax-bytes 1k\nmax-bytes 2k\nmax-open 5\npreset one {\nallow q.r\n}\nallow no.end";
	struct network_policy *p;
	struct network_answer answer;
	struct err e = {0};
	char *many;

	(void)state;
	parse(&p, text, "x", NETWORK_ALLOW);
	assert_string_equal(network_policy_credential(p, 0), "a");
	assert_string_equal(network_policy_credential(p, 1), "b");
	assert_null(network_policy_credential(p, 2));
	network_decide(p, NULL, &(struct network_ask){"q.r", 443}, &answer);
	assert_int_equal(answer.verdict, VERDICT_ALLOW);
	assert_string_equal(answer.source, "preset one");
	assert_string_equal(answer.rule, "allow q.r");
	network_decide(p, NULL, &(struct network_ask){"no.end", 443}, &answer);
	assert_string_equal(answer.source, "request");
	network_policy_free(p);
	assert_int_equal(network_policy_parse("allow a\0.b", 10, "x", NETWORK_ALLOW, &p, &e), -1);
	assert_contains(e.text, "NUL");
	many = calloc(POLICY_RULES_MAX + 1, 10);
	for (int i = 0; i < POLICY_RULES_MAX; i++)
		memcpy(many + i * 10, "allow a.b\n", 10);
	assert_int_equal(
		network_policy_parse(many, POLICY_RULES_MAX * 10, "x", NETWORK_ALLOW, &p, &e), 0);
	network_policy_free(p);
	memcpy(many + POLICY_RULES_MAX * 10, "allow a.b\n", 10);
	assert_int_equal(network_policy_parse(many, POLICY_RULES_MAX * 10 + 10, "x", NETWORK_ALLOW,
					      &p, &e),
			 -1);
	assert_contains(e.text, "more than 1024 rules");
	free(many);
	network_policy_free(NULL);
}

/* ---- decisions ---- */

#define ALLOW  VERDICT_ALLOW
#define DENY   VERDICT_DENY
#define LOOK   VERDICT_LOOK
#define CLOSED "\n" /* an empty request */

struct decision {
	const char *request,
		*ceiling; /* ceiling NULL: none; "open" in front of the request: mode open */
	struct network_ask ask;
	enum network_verdict verdict;
	const char *rule; /* a part of it */
	bool passthrough;
	const char *credential;
};

static const struct decision decisions[] = {
	/* an empty list denies all, whatever the ceiling (PX-02) */
	{"", NULL, {"pypi.org", 443}, DENY},
	{"", "", {"pypi.org", 443}, DENY},
	{"", "allow pypi.org", {"pypi.org", 443}, DENY},
	{"deny a.b", NULL, {"pypi.org", 443}, DENY},
	/* host and port (PX-01, PX-22) */
	{"allow pypi.org", NULL, {"pypi.org", 443}, ALLOW, "allow pypi.org"},
	{"allow pypi.org", NULL, {"pypi.org", 80}, ALLOW},
	{"allow pypi.org", NULL, {"pypi.org", 8080}, DENY},
	{"allow pypi.org", NULL, {"pypi.org", 22}, DENY},
	{"allow pypi.org", NULL, {"pypi.org", 25}, DENY},
	{"allow pypi.org", NULL, {"pypi.org", 2375}, DENY},
	{"allow pypi.org", NULL, {"pypi.org", 6379}, DENY},
	{"allow pypi.org", NULL, {"pypi.org", 3128}, DENY},
	{"allow pypi.org", NULL, {"xpypi.org", 443}, DENY},
	{"allow pypi.org", NULL, {"www.pypi.org", 443}, DENY},
	{"allow pypi.org", NULL, {"pypi.org.evil.test", 443}, DENY},
	{"allow pypi.org", NULL, {"org", 443}, DENY},
	{"allow pypi.org:443", NULL, {"pypi.org", 80}, DENY},
	{"allow pypi.org:22,2222", NULL, {"pypi.org", 2222}, ALLOW},
	{"allow PyPI.Org.", NULL, {"pypi.org", 443}, ALLOW},
	{"allow 192.0.2.7:5432", NULL, {"192.0.2.7", 5432}, ALLOW},
	{"allow 192.0.2.7:5432", NULL, {"192.0.2.70", 5432}, DENY},
	{"allow [2001:db8::1]:443", NULL, {"2001:db8::1", 443}, ALLOW},
	/* wildcards (PX-04) */
	{"allow *.api.test", NULL, {"a.api.test", 443}, ALLOW},
	{"allow *.api.test", NULL, {"api.test", 443}, DENY},
	{"allow *.api.test", NULL, {"a.b.api.test", 443}, DENY},
	{"allow *.api.test", NULL, {"xapi.test", 443}, DENY},
	{"allow *.api.test", NULL, {"a.api.test.evil", 443}, DENY},
	{"allow **.api.test", NULL, {"a.b.api.test", 443}, ALLOW},
	{"allow **.api.test", NULL, {"a.api.test", 443}, ALLOW},
	{"allow **.api.test", NULL, {"api.test", 443}, DENY},
	{"allow **.api.test", NULL, {"xapi.test", 443}, DENY},
	/* deny wins, wherever it stands, on every port unless it names some */
	{"deny t.pypi.org\nallow *.pypi.org:443,8443",
	 NULL,
	 {"t.pypi.org", 443},
	 DENY,
	 "deny t.pypi.org"},
	{"allow *.pypi.org:443,8443\ndeny t.pypi.org",
	 NULL,
	 {"t.pypi.org", 8443},
	 DENY,
	 "deny t.pypi.org"},
	{"allow *.pypi.org:443,8443\ndeny t.pypi.org:443", NULL, {"t.pypi.org", 8443}, ALLOW},
	{"allow a.b\ndeny *", NULL, {"a.b", 443}, DENY, "deny *"},
	{"open deny *:25", NULL, {"mail.test", 25}, DENY, "deny *:25"},
	{"open deny *:25", NULL, {"mail.test", 587}, ALLOW},
	{"open deny 192.0.2.7", NULL, {"192.0.2.7", 1}, DENY},
	{"open deny * within=192.0.2.0/24", NULL, {"192.0.2.9", 1}, DENY},
	{"open deny * within=192.0.2.0/24", NULL, {"a.b", 1}, ALLOW},
	{"open", NULL, {"a.b", 1}, ALLOW},
	/* methods and paths are looked at in each request */
	{"allow GET,HEAD https://api.test/repos/*", NULL, {"api.test", 443}, LOOK, "GET,HEAD"},
	{"allow GET,HEAD https://api.test/repos/*", NULL, {"api.test", 80}, DENY},
	{"allow GET,HEAD https://api.test/repos/*",
	 NULL,
	 {"api.test", 443, "GET", "/repos/a", true},
	 ALLOW},
	{"allow GET,HEAD https://api.test/repos/*",
	 NULL,
	 {"api.test", 443, "GET", "/repos/a", false},
	 DENY},
	{"allow GET,HEAD https://api.test/repos/*",
	 NULL,
	 {"api.test", 443, "POST", "/repos/a", true},
	 DENY},
	{"allow GET,HEAD https://api.test/repos/*",
	 NULL,
	 {"api.test", 443, "get", "/repos/a", true},
	 DENY},
	{"allow GET,HEAD https://api.test/repos/*",
	 NULL,
	 {"api.test", 443, "GET", "/user", true},
	 DENY},
	{"allow GET,HEAD https://api.test/repos/*",
	 NULL,
	 {"api.test", 443, "GET", "/reposx", true},
	 DENY},
	{"allow GET,HEAD https://api.test/repos/*",
	 NULL,
	 {"api.test", 443, "GET", NULL, true},
	 DENY},
	{"allow GET api.test", NULL, {"api.test", 80}, LOOK},
	{"allow GET api.test", NULL, {"api.test", 80, "GET", "/", false}, ALLOW},
	{"allow https://api.test", NULL, {"api.test", 443}, ALLOW},
	{"allow https://api.test", NULL, {"api.test", 80}, DENY},
	{"allow https://api.test", NULL, {"api.test", 443, "GET", "/", false}, DENY},
	{"allow http://api.test:8080", NULL, {"api.test", 8080}, ALLOW},
	{"allow http://api.test:8080", NULL, {"api.test", 8080, NULL, NULL, true}, DENY},
	{"allow https://api.test/a*c", NULL, {"api.test", 443, "GET", "/a/b/c", true}, ALLOW},
	{"allow https://api.test/a", NULL, {"api.test", 443, "GET", "/a/", true}, DENY},
	{"allow https://api.test/*",
	 NULL,
	 {"api.test", 443, "GET", "/x//http://y/../z", true},
	 ALLOW},
	{"allow https://api.test/*", NULL, {"api.test", 443, "OPTIONS", NULL, true}, DENY},
	{"allow api.test\nallow GET https://api.test/x",
	 NULL,
	 {"api.test", 443},
	 ALLOW,
	 "allow api.test"},
	/* one path, many ways to write it */
	{"allow https://api.test/pub/*",
	 NULL,
	 {"api.test", 443, "GET", "/%70ub/a%20b", true},
	 ALLOW},
	{"allow https://api.test/pub/*",
	 NULL,
	 {"api.test", 443, "GET", "/pub/../secret", true},
	 DENY},
	{"allow https://api.test/pub/*",
	 NULL,
	 {"api.test", 443, "GET", "/pub/%2e%2e/secret", true},
	 DENY},
	{"allow https://api.test/pub/*",
	 NULL,
	 {"api.test", 443, "GET", "/pub/.%2E/secret", true},
	 DENY},
	{"allow https://api.test/pub/*",
	 NULL,
	 {"api.test", 443, "GET", "/pub/%252e%252e/secret", true},
	 DENY},
	{"allow https://api.test/pub/*",
	 NULL,
	 {"api.test", 443, "GET", "/pub/..%2fsecret", true},
	 DENY},
	{"allow https://api.test/pub/*",
	 NULL,
	 {"api.test", 443, "GET", "/pub/..;/secret", true},
	 DENY},
	{"allow https://api.test/pub/*",
	 NULL,
	 {"api.test", 443, "GET", "/pub/..\\secret", true},
	 DENY},
	{"allow https://api.test/pub/*", NULL, {"api.test", 443, "GET", "/pub/%5c..", true}, DENY},
	{"allow https://api.test/pub/*", NULL, {"api.test", 443, "GET", "/pub//x", true}, DENY},
	{"allow https://api.test/pub/*", NULL, {"api.test", 443, "GET", "/pub/./x", true}, DENY},
	{"allow https://api.test/pub/*", NULL, {"api.test", 443, "GET", "/pub/.", true}, DENY},
	{"allow https://api.test/pub/*", NULL, {"api.test", 443, "GET", "/pub/%00", true}, DENY},
	{"allow https://api.test/pub/*", NULL, {"api.test", 443, "GET", "/pub/%0a", true}, DENY},
	{"allow https://api.test/pub/*", NULL, {"api.test", 443, "GET", "/pub/%zz", true}, DENY},
	{"allow https://api.test/pub/*", NULL, {"api.test", 443, "GET", "/pub/%", true}, DENY},
	{"allow https://api.test/pub/*",
	 NULL,
	 {"api.test", 443, "GET", "/pub/100%25", true},
	 ALLOW},
	{"allow https://api.test/pub/*", NULL, {"api.test", 443, "GET", "/pub/a;b=c", true}, ALLOW},
	{"allow https://api.test/pub/*", NULL, {"api.test", 443, "GET", "/pub/...", true}, ALLOW},
	/* a deny rule with a path errs towards denying */
	{"allow api.test\ndeny https://api.test/admin*", NULL, {"api.test", 443}, LOOK},
	{"allow api.test\ndeny https://api.test/admin*",
	 NULL,
	 {"api.test", 443, "GET", "/x", true},
	 ALLOW},
	{"allow api.test\ndeny https://api.test/admin*",
	 NULL,
	 {"api.test", 443, "GET", "/admin/x", true},
	 DENY},
	{"allow api.test\ndeny https://api.test/admin*",
	 NULL,
	 {"api.test", 443, "GET", "/ADMIN", true},
	 DENY},
	{"allow api.test\ndeny https://api.test/admin*",
	 NULL,
	 {"api.test", 443, "GET", "/%61dmin", true},
	 DENY},
	{"allow api.test\ndeny https://api.test/admin*",
	 NULL,
	 {"api.test", 443, "GET", "//admin", true},
	 DENY},
	{"allow api.test\ndeny https://api.test/admin*",
	 NULL,
	 {"api.test", 443, "GET", "/x/../admin", true},
	 DENY},
	{"allow api.test\ndeny https://api.test/admin*",
	 NULL,
	 {"api.test", 443, "GET", "/;/admin", true},
	 DENY},
	{"allow api.test\ndeny https://api.test/admin*",
	 NULL,
	 {"api.test", 443, "OPTIONS", NULL, true},
	 DENY},
	{"allow api.test\ndeny POST api.test", NULL, {"api.test", 80}, LOOK},
	{"allow api.test\ndeny POST api.test", NULL, {"api.test", 80, "POST", "/", false}, DENY},
	{"allow api.test\ndeny POST api.test", NULL, {"api.test", 80, "PUT", "/", false}, ALLOW},
	/* an upgrade: allowed where it is named, denied as the GET that it is, too */
	{"allow GET,WEBSOCKET https://a.b/*", NULL, {"a.b", 443, "WEBSOCKET", "/x", true}, ALLOW},
	{"allow GET https://a.b/*", NULL, {"a.b", 443, "WEBSOCKET", "/x", true}, DENY},
	{"allow a.b\ndeny GET https://a.b/x", NULL, {"a.b", 443, "WEBSOCKET", "/x", true}, DENY},
	/* any port: what the resolver asks */
	{"allow a.b:8443", NULL, {"a.b", 0}, ALLOW},
	{"allow GET https://a.b/x", NULL, {"a.b", 0}, LOOK},
	{"allow a.b", NULL, {"c.d", 0}, DENY},
	{"allow a.b\ndeny a.b:443", NULL, {"a.b", 0}, ALLOW},
	{"allow a.b\ndeny a.b", NULL, {"a.b", 0}, DENY},
	{"open deny *:25", NULL, {"a.b", 0}, ALLOW},
	{"allow a.b", "allow c.d", {"a.b", 0}, DENY},
	/* passthrough */
	{"allow passthrough *.b", NULL, {"a.b", 443}, ALLOW, "passthrough", true},
	{"allow passthrough a.b\nallow a.b", NULL, {"a.b", 443}, ALLOW, "passthrough", true},
	{"allow passthrough a.b\ncredential c for a.b:443",
	 NULL,
	 {"a.b", 443},
	 ALLOW,
	 "passthrough",
	 true},
	{"allow passthrough a.b\ndeny POST https://a.b/*", NULL, {"a.b", 443}, DENY, "passthrough"},
	{"allow passthrough a.b\nallow a.b\ndeny POST https://a.b/*", NULL, {"a.b", 443}, LOOK},
	{"allow passthrough a.b", "allow GET https://a.b/*", {"a.b", 443}, DENY},
	{"allow passthrough a.b", "deny GET https://a.b/*", {"a.b", 443}, DENY},
	{"open allow passthrough a.b", NULL, {"a.b", 443}, ALLOW, "passthrough", true},
	/* credentials: for their host and port, in TLS, and they allow nothing */
	{"credential c for a.b:443", NULL, {"a.b", 443}, DENY},
	{"allow a.b\ncredential c for a.b:443", NULL, {"a.b", 443}, LOOK, "allow a.b", false, "c"},
	{"allow a.b\ncredential c for a.b:443", NULL, {"a.b", 80}, ALLOW},
	{"allow *.b\ncredential c for a.b:443", NULL, {"x.b", 443}, ALLOW},
	{"allow a.b\ncredential c for a.b:443",
	 NULL,
	 {"a.b", 443, "GET", "/", true},
	 ALLOW,
	 "allow a.b",
	 false,
	 "c"},
	{"allow a.b\ncredential c for a.b:443", NULL, {"a.b", 443, "GET", "/", false}, ALLOW},
	{"allow a.b\ndeny a.b\ncredential c for a.b:443", NULL, {"a.b", 443}, DENY},
	{"open credential c for a.b:443", NULL, {"a.b", 443}, LOOK, NULL, false, "c"},
	{"allow a.b\ncredential c for a.b:443",
	 "allow passthrough a.b",
	 {"a.b", 443},
	 ALLOW,
	 "",
	 true},
	/* the operator's ceiling is never widened */
	{"allow a.b", "", {"a.b", 443}, ALLOW},
	{"allow a.b", "deny a.b", {"a.b", 443}, DENY, "deny a.b"},
	{"allow a.b", "allow c.d", {"a.b", 443}, DENY},
	{"allow a.b", "allow *.b", {"a.b", 443}, ALLOW, "allow a.b"},
	{"allow a.b:8443", "allow *.b", {"a.b", 8443}, DENY},
	{"open", "allow *.b", {"a.b", 443}, ALLOW},
	{"open", "allow *.b", {"c.d", 443}, DENY},
	{"open", "deny *:25", {"c.d", 25}, DENY},
	{"allow a.b", "allow GET https://a.b/x/*", {"a.b", 443}, LOOK},
	{"allow a.b", "allow GET https://a.b/x/*", {"a.b", 443, "GET", "/x/1", true}, ALLOW},
	{"allow a.b", "allow GET https://a.b/x/*", {"a.b", 443, "GET", "/y", true}, DENY},
	{"allow https://a.b/y", "allow GET https://a.b/x/*", {"a.b", 443}, LOOK},
	{"allow https://a.b/y", "allow GET https://a.b/x/*", {"a.b", 443, "GET", "/y", true}, DENY},
	/* a ceiling's credential is none of a request's */
	{"allow a.b", "credential c for a.b:443", {"a.b", 443}, ALLOW},
};

static enum network_mode mode_of(const char **text)
{
	if (strncmp(*text, "open", 4) != 0)
		return NETWORK_ALLOW;
	*text += strcspn(*text, " ");
	return NETWORK_OPEN;
}

static void decide(const struct decision *d, struct network_answer *ret, char *rule, size_t size)
{
	struct network_policy *request, *ceiling = NULL;
	const char *text = d->request;
	enum network_mode mode = mode_of(&text);

	parse(&request, text, "request", mode);
	if (d->ceiling)
		parse(&ceiling, d->ceiling, "ceiling", NETWORK_OPEN);
	network_decide(request, ceiling, &d->ask, ret);
	snprintf(rule, size, "%s", ret->rule ? ret->rule : "");
	ret->rule = NULL;
	if (d->credential)
		assert_string_equal(ret->credential, d->credential);
	else
		assert_null(ret->credential);
	assert_true(ret->source && *ret->source && *ret->why);
	network_policy_free(request);
	network_policy_free(ceiling);
}

static void test_decisions(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(decisions); i++) {
		const struct decision *d = &decisions[i];
		struct network_answer answer;
		char rule[RULE_TEXT_MAX];

		print_message("%zu ", i);
		decide(d, &answer, rule, sizeof rule);
		if (answer.verdict != d->verdict || answer.passthrough != d->passthrough ||
		    (d->rule && !strstr(rule, d->rule)))
			fail_msg("%s | %s: %s:%u %s %s: %d by \"%s\": %s", d->request,
				 d->ceiling ? d->ceiling : "-", d->ask.host, d->ask.port,
				 d->ask.method ? d->ask.method : "", d->ask.path ? d->ask.path : "",
				 answer.verdict, rule, answer.why);
	}
	print_message("\n");
}

static void test_upgrades_are_named(void **state)
{
	static const struct {
		const char *rules, *ceiling, *method;
		bool websocket;
	} rows[] = {
		{"allow GET,WEBSOCKET https://a.b/*", "", "WEBSOCKET", true},
		{"allow GET,WEBSOCKET https://a.b/*", "", "GET", false},
		{"allow a.b", "", "WEBSOCKET", false},
		{"allow a.b\nallow WEBSOCKET a.b", "", "WEBSOCKET", true},
		{"allow WEBSOCKET a.b", "allow a.b", "WEBSOCKET", true},
		{"allow a.b", "allow WEBSOCKET a.b", "WEBSOCKET", false},
		{"allow WEBSOCKET a.b", "allow GET a.b", "WEBSOCKET", false},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct network_policy *p, *c;
		struct network_answer answer;

		parse(&p, rows[i].rules, "x", NETWORK_ALLOW);
		parse(&c, rows[i].ceiling, "x", NETWORK_OPEN);
		network_decide(p, c, &(struct network_ask){"a.b", 443, rows[i].method, "/", true},
			       &answer);
		assert_int_equal(answer.websocket, rows[i].websocket);
		assert_int_equal(network_policy_looks(p),
				 strstr(rows[i].rules, "WEBSOCKET") != NULL);
		network_policy_free(p);
		network_policy_free(c);
	}
}

static void test_mode_none_denies(void **state)
{
	struct network_policy *p;
	struct network_answer answer;
	struct sockaddr_storage a;

	(void)state;
	parse(&p, "allow a.b\n", "x", NETWORK_NONE);
	network_decide(p, NULL, &(struct network_ask){"a.b", 443}, &answer);
	assert_int_equal(answer.verdict, VERDICT_DENY);
	assert_contains(answer.why, "mode none");
	assert_true(network_host_address("8.8.8.8", &a));
	assert_false(network_address_allowed(p, NULL, &(struct network_ask){"a.b", 443},
					     (struct sockaddr *)&a, &answer));
	network_policy_free(p);
}

/* ---- addresses (PX-05, PX-06) ---- */

static const struct {
	const char *request, *ceiling, *host, *address;
	bool allowed;
} addresses[] = {
	{"allow a.b", NULL, "a.b", "8.8.8.8", true},
	{"allow a.b", NULL, "a.b", "2606:4700::1111", true},
	{"allow a.b", NULL, "a.b", "64:ff9b::808:808", true},
	{"allow a.b", NULL, "c.d", "8.8.8.8", false},
	{"open", NULL, "c.d", "8.8.8.8", true},
	{"allow a.b", NULL, "a.b", "10.0.0.1", false},
	{"allow a.b", NULL, "a.b", "127.0.0.1", false},
	{"allow a.b", NULL, "a.b", "169.254.169.254", false},
	{"allow a.b", NULL, "a.b", "100.64.0.1", false},
	{"allow a.b", NULL, "a.b", "100.100.100.200", false},
	{"allow a.b", NULL, "a.b", "168.63.129.16", false},
	{"allow a.b", NULL, "a.b", "fd00:ec2::254", false},
	{"allow a.b", NULL, "a.b", "::1", false},
	{"allow a.b", NULL, "a.b", "::ffff:127.0.0.1", false},
	{"allow a.b", NULL, "a.b", "::127.0.0.1", false},
	{"allow a.b", NULL, "a.b", "64:ff9b::7f00:1", false},
	{"allow a.b", NULL, "a.b", "2002:7f00:1::", false},
	{"allow a.b", NULL, "a.b", "2001:0:4136:e378:8000:63bf:3fff:fdd2", false},
	{"allow a.b", NULL, "a.b", "0.0.0.0", false},
	{"allow a.b", NULL, "a.b", "::", false},
	{"allow a.b", NULL, "a.b", "224.0.0.1", false},
	{"allow a.b", NULL, "a.b", "ff02::1", false},
	{"allow a.b", NULL, "a.b", "fe80::1", false},
	{"open", NULL, "a.b", "127.0.0.1", false},
	{"open", NULL, "127.0.0.1", "127.0.0.1", false},
	{"open", NULL, "a.b", "10.0.0.1", false},
	{"open", NULL, "a.b", "169.254.169.254", false},
	/* named by a rule */
	{"allow a.b within=10.0.0.0/8", NULL, "a.b", "10.9.9.9", true},
	{"allow a.b within=10.0.0.0/8", NULL, "a.b", "11.9.9.9", true},
	{"allow a.b within=10.0.0.0/8", NULL, "a.b", "192.168.0.1", false},
	{"allow a.b within=10.0.0.0/8", NULL, "a.b", "127.0.0.1", false},
	{"allow a.b within=127.0.0.0/8", NULL, "a.b", "127.0.0.1", true},
	{"allow a.b within=127.0.0.0/8", NULL, "c.d", "127.0.0.1", false},
	{"allow a.b within=10.0.0.0/8,fd12::/16", NULL, "a.b", "fd12::9", true},
	{"allow a.b within=10.0.0.0/8", NULL, "a.b", "::ffff:10.0.0.1", false},
	{"open allow a.b within=10.0.0.0/8", NULL, "a.b", "10.0.0.1", true},
	{"open allow a.b within=10.0.0.0/8", NULL, "c.d", "10.0.0.1", false},
	{"allow a.b\nallow a.b within=10.0.0.0/8", NULL, "a.b", "10.0.0.1", true},
	{"allow 10.0.0.1", NULL, "10.0.0.1", "10.0.0.1", true},
	{"allow 127.0.0.1", NULL, "127.0.0.1", "127.0.0.1", true},
	{"allow [::1]:443", NULL, "::1", "::1", true},
	{"allow 10.0.0.1\nallow a.b", NULL, "a.b", "10.0.0.1", false},
	{"allow a.b within=100.64.0.0/10", NULL, "a.b", "100.64.0.1", true},
	{"allow a.b within=100.64.0.0/10", NULL, "a.b", "100.100.100.200", false},
	{"allow a.b within=169.0.0.0/8", NULL, "a.b", "169.254.169.254", false},
	{"allow a.b within=169.254.169.0/24", NULL, "a.b", "169.254.169.254", true},
	{"allow a.b within=fc00::/7", NULL, "a.b", "fd00:ec2::254", false},
	{"allow a.b within=224.0.0.0/24", NULL, "a.b", "224.0.0.1", false},
	{"allow 255.255.255.255", NULL, "255.255.255.255", "255.255.255.255", false},
	{"allow 0.0.0.0", NULL, "0.0.0.0", "0.0.0.0", false},
	/* denied */
	{"open deny 8.8.8.8", NULL, "a.b", "8.8.8.8", false},
	{"open deny 8.8.8.8", NULL, "a.b", "64:ff9b::808:808", false},
	{"open deny 8.8.8.8:25", NULL, "a.b", "8.8.8.8", true},
	{"open deny GET https://8.8.8.8/x", NULL, "a.b", "8.8.8.8", false},
	{"open deny GET https://8.8.8.8/x", NULL, "8.8.8.8", "8.8.8.8", true},
	{"open deny * within=8.8.0.0/16", NULL, "a.b", "8.8.4.4", false},
	{"open deny * within=8.8.0.0/16", NULL, "a.b", "8.9.4.4", true},
	{"open deny c.d within=8.8.0.0/16", NULL, "a.b", "8.8.4.4", true},
	{"allow a.b within=10.0.0.0/8\ndeny * within=10.1.0.0/16", NULL, "a.b", "10.1.0.1", false},
	/* the operator's word */
	{"allow a.b within=10.0.0.0/8", "", "a.b", "10.0.0.1", true},
	{"allow a.b within=10.0.0.0/8", "allow a.b", "a.b", "10.0.0.1", false},
	{"allow a.b within=10.0.0.0/8", "allow *.b within=10.0.0.0/16", "a.b", "10.0.0.1", true},
	{"allow a.b within=10.0.0.0/8", "allow *.b within=10.0.0.0/16", "a.b", "10.1.0.1", false},
	{"allow a.b", "allow *.b within=10.0.0.0/16", "a.b", "10.0.0.1", false},
	{"allow a.b within=10.0.0.0/8", "deny * within=10.0.0.0/24", "a.b", "10.0.0.1", false},
	{"open", "deny 8.8.8.8", "a.b", "8.8.8.8", false},
	{"open", "allow a.b", "c.d", "8.8.8.8", false},
};

static void test_addresses(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(addresses); i++) {
		struct network_policy *request, *ceiling = NULL;
		const char *text = addresses[i].request;
		enum network_mode mode = mode_of(&text);
		struct network_answer answer;
		struct sockaddr_storage a;

		parse(&request, text, "request", mode);
		if (addresses[i].ceiling)
			parse(&ceiling, addresses[i].ceiling, "ceiling", NETWORK_OPEN);
		assert_true(network_host_address(addresses[i].address, &a));
		if (network_address_allowed(request, ceiling,
					    &(struct network_ask){addresses[i].host, 443},
					    (struct sockaddr *)&a, &answer) != addresses[i].allowed)
			fail_msg("%s | %s: %s at %s: %s", addresses[i].request,
				 addresses[i].ceiling ? addresses[i].ceiling : "-",
				 addresses[i].host, addresses[i].address, answer.why);
		assert_int_equal(answer.verdict,
				 addresses[i].allowed ? VERDICT_ALLOW : VERDICT_DENY);
		assert_true(*answer.why && answer.source);
		network_policy_free(request);
		network_policy_free(ceiling);
	}
}

/* ---- quotas ---- */

static void test_quotas(void **state)
{
	static const struct {
		const char *request, *ceiling;
		struct network_quota quota;
	} rows[] = {
		{"", NULL, {UINT64_MAX, UINT64_MAX, 128}},
		{"max-open 2048", NULL, {UINT64_MAX, UINT64_MAX, 2048}},
		{"max-open 500", "max-open 10", {UINT64_MAX, UINT64_MAX, 10}},
		{"", "max-open 500", {UINT64_MAX, UINT64_MAX, 128}},
		{"max-bytes 1k\nmax-connections 7", NULL, {1024, 7, 128}},
		{"max-bytes 1k", "max-bytes 10", {10, UINT64_MAX, 128}},
		{"max-bytes 10", "max-bytes 1k\nmax-connections 3", {10, 3, 128}},
		{"max-bytes 2k\nmax-bytes 1k\nmax-bytes 3k", "", {1024, UINT64_MAX, 128}},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct network_policy *request, *ceiling = NULL;
		struct network_quota q;

		parse(&request, rows[i].request, "request", NETWORK_ALLOW);
		if (rows[i].ceiling)
			parse(&ceiling, rows[i].ceiling, "ceiling", NETWORK_OPEN);
		q = network_quota(request, ceiling);
		assert_int_equal(q.bytes, rows[i].quota.bytes);
		assert_int_equal(q.connections, rows[i].quota.connections);
		assert_int_equal(q.open, rows[i].quota.open);
		network_policy_free(request);
		network_policy_free(ceiling);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_hosts),
		cmocka_unit_test(test_reach),
		cmocka_unit_test(test_carried_addresses),
		cmocka_unit_test(test_rules_are_refused),
		cmocka_unit_test(test_texts),
		cmocka_unit_test(test_decisions),
		cmocka_unit_test(test_upgrades_are_named),
		cmocka_unit_test(test_mode_none_denies),
		cmocka_unit_test(test_addresses),
		cmocka_unit_test(test_quotas),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
