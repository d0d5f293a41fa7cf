/* SPDX-License-Identifier: Apache-2.0 */
/* Prepared roots: removed when their last use was in an earlier boot, and never otherwise. */
#include "unit.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "image/host.h"
#include "image/host_marks.h"

#define BOOT_1 "11111111-1111-1111-1111-111111111111"
#define BOOT_2 "22222222-2222-2222-2222-222222222222"
#define BOOT_3 "33333333-3333-3333-3333-333333333333"

static void make_root(int dir, const char *name)
{
	char path[200];

	snprintf(path, sizeof path, "%s/etc", name);
	assert_int_equal(mkdirat(dir, name, 0755), 0);
	assert_int_equal(mkdirat(dir, path, 0700), 0);
	snprintf(path, sizeof path, "%s/etc/passwd", name);
	assert_int_equal(close(openat(dir, path, O_CREAT | O_WRONLY, 0600)), 0);
}

static bool is_there(int dir, const char *name)
{
	return faccessat(dir, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

static void test_boots(void **state)
{
	char path[256];
	int dir = scratch_make(path);

	(void)state;
	make_root(dir, "root-a");
	make_root(dir, "root-b");
	make_root(dir, "root-old"); /* of a version without marks */
	make_root(dir, ".making-0-root-b");
	make_root(dir, "mnt");
	host_mark(dir, BOOT_1, "root-a");
	host_mark(dir, BOOT_1, "root-b");
	assert_true(host_is_marked(dir, BOOT_1, "root-a") &&
		    !host_is_marked(dir, BOOT_2, "root-a"));

	/* another root in the same boot: what was used in it stays */
	host_sweep(dir, BOOT_1);
	assert_true(is_there(dir, "root-a") && is_there(dir, "root-b"));

	/* the next boot uses b */
	host_mark(dir, BOOT_2, "root-b");
	host_sweep(dir, BOOT_2);
	assert_true(!is_there(dir, "root-a") && is_there(dir, "root-b"));
	assert_false(is_there(dir, "used-" BOOT_1 "-root-a"));
	/* marked by the sweep of the first boot, so it was their turn at the second */
	assert_true(!is_there(dir, "root-old") && !is_there(dir, ".making-0-root-b"));

	/* one without marks may be in use */
	make_root(dir, "root-new");
	host_sweep(dir, BOOT_2);
	assert_true(is_there(dir, "root-new") && host_is_marked(dir, BOOT_2, "root-new"));
	host_mark(dir, BOOT_3, "root-b");
	host_sweep(dir, BOOT_3);
	assert_true(!is_there(dir, "root-new") && is_there(dir, "root-b") && is_there(dir, "mnt"));
	close(dir);
	scratch_remove(path);
}

static void test_marks_that_are_none(void **state)
{
	static const char *const others[] = {"used-", "used-x-root-a", "used-" BOOT_1,
					     "used-" BOOT_1 "-", "used-" BOOT_1 "xroot-a"};
	char path[256];
	int dir = scratch_make(path);

	(void)state;
	make_root(dir, "root-a");
	for (size_t i = 0; i < ARRAY_SIZE(others); i++)
		make_root(dir, others[i]);
	host_mark(dir, BOOT_1, "root-gone"); /* of a root that its maker has renamed */
	host_sweep(dir, BOOT_2);
	for (size_t i = 0; i < ARRAY_SIZE(others); i++)
		assert_true(is_there(dir, others[i]));
	assert_true(is_there(dir, "root-a") && host_is_marked(dir, BOOT_2, "root-a"));
	assert_false(is_there(dir, "used-" BOOT_1 "-root-gone"));
	close(dir);
	scratch_remove(path);
}

/* Without a mark of its own a root must not look like one of an earlier boot. */
static void test_a_mark_that_cannot_be_made(void **state)
{
	char path[256];
	int dir = scratch_make(path);

	(void)state;
	make_root(dir, "root-a");
	host_mark(dir, BOOT_1, "root-a");
	assert_int_equal(symlinkat("nowhere", dir, "used-" BOOT_2 "-root-a"), 0);
	host_mark(dir, BOOT_2, "root-a");
	assert_false(is_there(dir, "used-" BOOT_1 "-root-a"));
	host_sweep(dir, BOOT_3);
	assert_true(is_there(dir, "root-a"));
	close(dir);
	scratch_remove(path);
}

/* Many at once, with one of an earlier boot there: each has a whole root, and the old one is gone. */
static void test_many_at_once(void **state)
{
	struct places places = {.rootless = false};
	char boot[BOOT_ID_SIZE];
	int dir = scratch_make(places.state), host;
	pid_t child[16];

	(void)state;
	assert_true(boot_id(boot));
	assert_int_equal(mkdirat(dir, "host", 0755), 0);
	host = openat(dir, "host", O_RDONLY | O_DIRECTORY);
	make_root(host, "root-a");
	host_mark(host, BOOT_1, "root-a");
	for (size_t i = 0; i < ARRAY_SIZE(child); i++) {
		child[i] = fork();
		if (child[i] == 0) {
			struct host_image image;
			struct err e = {0};
			char path[128];

			if (host_image_open(&places, &image, &e) < 0)
				_exit(1);
			snprintf(path, sizeof path, "%s/etc/passwd", image.template);
			_exit(faccessat(image.dir, path, R_OK, 0) < 0 ||
			      !host_is_marked(image.dir, boot, image.template));
		}
	}
	for (size_t i = 0; i < ARRAY_SIZE(child); i++) {
		int status;

		assert_int_equal(waitpid(child[i], &status, 0), child[i]);
		assert_int_equal(status, 0);
	}
	assert_true(!is_there(host, "root-a") && !is_there(host, "used-" BOOT_1 "-root-a"));
	close(host);
	close(dir);
	scratch_remove(places.state);
}

static void test_boot_id(void **state)
{
	char one[BOOT_ID_SIZE], two[BOOT_ID_SIZE];

	(void)state;
	assert_true(boot_id(one) && boot_id(two));
	assert_string_equal(one, two);
	assert_int_equal(strlen(one), 36);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_boots),
		cmocka_unit_test(test_marks_that_are_none),
		cmocka_unit_test(test_a_mark_that_cannot_be_made),
		cmocka_unit_test(test_many_at_once),
		cmocka_unit_test(test_boot_id),
	};

	return cmocka_run_group_tests_name("host_marks", tests, NULL, NULL);
}
