/* SPDX-License-Identifier: Apache-2.0 */
/* The file of the state: modes, two openers, migrations, and every way in which file or disk can be bad. */
#include "store_unit.h"
#include "store_version1.h"

#include <sched.h>
#include <sys/mount.h>
#include <sys/wait.h>

/* ----------------------------------------------------------------------------------------- opening */

static void open_fails(const char *folder, const char *part)
{
	struct err e = {0};
	struct store *s = store_open(folder, &e);

	if (s)
		fail_msg("opened although: %s", part);
	assert_contains(e.text, part);
}

static void mode_is(int dir, const char *name, mode_t mode)
{
	struct stat st;

	assert_int_equal(fstatat(dir, name, &st, 0), 0);
	assert_int_equal(st.st_mode & 07777, mode);
}

static void test_modes(void **state)
{
	struct stored_sandbox b = some_sandbox("sbx_1", "a");
	struct err e = {0};
	char path[256], folder[300];
	int top = scratch_make(path), dir;
	struct store *s;
	mode_t before = umask(0);

	(void)state;
	snprintf(folder, sizeof folder, "%s/new", path);
	s = open_store(folder);
	must(store_sandbox_put(s, &b, &e), e);
	dir = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	mode_is(top, "new", 0700);
	mode_is(dir, "state.db", 0600);
	mode_is(dir, "state.db-wal", 0600);
	mode_is(dir, "state.db-shm", 0600);
	mode_is(dir, "state.lock", 0600);
	store_close(s);
	/* what somebody opened up is closed again; an odd umask changes nothing */
	umask(0177);
	assert_int_equal(fchmodat(dir, "state.db", 0666, 0), 0);
	store_close(open_store(folder));
	mode_is(dir, "state.db", 0600);
	umask(before);
	assert_int_equal(chmod(folder, 0777), 0);
	open_fails(folder, "others may write");
	assert_int_equal(chmod(folder, 0700), 0);
	assert_int_equal(renameat(dir, "state.db", dir, "other"), 0);
	assert_int_equal(symlinkat("other", dir, "state.db"), 0);
	open_fails(folder, "not a file");
	close(dir);
	close(top);
	scratch_remove(path);
}

