/* SPDX-License-Identifier: Apache-2.0 */
/* Images without a sandbox: names in the store, records, what an image may want, names in archives, frames. */
#include "unit.h"

#include <sys/file.h>
#include <sys/wait.h>
#include <time.h>

#include "image/apply.h"
#include "image/keeper.h"
#include "image/state.h"
#include "imaging/writer.h"

#define A64 "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define B64 "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"

struct scene {
	char path[256];
	struct places places;
	struct image_store store;
	struct err e;
};

static void begin(struct scene *s)
{
	*s = (struct scene){.places.rootless = true};
	close(scratch_make(s->path));
	snprintf(s->places.state, sizeof s->places.state, "%s", s->path);
	if (image_store_open(&s->places, true, &s->store, &s->e) < 0)
		fail_msg("%s", s->e.text);
}

static void end(struct scene *s)
{
	image_store_done(&s->store);
	scratch_remove(s->path);
}

/* An image with one layer, which holds nothing. */
static void add(struct scene *s, const char *id, const char *digest, const char *name,
		char key[RECORD_KEY_SIZE])
{
	struct kept_layer kept = {.bytes = 5};
	struct record_layer layer = {0};
	struct image_record r = {.layers = &layer, .layer_count = 1};
	struct reference ref;

	assert_int_equal(mkdirat(s->store.dir, "tmp/x", 0755), 0);
	if (keeper_layer_commit(&s->store, "x", digest, &kept, &s->e) < 0)
		fail_msg("%s", s->e.text);
	snprintf(layer.digest, sizeof layer.digest, "sha256:%s", digest);
	memcpy(layer.name, kept.name, sizeof layer.name);
	layer.bytes = kept.bytes;
	snprintf(r.id, sizeof r.id, "sha256:%s", id);
	snprintf(r.manifest, sizeof r.manifest, "sha256:%s", id);
	if (keeper_add(&s->store, &r, key, &s->e) < 0 || reference_parse(name, &ref, &s->e) < 0 ||
	    keeper_tag(&s->store, &ref, key, &s->e) < 0)
		fail_msg("%s", s->e.text);
}

static void test_find(void **state)
{
	static const char *const found[] = {
		"a/b:1",       "docker.io/a/b:1", A64, "aaaaaa", "aaaaaaaaaaaa",
		"sha256:" A64, "a/b@sha256:" A64,
	};
	static const char *const missing[] = {
		"a/b",    "a/b:2",    "b:1",   "x/y@sha256:" A64, "a/b@sha256:" B64,
		"bbbbbb", "sha256:b", "aaaaa",
	};
	char key[RECORD_KEY_SIZE], again[RECORD_KEY_SIZE];
	struct scene s;

	(void)state;
	begin(&s);
	add(&s, A64, A64, "a/b:1", key);
	for (size_t i = 0; i < ARRAY_SIZE(found); i++) {
		if (image_find(&s.store, found[i], again, &s.e) < 0)
			fail_msg("%s: %s", found[i], s.e.text);
		assert_string_equal(again, key);
	}
	for (size_t i = 0; i < ARRAY_SIZE(missing); i++) {
		s.e.code = 0;
		if (image_find(&s.store, missing[i], again, &s.e) == 0)
			fail_msg("found %s", missing[i]);
		assert_int_equal(s.e.code, CODE_SANDBOX_IMAGE_MISSING);
	}
	end(&s);
}

