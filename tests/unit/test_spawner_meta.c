/* SPDX-License-Identifier: Apache-2.0 */
/* Meta files: written whole, and believed only when nothing of them has changed. */
#include "unit.h"

#include <sys/socket.h>
#include <sys/un.h>

#include "spawner/client.h"
#include "spawner/meta.h"

#define ID "sbx_0123456789abcdef0123456789abcdef"

static struct meta make(void)
{
	static struct cgroup_host host = {.version = CGROUP_V2, .unified = "/sys/fs/cgroup/cloche"};
	struct kept_sandbox made = {
		.pid = getpid(),
		.slot = {.number = 7, .realm = 0xabc},
		.enforced = {.memory = "cgroup-v2",
			     .swap = "none",
			     .cpu = "cgroup-v2",
			     .pids = "cgroup-v2",
			     .network = "netns",
			     .rootfs = "read-only overlay",
			     .disk = "ext4 loop",
			     .capabilities = "none",
			     .seccomp = "sha256:00",
			     .uid = 65534},
	};
	struct meta m;

	assert_int_equal(meta_fill(&m, &made, &host, ID, 1 << 20), 0);
	return m;
}

static void test_there_and_back(void **state)
{
	struct meta m = make(), back;
	char path[256], text[64];
	int dir = scratch_make(path);

	(void)state;
	assert_int_equal(meta_read(dir, ID, &back), -ENOENT);
	assert_int_equal(meta_write(dir, &m), 0);
	assert_int_equal(meta_read(dir, ID, &back), 0);
	assert_memory_equal(&m, &back, sizeof m);
	assert_string_equal(back.created.memory_events,
			    "/sys/fs/cgroup/cloche/7-00000abc/memory.events");
	assert_int_equal(read_at(dir, "meta.new", text, sizeof text), -1);
	assert_int_equal(meta_read(dir, "sbx_0123456789abcdef0123456789abcdee", &back), -EBADMSG);
	assert_int_equal(unlinkat(dir, "meta", 0), 0);
	assert_int_equal(symlinkat("/etc/passwd", dir, "meta"), 0);
	assert_int_equal(meta_read(dir, ID, &back), -ELOOP);
	close(dir);
	scratch_remove(path);
}

static void test_every_changed_bit_is_seen(void **state)
{
	struct meta m = make(), back;
	unsigned char data[sizeof m + 1] = {0};

	(void)state;
	memcpy(data, &m, sizeof m);
	assert_int_equal(meta_check(data, sizeof m, ID, &back), 0);
	for (size_t n = 0; n < sizeof data; n++)
		assert_int_equal(meta_check(data, n, ID, &back), n == sizeof m ? 0 : -EBADMSG);
	assert_int_equal(meta_check(data, sizeof data, ID, &back), -EBADMSG);
	for (size_t i = 0; i < sizeof m; i++) {
		data[i] ^= (unsigned char)(1u << i % 8);
		assert_int_equal(meta_check(data, sizeof m, ID, &back), -EBADMSG);
		data[i] ^= (unsigned char)(1u << i % 8);
	}
}

static void test_another_process_is_not_it(void **state)
{
	struct places places = {0};
	struct meta m = make();
	int pidfd = -1, lock = -1;

	(void)state;
	m.start_ticks++; /* the number was given to somebody else since */
	assert_int_equal(meta_adopt(&m, &places, &pidfd, &lock), -ESRCH);
	m = make();
	m.created.pid = 4194303;
	assert_int_equal(meta_adopt(&m, &places, &pidfd, &lock), -ESRCH);
	m = make();
	m.boot_id[0] ^= 1;
	assert_int_equal(meta_adopt(&m, &places, &pidfd, &lock), -ESRCH);
	m = make(); /* alive, but no sandbox of that slot */
	snprintf(places.runtime, sizeof places.runtime, "/proc/none/here");
	assert_int_equal(meta_adopt(&m, &places, &pidfd, &lock), -EBADMSG);
	assert_int_equal(pidfd, -1);
}

/* The client's side: sizes, types and codes are checked, texts end. */
static void test_what_a_client_believes(void **state)
{
	struct spawner_client c;
	union spawner_message m;
	struct spawner_refused r = {.header = {SPAWNER_REFUSED, 5}};
	int p[2];

	(void)state;
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, p), 0);
	c = (struct spawner_client){.fd = p[0]};
	assert_int_equal(spawner_receive(&c, &m), 0);
	memset(r.text, 'x', sizeof r.text);
	assert_true(send(p[1], &r, sizeof r, 0) > 0);
	assert_int_equal(spawner_receive(&c, &m), 1);
	assert_int_equal(strlen(m.refused.text), sizeof r.text - 1);
	r.code = CODE_COUNT;
	assert_true(send(p[1], &r, sizeof r, 0) > 0);
	assert_int_equal(spawner_receive(&c, &m), -EPROTO);
	assert_true(send(p[1], &r, sizeof r - 1, 0) > 0);
	assert_int_equal(spawner_receive(&c, &m), -EPROTO);
	r.header.type = SPAWNER_KILL;
	assert_true(send(p[1], &r, sizeof r, 0) > 0);
	assert_int_equal(spawner_receive(&c, &m), -EPROTO);
	assert_int_equal(spawner_ask(&c, SPAWNER_STATS, ID), 1);
	assert_int_equal(spawner_ask(&c, SPAWNER_LIST, NULL), 2);
	assert_int_equal(spawner_ask(&c, SPAWNER_KILL, NULL), -EINVAL);
	close(p[1]);
	assert_int_equal(spawner_receive(&c, &m), -ECONNRESET);
	spawner_disconnect(&c);
	assert_int_equal(c.fd, -1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_there_and_back),
		cmocka_unit_test(test_every_changed_bit_is_seen),
		cmocka_unit_test(test_another_process_is_not_it),
		cmocka_unit_test(test_what_a_client_believes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
