/* SPDX-License-Identifier: Apache-2.0 */
/*
 * database.c - statements, errors and transactions of the store, in cloched's thread.
 *
 * What SQLite reports is sorted into two kinds. A bad value undoes its own statement. All else (no space,
 * an I/O error, no memory, a damaged page) means that the transaction cannot be what its caller
 * meant: it is rolled back whole, and no later write of the same turn may slip in without the earlier ones.
 */
#include "store/database.h"

#include <string.h>
#include <time.h>

static const char *const query_texts[QUERY_COUNT] = {
#define QUERY(name, sql) [QUERY_##name] = sql,
#include "store/queries.def"
#undef QUERY
};

int64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* ---------------------------------------------------------------------------------------- errors */

static bool disk_is_full(sqlite3 *db, int code)
{
	int error = sqlite3_system_errno(db);

	return code == SQLITE_FULL ||
	       (code == SQLITE_IOERR && (error == ENOSPC || error == EDQUOT));
}

int db_error(sqlite3 *db, const char *path, const char *what, struct err *e)
{
	int code = db ? sqlite3_errcode(db) & 0xff : SQLITE_NOMEM;
	const char *said = db ? sqlite3_errmsg(db) : "";

	if (db && disk_is_full(db, code))
		return err_set(e, ENOSPC, "%s %s: make space there", what, path);
	switch (code) {
	case SQLITE_NOMEM:
		return err_set(e, ENOMEM, "%s %s", what, path);
	case SQLITE_CORRUPT:
	case SQLITE_NOTADB:
		return err_set(
			e, 0,
			"%s is damaged (%s): stop the service, restore the file from a copy or "
			"move state.db* away to begin without its sandboxes",
			path, said);
	case SQLITE_BUSY:
	case SQLITE_LOCKED:
		return err_set(e, EBUSY, "%s %s: another program holds it", what, path);
	case SQLITE_READONLY:
		return err_set(e, EROFS, "%s %s: %s: file system or file is read-only", what, path,
			       said);
	case SQLITE_IOERR:
	case SQLITE_CANTOPEN:
		return err_set(e, sqlite3_system_errno(db), "%s %s: %s", what, path, said);
	default:
		return err_set(e, 0, "%s %s: %s", what, path, said);
	}
}

static bool is_bad_value(int code)
{
	code &= 0xff;
	return code == SQLITE_CONSTRAINT || code == SQLITE_MISMATCH || code == SQLITE_TOOBIG ||
	       code == SQLITE_ERROR;
}

static void roll_back(struct store *s)
{
	/* The statement is prepared at open: here may be no memory for one. */
	if (!sqlite3_get_autocommit(s->db)) {
		sqlite3_step(s->queries[QUERY_ROLLBACK]);
		sqlite3_reset(s->queries[QUERY_ROLLBACK]);
	}
	s->audit.known = false;
}

/* A step failed; was_open: inside a transaction. */
static void fail(struct store *s, bool was_open, bool writes, int code, const struct err *e)
{
	if (writes)
		s->audit.known = false;
	if (!was_open || (!sqlite3_get_autocommit(s->db) && (!writes || is_bad_value(code))))
		return;
	roll_back(s);
	s->failed = true;
	s->failure = *e;
}

/* ------------------------------------------------------------------------------------ statements */

sqlite3_stmt *db_query(struct store *s, enum query which, struct err *e)
{
	sqlite3_stmt **q = &s->queries[which];

	if (!*q && sqlite3_prepare_v3(s->db, query_texts[which], -1, SQLITE_PREPARE_PERSISTENT, q,
				      NULL) != SQLITE_OK) {
		db_error(s->db, s->path, "read", e);
		fail(s, !sqlite3_get_autocommit(s->db) && !s->failed, false, SQLITE_NOMEM, e);
		return NULL;
	}
	if (sqlite3_stmt_busy(*q)) {
		err_set(e, 0, "%s: a list was asked for inside itself", s->path);
		return NULL;
	}
	return *q;
}

sqlite3_stmt *db_write_query(struct store *s, enum query which, struct err *e)
{
	bool was_open = !sqlite3_get_autocommit(s->db);
	sqlite3_stmt *q;

	if (s->lock_fd < 0) {
		err_set(e, EROFS, "write %s: opened to read only", s->path);
		return NULL;
	}
	if (s->failed) {
		*e = s->failure;
		return NULL;
	}
	q = db_query(s, which, e);
	if (!q)
		fail(s, was_open, true, SQLITE_NOMEM, e);
	return q;
}

int db_step(struct store *s, sqlite3_stmt *q, const char *what, struct err *e)
{
	bool was_open = !sqlite3_get_autocommit(s->db);
	int code = sqlite3_step(q);

	if (code == SQLITE_ROW)
		return 1;
	if (code == SQLITE_DONE)
		return 0;
	db_error(s->db, s->path, what, e);
	fail(s, was_open, !sqlite3_stmt_readonly(q), code, e);
	return -1;
}

