/* SPDX-License-Identifier: Apache-2.0 */
/* store_unit.h - what the tests of the store share: a store in a scratch folder, and SQL behind its back. */
#ifndef TESTS_STORE_UNIT_H
#define TESTS_STORE_UNIT_H

#include "unit.h"

#include "store/database.h"

struct scratch {
	char path[256];
	int dir;
	struct store *store;
};

#define must(call, e)                             \
	do {                                      \
		if ((call) != 0)                  \
			fail_msg("%s", (e).text); \
	} while (0)

static inline struct store *open_store(const char *path)
{
	struct err e = {0};
	struct store *s = store_open(path, &e);

	if (!s)
		fail_msg("%s", e.text);
	return s;
}

static inline void scratch_open(struct scratch *t)
{
	t->dir = scratch_make(t->path);
	t->store = open_store(t->path);
}

static inline void scratch_close(struct scratch *t)
{
	store_close(t->store);
	close(t->dir);
	scratch_remove(t->path);
}

static inline void scratch_reopen(struct scratch *t)
{
	store_close(t->store);
	t->store = open_store(t->path);
}

/* What somebody with an SQLite shell could do to the file. */
static inline void tamper(const char *folder, const char *sql)
{
	char file[300], *said = NULL;
	sqlite3 *db;

	snprintf(file, sizeof file, "%s/state.db", folder);
	assert_int_equal(sqlite3_open(file, &db), SQLITE_OK);
	if (sqlite3_exec(db, sql, NULL, NULL, &said) != SQLITE_OK)
		fail_msg("%s: %s", sql, said);
	assert_int_equal(sqlite3_close(db), SQLITE_OK);
}

static inline struct stored_sandbox some_sandbox(const char *id, const char *owner)
{
	struct stored_sandbox b = {.owner = (char *)owner,
				   .state = STATE_RUNNING,
				   .spec = (char *)"{\"memory\":1}",
				   .labels = (char *)"{}",
				   .created_ms = 1000,
				   .verdict = -1};

	snprintf(b.id, sizeof b.id, "%s", id);
	return b;
}

static inline struct stored_run some_run(const char *id, const char *sandbox)
{
	struct stored_run r = {.owner = (char *)"uid:1",
			       .kind = (char *)"exec",
			       .input_sha256 = (char *)"00",
			       .input_bytes = 7,
			       .exit_code = -1,
			       .created_ms = 1000};

	snprintf(r.id, sizeof r.id, "%s", id);
	snprintf(r.sandbox, sizeof r.sandbox, "%s", sandbox);
	return r;
}

static inline struct audit_row some_row(const char *object)
{
	return (struct audit_row){.time_ms = 1700000000000,
				  .actor = "uid:1",
				  .action = "sandbox.create",
				  .object = object,
				  .details = "{\"memory\":1}"};
}

#endif
