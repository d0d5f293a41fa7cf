/* SPDX-License-Identifier: Apache-2.0 */
/* Paths that somebody else could exchange: every component, links too. As root, for what belongs to another. */
#include "unit.h"

#include <sys/stat.h>
#include <unistd.h>

#include "base/trust.h"

static char base[256];

static const char *at(const char *below)
{
	static char path[8][600];
	static unsigned next;
	char *p = path[next++ % 8];

	snprintf(p, 600, "%s/%s", base, below);
	return p;
}

static void refused(const char *path, const char *component, const char *why)
{
	struct err e = {0};

	assert_int_equal(path_check_trust(path, &e), -1);
	assert_contains(e.text, component);
	assert_contains(e.text, why);
}

static void taken(const char *path)
{
	struct err e = {0};

	if (path_check_trust(path, &e) != 0)
		fail_msg("%s", e.text);
}

static int make(void **state)
{
	close(scratch_make(base));
	(void)state;
	for (const char *const *p =
		     (const char *const[]){"a", "a/b", "a/b/c", "s", "s/d", "g", "g/d", NULL};
	     *p; p++)
		assert_int_equal(mkdir(at(*p), 0755), 0);
	return 0;
}

static int unmake(void **state)
{
	(void)state;
	scratch_remove(base);
	return 0;
}

static void test_modes(void **state)
{
	(void)state;
	taken(at("a/b/c"));
	taken(at("a/b/not/there/yet"));
	taken("/");
	taken("//");
	taken(at("a/./b/../b//c/"));
	refused("a/b", "a/b", "Invalid argument");
	/* not the last parent, one above it */
	assert_int_equal(chmod(at("a"), 0777), 0);
	refused(at("a/b/c"), at("a"), "others may write");
	refused(at("a/b/c"), " (mode 0777)", "others may write");
	assert_int_equal(chmod(at("a"), 01777), 0);
	taken(at("a/b/c"));
	assert_int_equal(chmod(at("a"), 0755), 0);
	assert_int_equal(close(creat(at("a/f"), 0600)), 0);
	refused(at("a/f/x"), at("a/f"), "Not a directory");
}

static void test_links(void **state)
{
	(void)state;
	assert_int_equal(symlink("../a/b", at("s/relative")), 0);
	assert_int_equal(symlink(at("a"), at("s/absolute")), 0);
	assert_int_equal(symlink("loop", at("s/loop")), 0);
	taken(at("s/relative/c"));
	taken(at("s/absolute/b/c"));
	refused(at("s/loop/x"), "s/loop", "symbolic links");
	assert_int_equal(chmod(at("a"), 0777), 0);
	refused(at("s/relative/c"), at("a"), "others may write");
	refused(at("s/absolute/b/c"), at("a"), "others may write");
	assert_int_equal(chmod(at("a"), 0755), 0);
	taken(at("s/absolute/../s"));
}

static void test_owners(void **state)
{
	(void)state;
	if (geteuid() != 0)
		skip();
	assert_int_equal(chown(at("a"), 65534, 0), 0);
	refused(at("a/b/c"), at("a"), "belongs to uid 65534");
	assert_int_equal(chown(at("a"), 0, 0), 0);
	assert_int_equal(chmod(at("g"), 0775), 0);
	taken(at("g/d"));
	assert_int_equal(chown(at("g"), 0, 65534), 0);
	refused(at("g/d"), at("g"), "others may write");
	/* a link in a sticky folder, of another */
	assert_int_equal(chmod(at("s"), 01777), 0);
	assert_int_equal(symlink(at("a"), at("s/theirs")), 0);
	taken(at("s/theirs/b"));
	assert_int_equal(lchown(at("s/theirs"), 65534, 0), 0);
	refused(at("s/theirs/b"), at("s/theirs"), "belongs to uid 65534");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_modes, make, unmake),
		cmocka_unit_test_setup_teardown(test_links, make, unmake),
		cmocka_unit_test_setup_teardown(test_owners, make, unmake),
	};

	return cmocka_run_group_tests_name("trust", tests, NULL, NULL);
}
