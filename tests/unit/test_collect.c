/* SPDX-License-Identifier: Apache-2.0 */
/* Artifacts out of a hostile folder: what leaves, what stays behind and why, and that nothing of ours is
 * read or written on the way. */
#include "unit.h"

#include <sys/socket.h>
#include <sys/un.h>

#include "native/collect.h"

struct scene {
	char path[256];
	int dir, output, workspace; /* the scratch folder and the two sources in it */
	char out[300];
	struct spec spec;
	struct result result;
	uint64_t bytes_max;
	int cancel_fd;
};

static int open_dir(int at, const char *name)
{
	assert_int_equal(mkdirat(at, name, 0755), 0);
	return openat(at, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

static void begin(struct scene *s)
{
	struct err e;

	*s = (struct scene){0};
	umask(022);
	s->dir = scratch_make(s->path);
	s->output = open_dir(s->dir, "output");
	s->workspace = open_dir(s->dir, "workspace");
	snprintf(s->out, sizeof s->out, "%s/out", s->path);
	assert_int_equal(spec_init(&s->spec, &e), 0);
	s->spec.out_dir = strdup(s->out);
	s->bytes_max = 1 << 20;
	s->cancel_fd = -1;
}

static void pattern(struct scene *s, const char *glob)
{
	struct err e;

	assert_int_equal(spec_set(&s->spec, option_find("artifact"), glob, &e), 0);
}

static void collect(struct scene *s)
{
	struct collect_source from = {s->output, s->workspace, -1, s->cancel_fd, s->bytes_max};

	collect_artifacts(&s->spec, &from, &s->result);
}

static void end(struct scene *s)
{
	close(s->dir);
	close(s->output);
	close(s->workspace);
	spec_done(&s->spec);
	result_done(&s->result);
	scratch_remove(s->path);
}

/* The finding about this path; fails the test if there is not exactly one. */
static const struct artifact *row(const struct scene *s, const char *path)
{
	const struct artifact *found = NULL;

	for (size_t i = 0; i < s->result.artifact_count; i++)
		if (strcmp(s->result.artifacts[i].path, path) == 0) {
			if (found)
				fail_msg("two rows for %s", path);
			found = &s->result.artifacts[i];
		}
	if (!found)
		fail_msg("no row for %s", path);
	return found;
}

static void taken(const struct scene *s, const char *path, const char *content)
{
	char below[600], text[256];
	const struct artifact *a = row(s, path);

	if (a->skipped)
		fail_msg("%s: %s", path, a->skipped);
	assert_int_equal(a->size_bytes, strlen(content));
	snprintf(below, sizeof below, "out/%s", path);
	assert_int_equal(read_at(s->dir, below, text, sizeof text), (ssize_t)strlen(content));
	assert_string_equal(text, content);
}

static void left(const struct scene *s, const char *path, const char *why)
{
	char below[600];
	const struct artifact *a = row(s, path);
	struct stat st;

	if (!a->skipped || strcmp(a->skipped, why) != 0)
		fail_msg("%s: %s", path, a->skipped ? a->skipped : "was taken");
	assert_true(a->size_bytes == RESULT_UNKNOWN);
	snprintf(below, sizeof below, "out/%s", path);
	assert_int_equal(fstatat(s->dir, below, &st, AT_SYMLINK_NOFOLLOW), -1);
}

static void test_files_and_folders(void **state)
{
	struct scene s;
	struct stat st;

	(void)state;
	begin(&s);
	mkdirat(s.output, "a", 0700);
	mkdirat(s.output, "a/b", 0755);
	mkdirat(s.output, "empty", 0755);
	text_at(s.output, "x.txt", "hello");
	text_at(s.output, "a/b/y", "deep");
	write_at(s.output, "run", "#!", 2, 04777);
	write_at(s.output, "zero", "", 0, 0600);
	collect(&s);
	assert_int_equal(s.result.artifact_count, 4);
	assert_false(s.result.artifacts_failed);
	taken(&s, "x.txt", "hello");
	taken(&s, "a/b/y", "deep");
	taken(&s, "run", "#!");
	taken(&s, "zero", "");
	assert_int_equal(fstatat(s.dir, "out/run", &st, 0), 0);
	assert_int_equal(st.st_mode & 07777, 0755); /* no set-user-id leaves */
	assert_int_equal(fstatat(s.dir, "out/zero", &st, 0), 0);
	assert_int_equal(st.st_mode & 07777, 0644);
	end(&s);
}

static void test_links_and_specials(void **state)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	struct scene s;
	int fd;

	(void)state;
	begin(&s);
	text_at(s.dir, "secret", "host");
	mkdirat(s.dir, "secrets", 0755);
	text_at(s.dir, "secrets/x", "host");
	symlinkat("../secret", s.output, "link");
	symlinkat("/etc/passwd", s.output, "absolute");
	symlinkat("../secrets", s.output, "folder");
	symlinkat("nowhere", s.output, "dangling");
	symlinkat("self", s.output, "self");
	assert_int_equal(mknodat(s.output, "fifo", S_IFIFO | 0666, 0), 0);
	fd = socket(AF_UNIX, SOCK_STREAM, 0);
	snprintf(address.sun_path, sizeof address.sun_path, "%.80s/output/sock", s.path);
	assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
	close(fd);
	collect(&s);
	left(&s, "link", "symbolic link");
	left(&s, "absolute", "symbolic link");
	left(&s, "folder", "symbolic link");
	left(&s, "dangling", "symbolic link");
	left(&s, "self", "symbolic link");
	left(&s, "fifo", "not a regular file");
	left(&s, "sock", "not a regular file");
	assert_int_equal(s.result.artifact_count, 7);
	assert_false(s.result.artifacts_failed);
	end(&s);
}

static void test_sizes(void **state)
{
	struct scene s;
	int fd;

	(void)state;
	begin(&s);
	fd = openat(s.output, "sparse", O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
	assert_int_equal(ftruncate(fd, (1 << 20) + 1), 0);
	close(fd);
	fd = openat(s.output, "huge", O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
	assert_int_equal(ftruncate(fd, (off_t)1 << 40), 0);
	close(fd);
	text_at(s.output, "small", "ok");
	collect(&s);
	left(&s, "sparse", "too large");
	left(&s, "huge", "too large");
	taken(&s, "small", "ok");
	end(&s);
}

static void test_names(void **state)
{
	struct scene s;

	(void)state;
	begin(&s);
	text_at(s.output, "esc\x1b[2J", "x");
	text_at(s.output, "new\nline", "x");
	text_at(s.output, "del\x7f", "x");
	mkdirat(s.output, "dir\x07", 0755);
	text_at(s.output, "dir\x07/x", "x");
	text_at(s.output, "-rf", "dash");
	text_at(s.output, "...", "dots");
	text_at(s.output, " ; $(x) `y` '\"\\", "shell");
	text_at(s.output, "\xff\xfe", "bytes");
	text_at(s.output, "\xc3\xa9", "utf-8");
	collect(&s);
	left(&s, "esc\x1b[2J", "control character in its name");
	left(&s, "new\nline", "control character in its name");
	left(&s, "del\x7f", "control character in its name");
	left(&s, "dir\x07", "control character in its name");
	taken(&s, "-rf", "dash");
	taken(&s, "...", "dots");
	taken(&s, " ; $(x) `y` '\"\\", "shell");
	taken(&s, "\xff\xfe", "bytes");
	taken(&s, "\xc3\xa9", "utf-8");
	assert_int_equal(s.result.artifact_count, 9);
	end(&s);
}

/* All together, whatever the order they are found in. */
static void test_total_size(void **state)
{
	struct scene s;
	size_t taken_count = 0;
	char text[8];

	(void)state;
	begin(&s);
	s.bytes_max = 10;
	for (int i = 0; i < 5; i++) {
		snprintf(text, sizeof text, "f%d", i);
		text_at(s.output, text, "four");
	}
	text_at(s.output, "none", "");
	collect(&s);
	assert_int_equal(s.result.artifact_count, 6);
	for (size_t i = 0; i < s.result.artifact_count; i++)
		taken_count += !s.result.artifacts[i].skipped;
	assert_int_equal(taken_count, 3); /* two of four bytes, and the empty one */
	end(&s);
}

/* More names than an export tells of: it stops, and its last word says so. */
static void test_too_many(void **state)
{
	const struct artifact *last;
	struct scene s;
	char text[16];

	(void)state;
	begin(&s);
	for (int i = 0; i < COLLECT_MAX_TOLD + 100; i++) {
		snprintf(text, sizeof text, "%d", i);
		assert_int_equal(symlinkat("x", s.output, text), 0);
	}
	collect(&s);
	assert_int_equal(s.result.artifact_count, COLLECT_MAX_TOLD + 1);
	last = &s.result.artifacts[COLLECT_MAX_TOLD];
	assert_string_equal(last->skipped, "too much: this and the rest was left out");
	end(&s);
}

static void test_cancelled(void **state)
{
	struct scene s;
	int p[2];

	(void)state;
	begin(&s);
	assert_int_equal(pipe2(p, O_CLOEXEC), 0);
	assert_int_equal(write(p[1], "x", 1), 1);
	s.cancel_fd = p[0];
	text_at(s.output, "x", "1");
	text_at(s.output, "y", "2");
	collect(&s);
	assert_int_equal(s.result.artifact_count, 1);
	assert_string_equal(s.result.artifacts[0].skipped,
			    "too much: this and the rest was left out");
	close(p[0]);
	close(p[1]);
	end(&s);
}

/* The folder `depth` times "d" below. */
static int deep(int dir, int depth)
{
	int at = dup(dir);

	while (depth--) {
		int below = openat(at, "d", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

		assert_true(below >= 0);
		close(at);
		at = below;
	}
	return at;
}

static void test_depth(void **state)
{
	struct scene s;
	bool too_deep = false;
	int at, inner;

	(void)state;
	begin(&s);
	at = dup(s.output);
	for (int i = 0; i < 200; i++) {
		int below;

		assert_int_equal(mkdirat(at, "d", 0755), 0);
		below = openat(at, "d", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		text_at(at, "f", "x");
		close(at);
		at = below;
	}
	close(at);
	collect(&s);
	for (size_t i = 0; i < s.result.artifact_count; i++)
		too_deep |= s.result.artifacts[i].skipped &&
			    strcmp(s.result.artifacts[i].skipped, "nested too deep") == 0;
	assert_true(too_deep);
	assert_true(s.result.artifact_count >= TREE_MAX_DEPTH &&
		    s.result.artifact_count <= TREE_MAX_DEPTH + 4);
	for (int depth = 160; depth >= 40;
	     depth -= 40) { /* deeper than tree_remove() goes: from below */
		inner = deep(s.output, depth);
		assert_int_equal(tree_remove(inner, "d"), 0);
		close(inner);
	}
	assert_int_equal(tree_remove(s.dir, "output"), 0);
	inner = openat(s.dir, "out", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_int_equal(tree_remove(inner, "d"), 0);
	close(inner);
	end(&s);
}

static void test_patterns(void **state)
{
	struct scene s;

	(void)state;
	begin(&s);
	pattern(&s, "*.png");
	pattern(&s, "plots");
	pattern(&s, "a/?.csv");
	text_at(s.workspace, "x.png", "1");
	text_at(s.workspace, "x.txt", "2");
	mkdirat(s.workspace, "a", 0755);
	text_at(s.workspace, "a/y.png", "3"); /* * does not cross a / */
	text_at(s.workspace, "a/1.csv", "4");
	text_at(s.workspace, "a/12.csv", "5");
	mkdirat(s.workspace, "plots", 0755);
	mkdirat(s.workspace, "plots/deep", 0755);
	text_at(s.workspace, "plots/deep/z", "6");
	symlinkat("/etc/passwd", s.workspace, "evil.png");
	symlinkat("/etc/passwd", s.workspace, "other");
	text_at(s.output, "o", "7");
	collect(&s);
	taken(&s, "x.png", "1");
	taken(&s, "a/1.csv", "4");
	taken(&s, "plots/deep/z", "6");
	taken(&s, "o", "7");
	left(&s, "evil.png", "symbolic link");
	assert_int_equal(s.result.artifact_count, 5);
	end(&s);
}

static void test_without_patterns_the_workspace_stays(void **state)
{
	struct scene s;

	(void)state;
	begin(&s);
	text_at(s.workspace, "x", "1");
	collect(&s);
	assert_int_equal(s.result.artifact_count, 0);
	end(&s);
}

/* The same name in both places: /output wins, and the other is named. */
static void test_same_name_twice(void **state)
{
	char text[16];
	struct scene s;

	(void)state;
	begin(&s);
	pattern(&s, "*");
	text_at(s.output, "x", "output");
	text_at(s.workspace, "x", "workspace");
	collect(&s);
	assert_int_equal(s.result.artifact_count, 2);
	assert_int_equal(read_at(s.dir, "out/x", text, sizeof text), 6);
	assert_string_equal(text, "output");
	assert_int_equal(!s.result.artifacts[0].skipped + !s.result.artifacts[1].skipped, 1);
	end(&s);
}

/* The output folder of the caller: links in it are not followed, files in it are replaced. */
static void test_output_folder(void **state)
{
	char text[16];
	struct scene s;
	int out;

	(void)state;
	begin(&s);
	out = open_dir(s.dir, "out");
	mkdirat(s.dir, "elsewhere", 0755);
	text_at(s.dir, "victim", "safe");
	text_at(out, "old", "old content");
	symlinkat("../victim", out, "link");
	symlinkat("../elsewhere", out, "sub");
	mkdirat(out, "was-a-folder", 0755);
	text_at(s.output, "old", "new");
	text_at(s.output, "link", "new");
	text_at(s.output, "was-a-folder", "x");
	mkdirat(s.output, "sub", 0755);
	text_at(s.output, "sub/x", "x");
	collect(&s);
	taken(&s, "old", "new");
	taken(&s, "link", "new");
	assert_int_equal(read_at(s.dir, "victim", text, sizeof text), 4);
	assert_string_equal(text, "safe");
	assert_string_equal(row(&s, "sub/x")->skipped, "cannot be written to the output folder");
	assert_int_equal(faccessat(s.dir, "elsewhere/x", F_OK, 0), -1);
	assert_string_equal(row(&s, "was-a-folder")->skipped,
			    "cannot be written to the output folder");
	assert_true(s.result.artifacts_failed);
	assert_contains(s.result.message, "not every artifact");
	close(out);
	end(&s);
}

static void test_no_output_folder(void **state)
{
	struct scene s;

	(void)state;
	begin(&s);
	text_at(s.output, "x", "1");
	free(s.spec.out_dir);
	s.spec.out_dir = NULL;
	collect(&s);
	assert_int_equal(s.result.artifact_count, 0);
	assert_false(s.result.artifacts_failed);
	s.spec.out_dir = strdup("/nonexistent/below/nothing");
	collect(&s);
	assert_true(s.result.artifacts_failed);
	assert_contains(s.result.message, "/nonexistent/below/nothing: No such file or directory");
	end(&s);
}

static void test_no_sources(void **state)
{
	struct collect_source none = {-1, -1, -1, -1, 1 << 20};
	struct scene s;

	(void)state;
	begin(&s);
	pattern(&s, "*");
	collect_artifacts(&s.spec, &none, &s.result);
	assert_int_equal(s.result.artifact_count, 0);
	assert_false(s.result.artifacts_failed);
	end(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_files_and_folders),
		cmocka_unit_test(test_links_and_specials),
		cmocka_unit_test(test_sizes),
		cmocka_unit_test(test_total_size),
		cmocka_unit_test(test_too_many),
		cmocka_unit_test(test_cancelled),
		cmocka_unit_test(test_names),
		cmocka_unit_test(test_depth),
		cmocka_unit_test(test_patterns),
		cmocka_unit_test(test_without_patterns_the_workspace_stays),
		cmocka_unit_test(test_same_name_twice),
		cmocka_unit_test(test_output_folder),
		cmocka_unit_test(test_no_output_folder),
		cmocka_unit_test(test_no_sources),
	};

	return cmocka_run_group_tests_name("collect", tests, NULL, NULL);
}
