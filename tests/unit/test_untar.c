/* SPDX-License-Identifier: Apache-2.0 */
/* A hostile tar on this machine: nothing outside the folder, no link followed, nothing half written; and a
 * tar of our own read back. */
#include "tar_unit.h"

#include "client/tar_make.h"
#include "client/untar.h"

static unsigned left_out;
static char last_left_out[512];

static void note_left_out(const char *path, const char *why)
{
	left_out++;
	snprintf(last_left_out, sizeof last_left_out, "%s: %s", path, why);
}

/* In pieces of `step`; the error's text in *e. */
static int unpack(int root, const struct archive *a, size_t step, bool links, uint64_t max,
		  struct err *e)
{
	struct untar *u = malloc(sizeof *u);
	int r = 0;

	assert_non_null(u);
	left_out = 0;
	untar_init(u, root, links, max);
	u->left_out = note_left_out;
	for (size_t i = 0; r == 0 && i < a->size; i += step)
		r = untar_feed(u, a->data + i, a->size - i < step ? a->size - i : step, e);
	if (r == 0)
		r = untar_end(u, e);
	assert_int_equal(u->left_out_count, left_out);
	untar_done(u);
	free(u);
	return r;
}

static void check_text(int dir, const char *name, const char *want)
{
	char text[256];

	assert_int_equal(read_at(dir, name, text, sizeof text), (ssize_t)strlen(want));
	assert_string_equal(text, want);
}

static bool is_there(int dir, const char *name)
{
	struct stat st;

	return fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0;
}

static void test_files_and_folders(void **state)
{
	static const size_t steps[] = {1, 7, 512, 513, 1 << 20};
	struct archive *a = calloc(1, sizeof *a);
	struct stat st;

	(void)state;
	umask(022);
	assert_non_null(a);
	add_header(a, '5', "./", "", 0, 0755);
	add_header(a, '5', "./sub/", "", 0, 0700);
	add_file(a, "./sub/a", "first");
	add_file(a, "deep/er/than/said", "second");
	add_file(a, "empty", "");
	add_header(a, '0', "program", "", 3, 06755);
	add_bytes(a, "#!/", 3);
	add_end(a);
	for (size_t i = 0; i < ARRAY_SIZE(steps); i++) {
		struct err e = {0};
		char path[256];
		_cleanup_close_ int dir = scratch_make(path);

		assert_int_equal(unpack(dir, a, steps[i], false, 1 << 20, &e), 0);
		assert_int_equal(left_out, 0);
		check_text(dir, "sub/a", "first");
		check_text(dir, "deep/er/than/said", "second");
		check_text(dir, "empty", "");
		assert_int_equal(fstatat(dir, "program", &st, 0), 0);
		assert_int_equal(st.st_mode & 07777, 0755); /* no set-id bits */
		/* Again: files are replaced, folders stay. */
		assert_int_equal(unpack(dir, a, 4096, false, 1 << 20, &e), 0);
		check_text(dir, "sub/a", "first");
		scratch_remove(path);
	}
	free(a);
}

static void test_names_that_lead_outside(void **state)
{
	static const char *const names[] = {"../x", "/x",     "/",   "a/../../x", "a/..",
					    "..",   "./../x", "./.", "a/.",       "./"};
	char path[256];
	_cleanup_close_ int outer = scratch_make(path), dir = -1;
	struct archive *a = malloc(sizeof *a);

	(void)state;
	assert_non_null(a);
	mkdirat(outer, "dir", 0755);
	dir = openat(outer, "dir", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		struct err e = {0};

		a->size = 0;
		add_file(a, names[i], "evil");
		add_end(a);
		if (unpack(dir, a, 512, true, 1 << 20, &e) != -1)
			fail_msg("taken: %s", names[i]);
		assert_contains(e.text, "archive: a ");
		assert_false(is_there(outer, "x"));
		assert_false(is_there(dir, "x"));
	}
	free(a);
	scratch_remove(path);
}

