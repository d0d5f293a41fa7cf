/* SPDX-License-Identifier: Apache-2.0 */
/* Slots: locks that two processes cannot both hold, ids that follow from them, and the files that say
 * which ids there are. slot.c is included, so that its reader of /etc/subuid can be given other files. */
#include "unit.h"

#include <sys/file.h>

/* Set: the file that somebody removes between its opening and its lock. */
static const char *removed_at_flock;
static unsigned flock_calls;

static int flock_hook(int fd, int operation)
{
	if (removed_at_flock)
		assert_int_equal(unlink(removed_at_flock), 0);
	removed_at_flock = NULL;
	flock_calls++;
	return flock(fd, operation);
}

#define flock flock_hook
#include "native/slot.c" /* NOLINT */
#undef flock

static void make_places(struct places *p, char path[static 256])
{
	*p = (struct places){0};
	close(scratch_make(path));
	snprintf(p->runtime, sizeof p->runtime, "%s/run", path);
}

static void test_acquire(void **state)
{
	struct id_range range = {0x70000000, 0x71000000, 3};
	struct slot slots[3], more;
	struct places p;
	char path[256];
	struct err e;

	(void)state;
	make_places(&p, path);
	for (uint32_t i = 0; i < 3; i++) {
		assert_int_equal(slot_acquire(&p, &range, 0, &slots[i], &e), 0);
		assert_int_equal(slots[i].number, i);
		assert_int_equal(slots[i].root_uid, 0x70000000 + 2 * i);
		assert_int_equal(slots[i].root_gid, 0x71000000 + 2 * i);
		assert_int_equal(slots[i].user_uid, 0x70000001 + 2 * i);
		assert_int_equal(slots[i].user_gid, 0x71000001 + 2 * i);
		assert_int_equal(fcntl(slots[i].lock, F_GETFD), FD_CLOEXEC);
	}
	assert_int_equal(slot_acquire(&p, &range, 0, &more, &e), -1);
	assert_contains(e.text, "all 3 slots are in use");
	slot_release(&slots[1]);
	slot_release(&slots[1]);
	assert_int_equal(slots[1].lock, -1);
	assert_int_equal(slot_acquire(&p, &range, 0, &more, &e), 0);
	assert_int_equal(more.number, 1);
	slot_release(&more);
	slot_release(&slots[0]);
	slot_release(&slots[2]);
	scratch_remove(path);
}

static void test_from(void **state)
{
	struct id_range range = {65536, 65536, 5};
	struct places p;
	struct slot a, b;
	char path[256];
	struct err e;

	(void)state;
	make_places(&p, path);
	assert_int_equal(slot_acquire(&p, &range, 3, &a, &e), 0);
	assert_int_equal(a.number, 3);
	assert_int_equal(slot_acquire(&p, &range, 3, &b, &e), 0);
	assert_int_equal(b.number, 4);
	slot_release(&a);
	slot_release(&b);
	scratch_remove(path);
}

/* Where many are in use, few of them are asked, and the files stay in proportion; none is given twice, and none is left out. */
static void test_many(void **state)
{
	enum { MANY = 400, ALL = 500 };
	struct id_range range = {0x70000000, 0x71000000, MAX_SLOTS};
	static struct slot slots[ALL], more;
	static bool seen[MAX_SLOTS];
	struct places p;
	char path[256];
	struct err e;

	(void)state;
	make_places(&p, path);
	flock_calls = 0;
	for (size_t i = 0; i < MANY; i++) {
		assert_int_equal(slot_acquire(&p, &range, 0, &slots[i], &e), 0);
		assert_false(seen[slots[i].number]);
		seen[slots[i].number] = true;
	}
	assert_true(flock_calls < MANY * 40);
	/* Beyond that, two tries have to have failed in every window up to there: less than once in 10^12. */
	for (size_t i = 64 * MANY; i < MAX_SLOTS; i++)
		assert_false(seen[i]);
	for (size_t i = 0; i < MANY; i++)
		slot_release(&slots[i]);
	range.slots = ALL;
	for (size_t i = 0; i < ALL; i++)
		assert_int_equal(slot_acquire(&p, &range, 0, &slots[i], &e), 0);
	assert_int_equal(slot_acquire(&p, &range, 0, &more, &e), -1);
	for (size_t i = 0; i < ALL; i++)
		slot_release(&slots[i]);
	scratch_remove(path);
}

