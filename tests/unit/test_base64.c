/* SPDX-License-Identifier: Apache-2.0 */
/* base64 without slack: one text per value. */
#include "unit.h"

#include "base/base64.h"

static void test_decode(void **state)
{
	static const struct {
		const char *text, *data;
	} good[] = {
		{"", ""},
		{"Zg==", "f"},
		{"Zm8=", "fo"},
		{"Zm9v", "foo"},
		{"Zm9vYg==", "foob"},
		{"Zm9vYmE=", "fooba"},
		{"+/+/", "\xfb\xff\xbf"},
	};
	static const char *const bad[] = {
		"Z",    "Zg",     "Zg=",    "Zg=a",     "Zh==", "Zm9=", "====", "=g==",
		"Zm 8", "Zm8=\n", "Zm9v\n", "Zm8=Zm8=", "Z===", "Zm9-", "Zm9_", "\xff\xff\xff\xff"};
	size_t size;
	char *data;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
		assert_int_equal(base64_decode(good[i].text, strlen(good[i].text), &data, &size),
				 0);
		assert_int_equal(size, strlen(good[i].data));
		assert_string_equal(data, good[i].data);
		free(data);
	}
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		if (base64_decode(bad[i], strlen(bad[i]), &data, &size) != -EINVAL)
			fail_msg("taken: %s", bad[i]);
	/* Every byte, at every place of a group. */
	assert_int_equal(base64_decode("AAECAwT//v0=", 12, &data, &size), 0);
	assert_int_equal(size, 8);
	assert_memory_equal(data, "\0\1\2\3\4\xff\xfe\xfd", 8);
	free(data);
}

/* Every length around a group: what comes back is what went in, and nothing shorter is taken. */
static void test_round(void **state)
{
	char bytes[70], *text, *data;
	size_t text_size, size;

	(void)state;
	for (size_t i = 0; i < sizeof bytes; i++)
		bytes[i] = (char)(i * 37 + 251);
	for (size_t n = 0; n <= sizeof bytes; n++) {
		text = base64_encode(bytes, n, &text_size);
		assert_non_null(text);
		assert_int_equal(text_size, (n + 2) / 3 * 4);
		assert_int_equal(strlen(text), text_size);
		assert_int_equal(base64_decode(text, text_size, &data, &size), 0);
		assert_int_equal(size, n);
		assert_memory_equal(data, bytes, n);
		assert_int_equal(data[n], '\0');
		free(data);
		for (size_t cut = 1; cut < 4 && cut <= text_size; cut++)
			assert_int_equal(base64_decode(text, text_size - cut, &data, &size),
					 -EINVAL);
		free(text);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_decode),
		cmocka_unit_test(test_round),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
