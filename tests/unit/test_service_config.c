/* SPDX-License-Identifier: Apache-2.0 */
/* The mapping `service` of the configuration: every key with a right value, and with wrong ones, which are
 * refused by the key's name; defaults; what belongs together. */
#include "unit.h"

#include "service/config.h"

static const struct places places = {.runtime = "/run/x", .state = "/var/lib/x"};

static int read_it(struct service_config *c, const char *text, struct err *e)
{
	json_t *root = text ? json_loads(text, 0, NULL) : NULL;
	int r;

	if (text && !root)
		fail_msg("the test's own JSON: %s", text);
	*e = (struct err){0};
	r = service_config_read(c, &places, root, e);
	json_decref(root);
	return r;
}

static void test_defaults(void **state)
{
	static const char *const texts[] = {NULL, "{}", "{\"defaults\":{}}", "{\"service\":{}}"};
	struct service_config c;
	struct err e;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
		assert_int_equal(read_it(&c, texts[i], &e), 0);
		assert_string_equal(c.socket, "/run/x/cloche.sock");
		assert_string_equal(c.runtime_dir, "/run/x");
		assert_string_equal(c.state_dir, "/var/lib/x/service");
		assert_string_equal(c.listen, "");
		assert_string_equal(c.socket_group, "");
		assert_string_equal(c.user, "");
		assert_true(!c.hosts && !c.quota && !c.session_quota);
		assert_int_equal(c.body_bytes, 16 << 20);
		assert_int_equal(c.max_timeout_us, 7 * 86400000000ull);
		assert_int_equal(c.artifact_bytes, 64 << 20);
		assert_int_equal(c.artifact_retention_us, 86400000000ull);
		assert_int_equal(c.paused_retention_us, 7 * 86400000000ull);
		assert_int_equal(c.ended_retention_us, 86400000000ull);
		assert_int_equal(c.run_retention_us, 30 * 86400000000ull);
		assert_int_equal(c.audit_retention_us, 365 * 86400000000ull);
		assert_int_equal(c.connections, 4096);
		service_config_done(&c);
	}
}

#define FIELD(name) \
	offsetof(struct service_config, name), sizeof(((struct service_config *)0)->name)

/* want: the text that is kept, or NULL; then number. */
static const struct {
	const char *key, *good, *want;
	uint64_t number;
	size_t offset, size;
	const char *bad[4];
} keys[] = {
	{"socket", "/a/s", "/a/s", 0, FIELD(socket), {"s", "./s"}},
	{"socket_group", "agents", "agents", 0, FIELD(socket_group), {0}},
	{"user", "me", "me", 0, FIELD(user), {0}},
	{"listen", "127.0.0.1:1", "127.0.0.1:1", 0, FIELD(listen), {0}},
	{"runtime_dir", "/a", "/a", 0, FIELD(runtime_dir), {"a", "../a"}},
	{"state_dir", "/a", "/a", 0, FIELD(state_dir), {"a"}},
	{"body_limit", "1k", NULL, 1024, FIELD(body_bytes), {"", "x", "-1", "1q"}},
	{"batch_concurrency", "7", NULL, 7, FIELD(batch_concurrency), {"0", "20001", "x"}},
	{"batch_wait", "90s", NULL, 90000000, FIELD(batch_wait_us), {"0s", "soon"}},
	{"max_timeout",
	 "2d",
	 NULL,
	 172800000000,
	 FIELD(max_timeout_us),
	 {"d", "0d", "36501d", "1y"}},
	{"artifact_limit", "3m", NULL, 3 << 20, FIELD(artifact_bytes), {"lots"}},
	{"artifact_retention",
	 "90s",
	 NULL,
	 90000000,
	 FIELD(artifact_retention_us),
	 {"-1d", "1.5d"}},
	{"paused_retention", "1h", NULL, 3600000000, FIELD(paused_retention_us), {"soon"}},
	{"ended_retention", "1m", NULL, 60000000, FIELD(ended_retention_us), {""}},
	{"run_retention", "36500d", NULL, 36500 * 86400000000ull, FIELD(run_retention_us), {" 1d"}},
	{"audit_retention", "1d", NULL, 86400000000, FIELD(audit_retention_us), {"1 d"}},
	{"connections", "20000", NULL, 20000, FIELD(connections), {"0", "20001", "-1", "many"}},
};

static void refused(const char *text, const char *why)
{
	struct service_config c;
	struct err e;

	if (read_it(&c, text, &e) == 0)
		fail_msg("taken: %s", text);
	service_config_done(&c);
	assert_contains(e.text, why);
}

