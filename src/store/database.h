/* SPDX-License-Identifier: Apache-2.0 */
/*
 * database.h - what the files of the store share: the handle, statements, values in and out, hashes.
 * Nobody else includes it but tests.
 */
#ifndef STORE_DATABASE_H
#define STORE_DATABASE_H

#include <limits.h>
#include <sqlite3.h>

#include "store/store.h"

enum query {
#define QUERY(name, sql) QUERY_##name,
#include "store/queries.def"
#undef QUERY
	QUERY_COUNT
};

enum { HASH_BYTES = 32 };

struct store {
	sqlite3 *db;
	int lock_fd; /* state.lock, held; -1: a reader */
	bool failed; /* the transaction was rolled back; nothing is written until its end */
	struct err failure;
	int log_frames; /* in the log since it began */
	int log_home;   /* of them, when it was last tried to bring them home */
	sqlite3_stmt *queries[QUERY_COUNT];
	struct { /* the last audit row, so that the next one costs no look-up */
		bool known;
		int64_t seq;
		unsigned char hash[HASH_BYTES];
	} audit;
	char path[PATH_MAX];
};

/* ------------------------------------------------------------------------------------ statements */

/* A kept statement, ready for values. NULL with e when it cannot be prepared, or is being stepped. */
sqlite3_stmt *db_query(struct store *s, enum query which, struct err *e) must_check;

/* The same for one that writes: refused in a reader and after a rollback. */
sqlite3_stmt *db_write_query(struct store *s, enum query which, struct err *e) must_check;

/* 1: a row; 0: the end; -1 with e, and the transaction rolled back where it cannot go on. */
int db_step(struct store *s, sqlite3_stmt *q, const char *what, struct err *e) must_check;

/* Step a write to its end. */
int db_write(struct store *s, sqlite3_stmt *q, const char *what, struct err *e) must_check;

static inline void db_release(sqlite3_stmt **q)
{
	if (*q) {
		sqlite3_reset(*q);
		sqlite3_clear_bindings(*q);
	}
}
#define _cleanup_query_ _cleanup_(db_release)

/* What SQLite said last, as a sentence that names the file and the remedy. -1. */
int db_error(sqlite3 *db, const char *path, const char *what, struct err *e);

/* The transaction of a function that needs one: joins the caller's, or is its own. */
int db_join(struct store *s, bool *ret_own, struct err *e) must_check;
/* Ends it if it is its own: commit when r is 0 or 1, else roll back. r, or -1 with e. */
int db_leave(struct store *s, bool own, int r, struct err *e) must_check;

/* Values in, from the first: binder b = {q}. They must live until the statement is released. */
struct binder {
	sqlite3_stmt *q;
	int at;
	bool failed; /* a text larger than the database takes */
};
void bind_text(struct binder *b, const char *text); /* NULL is NULL */
void bind_int(struct binder *b, int64_t value);
void bind_hash(struct binder *b, const unsigned char hash[static HASH_BYTES]);
/* Step a write to its end, unless a value could not be bound. */
int bind_write(struct store *s, const struct binder *b, const char *what, struct err *e) must_check;

/* Values out, from the first. failed: out of memory, or a value that cannot be. */
struct reader {
	sqlite3_stmt *q;
	int at;
	bool failed;
	bool no_memory;
};
char *read_text(struct reader *r);                         /* a copy; NULL for NULL */
const char *read_borrowed(struct reader *r);               /* lives until the next step */
void read_into(struct reader *r, char *text, size_t size); /* must fit */
int64_t read_int(struct reader *r);
int read_reason(struct reader *r, int when_null); /* enum reason from its name */
void read_hash(struct reader *r, unsigned char ret[static HASH_BYTES]);
int read_end(struct store *s, const struct reader *r,
	     struct err *e) must_check; /* -1 when failed */

/* ---------------------------------------------------------------------------------------- schema */

/* One script per version; a database of version n has seen the first n. */
extern const char *const schema_scripts[];
extern const int schema_version;

/* Check what is in the file and bring it to version count, one transaction per script. */
int schema_migrate(sqlite3 *db, const char *path, const char *const *scripts, int count,
		   struct err *e) must_check;
int schema_read_version(sqlite3 *db, const char *path, int *ret, struct err *e) must_check;

/* frames.c: the name of the file layer for who writes. NULL: SQLite's own will do. */
const char *frames_vfs(void);
/* For sqlite3_rollback_hook(), with the connection. */
void frames_forget(void *db);

/* ---------------------------------------------------------------------------------------- hashes */

/* Once, before any of these; sha256_hex() does it itself. The context is one for the whole process. */
int sha256_prepare(struct err *e) must_check;
void sha256_begin(void);
void sha256_add(const void *data, size_t size);
void sha256_end(unsigned char ret[static HASH_BYTES]);

/* ---------------------------------------------------------------------------------------- secrets */

int random_bytes(void *data, size_t size, struct err *e) must_check;
/* Prefixes have four characters. */
int secret_make(const char *prefix, char ret[static SECRET_SIZE], struct err *e) must_check;
bool secret_may_be(const char *prefix, const char *text);
void secret_hash(const char *secret, unsigned char ret[static HASH_BYTES]);

/* Milliseconds of the epoch. */
int64_t now_ms(void);

/* Append the row that says what was removed, and remember where the chain begins now. 1: more to do. */
int audit_retain(struct store *s, int64_t before_ms, struct err *e) must_check;

#endif
