/* SPDX-License-Identifier: Apache-2.0 */
/* The counters of a cgroup, read from folders that hold what kernels write - and what they do not. */
#include "unit.h"

#include "native/cgroup.h"

#define UNKNOWN UINT64_MAX

static struct cgroup_host v1 = {.version = CGROUP_V1}, v2 = {.version = CGROUP_V2};

static struct cgroup none(const struct cgroup_host *host)
{
	return (struct cgroup){
		.host = host, .dir = -1, .v1 = {-1, -1, -1, -1, -1}, .memory_limit = 1000};
}

static void test_nothing_to_read(void **state)
{
	const struct cgroup_host *hosts[] = {&v1, &v2};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(hosts); i++) {
		struct cgroup c = none(hosts[i]);
		struct cgroup_counters r;

		cgroup_read(&c, &r);
		assert_int_equal(r.oom_kills, 0);
		assert_true(r.cpu_us == UNKNOWN && r.memory_peak_bytes == UNKNOWN &&
			    r.pids_peak == UNKNOWN);
		assert_false(r.memory_hit || r.pids_hit);
		assert_true(cgroup_cpu_us(&c) == UNKNOWN);
	}
}

static void test_v2(void **state)
{
	char path[256];
	struct cgroup c = none(&v2);
	struct cgroup_counters r;

	(void)state;
	c.dir = scratch_make(path);
	text_at(c.dir, "memory.events",
		"low 0\nhigh 0\nmax 35\noom 1\noom_kill 1\noom_group_kill 0\n");
	text_at(c.dir, "memory.peak", "9437184\n");
	text_at(c.dir, "pids.events", "max 3\n");
	text_at(c.dir, "pids.peak", "5\n");
	text_at(c.dir, "cpu.stat", "usage_usec 2990100\nuser_usec 1\nsystem_usec 2\n");
	cgroup_read(&c, &r);
	assert_int_equal(r.oom_kills, 1);
	assert_int_equal(r.memory_peak_bytes, 9437184);
	assert_int_equal(r.cpu_us, 2990100);
	assert_int_equal(r.pids_peak, 4); /* without our init */
	assert_true(r.memory_hit && r.pids_hit);
	/* oom_kill must not be taken from oom_group_kill, nor max from memory.max lines */
	text_at(c.dir, "memory.events",
		"low 0\nhigh 7\nmax 0\noom 5\noom_group_kill 9\noom_kill 0\n");
	text_at(c.dir, "pids.events", "max 0\n");
	cgroup_read(&c, &r);
	assert_int_equal(r.oom_kills, 0);
	assert_false(r.memory_hit || r.pids_hit);
	text_at(c.dir, "memory.events", "max 1\noom_kill 0\n"); /* at the limit, nobody killed */
	cgroup_read(&c, &r);
	assert_true(r.memory_hit);
	close(c.dir);
	scratch_remove(path);
}

static void test_v1(void **state)
{
	char path[256];
	_cleanup_close_ int dir = scratch_make(path);
	struct cgroup c = none(&v1);
	struct cgroup_counters r;

	(void)state;
	c.v1[MEMORY] = c.v1[CPUACCT] = c.v1[PIDS] = dir;
	c.has[MEMORY] = true;
	text_at(dir, "memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n");
	text_at(dir, "memory.max_usage_in_bytes", "1000\n");
	text_at(dir, "cpuacct.usage", "2990100999\n");
	text_at(dir, "pids.events", "max 1\n");
	cgroup_read(&c, &r);
	assert_int_equal(r.oom_kills, 2);
	assert_int_equal(r.memory_peak_bytes, 1000);
	assert_int_equal(r.cpu_us, 2990100);
	assert_true(r.memory_hit && r.pids_hit);
	assert_true(r.pids_peak == UNKNOWN);
	text_at(dir, "memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 0\n");
	cgroup_read(&c, &r);
	assert_true(r.memory_hit); /* the peak is the limit */
	text_at(dir, "memory.max_usage_in_bytes", "999\n");
	cgroup_read(&c, &r);
	assert_false(r.memory_hit);
	c.has[MEMORY] = false; /* best effort: no limit in force, none met */
	text_at(dir, "memory.max_usage_in_bytes", "5000\n");
	cgroup_read(&c, &r);
	assert_false(r.memory_hit);
	scratch_remove(path);
}

