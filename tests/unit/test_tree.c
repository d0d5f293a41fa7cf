/* SPDX-License-Identifier: Apache-2.0 */
/* Folders copied and removed by descriptor: what is public, no link followed, a bounded depth. */
#include "unit.h"

#include <sys/wait.h>

static const char *const nothing[] = {NULL};

static int mode_of(int dir, const char *name)
{
	struct stat st;

	return fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0 ? -errno
								: (int)(st.st_mode & 07777);
}

static void test_copy_public(void **state)
{
	struct stat st;
	static const char *const left_out[] = {"secret", "x.key", NULL};
	char path[256], text[64];
	_cleanup_close_ int dir = scratch_make(path), to = -1;

	(void)state;
	umask(022);
	mkdirat(dir, "to", 0755);
	to = openat(dir, "to", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	mkdirat(dir, "from", 0755);
	mkdirat(dir, "from/sub", 0755);
	mkdirat(dir, "from/secret", 0755);
	mkdirat(dir, "from/closed", 0750);
	mkdirat(dir, "from/listed-only", 0754);
	text_at(dir, "from/file", "content");
	write_at(dir, "from/program", "#!", 2, 04755);
	write_at(dir, "from/private", "no", 2, 0640);
	write_at(dir, "from/sub/x.key", "no", 2, 0644);
	write_at(dir, "from/sub/empty", "", 0, 0444);
	write_at(dir, "from/secret/x", "no", 2, 0644);
	write_at(dir, "from/closed/x", "no", 2, 0644);
	symlinkat("/etc/shadow", dir, "from/link");
	symlinkat("nowhere", dir, "from/sub/dangling");
	assert_int_equal(mknodat(dir, "from/fifo", S_IFIFO | 0666, 0), 0);
	assert_int_equal(utimensat(dir, "from/file", (const struct timespec[]){{1, 0}, {2, 3}}, 0),
			 0);
	assert_int_equal(tree_copy_public(dir, to, "from", left_out), 0);

	assert_int_equal(read_at(to, "from/file", text, sizeof text), 7);
	assert_int_equal(fstatat(to, "from/file", &st, 0), 0);
	assert_true(st.st_mtim.tv_sec == 2 && st.st_mtim.tv_nsec == 3);
	assert_string_equal(text, "content");
	assert_int_equal(mode_of(to, "from/file"), 0644);
	assert_int_equal(mode_of(to, "from/program"), 0755); /* no set-user-id */
	assert_int_equal(mode_of(to, "from/sub"), 0755);
	assert_int_equal(mode_of(to, "from/sub/empty"), 0644);
	assert_int_equal(mode_of(to, "from/private"), -ENOENT);
	assert_int_equal(mode_of(to, "from/sub/x.key"), -ENOENT);
	assert_int_equal(mode_of(to, "from/secret"), -ENOENT);
	assert_int_equal(mode_of(to, "from/closed"), -ENOENT);
	assert_int_equal(mode_of(to, "from/listed-only"), -ENOENT);
	assert_int_equal(mode_of(to, "from/fifo"), -ENOENT);
	assert_int_equal(readlinkat(to, "from/link", text, sizeof text), 11);
	assert_memory_equal(text, "/etc/shadow", 11);
	assert_int_equal(readlinkat(to, "from/sub/dangling", text, sizeof text), 7);
	scratch_remove(path);
}

static void test_copy_one(void **state)
{
	char path[256], text[64];
	_cleanup_close_ int dir = scratch_make(path), to = -1;

	(void)state;
	mkdirat(dir, "to", 0755);
	to = openat(dir, "to", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	text_at(dir, "file", "x");
	assert_int_equal(tree_copy_public(dir, to, "missing", nothing), -ENOENT);
	assert_int_equal(tree_copy_public(dir, to, "file", nothing), 0);
	assert_int_equal(tree_copy_public(dir, to, "file", nothing), -EEXIST);
	/* a link that waits at the destination is not written through */
	text_at(dir, "victim", "safe");
	text_at(dir, "other", "evil");
	symlinkat("../victim", to, "other");
	assert_int_equal(tree_copy_public(dir, to, "other", nothing), -EEXIST);
	assert_int_equal(read_at(dir, "victim", text, sizeof text), 4);
	assert_string_equal(text, "safe");
	scratch_remove(path);
}

static void make_deep(int dir, int depth)
{
	int at = dup(dir);

	for (int i = 0; i < depth; i++) {
		int below;

		assert_int_equal(mkdirat(at, "d", 0755), 0);
		below = openat(at, "d", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		close(at);
		at = below;
	}
	close(at);
}

/* What an image brought along, for a user without the right to pass over modes; root has it, and is let through. */
static void test_modes_are_no_obstacle(void **state)
{
	char path[256];
	_cleanup_close_ int dir = scratch_make(path);
	pid_t pid;
	int status;

	(void)state;
	assert_int_equal(fchmod(dir, 0777), 0);
	pid = fork();
	if (pid == 0) {
		if (geteuid() == 0 && (setgid(65534) < 0 || setuid(65534) < 0))
			_exit(2);
		mkdirat(dir, "d", 0755);
		mkdirat(dir, "d/closed", 0755);
		write_at(dir, "d/closed/file", "x", 1, 0400);
		fchmodat(dir, "d/closed", 0, 0);
		fchmodat(dir, "d", 0500, 0);
		_exit(tree_remove(dir, "d") != 0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	assert_int_equal(faccessat(dir, "d", F_OK, 0), -1);
	scratch_remove(path);
}

static void test_depth(void **state)
{
	char path[256];
	_cleanup_close_ int dir = scratch_make(path), to = -1, deep = -1;
	int r;

	(void)state;
	mkdirat(dir, "to", 0755);
	to = openat(dir, "to", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	make_deep(dir, TREE_MAX_DEPTH + 1);
	assert_int_equal(tree_copy_public(dir, to, "d", nothing), 0);
	assert_int_equal(tree_remove(dir, "d"), 0); /* as deep as can be copied can be removed */
	assert_int_equal(tree_remove(to, "d"), 0);
	make_deep(dir, TREE_MAX_DEPTH + 2);
	assert_int_equal(tree_copy_public(dir, to, "d", nothing), -ELOOP);
	assert_int_equal(tree_remove(to, "d"), 0);
	assert_int_equal(tree_remove(dir, "d"), 0);
	make_deep(dir, TREE_MAX_REMOVED + 2);
	r = tree_remove(dir, "d");
	assert_int_equal(r, -ELOOP);
	/* by hand, from the middle */
	deep = openat(dir, "d/d/d/d", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_int_equal(tree_remove(deep, "d"), 0);
	scratch_remove(path);
}

static void test_remove(void **state)
{
	char path[256], text[8];
	_cleanup_close_ int dir = scratch_make(path);

	(void)state;
	text_at(dir, "safe", "safe");
	mkdirat(dir, "kept", 0755);
	text_at(dir, "kept/file", "x");
	assert_int_equal(tree_remove(dir, "missing"), 0);
	mkdirat(dir, "t", 0755);
	mkdirat(dir, "t/a", 0755);
	text_at(dir, "t/a/file", "x");
	symlinkat("../kept", dir, "t/link");
	symlinkat("../../safe", dir, "t/a/link");
	assert_int_equal(mknodat(dir, "t/fifo", S_IFIFO | 0600, 0), 0);
	assert_int_equal(tree_remove(dir, "t"), 0);
	assert_int_equal(mode_of(dir, "t"), -ENOENT);
	assert_int_equal(mode_of(dir, "kept/file"), 0644);
	assert_int_equal(read_at(dir, "safe", text, sizeof text), 4);
	symlinkat("kept", dir, "link");
	assert_int_equal(tree_remove(dir, "link"), 0);
	assert_int_equal(mode_of(dir, "kept/file"), 0644);
	assert_int_equal(tree_remove(dir, "safe"), 0);
	scratch_remove(path);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_copy_public),
		cmocka_unit_test(test_copy_one),
		cmocka_unit_test(test_modes_are_no_obstacle),
		cmocka_unit_test(test_depth),
		cmocka_unit_test(test_remove),
	};

	return cmocka_run_group_tests_name("tree", tests, NULL, NULL);
}
