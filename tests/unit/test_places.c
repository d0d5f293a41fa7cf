/* SPDX-License-Identifier: Apache-2.0 */
/* Where things are, for root and for an ordinary user; the effective user is the test's to choose. */
#include "unit.h"

#include "sandbox/places.h"

static uid_t user;

uid_t __wrap_geteuid(void);
uid_t __wrap_geteuid(void)
{
	return user;
}

static void environment(const char *home, const char *config, const char *data, const char *runtime)
{
	static const char *const names[] = {"HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME",
					    "XDG_RUNTIME_DIR"};
	const char *const values[] = {home, config, data, runtime};

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		if (values[i])
			setenv(names[i], values[i], 1);
		else
			unsetenv(names[i]);
	}
}

static void test_root(void **state)
{
	struct places p;
	struct err e;

	(void)state;
	user = 0;
	environment("/home/x", "/evil/config", "/evil/data",
		    "/evil/run"); /* root's places are fixed */
	assert_int_equal(places_find(&p, &e), 0);
	assert_false(p.rootless);
	assert_string_equal(p.config, "/etc/cloche/cloche.yaml");
	assert_string_equal(p.system_config, "/etc/cloche/cloche.yaml");
	assert_string_equal(p.state, "/var/lib/cloche");
	assert_string_equal(p.runtime, "/run/cloche");
}

static void test_user(void **state)
{
	struct places p;
	struct err e;

	(void)state;
	user = 1234;
	environment("/home/x", NULL, NULL, NULL);
	assert_int_equal(places_find(&p, &e), 0);
	assert_true(p.rootless);
	assert_string_equal(p.config, "/home/x/.config/cloche/cloche.yaml");
	assert_string_equal(p.system_config, "/etc/cloche/cloche.yaml");
	assert_string_equal(p.state, "/home/x/.local/share/cloche");
	assert_string_equal(p.runtime, "/tmp/cloche-1234");
	environment("/home/x", "/c", "/d", "/run/user/1234");
	assert_int_equal(places_find(&p, &e), 0);
	assert_string_equal(p.config, "/c/cloche/cloche.yaml");
	assert_string_equal(p.state, "/d/cloche");
	assert_string_equal(p.runtime, "/run/user/1234/cloche");
	environment("/home/x", "", "", ""); /* empty counts as not set */
	assert_int_equal(places_find(&p, &e), 0);
	assert_string_equal(p.config, "/home/x/.config/cloche/cloche.yaml");
	environment(NULL, "/c", "/d", NULL);
	assert_int_equal(places_find(&p, &e), 0);
}

static void refused(const char *why)
{
	struct places p;
	struct err e = {0};

	assert_int_equal(places_find(&p, &e), -1);
	assert_contains(e.text, why);
}

static void test_refused(void **state)
{
	char path[2000];

	(void)state;
	user = 1234;
	environment(NULL, NULL, NULL, NULL);
	refused("XDG_CONFIG_HOME nor HOME");
	environment("", NULL, NULL, NULL);
	refused("nor HOME");
	environment(NULL, "/c", NULL, NULL);
	refused("XDG_DATA_HOME nor HOME");
	environment("relative", NULL, NULL, NULL);
	refused("must be an absolute path");
	environment("/h", "relative", NULL, NULL);
	refused("XDG_CONFIG_HOME relative");
	environment("/h", NULL, NULL, "../run");
	refused("XDG_RUNTIME_DIR ../run");
	memset(path, 'a', sizeof path);
	path[0] = '/';
	for (size_t n = 880; n < 1030; n++) {
		struct places p;
		struct err e = {0};

		path[n] = '\0';
		environment(path, NULL, NULL, path);
		if (places_find(&p, &e) < 0)
			assert_contains(e.text, "too long");
		path[n] = 'a';
	}
	path[sizeof path - 1] = '\0';
	environment(path, NULL, NULL, NULL);
	refused("too long");
	environment("/h", path, NULL, NULL);
	refused("too long");
	environment("/h", NULL, NULL, path);
	refused("too long");
}

static void test_private_dirs(void **state)
{
	char path[256], below[400];
	_cleanup_close_ int dir = scratch_make(path);
	struct stat st;

	(void)state;
	user = getuid();
	snprintf(below, sizeof below, "%s/a/b/c", path);
	assert_int_equal(make_private_dirs(below), 0);
	assert_int_equal(make_private_dirs(below), 0);
	assert_int_equal(fstatat(dir, "a/b", &st, 0), 0);
	assert_int_equal(st.st_mode & 0777, 0700);
	assert_int_equal(fchmodat(dir, "a/b/c", 0770, 0), 0);
	assert_int_equal(make_private_dirs(below), -EPERM); /* others may write */
	assert_int_equal(symlinkat("a", dir, "link"), 0);
	snprintf(below, sizeof below, "%s/link", path);
	assert_int_equal(make_private_dirs(below), -EPERM); /* put there by someone */
	text_at(dir, "file", "");
	snprintf(below, sizeof below, "%s/file", path);
	assert_int_equal(make_private_dirs(below), -EPERM);
	snprintf(below, sizeof below, "%s/file/x", path);
	assert_int_equal(make_private_dirs(below), -ENOTDIR);
	user = getuid() + 1; /* someone else's */
	snprintf(below, sizeof below, "%s/a/b", path);
	assert_int_equal(make_private_dirs(below), -EPERM);
	scratch_remove(path);
}

static void test_private_dirs_too_long(void **state)
{
	char path[2000];

	(void)state;
	memset(path, 'a', sizeof path - 1);
	path[0] = '/';
	path[sizeof path - 1] = '\0';
	assert_int_equal(make_private_dirs(path), -ENAMETOOLONG);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_root),
		cmocka_unit_test(test_user),
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_private_dirs),
		cmocka_unit_test(test_private_dirs_too_long),
	};

	return cmocka_run_group_tests_name("places", tests, NULL, NULL);
}