/* What cannot be a counter is no counter. */
static void test_junk(void **state)
{
	static const char *const junk[] = {
		"", "\n", "max\n", "-1\n", "1e3\n", "1 2\n", "99999999999999999999\n", "x"};
	char path[256], big[5000];
	struct cgroup c = none(&v2);
	struct cgroup_counters r;

	(void)state;
	c.dir = scratch_make(path);
	for (size_t i = 0; i < ARRAY_SIZE(junk); i++) {
		text_at(c.dir, "memory.peak", junk[i]);
		text_at(c.dir, "pids.peak", junk[i]);
		text_at(c.dir, "cpu.stat", junk[i]);
		text_at(c.dir, "memory.events", junk[i]);
		cgroup_read(&c, &r);
		assert_true(r.memory_peak_bytes == UNKNOWN && r.pids_peak == UNKNOWN &&
			    r.cpu_us == UNKNOWN);
		assert_int_equal(r.oom_kills, 0);
	}
	text_at(c.dir, "pids.peak", "0\n");
	cgroup_read(&c, &r);
	assert_int_equal(r.pids_peak, 0);
	memset(big, '1', sizeof big - 1);
	big[sizeof big - 1] = '\0';
	text_at(c.dir, "memory.peak", big);
	cgroup_read(&c, &r);
	assert_true(r.memory_peak_bytes == UNKNOWN);
	close(c.dir);
	scratch_remove(path);
}

/* An ordinary user on a host without a delegated v2 tree: refused with cause and remedy; with best effort
 * there is simply no cgroup. */
static void test_host_without(void **state)
{
	struct cgroup_host host = {.why_not = "no usable cgroup controllers: mount cgroup2"};
	struct slot slot = {.lock = -1};
	struct cgroup c;
	struct spec s;
	struct err e;
	int fds[CONTROLLER_COUNT];
	size_t count = 9;

	(void)state;
	assert_int_equal(spec_init(&s, &e), 0);
	assert_int_equal(cgroup_create(&host, &slot, &s, &c, &e), -1);
	assert_contains(e.text, "limits cannot be enforced: no usable cgroup controllers");
	s.best_effort = true;
	assert_int_equal(cgroup_create(&host, &slot, &s, &c, &e), 0);
	assert_int_equal(c.dir, -1);
	assert_int_equal(cgroup_create_v1(&c, &s, fds, &count, &e), 0);
	assert_int_equal(count, 0);
	assert_false(c.has[MEMORY] || c.has[PIDS] || c.has[CPU] || c.has_swap);
	assert_int_equal(cgroup_destroy(&c, &e), 0);
	spec_done(&s);
}

/* v1 with a controller missing is as good as none. */
static void test_v1_controller_missing(void **state)
{
	struct cgroup_host host = {.version = CGROUP_V1,
				   .why_not = "/sys/fs/cgroup/memory: is not there"};
	struct slot slot = {.lock = -1};
	struct cgroup c;
	struct spec s;
	struct err e;
	int fds[CONTROLLER_COUNT];
	size_t count;

	(void)state;
	assert_int_equal(spec_init(&s, &e), 0);
	assert_int_equal(cgroup_create(&host, &slot, &s, &c, &e), 0);
	assert_int_equal(cgroup_create_v1(&c, &s, fds, &count, &e), -1);
	assert_contains(e.text, "/sys/fs/cgroup/memory: is not there");
	assert_int_equal(count, 0);
	assert_int_equal(cgroup_destroy(&c, &e), 0);
	spec_done(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_nothing_to_read),
		cmocka_unit_test(test_v2),
		cmocka_unit_test(test_v1),
		cmocka_unit_test(test_junk),
		cmocka_unit_test(test_host_without),
		cmocka_unit_test(test_v1_controller_missing),
	};

	return cmocka_run_group_tests_name("cgroup", tests, NULL, NULL);
}