int db_write(struct store *s, sqlite3_stmt *q, const char *what, struct err *e)
{
	int r;

	do
		r = db_step(s, q, what, e);
	while (r > 0);
	return r;
}

/* ---------------------------------------------------------------------------------- transactions */

int store_begin(struct store *s, struct err *e)
{
	_cleanup_query_ sqlite3_stmt *q = NULL;

	if (!s->failed && !sqlite3_get_autocommit(s->db))
		return 0;
	q = db_write_query(s, QUERY_BEGIN, e);
	return q ? db_write(s, q, "begin a change of", e) : -1;
}

int store_commit(struct store *s, struct err *e)
{
	_cleanup_query_ sqlite3_stmt *q = NULL;

	if (s->failed) {
		s->failed = false;
		*e = s->failure;
		return -1;
	}
	if (sqlite3_get_autocommit(s->db))
		return 0;
	q = db_write_query(s, QUERY_COMMIT, e);
	if (q && db_write(s, q, "write", e) == 0)
		return 0;
	/* BUSY leaves it open, and a commit that failed is not one to try again unasked. */
	roll_back(s);
	s->failed = false;
	return -1;
}

void store_rollback(struct store *s)
{
	roll_back(s);
	s->failed = false;
}

int db_join(struct store *s, bool *ret_own, struct err *e)
{
	bool own = sqlite3_get_autocommit(s->db) && !s->failed;

	if (store_begin(s, e) < 0)
		return -1;
	*ret_own = own;
	return 0;
}

int db_leave(struct store *s, bool own, int r, struct err *e)
{
	if (own && r < 0)
		store_rollback(s);
	else if (own && store_commit(s, e) < 0)
		return -1;
	return r;
}

/* ---------------------------------------------------------------------------------------- values */

void bind_text(struct binder *b, const char *text)
{
	int r = text ? sqlite3_bind_text(b->q, ++b->at, text, -1, SQLITE_STATIC)
		     : sqlite3_bind_null(b->q, ++b->at);

	b->failed |= r != SQLITE_OK;
}

void bind_int(struct binder *b, int64_t value)
{
	b->failed |= sqlite3_bind_int64(b->q, ++b->at, value) != SQLITE_OK;
}

void bind_hash(struct binder *b, const unsigned char hash[static HASH_BYTES])
{
	int r = sqlite3_bind_blob(b->q, ++b->at, hash, HASH_BYTES, SQLITE_STATIC);

	b->failed |= r != SQLITE_OK;
}

int bind_write(struct store *s, const struct binder *b, const char *what, struct err *e)
{
	if (b->failed)
		return err_set(e, 0, "%s %s: a text is larger than it takes", what, s->path);
	return db_write(s, b->q, what, e);
}

const char *read_borrowed(struct reader *r)
{
	int column = r->at++;
	const char *text;

	if (sqlite3_column_type(r->q, column) == SQLITE_NULL)
		return NULL;
	text = (const char *)sqlite3_column_text(r->q, column);
	if (!text)
		r->failed = true;
	return text;
}

char *read_text(struct reader *r)
{
	const char *text = read_borrowed(r);
	char *copy = text ? strdup(text) : NULL;

	if (text && !copy)
		r->failed = r->no_memory = true;
	return copy;
}

void read_into(struct reader *r, char *text, size_t size)
{
	const char *value = read_borrowed(r);

	if (!value || strlen(value) >= size)
		r->failed = true;
	else
		memcpy(text, value, strlen(value) + 1);
}

int64_t read_int(struct reader *r)
{
	return sqlite3_column_int64(r->q, r->at++);
}

int read_reason(struct reader *r, int when_null)
{
	const char *name = read_borrowed(r);

	if (!name)
		return when_null;
	for (int i = 0; i < REASON_COUNT; i++)
		if (strcmp(name, reasons[i].name) == 0)
			return i;
	r->failed = true;
	return when_null;
}

void read_hash(struct reader *r, unsigned char ret[static HASH_BYTES])
{
	int column = r->at++;
	const void *data = sqlite3_column_blob(r->q, column);

	if (data && sqlite3_column_bytes(r->q, column) == HASH_BYTES)
		memcpy(ret, data, HASH_BYTES);
	else
		r->failed = true;
}

int read_end(struct store *s, const struct reader *r, struct err *e)
{
	if (!r->failed)
		return 0;
	if (r->no_memory || sqlite3_errcode(s->db) == SQLITE_NOMEM)
		return err_set(e, ENOMEM, "read %s", s->path);
	return err_set(e, 0, "read %s: a row has a value that cannot be: the file is damaged",
		       s->path);
}
