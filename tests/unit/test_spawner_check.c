/* SPDX-License-Identifier: Apache-2.0 */
/* Requests to the spawner: each field's bad values are refused, by name and with the right code. */
#include "unit.h"

#include "spawner/check.h"

static struct places places;
static struct policy policy = {.places = &places};

static struct spawner_create good(void)
{
	struct spawner_create m = {
		.header = {SPAWNER_CREATE, 1},
		.id = "sbx_0123456789abcdef0123456789abcdef",
		.image = "host",
		.runtime = "native",
		.profile = "default",
		.hostname = "sandbox",
		.memory_bytes = 64 << 20,
		.cpus_millis = 500,
		.pids_limit = 16,
		.uid = 65534,
		.gid = 65534,
	};

	return m;
}

static int check_with(const struct spawner_create *m, size_t fds, struct spec *s, struct err *e)
{
	*e = (struct err){0};
	if (request_check(m, sizeof *m, fds, true, e) < 0) {
		*s = (struct spec){0};
		return -1;
	}
	return create_check(&policy, m, fds, s, e);
}

#define assert_refused(m, fds, part)                                \
	do {                                                        \
		struct spec spec_;                                  \
		struct err e_;                                      \
		if (check_with(&(m), fds, &spec_, &e_) == 0)        \
			fail_msg("line %d: is accepted", __LINE__); \
		spec_done(&spec_);                                  \
		assert_contains(e_.text, part);                     \
		last_code = e_.code;                                \
		last_errnum = e_.errnum;                            \
	} while (0)
static int last_code, last_errnum;

#define refused_field(field, value, part)          \
	do {                                       \
		struct spawner_create m_ = good(); \
		m_.field = (value);                \
		assert_refused(m_, 0, part);       \
	} while (0)

#define refused_text(field, value, part)                   \
	do {                                               \
		struct spawner_create m_ = good();         \
		memset(m_.field, 0, sizeof m_.field);      \
		memcpy(m_.field, value, sizeof value - 1); \
		assert_refused(m_, 0, part);               \
	} while (0)

static void test_a_good_one(void **state)
{
	struct spawner_create m = good();
	struct spec s;
	struct err e;

	(void)state;
	m.tmpfs_count = 2;
	m.tmpfs[0] = (struct spawner_tmpfs){"/tmp", 1 << 20, 100, 1, 0};
	m.tmpfs[1] = (struct spawner_tmpfs){"/scratch", 2 << 20, 50, 0, 0};
	m.volume_count = 2;
	m.volumes[0] = (struct spawner_volume){"/data/below", "", 1, 1000};
	m.volumes[1] = (struct spawner_volume){"/data", "", 0, 1000};
	assert_int_equal(check_with(&m, 2, &s, &e), 0);
	assert_int_equal(s.memory_bytes, 64 << 20);
	assert_int_equal(s.memory_swap_bytes, 64 << 20);
	assert_int_equal(s.cpus_millis, 500);
	assert_int_equal(s.pids_limit, 16);
	assert_int_equal(s.tmpfs_count, 4);
	assert_int_equal(s.volume_count, 2);
	assert_string_equal(s.volumes[0].box, "/data"); /* what lies in another comes behind it */
	assert_false(s.best_effort);
	for (size_t i = 0; i < s.tmpfs_count; i++)
		if (strcmp(s.tmpfs[i].path, "/tmp") == 0) {
			assert_int_equal(s.tmpfs[i].size_bytes, 1 << 20);
			assert_true(s.tmpfs[i].exec);
		}
	spec_done(&s);
}

static void test_numbers(void **state)
{
	(void)state;
	refused_field(memory_bytes, 0, "--memory");
	refused_field(memory_bytes, 4096, "--memory");
	refused_field(memory_bytes, SPAWNER_SIZE_MAX + 1, "memory");
	refused_field(memory_bytes, UINT64_MAX, "memory");
	refused_field(memory_swap_bytes, 1, "--memory-swap");
	refused_field(memory_swap_bytes, 63 << 20, "--memory-swap");
	refused_field(memory_swap_bytes, UINT64_MAX, "memory");
	refused_field(cpus_millis, 0, "--cpus");
	refused_field(cpus_millis, 9, "--cpus");
	refused_field(cpus_millis, 1024001, "--cpus");
	refused_field(cpus_millis, UINT64_MAX, "--cpus");
	refused_field(pids_limit, 0, "--pids-limit");
	refused_field(pids_limit, 4194305, "--pids-limit");
	refused_field(pids_limit, UINT64_MAX, "--pids-limit");
	refused_field(uid, 0, "--user");
	refused_field(uid, UINT32_MAX, "--user");
	refused_field(gid, 0, "--user");
	refused_field(gid, UINT32_MAX, "--user");
	refused_field(disk_bytes, 1, "disk");
	refused_field(disk_bytes, SPAWNER_DISK_MIN - 4096, "disk");
	refused_field(disk_bytes, SPAWNER_DISK_MIN + 1, "disk");
	refused_field(disk_bytes, UINT64_MAX, "disk");
	refused_field(zero[0], 1, "zero");
	refused_field(zero[4], 1, "zero");
	refused_field(tmpfs_count, 17, "tmpfs");
	refused_field(tmpfs_count, UINT32_MAX, "tmpfs");
	refused_field(volume_count, 33, "volumes");
	refused_field(volume_count, UINT32_MAX, "volumes");
	assert_int_equal(last_code, CODE_NONE);
}

