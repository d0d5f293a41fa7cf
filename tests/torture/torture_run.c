/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A whole run in which the n-th allocation, or the n-th system call of the supervisor, fails - for every
 * n until none is left. Each run ends with an error or a true result, and leaves no cgroup, mount, process
 * or descriptor behind.
 *
 * It takes root and the v1 or hybrid cgroup trees. The program gives itself a mount namespace in which
 * every tree is a folder of its own, so that leftovers are ours and nobody else's runs are touched.
 */
#include "../unit/unit.h"

#include <dirent.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/statfs.h>
#include <sys/wait.h>

#include "base/fd.h"
#include "native/native.h"
#include "torture.h"

enum { MOST = 5000 };

#define TREES "/sys/fs/cgroup"

static const char *const trees[] = {"memory", "cpu", "cpuacct", "pids", "freezer", "unified"};
static char scratch[256], name[64];
static struct places places;
static bool private_trees;

/* ------------------------------------------------------------------------------ a world of our own */

static bool bind_trees(void)
{
	char from[128], to[64];

	if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		return false;
	for (size_t i = 0; i < ARRAY_SIZE(trees); i++) {
		snprintf(to, sizeof to, TREES "/%s", trees[i]);
		snprintf(from, sizeof from, "%s/%s", to, name);
		if (access(to, F_OK) < 0)
			continue;
		if ((mkdir(from, 0755) < 0 && errno != EEXIST) ||
		    mount(from, to, NULL, MS_BIND, NULL) < 0)
			return false;
	}
	/* the image is made again and again: in memory */
	return mount("tmpfs", scratch, "tmpfs", 0, "mode=755") == 0;
}

static int set_up(void **state)
{
	(void)state;
	signal(SIGPIPE, SIG_IGN);
	close(scratch_make(scratch));
	chmod(scratch, 0755);
	snprintf(name, sizeof name, "cloche-torture-%d", getpid());
	snprintf(places.state, sizeof places.state, "%s/state", scratch);
	snprintf(places.runtime, sizeof places.runtime, "%s/run", scratch);
	private_trees = geteuid() == 0 && access(TREES "/memory", F_OK) == 0 && bind_trees();
	return 0;
}

static int tear_down(void **state)
{
	char path[128];

	(void)state;
	for (size_t i = 0; private_trees && i < ARRAY_SIZE(trees); i++) {
		snprintf(path, sizeof path, TREES "/%s", trees[i]);
		snprintf(path + strlen(path), sizeof path - strlen(path), "/cloche");
		rmdir(path);
		snprintf(path, sizeof path, TREES "/%s", trees[i]);
		umount2(path, MNT_DETACH);
		snprintf(path, sizeof path, TREES "/%s/%s", trees[i], name);
		rmdir(path);
	}
	umount2(scratch, MNT_DETACH);
	scratch_remove(scratch);
	return 0;
}

/* -------------------------------------------------------------------------------------- leftovers */

struct world {
	int descriptors, mounts, processes, cgroups;
	unsigned long heap;
};

static int entries(const char *path)
{
	DIR *d = opendir(path);
	int n = 0;

	while (d && readdir(d))
		n++;
	if (d)
		closedir(d);
	return n;
}

static int folders(const char *path)
{
	struct dirent *entry;
	DIR *d = opendir(path);
	int n = 0;

	while (d && (entry = readdir(d)))
		n += entry->d_type == DT_DIR && entry->d_name[0] != '.';
	if (d)
		closedir(d);
	return n;
}

static int lines(const char *path)
{
	FILE *f = fopen(path, "r");
	int n = 0, c;

	while (f && (c = fgetc(f)) != EOF)
		n += c == '\n';
	if (f)
		fclose(f);
	return n;
}

static struct world look(void)
{
	struct world w = {.descriptors = entries("/proc/self/fd"),
			  .mounts = lines("/proc/self/mountinfo"),
			  .heap = torture_heap()};
	char path[128];

