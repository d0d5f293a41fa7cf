/* SPDX-License-Identifier: Apache-2.0 */
/* What has to hold for network policies of any rules: their order means nothing, deny wins, nothing is widened. And warnings. */
#include "unit.h"

#include "network/policy.h"

static void parse(struct network_policy **p, const char *text, const char *where,
		  enum network_mode mode)
{
	struct err e = {0};

	if (network_policy_parse(text, strlen(text), where, mode, p, &e) < 0)
		fail_msg("%s: %s", text, e.text);
}

/* ---- what holds for any rules ---- */

enum { ROUNDS = 20000, LINES = 6 };

static unsigned random_state;

static unsigned roll(unsigned n)
{
	random_state = random_state * 1103515245u + 12345u;
	return (random_state >> 16) % n;
}

static const char *const hosts_of_rules[] = {"a.b",      "*.b",     "**.b",     "x.a.b",
					     "10.0.0.1", "8.8.8.8", "a.b:8443", "*.b:80"};
static const char *const urls_of_rules[] = {"https://a.b/x/*", "https://a.b/y", "http://a.b/*",
					    "https://*.b/*", "https://a.b"};
static const char *const methods_of_rules[] = {"", "GET ", "POST,PUT "};
static const char *const nets_of_rules[] = {"", "", " within=10.0.0.0/8", " within=127.0.0.0/8",
					    " within=8.8.8.0/24"};

#define PICK(list) (list)[roll(ARRAY_SIZE(list))]

/* Some rule that is one; most combinations are. */
static void make_line(char line[static 128], bool deny)
{
	struct err e;

	do {
		snprintf(line, 128, "%s%s%s%s", !deny && roll(6) == 0 ? "passthrough " : "",
			 PICK(methods_of_rules),
			 deny && roll(10) == 0 ? "*"
			 : roll(2)             ? PICK(hosts_of_rules)
					       : PICK(urls_of_rules),
			 PICK(nets_of_rules));
	} while (network_rule_check(deny ? "deny" : "allow", line, &e) < 0);
}

struct rules {
	char line[LINES + 1][140];
	size_t count;
};

static void make_rules(struct rules *r)
{
	r->count = roll(LINES + 1);
	for (size_t i = 0; i < r->count; i++) {
		bool deny = roll(3) == 0;
		char line[128];

		make_line(line, deny);
		snprintf(r->line[i], sizeof r->line[i], "%s %s", deny ? "deny" : "allow", line);
	}
}

static void compile(const struct rules *r, enum network_mode mode, struct network_policy **p)
{
	char text[LINES * 160 + 200] = "";
	size_t n = 0;

	for (size_t i = 0; i < r->count; i++)
		n += (size_t)snprintf(text + n, sizeof text - n, "%s\n", r->line[i]);
	snprintf(text + n, sizeof text - n, "credential c for a.b:443\n");
	parse(p, text, "r", mode);
}

/* Every question of a small world, with the stages one after the other as the proxy asks them. Bits: allowed. */
enum { WORLD = 4 * 3 * 4 * 12 };

static void ask_world(const struct network_policy *request, const struct network_policy *ceiling,
		      bool *ret)
{
	static const char *const hosts[] = {"a.b", "x.a.b", "10.0.0.1", "c.d"};
	static const uint16_t ports[] = {443, 80, 8443};
	static const char *const at[] = {"8.8.8.8", "10.0.0.1", "127.0.0.1", "9.9.9.9"};
	static const char *const methods[] = {"GET", "POST"};
	static const char *const paths[] = {"/x/1", "/y", "/x/../y"};
	size_t n = 0;

	for (size_t h = 0; h < 4; h++)
		for (size_t p = 0; p < 3; p++)
			for (size_t a = 0; a < 4; a++)
				for (size_t q = 0; q < 12; q++, n++) {
					struct network_ask ask = {hosts[h], ports[p]};
					struct network_answer answer;
					struct sockaddr_storage address;
					bool look;

					network_host_address(h == 2 ? hosts[h] : at[a], &address);
					network_decide(request, ceiling, &ask, &answer);
					ret[n] = answer.verdict != VERDICT_DENY;
					look = answer.verdict == VERDICT_LOOK;
					ret[n] =
						ret[n] &&
						network_address_allowed(request, ceiling, &ask,
									(struct sockaddr *)&address,
									&answer);
					ask.method = methods[q % 2];
					ask.path = paths[q / 2 % 3];
					ask.tls = q / 6;
					/* what is not looked at is done: only a LOOK is stopped by its requests */
					network_decide(request, ceiling, &ask, &answer);
					if (look)
						ret[n] = ret[n] && answer.verdict == VERDICT_ALLOW;
				}
	assert_int_equal(n, WORLD);
}