/* What is in use stays; then it goes, and its layer with it. */
static void test_remove(void **state)
{
	char key[RECORD_KEY_SIZE];
	struct image_record r = {0};
	uint64_t freed = 0;
	struct scene s;
	bool named;
	int lease, inside;

	(void)state;
	begin(&s);
	add(&s, A64, A64, "a:1", key);
	assert_int_equal(image_take(&s.store, key, &lease, &r, &s.e), 0);
	assert_string_equal(r.id, "sha256:" A64);
	image_record_done(&r);
	assert_int_equal(keeper_remove(&s.store, key, 0, &s.e), 1);
	close(lease);
	assert_int_equal(keeper_collect(&s.store, false, &freed, &s.e), 0);
	assert_int_equal(freed, 0);
	assert_int_equal(keeper_is_named(&s.store, key, &named, &s.e), 0);
	assert_true(named);
	assert_int_equal(keeper_remove(&s.store, key, 0, &s.e), 0);
	assert_int_equal(image_take(&s.store, key, &lease, NULL, &s.e), -1);
	assert_int_equal(s.e.errnum, ENOENT);
	/* While somebody adds, nothing is swept up. */
	inside = keeper_enter(&s.store, &s.e);
	assert_int_equal(keeper_collect(&s.store, false, &freed, &s.e), 1);
	close(inside);
	assert_int_equal(keeper_collect(&s.store, false, &freed, &s.e), 0);
	assert_int_equal(freed, 5);
	assert_int_equal(faccessat(s.store.dir, "layers/" A64, F_OK, 0), -1);
	end(&s);
}

/* Another process lets go of it when it sees that the store has changed, and not before. */
static void test_remove_waits(void **state)
{
	int folders[STORE_FOLDERS], lease;
	char key[RECORD_KEY_SIZE];
	struct store_state before, now;
	struct scene s;
	pid_t pid;

	(void)state;
	begin(&s);
	add(&s, A64, A64, "a:1", key);
	assert_int_equal(image_take(&s.store, key, &lease, NULL, &s.e), 0);
	assert_int_equal(keeper_remove(&s.store, key, 1, &s.e), 1); /* in vain: a second */
	assert_int_equal(store_state_open(&s.places, folders, &s.e), 0);
	assert_true(store_state_now(folders, &before));
	usleep(20000); /* into another tick of the file system's clock */
	pid = fork();
	if (pid == 0) {
		do {
			usleep(1000);
			store_state_now(folders, &now);
		} while (memcmp(&now, &before, sizeof now) == 0);
		_exit(0);
	}
	close(lease); /* the child's copy holds the lock until it ends */
	assert_int_equal(keeper_remove(&s.store, key, 30, &s.e), 0);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	for (size_t i = 0; i < STORE_FOLDERS; i++)
		close(folders[i]);
	end(&s);
}

static void changes(const int folders[STORE_FOLDERS], struct store_state *last, const char *what)
{
	struct store_state now;

	assert_true(store_state_now(folders, &now));
	if (memcmp(&now, last, sizeof now) == 0)
		fail_msg("%s cannot be seen", what);
	assert_false(store_state_is_settled(&now));
	usleep(120000);
	assert_true(store_state_now(folders, last));
	assert_memory_equal(&now, last, sizeof now);
	assert_true(store_state_is_settled(last));
}

/* Whatever changes what a name stands for can be seen, also by who may only look; a store that is gone has no state. */
static void test_state(void **state)
{
	char key[RECORD_KEY_SIZE], other[RECORD_KEY_SIZE], file[REF_NAME_SIZE], to[300];
	int folders[STORE_FOLDERS];
	struct store_state last = {0};
	struct reference ref;
	struct scene s;

	(void)state;
	begin(&s);
	assert_int_equal(store_state_open(&s.places, folders, &s.e), 0);
	changes(folders, &last, "a new store");
	add(&s, A64, A64, "a:1", key);
	changes(folders, &last, "an image");
	add(&s, B64, B64, "b:1", other);
	changes(folders, &last, "another one");
	assert_int_equal(reference_parse("a:1", &ref, &s.e), 0);
	assert_int_equal(keeper_tag(&s.store, &ref, other, &s.e), 0);
	changes(folders, &last, "a name that moves");
	assert_int_equal(keeper_remove(&s.store, key, 0, &s.e), 0);
	changes(folders, &last, "a record that goes");
	assert_int_equal(image_ref_name(&ref, file, &s.e), 0);
	assert_int_equal(keeper_untag(&s.store, file, &s.e), 0);
	changes(folders, &last, "a name that goes");
	snprintf(to, sizeof to, "%s/moved", s.path);
	assert_int_equal(rename(s.store.path, to), 0);
	changes(folders, &last, "a store that is exchanged");
	end(&s);
	assert_false(store_state_now(folders, &last));
	for (size_t i = 0; i < STORE_FOLDERS; i++)
		close(folders[i]);
}