/* A link that is there already, or that the archive made: neither is gone through, both are replaced. */
static void test_links_are_not_followed(void **state)
{
	char path[256], target[300];
	_cleanup_close_ int outer = scratch_make(path), dir = -1;
	struct archive *a = calloc(1, sizeof *a);
	struct err e = {0};

	(void)state;
	assert_non_null(a);
	mkdirat(outer, "dir", 0755);
	mkdirat(outer, "elsewhere", 0755);
	text_at(outer, "elsewhere/file", "mine");
	snprintf(target, sizeof target, "%s/elsewhere", path);
	dir = openat(outer, "dir", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	/* left out without --links; then nothing is in the way, a folder is made */
	add_header(a, '2', "link", target, 0, 0777);
	add_file(a, "link/file", "evil");
	add_end(a);
	assert_int_equal(unpack(dir, a, 512, false, 1 << 20, &e), 0);
	assert_int_equal(left_out, 1);
	assert_contains(last_left_out, "a link");
	check_text(dir, "link/file", "evil");
	check_text(outer, "elsewhere/file", "mine");
	assert_int_equal(tree_remove(dir, "link"), 0);

	/* made with --links, and not gone through */
	assert_int_equal(unpack(dir, a, 512, true, 1 << 20, &e), -1);
	assert_contains(e.text, "a link is in the way");
	check_text(outer, "elsewhere/file", "mine");

	/* a link in the place of a file is replaced, its target stays */
	snprintf(target, sizeof target, "%s/elsewhere/file", path);
	assert_int_equal(symlinkat(target, dir, "plain"), 0);
	a->size = 0;
	add_file(a, "plain", "new");
	add_end(a);
	assert_int_equal(unpack(dir, a, 512, false, 1 << 20, &e), 0);
	check_text(dir, "plain", "new");
	check_text(outer, "elsewhere/file", "mine");

	/* a folder is not */
	mkdirat(dir, "folder", 0755);
	a->size = 0;
	add_file(a, "folder", "new");
	add_end(a);
	assert_int_equal(unpack(dir, a, 512, false, 1 << 20, &e), -1);
	assert_contains(e.text, "write folder");
	free(a);
	scratch_remove(path);
}

static void test_left_out(void **state)
{
	static const struct {
		char type;
		const char *name, *why;
	} cases[] = {
		{'2', "link", "a link (--links)"}, {'5', "es\033c", "control"},
		{'5', "line\nbreak", "control"},   {'5', "c1\xc2\x9b", "control"},
		{'5', "raw\x9b", "control"},       {'5', "del\x7f", "control"},
	};
	char path[256];
	_cleanup_close_ int dir = scratch_make(path);
	struct archive *a = malloc(sizeof *a);

	(void)state;
	assert_non_null(a);
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct err e = {0};

		a->size = 0;
		add_file(a, "\x01", "content is passed over");
		add_header(a, cases[i].type, cases[i].name, "target", 0, 0644);
		add_file(a, "after", "fine");
		add_end(a);
		assert_int_equal(unpack(dir, a, 100, false, 1 << 20, &e), 0);
		assert_int_equal(left_out, 2);
		assert_contains(last_left_out, cases[i].why);
		assert_false(is_there(dir, cases[i].name));
		check_text(dir, "after", "fine");
	}
	free(a);
	scratch_remove(path);
}

static void refused(const struct archive *a, const char *why)
{
	char path[256];
	_cleanup_close_ int dir = scratch_make(path);
	struct err e = {0};

	assert_int_equal(unpack(dir, a, 512, true, 1000, &e), -1);
	assert_contains(e.text, why);
	/* What was half written is gone. */
	assert_false(is_there(dir, "half"));
	scratch_remove(path);
}