	w.processes = waitid(P_ALL, 0, &(siginfo_t){0}, WEXITED | WNOHANG | WNOWAIT | __WALL) == 0;
	for (size_t i = 0; i < ARRAY_SIZE(trees); i++) {
		snprintf(path, sizeof path, TREES "/%s/cloche", trees[i]);
		w.cgroups += folders(path);
	}
	return w;
}

static void compare(const struct world *a, const struct world *b, const char *what, unsigned n)
{
	if (a->descriptors != b->descriptors || a->mounts != b->mounts ||
	    a->processes != b->processes || a->cgroups != b->cgroups)
		fail_msg(
			"%s %u (%s) left behind: descriptors %d -> %d, mounts %d -> %d, children %d -> %d, "
			"cgroups %d -> %d",
			what, n, torture_victim(), a->descriptors, b->descriptors, a->mounts,
			b->mounts, a->processes, b->processes, a->cgroups, b->cgroups);
}

/* -------------------------------------------------------------------------------------------- run */

static void make_spec(struct spec *s)
{
	static const char *const settings[][2] = {
		{"memory", "64m"},
		{"timeout", "10s"},
		{"volume", "/usr/share:/data:ro"},
		{"out", ""},
		{"in", "/etc/hostname:/tmp/in"},
	};
	static const char *const command[] = {"sh", "-c", "cat; echo x >/output/x; exit 7"};
	char out[300];
	struct err e;

	assert_int_equal(spec_init(s, &e), 0);
	snprintf(out, sizeof out, "%s/out", scratch);
	for (size_t i = 0; i < ARRAY_SIZE(settings); i++)
		if (spec_set(s, option_find(settings[i][0]),
			     settings[i][1][0] ? settings[i][1] : out, &e) < 0)
			fail_msg("%s", e.text);
	for (size_t i = 0; i < ARRAY_SIZE(command); i++)
		assert_int_equal(spec_add_argument(s, command[i], &e), 0);
	assert_int_equal(spec_finish(s, &e), 0);
}

static void check_result(const struct result *r, const char *what, unsigned n, bool fired)
{
	bool right = r->reason == REASON_EXITED && r->exit_code == 7;

	if (!fired && !right)
		fail_msg("%s: without a failure: %s: %s", what, reasons[r->reason].name,
			 r->message);
	/* What the command did is told as it was, or the run is said to have failed. */
	if (r->reason == REASON_EXITED && r->exit_code != 7)
		fail_msg("%s %u (%s): exit code %d", what, n, torture_victim(), r->exit_code);
	if (r->out.kept > r->out.bytes ||
	    (right && r->out.bytes != r->out.kept && !(r->limits_hit & HIT_OUTPUT)))
		fail_msg("%s %u (%s): output lost in silence", what, n, torture_victim());
	if (!result_ok(r) && !right && !r->message[0])
		fail_msg("%s %u (%s): no message", what, n, torture_victim());
}

/* One run; true if a call was made to fail in it. */
static bool run_once(const struct spec *s, enum torture_kind kind, unsigned n, int errnum,
		     const char *what)
{
	const struct native_io io = {.stdin_fd = -1,
				     .stdin_data = "input\n",
				     .stdin_size = 6,
				     .out_fd = -1,
				     .err_fd = -1,
				     .cancel_fd = -1,
				     .uid_range = "1900000000:64"};
	struct result r = {0};
	struct err e = {0};
	uint64_t start = now_us();
	bool fired;
	int ran;

	torture_arm(kind, n, errnum);
	ran = native_run(&places, s, &io, &r, &e);
	fired = torture_disarm();
	if (now_us() - start > 4000000) /* no failure makes anyone wait for a deadline */
		fail_msg("%s %u (%s): took %llu ms", what, n, torture_victim(),
			 (unsigned long long)(now_us() - start) / 1000);
	if (ran == 0)
		check_result(&r, what, n, fired);
	else if (!e.text[0])
		fail_msg("%s %u (%s): failed without a sentence", what, n, torture_victim());
	result_done(&r);
	return fired;
}

