/* SPDX-License-Identifier: Apache-2.0 */
/* Whose credential it is, what it replaces, and targets with a secret in them. */
#include "unit.h"

#include "egress/credential.h"

static struct egress_settings settings;

static void add(const char *name, const char *host, uint16_t port, const char *header,
		const char *query, const char *value)
{
	struct credential *c = &settings.credentials[settings.credential_count++];

	snprintf(c->name, sizeof c->name, "%s", name);
	snprintf(c->host, sizeof c->host, "%s", host);
	snprintf(c->header, sizeof c->header, "%s", header);
	snprintf(c->query, sizeof c->query, "%s", query);
	c->port = port;
	c->value = (char *)value;
	c->size = strlen(value);
}

static int setup(void **state)
{
	static const char rules[] =
		"allow api.test\nallow *.test\ncredential github\ncredential maps\n";
	struct err e;

	(void)state;
	settings = (struct egress_settings){0};
	add("github", "api.test", 443, "Authorization", "", "Bearer S3CR3T");
	add("maps", "maps.test", 8443, "", "key", "a b/c&d=é");
	add("unnamed", "other.test", 443, "X-Token", "", "unused");
	return network_policy_parse(rules, sizeof rules - 1, "test", NETWORK_ALLOW,
				    &settings.request, &e);
}

static int teardown(void **state)
{
	(void)state;
	network_policy_free(settings.request);
	return 0;
}

static void test_for(void **state)
{
	(void)state;
	assert_ptr_equal(credential_for(&settings, "api.test", 443), &settings.credentials[0]);
	assert_ptr_equal(credential_for(&settings, "maps.test", 8443), &settings.credentials[1]);
	assert_null(credential_for(&settings, "api.test", 80));
	assert_null(credential_for(&settings, "api.test", 8443));
	assert_null(credential_for(&settings, "maps.test", 443));
	assert_null(credential_for(&settings, "www.api.test", 443));
	assert_null(credential_for(&settings, "xapi.test", 443));
	assert_null(credential_for(&settings, "api.test.", 443));
	assert_null(credential_for(&settings, "", 443));
	/* in the store, but the policy does not name it */
	assert_null(credential_for(&settings, "other.test", 443));
}

static void test_replaces(void **state)
{
	static const char *const dropped[] = {"authorization", "cookie",    "proxy-authorization",
					      "x-api-key",     "x_api_key", "proxy_authorization"};
	static const char *const kept[] = {"accept", "authorizatio", "authorizations", "x-api",
					   "",       "cookie2",      "x-token"};
	const struct credential *github = &settings.credentials[0],
				*maps = &settings.credentials[1], *own = &settings.credentials[2];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(dropped); i++) {
		assert_true(credential_replaces(github, dropped[i]));
		assert_true(credential_replaces(maps, dropped[i]));
	}
	for (size_t i = 0; i < ARRAY_SIZE(kept); i++) {
		assert_false(credential_replaces(github, kept[i]));
		assert_false(credential_replaces(maps, kept[i]));
	}
	assert_true(credential_replaces(own, "x-token"));
	assert_true(credential_replaces(own, "x_token"));
}

static void test_target(void **state)
{
#define SECRET "key=a%20b%2Fc%26d%3D%C3%A9"
	static const char *const cases[][2] = {
		{"/", "/?" SECRET},
		{"/?", "/?" SECRET},
		{"/a/b?x=1", "/a/b?x=1&" SECRET},
		{"/?x=1&y=2", "/?x=1&y=2&" SECRET},
		{"/?x=1;y=2", "/?x=1;y=2&" SECRET},
		{"/?key=mine", "/?" SECRET},
		{"/?key", "/?" SECRET},
		{"/?key&x", "/?x&" SECRET},
		{"/?x&key=mine&y", "/?x&y&" SECRET},
		{"/?x;key=mine;y", "/?x;y&" SECRET},
		{"/?x&key=1&key=2", "/?x&" SECRET},
		{"/?%6bey=mine", "/?" SECRET},
		{"/?%6B%65%79=mine", "/?" SECRET},
		{"/?KEY=mine", "/?" SECRET},
		{"/?key[]=mine", "/?" SECRET},
		{"/?key%5B0%5D=mine", "/?" SECRET},
		{"/?+key=mine", "/?" SECRET},
		{"/?%20key%20=mine", "/?" SECRET},
		{"/?keys=1&akey=2", "/?keys=1&akey=2&" SECRET},
		{"/?x=key", "/?x=key&" SECRET},
		{"/?x=key=1", "/?x=key=1&" SECRET},
		{"/?%", "/?%&" SECRET},
		{"/?%6", "/?%6&" SECRET},
		{"/?%zzkey=1", "/?%zzkey=1&" SECRET},
		{"/?=key", "/?=key&" SECRET},
		{"/?&&&", "/?" SECRET},
		{"/?x?key=1", "/?x?key=1&" SECRET},
		{"/#f", "/?" SECRET},
		{"/?x#key=1&f", "/?x&" SECRET},
		{"/p#?key=1", "/p?" SECRET},
		{"", "?" SECRET},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		_cleanup_free_ char *t = credential_target(&settings.credentials[1], cases[i][0]);

		assert_string_equal(t, cases[i][1]);
	}
}

static void test_target_of_a_header(void **state)
{
	_cleanup_free_ char *t = credential_target(&settings.credentials[0], "/a?key=b");

	(void)state;
	assert_string_equal(t, "/a?key=b");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_for),
		cmocka_unit_test(test_replaces),
		cmocka_unit_test(test_target),
		cmocka_unit_test(test_target_of_a_header),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