static void test_broken(void **state)
{
	struct archive *a = calloc(1, sizeof *a);

	(void)state;
	assert_non_null(a);
	refused(a, "cut off");
	add_header(a, '0', "half", "", 600, 0644);
	add_bytes(a, "x", 1);
	refused(a, "cut off");
	a->size = 0;
	add_header(a, '0', "half", "", 1001, 0644);
	refused(a, "--max-size");
	a->size = 0;
	add_header(a, '1', "hard", "half", 0, 0644);
	refused(a, "hard links are not taken");
	free(a);
}

static void test_nested_too_deep(void **state)
{
	char path[256], name[UNTAR_MAX_DEPTH * 2 + 16] = "", records[256];
	_cleanup_close_ int dir = scratch_make(path);
	struct archive *a = calloc(1, sizeof *a);
	struct err e = {0};
	int n = 0;

	(void)state;
	assert_non_null(a);
	for (int i = 0; i < UNTAR_MAX_DEPTH + 1; i++)
		n += snprintf(name + n, sizeof name - (size_t)n, "d/");
	n += snprintf(name + n, sizeof name - (size_t)n, "x");
	snprintf(records, sizeof records, "%d path=%s\n", n + 10, name);
	add_pax(a, records, strlen(records));
	add_file(a, "x", "");
	add_end(a);
	assert_int_equal(unpack(dir, a, 512, false, 1000, &e), -1);
	assert_contains(e.text, "nested too deep");
	free(a);
	scratch_remove(path);
}

/* Our own, read back: long names, links, an empty folder, sizes around a block's. */
static void test_made_and_read_back(void **state)
{
	static const size_t sizes[] = {0, 1, 511, 512, 513, 20000};
	char path[256], name[160], content[20000], piece[700];
	_cleanup_close_ int outer = scratch_make(path), from = -1, to = -1;
	struct untar *u = malloc(sizeof *u);
	struct tar_maker *m;
	struct err e = {0};
	ssize_t n;

	(void)state;
	assert_non_null(u);
	mkdirat(outer, "from", 0755);
	mkdirat(outer, "to", 0755);
	from = openat(outer, "from", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	to = openat(outer, "to", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	memset(content, 'c', sizeof content);
	mkdirat(from, "empty", 0750);
	mkdirat(from, "a", 0755);
	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
		snprintf(name, sizeof name, "a/%0120zu", sizes[i]);
		write_at(from, name, content, sizes[i], 0640);
	}
	assert_int_equal(symlinkat("/etc/passwd", from, "link"), 0);
	assert_int_equal(mkfifoat(from, "fifo", 0600), 0);
	m = tar_maker_new(from, &e);
	assert_non_null(m);
	untar_init(u, to, true, 1 << 20);
	while ((n = tar_maker_read(m, piece, sizeof piece)) > 0)
		assert_int_equal(untar_feed(u, piece, (size_t)n, &e), 0);
	assert_int_equal(n, 0);
	assert_int_equal(untar_end(u, &e), 0);
	assert_int_equal(tar_maker_left_out(m), 1); /* the fifo */
	assert_int_equal(u->left_out_count, 0);
	tar_maker_free(m);
	untar_done(u);
	free(u);
	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
		struct stat st;

		snprintf(name, sizeof name, "a/%0120zu", sizes[i]);
		assert_int_equal(fstatat(to, name, &st, AT_SYMLINK_NOFOLLOW), 0);
		assert_int_equal(st.st_size, sizes[i]);
		assert_int_equal(st.st_mode & 07777, 0640);
	}
	assert_true(is_there(to, "empty"));
	assert_int_equal(readlinkat(to, "link", piece, sizeof piece), 11);
	assert_memory_equal(piece, "/etc/passwd", 11);
	assert_false(is_there(to, "fifo"));
	scratch_remove(path);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_files_and_folders),
		cmocka_unit_test(test_names_that_lead_outside),
		cmocka_unit_test(test_links_are_not_followed),
		cmocka_unit_test(test_left_out),
		cmocka_unit_test(test_broken),
		cmocka_unit_test(test_nested_too_deep),
		cmocka_unit_test(test_made_and_read_back),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