static void torture(enum torture_kind kind, int errnum, const char *what)
{
	struct world before, after;
	struct spec s;
	unsigned n;

	make_spec(&s);
	for (int i = 0; i < 3;
	     i++) /* what is made once: the image, init, buffers of the C library */
		(void)run_once(&s, TORTURE_NONE, 0, 0, what);
	before = look();
	for (n = 1; n < MOST; n++) {
		bool fired = run_once(&s, kind, n, errnum, what);

		after = look();
		compare(&before, &after, what, n);
		if (!fired)
			break;
		if (kind == TORTURE_MEMORY && after.heap != before.heap)
			fail_msg("%s %u (%s): heap %lu -> %lu", what, n, torture_victim(),
				 before.heap, after.heap);
	}
	print_message("%s: %u calls failed in turn\n", what, n - 1);
	assert_true(n > 5 && n < MOST);
	spec_done(&s);
}

/* An image is there whole or not at all, and no half-made one beside it. */
static void check_image(const char *what, unsigned n)
{
	char path[sizeof places.state + 8];
	struct dirent *entry;
	DIR *d;

	snprintf(path, sizeof path, "%s/host", places.state);
	d = opendir(path);
	while (d && (entry = readdir(d)))
		if (strncmp(entry->d_name, ".making", 7) == 0)
			fail_msg("%s %u (%s): left %s", what, n, torture_victim(), entry->d_name);
	if (d)
		closedir(d);
}

#define NEED_TREES()                                                             \
	do {                                                                     \
		if (!private_trees)                                              \
			skip_because("takes root and writable cgroup v1 trees"); \
	} while (0)

static void test_memory(void **state)
{
	(void)state;
	NEED_TREES();
	torture(TORTURE_MEMORY, 0, "allocation");
}

/* Nothing is there yet: the host image is made by the run that fails. */
static void cold(enum torture_kind kind, int errnum, unsigned step, const char *what)
{
	struct world before, after;
	unsigned n, runs = 0;
	struct spec s;

	make_spec(&s);
	(void)run_once(&s, TORTURE_NONE, 0, 0, what);
	before = look();
	for (n = 1; n < MOST; n += step, runs++) {
		bool fired;

		assert_int_equal(tree_remove(AT_FDCWD, places.state), 0);
		fired = run_once(&s, kind, n, errnum, what);
		after = look();
		compare(&before, &after, what, n);
		check_image(what, n);
		if (!fired)
			break;
	}
	print_message("%s: %u runs\n", what, runs);
	assert_true(runs > 5 && n < MOST);
	spec_done(&s);
}

static void test_memory_cold(void **state)
{
	(void)state;
	NEED_TREES();
	cold(TORTURE_MEMORY, 0, 1, "allocation while the image is made");
}

static void test_calls_cold(void **state)
{
	(void)state;
	NEED_TREES();
	cold(TORTURE_CALLS, ENOSPC, 29, "system call ENOSPC while the image is made");
}

static void test_calls_emfile(void **state)
{
	(void)state;
	NEED_TREES();
	torture(TORTURE_CALLS, EMFILE, "system call EMFILE");
}

static void test_calls_eintr(void **state)
{
	(void)state;
	NEED_TREES();
	torture(TORTURE_CALLS, EINTR, "system call EINTR");
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_memory),      cmocka_unit_test(test_memory_cold),
		cmocka_unit_test(test_calls_cold),  cmocka_unit_test(test_calls_emfile),
		cmocka_unit_test(test_calls_eintr),
	};

	(void)argc;
	torture_start(argv);
	return cmocka_run_group_tests_name("torture-run", tests, set_up, tear_down);
}
