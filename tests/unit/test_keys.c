/* SPDX-License-Identifier: Apache-2.0 */
/* API keys: made, found, revoked, and nothing in the file that lets anybody in. */
#include "store_unit.h"

static int count_key(const struct stored_key *k, void *data)
{
	assert_memory_equal(k->id, "key_", 4);
	return ++*(int *)data == 100;
}

static bool file_contains(int dir, const char *name, const char *needle)
{
	_cleanup_close_ int fd = openat(dir, name, O_RDONLY | O_CLOEXEC);
	char *data = calloc(1, 1 << 20);
	ssize_t n = fd < 0 ? 0 : read(fd, data, 1 << 20);
	bool found = n > 0 && memmem(data, (size_t)n, needle, strlen(needle));

	free(data);
	return found;
}

static void test_life_of_a_key(void **state)
{
	struct stored_key k, found;
	struct scratch t;
	struct err e = {0};
	char secret[48], other[48];
	int count = 0;

	(void)state;
	scratch_open(&t);
	must(store_key_create(t.store, "robot", "{\"memory\":\"1g\"}", secret, &k, &e), e);
	assert_int_equal(strlen(secret), 47);
	assert_memory_equal(secret, "clk_", 4);
	assert_int_equal(strlen(k.id), 20);
	must(store_key_find(t.store, secret, &found, &e), e);
	assert_string_equal(found.id, k.id);
	assert_string_equal(found.name, "robot");
	assert_string_equal(found.quota, "{\"memory\":\"1g\"}");
	assert_true(found.created_ms == k.created_ms && found.revoked_ms == 0);
	stored_key_done(&found);
	stored_key_done(&k);
	must(store_key_create(t.store, "second", NULL, other, &k, &e), e);
	assert_string_not_equal(secret, other);
	must(store_key_list(t.store, count_key, &count, &e), e);
	assert_int_equal(count, 2);
	/* its secret is nowhere, its name (the control) is */
	assert_true(file_contains(t.dir, "state.db-wal", "second"));
	assert_false(file_contains(t.dir, "state.db-wal", other + 4));
	must(store_key_revoke(t.store, k.id, &e), e);
	assert_int_equal(store_key_find(t.store, other, &found, &e), 1);
	must(store_key_revoke(t.store, k.id, &e), e);
	assert_int_equal(store_key_revoke(t.store, "key_none", &e), 1);
	must(store_key_find(t.store, secret, &found, &e), e);
	stored_key_done(&found);
	stored_key_done(&k);
	scratch_close(&t);
}

static void test_not_a_secret(void **state)
{
	static const char *const bad[] = {
		"",
		"clk_",
		"clk_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",   /* 42 */
		"clk_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA", /* 44 */
		"clk_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA+",
		"clk_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=",
		"clk_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA ",
		"CLK_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
		"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
	};
	struct store nothing = {.lock_fd = -1}; /* has no database: looking into it would crash */
	struct stored_key k;
	struct scratch t;
	struct err e = {0};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		assert_int_equal(store_key_find(&nothing, bad[i], &k, &e), 1);
	scratch_open(&t);
	assert_int_equal(store_key_find(t.store, "clk_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
					&k, &e),
			 1);
	scratch_close(&t);
}

static void test_bad_quota(void **state)
{
	struct stored_key k;
	struct scratch t;
	struct err e = {0};
	char secret[48] = "untouched";
	int count = 0;

	(void)state;
	scratch_open(&t);
	assert_int_equal(store_key_create(t.store, "x", "{\"memroy\":1}", secret, &k, &e), -1);
	assert_contains(e.text, "quota of the key: quota memroy");
	assert_string_equal(secret, "untouched");
	must(store_key_list(t.store, count_key, &count, &e), e);
	assert_int_equal(count, 0);
	scratch_close(&t);
}

/* 200 secrets: all different, and every character of the alphabet turns up. */
static void test_secrets_are_random(void **state)
{
	static char secrets[200][48];
	bool used[256] = {false};
	struct scratch t;
	struct err e = {0};
	int letters = 0;

	(void)state;
	scratch_open(&t);
	must(store_begin(t.store, &e), e);
	for (int i = 0; i < 200; i++) {
		struct stored_key k;

		must(store_key_create(t.store, "x", NULL, secrets[i], &k, &e), e);
		stored_key_done(&k);
		for (int c = 4; c < 47; c++)
			used[(unsigned char)secrets[i][c]] = true;
		for (int j = 0; j < i; j++)
			assert_string_not_equal(secrets[i], secrets[j]);
	}
	for (int c = 0; c < 256; c++)
		letters += used[c];
	assert_int_equal(letters, 64);
	scratch_close(&t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_life_of_a_key),
		cmocka_unit_test(test_not_a_secret),
		cmocka_unit_test(test_bad_quota),
		cmocka_unit_test(test_secrets_are_random),
	};

	return cmocka_run_group_tests_name("keys", tests, NULL, NULL);
}