static void test_texts(void **state)
{
	char full[sizeof good().image];

	(void)state;
	memset(full, 'a', sizeof full);
	refused_text(image, "../debian", "is not understood");
	refused_text(image, "host\0x", "image");
	refused_text(image, "ho\nst", "control");
	refused_text(image, "", "image");
	refused_text(runtime, "docker", "runtime");
	assert_int_equal(last_code, CODE_SANDBOX_RUNTIME_UNAVAILABLE);
	refused_text(runtime, "", "runtime");
	refused_text(profile, "none", "profile");
	refused_text(profile, "", "profile");
	refused_text(hostname, "", "hostname");
	refused_text(hostname, "-x", "hostname");
	refused_text(hostname, "a/b", "hostname");
	refused_text(venv, "/usr", "volume_roots");
	assert_int_equal(last_errnum, EPERM);
	refused_text(id, "", "id");
	refused_text(id, "sbx_0123456789abcdef0123456789abcde", "id");
	refused_text(id, "sbx_0123456789ABCDEF0123456789abcdef", "id");
	refused_text(id, "sbx_0123456789abcdef0123456789abcdefa", "id");
	refused_text(id, "../../../../../../../../etc/cloche.yaml", "id");
	{
		struct spawner_create m = good();

		memcpy(m.image, full, sizeof m.image);
		assert_refused(m, 0, "image");
	}
}

static void refuse_tmpfs(struct spawner_tmpfs t, const char *part)
{
	struct spawner_create m = good();

	m.tmpfs_count = 1;
	m.tmpfs[0] = t;
	assert_refused(m, 0, part);
}

static void test_tmpfs(void **state)
{
	struct spawner_create m = good();

	(void)state;
	refuse_tmpfs((struct spawner_tmpfs){"/x", 0, 10, 0, 0}, "--tmpfs");
	refuse_tmpfs((struct spawner_tmpfs){"/x", UINT64_MAX, 10, 0, 0}, "tmpfs");
	refuse_tmpfs((struct spawner_tmpfs){"/x", 4096, 0, 0, 0}, "--tmpfs");
	refuse_tmpfs((struct spawner_tmpfs){"/x", 4096, UINT64_MAX, 0, 0}, "--tmpfs");
	refuse_tmpfs((struct spawner_tmpfs){"/x", 4096, 10, 2, 0}, "flag");
	refuse_tmpfs((struct spawner_tmpfs){"/x", 4096, 10, 0, 1}, "flag");
	refuse_tmpfs((struct spawner_tmpfs){"/etc", 4096, 10, 0, 0}, "/etc");
	refuse_tmpfs((struct spawner_tmpfs){"/", 4096, 10, 0, 0}, "path /");
	refuse_tmpfs((struct spawner_tmpfs){"x", 4096, 10, 0, 0}, "absolute");
	refuse_tmpfs((struct spawner_tmpfs){"", 4096, 10, 0, 0}, "absolute");
	refuse_tmpfs((struct spawner_tmpfs){"/a/../b", 4096, 10, 0, 0}, "..");
	refuse_tmpfs((struct spawner_tmpfs){"/a:size=9", 4096, 10, 0, 0}, "impossible");
	m.tmpfs_count = 2;
	m.tmpfs[0] = m.tmpfs[1] = (struct spawner_tmpfs){"/x", 4096, 10, 0, 0};
	assert_refused(m, 0, "twice");
	m.tmpfs_count = 1; /* the second is still there */
	assert_refused(m, 0, "zero");
	m.disk_bytes = 16 << 20;
	m.tmpfs[1] = (struct spawner_tmpfs){0};
	m.tmpfs[0] = (struct spawner_tmpfs){"/workspace/x", 4096, 10, 0, 0};
	assert_refused(m, 0, "on the disk");
}

