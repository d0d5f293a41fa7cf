/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store.c - opening and closing the state: the folder, its lock, SQLite's settings, the check.
 *
 * Two writers are kept apart by flock() on state.lock, taken before the database is touched and held as
 * long as the store is open; the kernel gives it back with the process. SQLite's own exclusive mode would
 * shut out readers too, and `cloche audit verify` should work beside a running service. The file is never
 * opened here once SQLite has it: closing it would drop the POSIX locks of the whole process.
 *
 * The contents are data of clients. Nothing in the schema may run functions that do more than compute
 * (trusted_schema off), SQL cannot damage the file (defensive), and what is damaged is noticed when it is
 * read (cell_size_check) or by the check at opening.
 */
#include "store/store.h"

#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "base/fd.h"
#include "store/database.h"

#define DATABASE_NAME "state.db"
#define LOCK_NAME     "state.lock"

enum {
	TEXT_MAX_BYTES = 64 << 20, /* of one value: a result with both its outputs is far below */
	WAL_KEPT_BYTES = 16 << 20, /* what a checkpoint leaves of a log that was longer */
	CHECK_MAX_US =
		2000000, /* a start may wait so long for the check; it goes on unfinished then */
	CHECK_STEPS = 10000, /* of SQLite's machine between two looks at the clock: about 1 ms */
	/* Frames of the log that are brought home by a commit at the latest, and when there is time. It takes the disk
	 * several milliseconds, so each time should be worth it. */
	LOG_MOST = 4000,
	LOG_WORTH = 1500,
};

static void bring_home(struct store *s)
{
	/* What a reader holds back, or the disk refuses, stays in the log, where it is as safe. */
	(void)sqlite3_wal_checkpoint_v2(s->db, NULL, SQLITE_CHECKPOINT_PASSIVE, NULL, NULL);
	s->log_home = s->log_frames;
}

static int on_log(void *store, sqlite3 *db, const char *name, int frames)
{
	struct store *s = store;

	(void)db;
	(void)name;
	if (frames < s->log_home) /* it began anew */
		s->log_home = 0;
	s->log_frames = frames;
	if (frames >= LOG_MOST)
		bring_home(s);
	return SQLITE_OK;
}

bool store_is_untidy(const struct store *s)
{
	return s->log_frames - s->log_home >= LOG_WORTH;
}

void store_tidy(struct store *s)
{
	if (store_is_untidy(s) && sqlite3_get_autocommit(s->db))
		bring_home(s);
}