/* Two lock folders are two realms; one is the same realm each time, and has to be ours alone. */
static void test_realm(void **state)
{
	uint32_t a = 0, again = 1, b = 0;
	char one[256], two[256];
	struct places p, q;
	struct err e;

	(void)state;
	make_places(&p, one);
	make_places(&q, two);
	assert_int_equal(slot_realm(&p, &a, &e), 0);
	assert_int_equal(slot_realm(&p, &again, &e), 0);
	assert_int_equal(slot_realm(&q, &b, &e), 0);
	assert_int_equal(a, again);
	assert_int_not_equal(a, b);
	assert_int_equal(chmod(p.runtime, 0777), 0);
	assert_int_equal(slot_realm(&p, &a, &e), -1);
	assert_contains(e.text, "others may write there");
	scratch_remove(one);
	scratch_remove(two);
}

/* A lock whose file somebody has removed locks nothing. */
static void test_removed_lock(void **state)
{
	struct id_range range = {65536, 65536, 1};
	char path[256], name[1100];
	struct places p;
	struct slot s, t;
	struct err e;

	(void)state;
	make_places(&p, path);
	assert_int_equal(slot_acquire(&p, &range, 0, &s, &e), 0);
	snprintf(name, sizeof name, "%s/slots/0", p.runtime);
	assert_int_equal(unlink(name), 0);
	assert_int_equal(slot_acquire(&p, &range, 0, &t, &e), 0); /* a file of its own */
	slot_release(&s);
	slot_release(&t);
	scratch_remove(path);
}

/* Locked, but no longer what the others will open: not a lock. */
static void test_lock_removed_while_taken(void **state)
{
	char path[256], name[1100];
	struct places p;
	int lock = -1;
	uint32_t realm;
	struct err e;

	(void)state;
	make_places(&p, path);
	assert_int_equal(slot_realm(&p, &realm, &e), 0);
	snprintf(name, sizeof name, "%s/slots/0", p.runtime);
	removed_at_flock = name;
	assert_int_equal(slot_try(&p, 0, &lock), -EWOULDBLOCK);
	assert_int_equal(lock, -1);
	assert_int_equal(slot_try(&p, 0, &lock), 0);
	close(lock);
	scratch_remove(path);
}

/* Held as long as any copy of the descriptor lives: init's copy outlives a killed supervisor. */
static void test_lock_lives_with_every_copy(void **state)
{
	struct id_range range = {65536, 65536, 1};
	struct places p;
	char path[256];
	struct slot s;
	int copy, lock = -1;
	struct err e;

	(void)state;
	make_places(&p, path);
	assert_int_equal(slot_acquire(&p, &range, 0, &s, &e), 0);
	copy = dup(s.lock);
	slot_release(&s);
	assert_int_equal(slot_try(&p, 0, &lock), -EWOULDBLOCK);
	assert_int_equal(lock, -1);
	close(copy);
	assert_int_equal(slot_try(&p, 0, &lock), 0);
	close(lock);
	scratch_remove(path);
}

static void test_lock_file_is_no_link(void **state)
{
	struct id_range range = {65536, 65536, 1};
	char path[256], name[1100];
	struct places p;
	struct slot s;
	int lock = -1;
	struct err e;

	(void)state;
	make_places(&p, path);
	assert_int_equal(slot_try(&p, 0, &lock), -ENOENT);
	snprintf(name, sizeof name, "%s/slots", p.runtime);
	assert_int_equal(make_private_dirs(name), 0);
	snprintf(name, sizeof name, "%s/slots/0", p.runtime);
	assert_int_equal(symlink("/etc/passwd", name), 0);
	assert_int_equal(slot_try(&p, 0, &lock), -ELOOP);
	assert_int_equal(slot_acquire(&p, &range, 0, &s, &e), -1);
	assert_contains(e.text, "slots/0");
	scratch_remove(path);
}