static void refuse_volume(struct spawner_volume v, size_t fds, const char *part)
{
	struct spawner_create m = good();

	m.volume_count = 1;
	m.volumes[0] = v;
	assert_refused(m, fds, part);
}

static void test_volumes(void **state)
{
	struct spawner_create m = good();

	(void)state;
	refuse_volume((struct spawner_volume){"/data", "/srv", 0, 0}, 0, "volume_roots");
	assert_int_equal(last_errnum, EPERM);
	refuse_volume((struct spawner_volume){"/data", "/srv", 0, 7}, 0, "flags");
	refuse_volume((struct spawner_volume){"/data", "", 2, 7}, 1, "flags");
	refuse_volume((struct spawner_volume){"/data", "", 0, 7}, 0, "descriptors");
	refuse_volume((struct spawner_volume){"/data", "", 0, 7}, 2, "descriptors");
	refuse_volume((struct spawner_volume){"/usr/x", "", 0, 7}, 1, "/usr");
	refuse_volume((struct spawner_volume){"data", "", 0, 7}, 1, "absolute");
	refuse_volume((struct spawner_volume){"/a:b", "", 0, 7}, 1, "impossible");
	m.volume_count = 2;
	m.volumes[0] = m.volumes[1] = (struct spawner_volume){"/data", "", 0, 7};
	assert_refused(m, 2, "twice");
	m = good();
	m.disk_bytes = 16 << 20;
	m.volume_count = 1;
	m.volumes[0] = (struct spawner_volume){"/workspace", "", 0, 7};
	assert_refused(m, 1, "disk");
	m = good();
	assert_refused(m, 1, "descriptors");
}

static void test_policy_refuses_and_never_lowers(void **state)
{
	struct spawner_create m = good();
	struct spec s;
	struct err e;

	(void)state;
	policy.settings.policy =
		json_pack("{s:s,s:s,s:s}", "memory", "64m", "pids_limit", "16", "timeout", "1s");
	assert_non_null(policy.settings.policy);
	assert_int_equal(check_with(&m, 0, &s, &e), 0);
	assert_int_equal(s.memory_bytes, 64 << 20);
	spec_done(&s);
	m.memory_bytes++;
	assert_refused(m, 0, "at most 64m");
	assert_int_equal(last_errnum, EPERM);
	m = good();
	m.pids_limit = 17;
	assert_refused(m, 0, "at most 16");
	json_decref(policy.settings.policy);
	policy.settings.policy = NULL;
}

static void test_rootless_has_no_disk(void **state)
{
	struct spawner_create m = good();

	(void)state;
	m.disk_bytes = 16 << 20;
	places.rootless = true;
	assert_refused(m, 0, "ordinary user");
	places.rootless = false;
}

static void test_frames_of_requests(void **state)
{
	struct spawner_create m = good();
	struct spawner_hello hello = {{SPAWNER_HELLO, 1}, SPAWNER_VERSION, 0};
	struct spawner_done list = {{SPAWNER_LIST, 1}};
	struct err e;

	(void)state;
	for (size_t n = 0; n < sizeof m; n += n < 64 ? 1 : 997)
		assert_int_equal(request_check(&m, n, 0, true, &e), -1);
	assert_int_equal(request_check(&hello, sizeof hello, 0, false, &e), 0);
	assert_int_equal(request_check(&list, sizeof list, 0, false, &e), -1);
	assert_int_equal(request_check(&list, sizeof list, 0, true, &e), 0);
	assert_int_equal(request_check(&list, sizeof list, 1, true, &e), -1);
	list.header.sequence = 0;
	assert_int_equal(request_check(&list, sizeof list, 0, true, &e), -1);
	hello.version++;
	assert_int_equal(request_check(&hello, sizeof hello, 0, false, &e), -1);
	for (uint32_t type = 0; type < 200; type++) {
		struct spawner_done x = {{type, 1}};

		if (type != SPAWNER_LIST)
			assert_int_equal(request_check(&x, sizeof x, 0, true, &e), -1);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_good_one),
		cmocka_unit_test(test_numbers),
		cmocka_unit_test(test_texts),
		cmocka_unit_test(test_tmpfs),
		cmocka_unit_test(test_volumes),
		cmocka_unit_test(test_policy_refuses_and_never_lowers),
		cmocka_unit_test(test_rootless_has_no_disk),
		cmocka_unit_test(test_frames_of_requests),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