/* The path without links, so that SQLite can refuse any (NOFOLLOW), and the open folder. */
static int open_folder(struct store *s, const char *folder, bool make, struct err *e)
{
	_cleanup_free_ char *real = NULL;
	_cleanup_close_ int dir = -1;
	struct stat st;
	int n;

	if (make && mkdir(folder, 0700) < 0 && errno != EEXIST)
		return err_set(e, errno, "make folder %s", folder);
	real = realpath(folder, NULL);
	if (!real)
		return err_set(e, errno, "open folder %s", folder);
	dir = open(real, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	if (dir < 0 || fstat(dir, &st) < 0)
		return err_set(e, errno, "open folder %s", real);
	if (st.st_mode & 022)
		return err_set(e, 0, "%s: others may write in the folder of the state: chmod 0700",
			       real);
	n = snprintf(s->path, sizeof s->path, "%s/" DATABASE_NAME, real);
	if (n < 0 || (size_t)n >= sizeof s->path)
		return err_set(e, ENAMETOOLONG, "open folder %s", real);
	return TAKE_FD(dir);
}

static int take_lock(struct store *s, int dir, struct err *e)
{
	_cleanup_close_ int fd = openat(
		dir, LOCK_NAME, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);

	if (fd < 0)
		return err_set(e, errno, "open " LOCK_NAME " beside %s", s->path);
	if (flock(fd, LOCK_EX | LOCK_NB) < 0) {
		if (errno != EWOULDBLOCK)
			return err_set(e, errno, "lock " LOCK_NAME " beside %s", s->path);
		return err_set(
			e, EBUSY,
			"%s: another cloche service has it open: stop that one, or use another "
			"folder",
			s->path);
	}
	s->lock_fd = TAKE_FD(fd);
	return 0;
}

/* SQLite would make the file as the umask says; -wal and -shm get this file's mode from it. */
static int make_file(struct store *s, int dir, struct err *e)
{
	_cleanup_close_ int fd =
		openat(dir, DATABASE_NAME, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	struct stat st;

	if (fd >= 0)
		return fchmod(fd, 0600) < 0 ? err_set(e, errno, "chmod %s", s->path) : 0;
	if (errno != EEXIST)
		return err_set(e, errno, "make %s", s->path);
	if (fstatat(dir, DATABASE_NAME, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return err_set(e, errno, "open %s", s->path);
	if (!S_ISREG(st.st_mode))
		return err_set(e, 0, "open %s: not a file", s->path);
	if ((st.st_mode & 077) && fchmodat(dir, DATABASE_NAME, 0600, 0) < 0)
		return err_set(e, errno, "chmod %s", s->path);
	return 0;
}

static int set_up(struct store *s, struct err *e)
{
	static const char common[] =
		"PRAGMA trusted_schema = 0; PRAGMA cell_size_check = 1; PRAGMA foreign_keys = 1;"
		"PRAGMA temp_store = MEMORY; PRAGMA mmap_size = 0;";
	/* Half of the usual page: what a commit writes are mostly single rows of seven trees. */
	static const char writer[] = "PRAGMA page_size = 2048; PRAGMA journal_mode = WAL;"
				     "PRAGMA synchronous = NORMAL;";
	char limit[64];

	snprintf(limit, sizeof limit, "PRAGMA journal_size_limit = %d", WAL_KEPT_BYTES);
	sqlite3_busy_timeout(s->db, 0);
	sqlite3_limit(s->db, SQLITE_LIMIT_LENGTH, TEXT_MAX_BYTES);
	sqlite3_limit(s->db, SQLITE_LIMIT_ATTACHED, 0);
	if (sqlite3_db_config(s->db, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL) != SQLITE_OK ||
	    sqlite3_exec(s->db, common, NULL, NULL, NULL) != SQLITE_OK)
		return db_error(s->db, s->path, "open", e);
	if (s->lock_fd >= 0 && (sqlite3_exec(s->db, writer, NULL, NULL, NULL) != SQLITE_OK ||
				sqlite3_exec(s->db, limit, NULL, NULL, NULL) != SQLITE_OK))
		return db_error(s->db, s->path, "open", e);
	if (s->lock_fd >= 0) {
		sqlite3_wal_hook(s->db, on_log, s);
		sqlite3_rollback_hook(s->db, frames_forget, s->db);
	}
	return 0;
}

static int past_deadline(void *deadline)
{
	return now_us() > *(uint64_t *)deadline;
}

/* What the check does not reach in its time is noticed when it is read. */
static int check(struct store *s, struct err *e)
{
	uint64_t deadline = now_us() + CHECK_MAX_US;
	sqlite3_stmt *q = NULL;
	int r = sqlite3_prepare_v2(s->db, "PRAGMA quick_check(1)", -1, &q, NULL);

	sqlite3_progress_handler(s->db, CHECK_STEPS, past_deadline, &deadline);
	if (r == SQLITE_OK)
		r = sqlite3_step(q);
	sqlite3_progress_handler(s->db, 0, NULL, NULL);
	if (r == SQLITE_ROW) {
		const char *said = (const char *)sqlite3_column_text(q, 0);

		if (said && strcmp(said, "ok") == 0)
			r = 0;
		else
			r = err_set(
				e, 0,
				"%s is damaged (%.200s): stop the service, restore the file from "
				"a copy or move state.db* away to begin without its sandboxes",
				s->path, said ? said : "no memory to say how");
	} else {
		r = (r & 0xff) == SQLITE_INTERRUPT ? 0 : db_error(s->db, s->path, "check", e);
	}
	sqlite3_finalize(q);
	return r;
}

static int prepare_first(struct store *s, struct err *e)
{
	static const enum query first[] = {QUERY_BEGIN, QUERY_COMMIT, QUERY_ROLLBACK};

	for (size_t i = 0; i < ARRAY_SIZE(first); i++)
		if (!db_query(s, first[i], e))
			return -1;
	return 0;
}

static int open_database(struct store *s, int flags, struct err *e)
{
	int r;

	/* Before the first opening; nobody asks how much it has. */
	sqlite3_config(SQLITE_CONFIG_MEMSTATUS, 0);
	r = sqlite3_open_v2(s->path, &s->db,
			    flags | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_NOFOLLOW |
				    SQLITE_OPEN_EXRESCODE,
			    flags & SQLITE_OPEN_READWRITE ? frames_vfs() : NULL);

	if (r != SQLITE_OK)
		return db_error(s->db, s->path, "open", e);
	return set_up(s, e);
}

static struct store *open_store(const char *folder, bool writer, struct err *e)
{
	struct store *s = calloc(1, sizeof *s);
	_cleanup_close_ int dir = -1;
	int version;

	if (!s) {
		err_set(e, ENOMEM, "open the state in %s", folder);
		return NULL;
	}
	s->lock_fd = -1;
	dir = open_folder(s, folder, writer, e);
	if (dir < 0 || sha256_prepare(e) < 0)
		goto fail;
	if (writer && (take_lock(s, dir, e) < 0 || make_file(s, dir, e) < 0))
		goto fail;
	if (open_database(s, writer ? SQLITE_OPEN_READWRITE : SQLITE_OPEN_READONLY, e) < 0 ||
	    check(s, e) < 0)
		goto fail;
	if (writer && schema_migrate(s->db, s->path, schema_scripts, schema_version, e) < 0)
		goto fail;
	if (schema_read_version(s->db, s->path, &version, e) < 0)
		goto fail;
	if (version != schema_version) {
		err_set(e, 0, "%s has format %d, this cloche reads %d: start its service once",
			s->path, version, schema_version);
		goto fail;
	}
	if (prepare_first(s, e) < 0)
		goto fail;
	return s;
fail:
	store_close(s);
	return NULL;
}

struct store *store_open(const char *folder, struct err *e)
{
	return open_store(folder, true, e);
}

struct store *store_open_reader(const char *folder, struct err *e)
{
	return open_store(folder, false, e);
}

void store_close(struct store *s)
{
	if (!s)
		return;
	for (size_t i = 0; i < QUERY_COUNT; i++)
		sqlite3_finalize(s->queries[i]);
	sqlite3_close(s->db);
	fd_close(&s->lock_fd);
	free(s);
}

int store_retain(struct store *s, const struct retention *r, struct err *e)
{
	const int64_t day_ms = 24 * 3600 * 1000;
	int64_t now = now_ms();
	const struct {
		enum query query;
		int64_t before_ms;
	} tables[] = {
		{QUERY_SANDBOX_RETAIN, now - r->ended_sandbox_ms},
		{QUERY_RUN_RETAIN, now - r->run_ms},
		{QUERY_IDEMPOTENCY_RETAIN, now - day_ms},
	};
	bool own;
	int more = 0;

	if (db_join(s, &own, e) < 0)
		return -1;
	for (size_t i = 0; i < ARRAY_SIZE(tables); i++) {
		_cleanup_query_ sqlite3_stmt *q = db_write_query(s, tables[i].query, e);
		struct binder b = {q};

		if (!q)
			return db_leave(s, own, -1, e);
		bind_int(&b, tables[i].before_ms);
		bind_int(&b, RETAIN_BATCH);
		if (bind_write(s, &b, "remove what is old from", e) < 0)
			return db_leave(s, own, -1, e);
		more |= sqlite3_changes(s->db) == RETAIN_BATCH;
	}
	switch (audit_retain(s, now - r->audit_ms, e)) {
	case 0:
		return db_leave(s, own, more, e);
	case 1:
		return db_leave(s, own, 1, e);
	default:
		return db_leave(s, own, -1, e);
	}
}