static void test_apply(void **state)
{
	const struct image_choices none = {0}, all = {true, true, false, true},
				   operator= {.user_allowed = true},
				   language = {.is_language = true};
	static const char text[] =
		"{\"config\":{\"Env\":[\"PATH=/i\",\"HOME=/root\",\"X=i\",\"Y=i\"],"
		"\"Entrypoint\":[\"/e\"],\"Cmd\":[\"c\"],\"WorkingDir\":\"//srv/x/\","
		"\"User\":\"7:8\"},\"rootfs\":{\"diff_ids\":[]}}";
	struct image_config c = {0};
	struct err e = {0};
	struct spec s;

	(void)state;
	assert_int_equal(image_config_read(text, sizeof text - 1, &c, &e), 0);
	assert_int_equal(spec_init(&s, &e), 0);
	assert_int_equal(spec_add_env(&s, "X=mine", &e), 0);
	assert_int_equal(image_apply(&c, &none, "i", &s, &e), 0);
	assert_string_equal(s.env.item[0], "HOME=/tmp");
	assert_string_equal(s.env.item[1], "PATH=/i");
	assert_string_equal(s.env.item[2], "LANG=C.UTF-8");
	assert_string_equal(s.env.item[3], "X=mine");
	assert_string_equal(s.env.item[4], "Y=i");
	assert_int_equal(s.command.count, 2);
	assert_string_equal(s.workdir, "/srv/x");
	assert_int_equal(s.uid, 65534);
	spec_done(&s);

	assert_int_equal(spec_init(&s, &e), 0);
	assert_int_equal(spec_add_env(&s, "PATH=/usr/local/bin:/usr/bin:/bin", &e), 0);
	assert_int_equal(spec_add_argument(&s, "cmd", &e), 0);
	assert_int_equal(image_apply(&c, &all, "i", &s, &e), 0);
	assert_string_equal(s.env.item[1], "PATH=/usr/local/bin:/usr/bin:/bin");
	assert_int_equal(s.command.count, 1);
	assert_string_equal(s.workdir, "/workspace");
	assert_int_equal(s.uid, 65534);
	assert_int_equal(image_apply(&c, &language, "i", &s, &e), 0);
	assert_string_equal(s.workdir, "/workspace");
	assert_int_equal(image_apply(&c, &operator, "i", &s, &e), 0);
	assert_int_equal(s.uid, 7);
	assert_int_equal(s.gid, 8);
	memcpy(c.user, "root", 5);
	assert_int_equal(image_apply(&c, &operator, "i", &s, &e), -1);
	assert_contains(e.text, "only numbers");
	spec_done(&s);
	image_config_done(&c);
}

static void test_user(void **state)
{
	static const char *const bad[] = {"0",  "0:0", "1:0",        "root", "1:root",
					  "-1", "1:",  "4294967295", " 1",   "1:2:3"};
	uint32_t uid, gid;

	(void)state;
	assert_true(image_config_user("5", &uid, &gid) && uid == 5 && gid == 5);
	assert_true(image_config_user("5:6", &uid, &gid) && uid == 5 && gid == 6);
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		if (image_config_user(bad[i], &uid, &gid))
			fail_msg("took %s", bad[i]);
}