static enum network_mode some_mode(void)
{
	return roll(3) ? NETWORK_ALLOW : NETWORK_OPEN;
}

static void assert_implies(const bool *a, const bool *b, const char *what, const struct rules *r)
{
	for (size_t i = 0; i < WORLD; i++)
		if (a[i] && !b[i]) {
			for (size_t k = 0; k < r->count; k++)
				print_message("%s\n", r->line[k]);
			fail_msg("%s: question %zu", what, i);
		}
}

static void swap_rules(struct rules *r)
{
	for (size_t i = r->count; i > 1; i--) {
		size_t k = roll((unsigned)i);
		char saved[140];

		memcpy(saved, r->line[k], sizeof saved);
		memcpy(r->line[k], r->line[i - 1], sizeof saved);
		memcpy(r->line[i - 1], saved, sizeof saved);
	}
}

/* Order means nothing; a deny rule never permits; an allow rule never forbids; neither policy widens the other. */
static void test_properties(void **state)
{
	static bool base[WORLD], other[WORLD], alone[WORLD];
	unsigned long long allowed = 0;

	(void)state;
	random_state = 20260601;
	for (int round = 0; round < ROUNDS / 10; round++) {
		struct network_policy *request, *ceiling, *changed;
		enum network_mode mode = some_mode();
		struct rules r, c;
		char line[128];
		bool deny = roll(2);

		make_rules(&r);
		make_rules(&c);
		compile(&r, mode, &request);
		compile(&c, NETWORK_OPEN, &ceiling);
		ask_world(request, ceiling, base);
		for (size_t i = 0; i < WORLD; i++)
			allowed += base[i];
		swap_rules(&r);
		compile(&r, mode, &changed);
		ask_world(changed, ceiling, other);
		assert_memory_equal(base, other, sizeof base);
		network_policy_free(changed);
		ask_world(request, NULL, alone);
		assert_implies(base, alone, "the ceiling widened the request", &r);
		make_line(line, deny);
		snprintf(r.line[r.count++], sizeof r.line[0], "%s %s", deny ? "deny" : "allow",
			 line);
		compile(&r, mode, &changed);
		ask_world(changed, ceiling, other);
		if (deny)
			assert_implies(other, base, "a deny rule permits", &r);
		else
			assert_implies(base, other, "an allow rule forbids", &r);
		network_policy_free(changed);
		/* everything open inside leaves the ceiling's own word */
		parse(&changed,
		      "allow 10.0.0.1\nallow **.b:80,443,8443 within=10.0.0.0/8,127.0.0.0/8\nallow c.d:80,443,8443 within=10.0.0.0/8,127.0.0.0/8",
		      "x", NETWORK_OPEN);
		ask_world(changed, ceiling, alone);
		assert_implies(base, alone, "the request widened the ceiling", &c);
		network_policy_free(changed);
		network_policy_free(request);
		network_policy_free(ceiling);
	}
	print_message("%llu of %llu questions allowed\n", allowed,
		      (unsigned long long)ROUNDS / 10 * WORLD);
	assert_true(allowed > 10000); /* the world is not one where nothing is allowed */
}

/* ---- warnings ---- */

static void test_warnings(void **state)
{
	static const struct {
		const char *rule, *part; /* NULL: none */
	} rows[] = {
		{"allow *.s3.amazonaws.com", "below s3.amazonaws.com"},
		{"allow **.s3.eu-west-1.amazonaws.com:443", "below s3.eu-west-1.amazonaws.com"},
		{"allow **.amazonaws.com", "below amazonaws.com"},
		{"allow **.windows.net", "below blob.core.windows.net"},
		{"allow GET https://*.github.io/*", "below github.io"},
		{"allow *.blob.core.windows.net", "below blob.core.windows.net"},
		{"allow *.cloudfront.net", "below cloudfront.net"},
		{"allow *.com", "top-level domain"},
		{"allow *.example.org", NULL},
		{"allow *.github.com", NULL},
		{"allow my-bucket.s3.amazonaws.com", NULL},
		{"allow *.mys3.amazonaws.example", NULL},
		{"deny *.github.io", NULL},
		{"deny *", NULL},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct network_policy *p;
		char text[400] = "", rules[200];

		snprintf(rules, sizeof rules, "allow first.test\n%s\nallow *.github.io\n",
			 rows[i].rule);
		parse(&p, rules, "x", NETWORK_ALLOW);
		assert_true(network_warning(p, 0, text, sizeof text));
		assert_contains(text, rows[i].part ? rows[i].part : "allow *.github.io: ");
		assert_int_equal(network_warning(p, 1, text, sizeof text), rows[i].part != NULL);
		assert_false(network_warning(p, 2, text, sizeof text));
		network_policy_free(p);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_properties),
		cmocka_unit_test(test_warnings),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