static void test_block(void **state)
{
	static const struct {
		const char *text;
		uint32_t base, slots;
	} good[] = {{"65536:2", 65536, 1},
		    {"100000:65536", 100000, 32768},
		    {"1879048192:131072", 0x70000000, 65536},
		    {"70000:3", 70000, 1},
		    {"4294901759:65536", 4294901759u, 32768},
		    {"65536:4000000000", 65536, 65536}};
	static const char *const bad[] = {
		"",
		":",
		"65536",
		"65536:",
		":65536",
		"0:65536",
		"1000:65536",
		"65535:2",
		"65536:1",
		"65536:0",
		"-1:2",
		"65536:-1",
		"65536:2:3",
		"a:b",
		"65536: 2",
		"4294901760:65536",
		"4294967295:2",
		"1e5:2",
		"65536:4294967295",
		"0x10000:2",
		"65536:99999999999999999999",
		"000000000000000000000000065536:2",
	};
	struct places p = {0};
	struct id_range r;
	struct err e;

	(void)state;
	assert_int_equal(id_range_find(&p, NULL, &r, &e), 0);
	assert_int_equal(r.uid_base, 0x70000000);
	assert_int_equal(r.gid_base, 0x70000000);
	assert_int_equal(r.slots, 65536);
	for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
		if (id_range_find(&p, good[i].text, &r, &e) < 0)
			fail_msg("%s", e.text);
		assert_int_equal(r.uid_base, good[i].base);
		assert_int_equal(r.gid_base, good[i].base);
		assert_int_equal(r.slots, good[i].slots);
		/* the last id of the last slot is no invalid one */
		assert_true((uint64_t)r.uid_base + 2 * (uint64_t)r.slots <= UINT32_MAX);
	}
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		if (id_range_find(&p, bad[i], &r, &e) == 0)
			fail_msg("taken: %s", bad[i]);
		assert_contains(e.text, "uid_range");
	}
}

/* /etc/subuid as it can be found: other users, comments, junk, ranges that are no use. */
static void test_subuid(void **state)
{
	static const struct {
		const char *text;
		uint32_t base, count; /* 0: none */
	} rows[] = {
		{"ME:100000:65536\n", 100000, 65536},
		{"ME:100000:65536", 100000, 65536},
		{"ID:100000:65536\n", 100000, 65536},
		{"other:1:2\nME:100000:65536\n", 100000, 65536},
		{"# ME:1\n\njunk\n:\n::\nME\nME:\nME::\nME:x:y\nME:100000:65536\n", 100000, 65536},
		{"ME:1000:65536\nME:200000:1000\n", 200000, 1000},
		{"ME:100000:1\n", 0, 0},
		{"ME:100000:65536:7\n", 0, 0},
		{"ME :100000:65536\n", 0, 0},
		{"MEx:100000:65536\n", 0, 0},
		{"", 0, 0},
		{"ME:4294967295:4294967295\n", 0, 0},
	};
	struct passwd *me = getpwuid(geteuid());
	char path[256], file[300];
	_cleanup_close_ int dir = scratch_make(path);

	(void)state;
	if (!me)
		skip_because("this user has no name");
	snprintf(file, sizeof file, "%s/subuid", path);
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		uint32_t base = 0, count = 0;
		char text[600];
		size_t n = 0;
		struct err e;
		int r;

		for (const char *p = rows[i].text; *p; p++) {
			bool name = strncmp(p, "ME", 2) == 0, id = strncmp(p, "ID", 2) == 0;

			n += (size_t)(name ? snprintf(text + n, sizeof text - n, "%s", me->pw_name)
				      : id ? snprintf(text + n, sizeof text - n, "%u", geteuid())
					   : snprintf(text + n, sizeof text - n, "%c", *p));
			p += name || id;
		}
		text[n] = '\0';
		text_at(dir, "subuid", text);
		r = find_sub_range(file, &base, &count, &e);
		if (r != (rows[i].count ? 0 : -1))
			fail_msg("row %zu: %s", i, r ? e.text : "taken");
		if (r < 0) {
			assert_contains(e.text, "usermod --add-subuids");
			continue;
		}
		assert_int_equal(base, rows[i].base);
		assert_int_equal(count, rows[i].count);
	}
	unlinkat(dir, "subuid", 0);
	{
		uint32_t base, count;
		struct err e;

		assert_int_equal(find_sub_range(file, &base, &count, &e), -1);
		assert_contains(e.text, "no ids for sandboxes");
	}
	scratch_remove(path);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_acquire),
		cmocka_unit_test(test_from),
		cmocka_unit_test(test_many),
		cmocka_unit_test(test_realm),
		cmocka_unit_test(test_removed_lock),
		cmocka_unit_test(test_lock_removed_while_taken),
		cmocka_unit_test(test_lock_lives_with_every_copy),
		cmocka_unit_test(test_lock_file_is_no_link),
		cmocka_unit_test(test_block),
		cmocka_unit_test(test_subuid),
	};

	return cmocka_run_group_tests_name("slot", tests, NULL, NULL);
}