static void test_two_openers(void **state)
{
	struct stored_sandbox b = some_sandbox("sbx_1", "a"), got;
	struct scratch t;
	struct store *reader;
	struct err e = {0};
	pid_t child;
	int status;

	(void)state;
	scratch_open(&t);
	open_fails(t.path, "another cloche service has it open");
	child = fork();
	if (child == 0) {
		struct store *other = store_open(t.path, &e);

		_exit(!other && e.errnum == EBUSY ? 0 : 1);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	/* a reader sees what is committed, and writes nothing */
	must(store_sandbox_put(t.store, &b, &e), e);
	reader = store_open_reader(t.path, &e);
	if (!reader)
		fail_msg("%s", e.text);
	must(store_sandbox_get(reader, "sbx_1", &got, &e), e);
	stored_sandbox_done(&got);
	assert_int_equal(store_sandbox_put(reader, &b, &e), -1);
	assert_contains(e.text, "read only");
	assert_int_equal(store_begin(reader, &e), -1);
	store_close(reader);
	/* the reader took no lock away: two are still impossible, and the writer writes */
	open_fails(t.path, "another cloche service has it open");
	must(store_sandbox_put(t.store, &b, &e), e);
	scratch_close(&t);
}

/* Without the lock file's help: a foreign program that is writing is an error, not a wait. */
static void test_foreign_writer(void **state)
{
	struct stored_sandbox b = some_sandbox("sbx_1", "a");
	struct scratch t;
	struct err e = {0};
	char file[300];
	sqlite3 *db;

	(void)state;
	scratch_open(&t);
	snprintf(file, sizeof file, "%s/state.db", t.path);
	assert_int_equal(sqlite3_open(file, &db), SQLITE_OK);
	assert_int_equal(sqlite3_exec(db, "BEGIN IMMEDIATE", NULL, NULL, NULL), SQLITE_OK);
	assert_int_equal(store_sandbox_put(t.store, &b, &e), -1);
	assert_contains(e.text, "another program holds it");
	assert_int_equal(store_begin(t.store, &e), -1);
	assert_int_equal(sqlite3_exec(db, "ROLLBACK", NULL, NULL, NULL), SQLITE_OK);
	must(store_sandbox_put(t.store, &b, &e), e);
	sqlite3_close(db);
	scratch_close(&t);
}

static void test_damaged(void **state)
{
	static const char noise[8192] = "this is not a database at all, it only looks like a file";
	struct stored_sandbox b = some_sandbox("sbx_1", "a");
	struct scratch t;
	struct err e = {0};
	int fd;

	(void)state;
	scratch_open(&t);
	for (int i = 0; i < 200; i++) {
		snprintf(b.id, sizeof b.id, "sbx_%d", i);
		must(store_sandbox_put(t.store, &b, &e), e);
	}
	store_close(t.store);
	/* pages of a table overwritten: the check at opening sees it */
	fd = openat(t.dir, "state.db", O_RDWR | O_CLOEXEC);
	assert_true(lseek(fd, 0, SEEK_END) > 40000);
	assert_int_equal(pwrite(fd, noise, 4096, 4096), 4096);
	close(fd);
	open_fails(t.path, "state.db is damaged");
	open_fails(t.path, "move state.db* away");
	write_at(t.dir, "state.db", noise, sizeof noise, 0600);
	open_fails(t.path, "state.db is damaged");
	/* and after the remedy it works */
	assert_int_equal(unlinkat(t.dir, "state.db", 0), 0);
	t.store = open_store(t.path);
	scratch_close(&t);
}

static void test_value_that_cannot_be(void **state)
{
	struct stored_sandbox b = some_sandbox("sbx_1", "a");
	struct scratch t;
	struct err e = {0};

	(void)state;
	scratch_open(&t);
	must(store_sandbox_put(t.store, &b, &e), e);
	tamper(t.path, "UPDATE sandboxes SET state = 'sleeping'");
	assert_int_equal(store_sandbox_get(t.store, "sbx_1", &b, &e), -1);
	assert_contains(e.text, "damaged");
	tamper(t.path, "UPDATE sandboxes SET state = 'ended', reason = 'boredom'");
	assert_int_equal(store_sandbox_get(t.store, "sbx_1", &b, &e), -1);
	scratch_close(&t);
}

/* --------------------------------------------------------------------------------------- migrations */

static void make_version1(struct scratch *t)
{
	t->dir = scratch_make(t->path);
	tamper(t->path, version1);
}

static void test_migration(void **state)
{
	struct stored_sandbox b;
	struct stored_run r;
	struct stored_key k;
	struct scratch t;
	struct err e = {0};
	int64_t rows, bad;
	uint64_t kept;
	char head[65];
	int version;

	(void)state;
	make_version1(&t);
	tamper(t.path,
	       "INSERT INTO runs VALUES (2, 'run_2', 'sbx_old', 'uid:1', NULL, 'run', '00', 1, 1, 'exited', "
	       "NULL, 0, '{\"artifacts\":[{\"bytes\":0,\"skipped\":null},{\"bytes\":5000,\"skipped\":null},"
	       "{\"bytes\":null,\"skipped\":\"too large\"}]}', 'run_2', 1, 5);"
	       "INSERT INTO runs VALUES (3, 'run_3', 'sbx_old', 'uid:1', NULL, 'run', '00', 1, 1, 'exited', "
	       "NULL, 0, 'no json', 'run_3', 1, 5)");
	assert_null(store_open_reader(t.path, &e));
	assert_contains(e.text, "has format 1");
	t.store = open_store(t.path);
	must(schema_read_version(t.store->db, "x", &version, &e), e);
	assert_int_equal(version, schema_version);
	assert_true(version > 1);
	must(store_sandbox_get(t.store, "sbx_old", &b, &e), e);
	assert_int_equal(b.state, STATE_ENDED);
	assert_int_equal(b.reason, REASON_LOST);
	stored_sandbox_done(&b);
	must(store_run_get(t.store, "run_old", &r, &e), e);
	stored_run_done(&r);
	must(store_run_get(t.store, "run_2", &r, &e), e);
	assert_true(r.artifact_bytes == 4096 + 8192); /* in blocks, of those that were kept */
	must(store_kept(t.store, "uid:1", &kept, &e), e);
	assert_true(kept == 4096 + 8192 + strlen(r.result) + strlen("no json"));
	stored_run_done(&r);
	must(store_key_find(t.store, "clk_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA", &k, &e), e);
	assert_string_equal(k.id, "key_0000000000000001");
	stored_key_done(&k);
	must(store_audit_verify(t.store, &rows, &bad, head, &e), e);
	assert_int_equal(rows, 2);
	scratch_reopen(&t); /* a second opening changes nothing */
	must(store_sandbox_get(t.store, "sbx_old", &b, &e), e);
	stored_sandbox_done(&b);
	scratch_close(&t);
}

static void test_failed_migration_leaves_the_version_before(void **state)
{
	const char *const scripts[] = {
		schema_scripts[0], "CREATE TABLE extra (a INTEGER) STRICT",
		"CREATE TABLE more (a INTEGER) STRICT; INSERT INTO nowhere VALUES (1)"};
	struct scratch t;
	struct err e = {0};
	char file[300];
	sqlite3 *db;
	int version;

	(void)state;
	make_version1(&t);
	snprintf(file, sizeof file, "%s/state.db", t.path);
	assert_int_equal(sqlite3_open(file, &db), SQLITE_OK);
	assert_int_equal(schema_migrate(db, "f", scripts, 3, &e), -1);
	assert_contains(e.text, "format 2 to 3");
	must(schema_read_version(db, "f", &version, &e), e);
	assert_int_equal(version, 2);
	assert_int_equal(sqlite3_get_autocommit(db), 1);
	assert_int_equal(sqlite3_exec(db, "SELECT * FROM extra", NULL, NULL, NULL), SQLITE_OK);
	assert_int_equal(sqlite3_exec(db, "SELECT * FROM more", NULL, NULL, NULL), SQLITE_ERROR);
	sqlite3_close(db);
	close(t.dir);
	scratch_remove(t.path);
}

static void test_foreign_files(void **state)
{
	struct scratch t;

	(void)state;
	t.dir = scratch_make(t.path);
	tamper(t.path, "PRAGMA user_version = 1000; CREATE TABLE a (b)");
	open_fails(t.path, "was written by a newer cloche");
	tamper(t.path, "PRAGMA user_version = 0");
	open_fails(t.path, "is no state of cloche");
	tamper(t.path, "PRAGMA user_version = -1");
	open_fails(t.path, "is no state of cloche");
	close(t.dir);
	scratch_remove(t.path);
}

/* ------------------------------------------------------------------------------------------- a full disk */

/* Writes until the disk is full, in turns of one transaction. The number of turns that were committed. */
static int fill(struct store *s, int turn, struct err *e)
{
	char large[20000];
	struct stored_sandbox b = some_sandbox("", "a");
	struct audit_row row = some_row("x");

	memset(large, 'x', sizeof large - 1);
	large[sizeof large - 1] = '\0';
	b.message = large;
	for (;; turn++) {
		int r = store_begin(s, e);

		for (int i = 0; i < 4 && r == 0; i++) {
			snprintf(b.id, sizeof b.id, "sbx_%d_%d", turn, i);
			r = store_sandbox_put(s, &b, e);
			if (r == 0)
				r = store_audit_add(s, &row, e);
		}
		if (store_commit(s, e) < 0)
			return turn;
		assert_int_equal(r, 0);
	}
}

/* More than SQLite keeps in memory before a commit: a write in the middle of the turn fails. Nothing gets in
 * behind it, and the commit says so. */
static void fail_inside(struct store *s)
{
	static char large[3 << 20];
	struct stored_sandbox b = some_sandbox("sbx_late", "a");
	struct audit_row row = some_row("x");
	struct err e = {0}, again = {0};
	int r = 0;

	memset(large, 'x', sizeof large - 1);
	must(store_begin(s, &e), e);
	must(store_sandbox_put(s, &b, &e), e);
	must(store_audit_add(s, &row, &e), e);
	b.message = large;
	for (int i = 0; i < 5 && r == 0; i++) {
		snprintf(b.id, sizeof b.id, "sbx_late%d", i);
		r = store_sandbox_put(s, &b, &e);
	}
	assert_int_equal(r, -1);
	assert_int_equal(e.errnum, ENOSPC);
	b.message = NULL;
	assert_int_equal(store_sandbox_put(s, &b, &again), -1);
	assert_string_equal(again.text, e.text);
	assert_int_equal(store_audit_add(s, &row, &again), -1);
	assert_int_equal(store_begin(s, &again), -1);
	again = (struct err){0};
	assert_int_equal(store_commit(s, &again), -1);
	assert_string_equal(again.text, e.text);
	assert_int_equal(store_commit(s, &again), 0);
}

static void check_turns(struct store *s, int turns)
{
	struct stored_sandbox b;
	struct err e = {0};
	int64_t rows, bad;
	char id[40], head[65];

	for (int turn = 0; turn < turns; turn++)
		for (int i = 0; i < 4; i++) {
			snprintf(id, sizeof id, "sbx_%d_%d", turn, i);
			must(store_sandbox_get(s, id, &b, &e), e);
			stored_sandbox_done(&b);
		}
	snprintf(id, sizeof id, "sbx_%d_0", turns);
	assert_int_equal(store_sandbox_get(s, id, &b, &e), 1);
	assert_int_equal(store_sandbox_get(s, "sbx_late", &b, &e), 1);
	must(store_audit_verify(s, &rows, &bad, head, &e), e);
	assert_int_equal(rows, turns * 4);
}

static bool mount_small(const char *path)
{
	return unshare(CLONE_NEWNS) == 0 &&
	       mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
	       mount("small", path, "tmpfs", 0, "size=2m,mode=0700") == 0;
}

static void test_full_disk(void **state)
{
	char path[256];
	int top = scratch_make(path), turns;
	struct store *s;
	struct err e = {0};

	(void)state;
	if (!mount_small(path)) {
		close(top);
		scratch_remove(path);
		skip_because("no right to mount");
	}
	s = open_store(path);
	turns = fill(s, 0, &e);
	assert_true(turns > 2);
	assert_int_equal(e.errnum, ENOSPC);
	assert_contains(e.text, "state.db: make space there");
	check_turns(s, turns);
	/* with space again, the same handle goes on */
	assert_int_equal(mount(NULL, path, NULL, MS_REMOUNT, "size=6m"), 0);
	fail_inside(s);
	check_turns(s, turns);
	turns = fill(s, turns, &e);
	assert_int_equal(e.errnum, ENOSPC);
	check_turns(s, turns);
	store_close(s);
	/* and a full disk is no reason not to start, or a clear one */
	s = store_open(path, &e);
	if (s)
		check_turns(s, turns);
	else
		assert_contains(e.text, "make space there");
	store_close(s);
	/* read-only: an error with its cause; a look is possible */
	assert_int_equal(mount(NULL, path, NULL, MS_REMOUNT | MS_RDONLY, NULL), 0);
	open_fails(path, "ead-only file system");
	s = store_open_reader(path, &e);
	if (!s)
		fail_msg("%s", e.text);
	check_turns(s, turns);
	store_close(s);
	assert_int_equal(umount(path), 0);
	close(top);
	scratch_remove(path);
}

/* -------------------------------------------------------------------------- what a kill -9 would leave */

/* A copy of the files as they are now, by another process: one that is opened here would drop SQLite's locks. */
static void copy_state(const char *from, const char *to)
{
	char db[300], log[300];
	int status;
	pid_t child;

	snprintf(db, sizeof db, "%s/state.db", from);
	snprintf(log, sizeof log, "%s/state.db-wal", from);
	child = fork();
	if (child == 0) {
		execlp("cp", "cp", db, log, to, (char *)NULL);
		_exit(127);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
}

static void must_have_runs(const char *folder, int count, const char *result)
{
	char head[65], id[40];
	int64_t rows, bad;
	struct err e = {0};
	struct store *s = open_store(folder);

	for (int i = 0; i < count; i++) {
		struct stored_run got;

		snprintf(id, sizeof id, "run_%d", i);
		must(store_run_get(s, id, &got, &e), e);
		assert_string_equal(got.result, result);
		stored_run_done(&got);
	}
	must(store_audit_verify(s, &rows, &bad, head, &e), e);
	assert_int_equal(rows, count);
	store_close(s);
}

static void put_run(struct store *s, int i, const char *result)
{
	struct stored_run r = some_run("", "sbx_1");
	struct err e = {0};

	snprintf(r.id, sizeof r.id, "run_%d", i);
	r.result = (char *)(uintptr_t)result;
	r.ended = result != NULL;
	must(store_run_put(s, &r, &e), e);
}

static void run_sql(struct scratch *t, const char *sql)
{
	char *said = NULL;

	if (sqlite3_exec(t->store->db, sql, NULL, NULL, &said) != SQLITE_OK)
		fail_msg("%s: %s", sql, said);
}

static void test_each_commit_is_in_the_file(void **state)
{
	struct audit_row row = some_row("run");
	struct err e = {0};
	struct scratch t;

	(void)state;
	scratch_open(&t);
	for (int i = 0; i < 30; i++) {
		char copy[256];
		int dir = scratch_make(copy);

		must(store_begin(t.store, &e), e);
		put_run(t.store, i, NULL);
		must(store_commit(t.store, &e), e);
		must(store_begin(t.store, &e), e);
		put_run(t.store, i, "{}");
		must(store_audit_add(t.store, &row, &e), e);
		must(store_commit(t.store, &e), e);
		copy_state(t.path, copy);
		must_have_runs(copy, i + 1, "{}");
		close(dir);
		scratch_remove(copy);
	}
	scratch_close(&t);
}

/* Pages that are written to the log twice in one transaction get new checksums at its end, each by itself. */
static void test_a_commit_larger_than_the_memory(void **state)
{
	enum { RUNS = 300 };
	struct audit_row row = some_row("run");
	char copy[256], result[900];
	struct err e = {0};
	struct scratch t;
	int dir;

	(void)state;
	scratch_open(&t);
	dir = scratch_make(copy);
	run_sql(&t, "PRAGMA cache_size = 10");
	for (char c = 'a'; c < 'd'; c++) {
		memset(result, c, sizeof result - 1);
		result[sizeof result - 1] = '\0';
		must(store_begin(t.store, &e), e);
		for (int i = 0; i < RUNS; i++) {
			put_run(t.store, i, result);
			if (c == 'a')
				must(store_audit_add(t.store, &row, &e), e);
		}
		for (int i = 0; i < RUNS; i++)
			put_run(t.store, i, result);
		must(store_commit(t.store, &e), e);
		copy_state(t.path, copy);
		must_have_runs(copy, RUNS, result);
	}
	close(dir);
	scratch_close(&t);
	scratch_remove(copy);
}

/* Its only page was read from the log just before: nothing may wait behind that. */
static void test_a_commit_of_one_page_that_was_read(void **state)
{
	struct stored_sandbox b = some_sandbox("sbx_1", "a"), got;
	struct scratch t;
	struct err e = {0};

	(void)state;
	scratch_open(&t);
	must(store_sandbox_put(t.store, &b, &e), e);
	for (int i = 0; i < 10; i++) {
		char copy[256], text[12], sql[64];
		int dir = scratch_make(copy);
		struct store *s;

		snprintf(text, sizeof text, "%d", i);
		snprintf(sql, sizeof sql, "UPDATE sandboxes SET message = '%s'", text);
		sqlite3_db_release_memory(t.store->db);
		run_sql(&t, sql);
		copy_state(t.path, copy);
		s = open_store(copy);
		must(store_sandbox_get(s, "sbx_1", &got, &e), e);
		assert_string_equal(got.message, text);
		stored_sandbox_done(&got);
		store_close(s);
		close(dir);
		scratch_remove(copy);
	}
	scratch_close(&t);
}

static void commit_rows(struct scratch *t, int from, int count)
{
	struct err e = {0};

	for (int i = from; i < from + count; i++) {
		must(store_begin(t->store, &e), e);
		put_run(t->store, i, "{}");
		must(store_commit(t->store, &e), e);
	}
}

/* What was written to the log for a transaction that is rolled back must not come after what another program commits. */
static void test_what_is_rolled_back_is_written_no_more(void **state)
{
	enum { RUNS = 300 };
	char result[900];
	struct err e = {0};
	struct scratch t;
	sqlite3_stmt *q;

	(void)state;
	scratch_open(&t);
	run_sql(&t, "CREATE TABLE other (a)");
	scratch_reopen(&t); /* nothing is read from the log then */
	run_sql(&t, "PRAGMA cache_size = 10");
	memset(result, 'x', sizeof result - 1);
	result[sizeof result - 1] = '\0';
	must(store_begin(t.store, &e), e);
	for (int i = 0; i < RUNS; i++)
		put_run(t.store, i, result);
	assert_int_equal(sqlite3_db_cacheflush(t.store->db), SQLITE_OK);
	store_rollback(t.store);
	/* over all of it, and not so much that it is brought home */
	tamper(t.path,
	       "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 700) "
	       "INSERT INTO other SELECT hex(randomblob(400)) FROM n");
	assert_int_equal(sqlite3_prepare_v2(t.store->db,
					    "SELECT count(*), (SELECT count(*) FROM runs), "
					    "(SELECT * FROM pragma_integrity_check) FROM other",
					    -1, &q, NULL),
			 SQLITE_OK);
	assert_int_equal(sqlite3_step(q), SQLITE_ROW);
	assert_int_equal(sqlite3_column_int(q, 0), 700);
	assert_int_equal(sqlite3_column_int(q, 1), 0);
	assert_string_equal((const char *)sqlite3_column_text(q, 2), "ok");
	sqlite3_finalize(q);
	commit_rows(&t, 0, 1);
	scratch_close(&t);
}

/* Until nothing more has room there. */
static void fill_disk(int dir, const char *name)
{
	static const char block[4096];
	int fd = openat(dir, name, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

	while (write(fd, block, sizeof block) > 0)
		;
	assert_int_equal(errno, ENOSPC);
	close(fd);
}

/* Pages that had to be written before others could be read, and could not: SQLite undoes the statement that reads, and not the
 * transaction, which must not be committed without them. */
static void test_what_could_not_be_written_is_not_committed(void **state)
{
	struct scratch t;
	int dir;

	(void)state;
	t.dir = scratch_make(t.path);
	if (!mount_small(t.path)) {
		close(t.dir);
		scratch_remove(t.path);
		skip_because("no right to mount");
	}
	dir = open(t.path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	t.store = open_store(t.path);
	commit_rows(&t, 0, 50);
	run_sql(&t, "BEGIN; UPDATE runs SET result = '{\"a\":1}', result_bytes = 7");
	assert_int_equal(sqlite3_db_cacheflush(t.store->db), SQLITE_OK);
	fill_disk(dir, "full");
	sqlite3_db_release_memory(t.store->db);
	assert_int_equal(sqlite3_exec(t.store->db,
				      "UPDATE runs SET result_bytes = result_bytes + 1", NULL, NULL,
				      NULL),
			 SQLITE_FULL);
	assert_int_equal(sqlite3_get_autocommit(t.store->db), 0);
	assert_int_equal(unlinkat(dir, "full", 0), 0);
	assert_int_not_equal(sqlite3_exec(t.store->db, "COMMIT", NULL, NULL, NULL), SQLITE_OK);
	assert_int_equal(sqlite3_get_autocommit(t.store->db), 1);
	commit_rows(&t, 50, 10);
	store_close(t.store);
	t.store = open_store(t.path);
	for (int i = 0; i < 60; i++) {
		struct stored_run got;
		struct err e = {0};
		char id[40];

		snprintf(id, sizeof id, "run_%d", i);
		must(store_run_get(t.store, id, &got, &e), e);
		assert_string_equal(got.result, "{}");
		stored_run_done(&got);
	}
	store_close(t.store);
	close(dir);
	assert_int_equal(umount(t.path), 0);
	close(t.dir);
	scratch_remove(t.path);
}

static long written_calls(void)
{
	char text[512];
	int fd = open("/proc/self/io", O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);

	if (n <= 0)
		fail_msg("/proc/self/io: %s", strerror(errno));
	close(fd);
	text[n] = '\0';
	return strtol(strstr(text, "syscw: ") + 7, NULL, 10);
}

/* Each changes several trees. The log begins anew now and then, and is read. */
static void test_a_commit_is_one_write(void **state)
{
	enum { COMMITS = 50 };
	struct scratch t;
	long before;

	(void)state;
	scratch_open(&t);
	commit_rows(&t, 0, 20);
	before = written_calls();
	commit_rows(&t, 20, COMMITS);
	assert_in_range(written_calls() - before, COMMITS, COMMITS + 5);
	scratch_close(&t);
}

static off_t size_of(const struct scratch *t, const char *name)
{
	char path[300];
	struct stat st;

	snprintf(path, sizeof path, "%s/%s", t->path, name);
	assert_int_equal(stat(path, &st), 0);
	return st.st_size;
}

static int commit_until_untidy(struct scratch *t, int from)
{
	while (!store_is_untidy(t->store)) {
		assert_true(from < 5000);
		commit_rows(t, from++, 1);
	}
	return from;
}

/* The log is brought home when its owner says that there is time, and else by a commit before it is much too long. */
static void test_the_log_is_brought_home(void **state)
{
	enum { FRAME = 2048 + 24, MOST = 5000 * FRAME };
	struct scratch t;
	off_t before, log;
	sqlite3 *reader;
	char path[300];
	int n;

	(void)state;
	scratch_open(&t);
	before = size_of(&t, "state.db");
	n = commit_until_untidy(&t, 0);
	assert_true(n > 100);
	assert_true(size_of(&t, "state.db") == before);
	log = size_of(&t, "state.db-wal");
	assert_true(log < MOST / 2);
	store_tidy(t.store);
	assert_false(store_is_untidy(t.store));
	assert_true(size_of(&t, "state.db") > before);
	commit_rows(&t, n, 50); /* the log begins anew, in its old place */
	assert_true(size_of(&t, "state.db-wal") == log);
	assert_false(store_is_untidy(t.store));
	/* what a reader still sees stays in it: to try again is worth it only after as much again */
	snprintf(path, sizeof path, "%s/state.db", t.path);
	assert_int_equal(sqlite3_open_v2(path, &reader, SQLITE_OPEN_READONLY, NULL), SQLITE_OK);
	assert_int_equal(sqlite3_exec(reader, "BEGIN; SELECT count(*) FROM runs", NULL, NULL, NULL),
			 SQLITE_OK);
	n = commit_until_untidy(&t, n + 50);
	store_tidy(t.store);
	assert_false(store_is_untidy(t.store));
	commit_rows(&t, n, 20);
	assert_false(store_is_untidy(t.store));
	n = commit_until_untidy(&t, n + 20);
	sqlite3_close(reader);
	/* nobody says anything */
	commit_rows(&t, n, 4000);
	assert_true(size_of(&t, "state.db-wal") < MOST);
	scratch_close(&t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_modes),
		cmocka_unit_test(test_two_openers),
		cmocka_unit_test(test_foreign_writer),
		cmocka_unit_test(test_damaged),
		cmocka_unit_test(test_value_that_cannot_be),
		cmocka_unit_test(test_migration),
		cmocka_unit_test(test_failed_migration_leaves_the_version_before),
		cmocka_unit_test(test_foreign_files),
		cmocka_unit_test(test_full_disk),
		cmocka_unit_test(test_each_commit_is_in_the_file),
		cmocka_unit_test(test_a_commit_larger_than_the_memory),
		cmocka_unit_test(test_a_commit_of_one_page_that_was_read),
		cmocka_unit_test(test_what_is_rolled_back_is_written_no_more),
		cmocka_unit_test(test_what_could_not_be_written_is_not_committed),
		cmocka_unit_test(test_a_commit_is_one_write),
		cmocka_unit_test(test_the_log_is_brought_home),
	};

	return cmocka_run_group_tests_name("store-file", tests, NULL, NULL);
}