static void test_path_clean(void **state)
{
	static const struct {
		const char *in, *out; /* NULL: refused */
	} rows[] = {
		{"", ""},           {".", ""},        {"./", ""},     {"a", "a"},
		{"./a//b/", "a/b"}, {"a/./b", "a/b"}, {"..a", "..a"}, {"a/...", "a/..."},
		{"/a", NULL},       {"..", NULL},     {"a/..", NULL}, {"a/../b", NULL},
		{"./../a", NULL},
	};
	char out[ENTRY_PATH_MAX + 1], deep[200];
	struct err e;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		int r = tree_path_clean(rows[i].in, out, &e);

		if ((r == 0) != (rows[i].out != NULL))
			fail_msg("%s: %d", rows[i].in, r);
		if (rows[i].out)
			assert_string_equal(out, rows[i].out);
	}
	for (size_t i = 0; i < sizeof deep; i++)
		deep[i] = i % 2 ? '/' : 'd';
	deep[2 * TREE_MAX_LEVELS - 1] = '\0';
	assert_int_equal(tree_path_clean(deep, out, &e), 0);
	deep[2 * TREE_MAX_LEVELS - 1] = '/';
	deep[2 * TREE_MAX_LEVELS + 1] = '\0';
	assert_int_equal(tree_path_clean(deep, out, &e), -1);
}

static void test_frames(void **state)
{
	static char buffer[ENTRY_BUFFER], large[3 * ENTRY_DATA_MAX];
	const char xattrs[] = "user.a\0\1\0\0\0v";
	struct entry_wire w = {
		.kind = ENTRY_FILE, .size = sizeof large, .path_size = 1, .xattrs_size = 12};
	struct entry_reader r;
	struct entry_frame f;
	size_t position = 0, got = 0;
	const void *value;
	const char *name;
	uint32_t size;
	FILE *file = tmpfile();
	int fd = fileno(file);

	(void)state;
	assert_int_equal(entry_write_head(fd, &w, "f", "", xattrs), 0);
	assert_int_equal(entry_write_data(fd, 0, large, sizeof large), 0);
	assert_int_equal(entry_write_error(fd, "why"), 0);
	lseek(fd, 0, SEEK_SET);
	entry_reader_init(&r, fd, buffer);
	assert_int_equal(entry_read(&r, &f), 0);
	assert_string_equal(f.path, "f");
	assert_true(entry_next_xattr(&f, &position, &name, &value, &size));
	assert_string_equal(name, "user.a");
	assert_int_equal(size, 1);
	assert_false(entry_next_xattr(&f, &position, &name, &value, &size));
	while (got < sizeof large) {
		assert_int_equal(entry_read(&r, &f), 0);
		assert_int_equal(f.type, ENTRY_FRAME_DATA);
		assert_int_equal(f.offset, got);
		got += f.data_size;
	}
	assert_int_equal(entry_read(&r, &f), 0);
	assert_string_equal(f.error, "why");
	assert_int_equal(entry_read(&r, &f), -EPIPE);
	fclose(file);
}

static void test_record(void **state)
{
	static const char *const bad[] = {
		"{}",
		"[]",
		"{\"format\":2}",
		"x",
		"{\"format\":1,\"id\":\"\",\"manifest\":\"\",\"index\":\"\",\"created\":\"\",\"os\":\"\",\"architecture\":\"\",\"layers\":[],\"config\":{}}",
		"{\"format\":1,\"id\":\"\",\"manifest\":\"\",\"index\":\"\",\"created\":\"\",\"os\":\"\",\"architecture\":\"\","
		"\"layers\":[{\"digest\":\"sha256:" A64
		"\",\"name\":\"../x\",\"bytes\":1}],\"config\":{}}",
	};
	struct image_record r = {0};
	struct err e;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		if (image_record_read(bad[i], strlen(bad[i]), &r, &e) == 0)
			fail_msg("took %s", bad[i]);
	assert_false(layer_name_is_valid(""));
	assert_false(layer_name_is_valid("a:b"));
	assert_false(layer_name_is_valid("a/b"));
	assert_true(layer_name_is_valid("a1z9"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_find),       cmocka_unit_test(test_remove),
		cmocka_unit_test(test_apply),      cmocka_unit_test(test_user),
		cmocka_unit_test(test_path_clean), cmocka_unit_test(test_frames),
		cmocka_unit_test(test_record),     cmocka_unit_test(test_remove_waits),
		cmocka_unit_test(test_state),
	};

	return cmocka_run_group_tests_name("image", tests, NULL, NULL);
}