static void test_every_key(void **state)
{
	char text[512], why[128];
	struct service_config c;
	struct err e;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(keys); i++) {
		const char *field = (const char *)&c + keys[i].offset;
		uint64_t number = 0;

		snprintf(text, sizeof text, "{\"service\":{\"%s\":\"%s\"}}", keys[i].key,
			 keys[i].good);
		if (read_it(&c, text, &e) < 0)
			fail_msg("%s: %s", text, e.text);
		if (keys[i].want) {
			assert_string_equal(field, keys[i].want);
		} else {
			memcpy(&number, field, keys[i].size);
			assert_int_equal(number, keys[i].number);
		}
		service_config_done(&c);
		snprintf(why, sizeof why, "service: %s: ", keys[i].key);
		for (size_t k = 0; k < ARRAY_SIZE(keys[i].bad) && keys[i].bad[k]; k++) {
			snprintf(text, sizeof text, "{\"service\":{\"%s\":\"%s\"}}", keys[i].key,
				 keys[i].bad[k]);
			refused(text, why);
		}
		snprintf(text, sizeof text, "{\"service\":{\"%s\":[\"%s\"]}}", keys[i].key,
			 keys[i].good);
		refused(text, "must be a value");
		if (!keys[i].want)
			continue;
		memset(text, 'x', sizeof text);
		snprintf(text, sizeof text, "{\"service\":{\"%s\":\"/%0*d\"}}", keys[i].key,
			 (int)keys[i].size - 1, 0);
		refused(text, "longer than");
	}
}

static void test_lists_and_mappings(void **state)
{
	struct service_config c;
	struct err e;

	(void)state;
	assert_int_equal(read_it(&c,
				 "{\"service\":{\"hosts\":[\"a\"],\"quota\":{\"sandboxes\":\"5\"},"
				 "\"session_quota\":{\"memory\":\"1g\"}}}",
				 &e),
			 0);
	/* its own references: the file's JSON is gone */
	assert_string_equal(json_string_value(json_array_get(c.hosts, 0)), "a");
	assert_string_equal(json_string_value(json_object_get(c.quota, "sandboxes")), "5");
	assert_string_equal(json_string_value(json_object_get(c.session_quota, "memory")), "1g");
	service_config_done(&c);
	assert_null(c.hosts);
	refused("{\"service\":{\"hosts\":\"a\"}}", "hosts: must be a list");
	refused("{\"service\":{\"quota\":[]}}", "quota: must be a mapping");
	refused("{\"service\":{\"session_quota\":\"5\"}}", "session_quota: must be a mapping");
}

static void test_what_is_no_key(void **state)
{
	struct service_config c;
	struct err e;

	(void)state;
	refused("{\"service\":{\"sockets\":\"/a\"}}", "unknown key sockets");
	refused("{\"service\":{\"Socket\":\"/a\"}}", "unknown key Socket");
	refused("{\"service\":[]}", "must be a mapping");
	refused("{\"service\":\"on\"}", "must be a mapping");
	refused("{\"service\":{\"tls_key\":\"/k\"}}", "belong together");
	refused("{\"service\":{\"tls_certificate\":\"/c\"}}", "belong together");
	assert_int_equal(
		read_it(&c, "{\"service\":{\"tls_certificate\":\"/c\",\"tls_key\":\"/k\"}}", &e),
		0);
	service_config_done(&c);
}

static void test_places_that_are_too_long(void **state)
{
	struct service_config c;
	struct places far = places;
	struct err e = {0};

	(void)state;
	memset(far.runtime, 'r', 120); /* a unix socket's path has 107 bytes */
	far.runtime[0] = '/';
	far.runtime[120] = '\0';
	assert_int_equal(service_config_read(&c, &far, NULL, &e), -1);
	assert_int_equal(e.errnum, ENAMETOOLONG);
}

static void test_keys_are_printed(void **state)
{
	char *text = NULL;
	size_t size;
	FILE *out = open_memstream(&text, &size);

	(void)state;
	service_config_print_keys(out);
	fclose(out);
	for (size_t i = 0; i < ARRAY_SIZE(keys); i++)
		assert_contains(text, keys[i].key);
	assert_contains(text, "max_timeout          7d ");
	free(text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_defaults),
		cmocka_unit_test(test_every_key),
		cmocka_unit_test(test_lists_and_mappings),
		cmocka_unit_test(test_what_is_no_key),
		cmocka_unit_test(test_places_that_are_too_long),
		cmocka_unit_test(test_keys_are_printed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
