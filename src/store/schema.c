/* SPDX-License-Identifier: Apache-2.0 */
/*
 * schema.c - the tables, and the way from each earlier version to this one.
 *
 * A script is never changed once it was in a release: what is new gets a script of its own. Each runs in
 * one transaction together with the version it makes, so a crash leaves the version before.
 *
 * Closed sets are stored by their names, not by numbers that a new row of a .def would move. A run has no
 * foreign key to its sandbox: it is kept for longer.
 */
#include "store/database.h"

#include <string.h>

const char *const schema_scripts[] = {
	/* 1 */
	"CREATE TABLE sandboxes ("
	" seq INTEGER PRIMARY KEY,"
	" id TEXT NOT NULL UNIQUE,"
	" owner TEXT NOT NULL,"
	" session TEXT,"
	" state TEXT NOT NULL,"
	" reason TEXT,"
	" one_shot INTEGER NOT NULL,"
	" spec TEXT NOT NULL,"
	" labels TEXT NOT NULL,"
	" enforced TEXT,"
	" usage TEXT,"
	" message TEXT,"
	" created_ms INTEGER NOT NULL,"
	" expires_ms INTEGER NOT NULL,"
	" idle_timeout_ms INTEGER NOT NULL,"
	" idle_at_ms INTEGER NOT NULL,"
	" ended_ms INTEGER NOT NULL,"
	" paused_ms INTEGER NOT NULL,"
	" pause_on_timeout INTEGER NOT NULL,"
	" resume_on_touch INTEGER NOT NULL,"
	" verdict TEXT"
	") STRICT;"
	"CREATE TABLE runs ("
	" seq INTEGER PRIMARY KEY,"
	" id TEXT NOT NULL UNIQUE,"
	" sandbox TEXT NOT NULL,"
	" owner TEXT NOT NULL,"
	" session TEXT,"
	" kind TEXT NOT NULL,"
	" input_sha256 TEXT,"
	" input_bytes INTEGER NOT NULL,"
	" ended INTEGER NOT NULL,"
	" reason TEXT,"
	" error_code TEXT,"
	" exit_code INTEGER NOT NULL,"
	" result TEXT,"
	" artifact_path TEXT,"
	" created_ms INTEGER NOT NULL,"
	" ended_ms INTEGER NOT NULL"
	") STRICT;"
	"CREATE INDEX runs_by_sandbox ON runs (sandbox);"
	"CREATE TABLE audit ("
	" seq INTEGER PRIMARY KEY,"
	" time_ms INTEGER NOT NULL,"
	" actor TEXT NOT NULL,"
	" session TEXT,"
	" action TEXT NOT NULL,"
	" object TEXT NOT NULL,"
	" details TEXT NOT NULL,"
	" hash BLOB NOT NULL CHECK (length(hash) = 32)"
	") STRICT;"
	"CREATE INDEX audit_by_actor ON audit (actor);"
	"CREATE TABLE anchors (seq INTEGER PRIMARY KEY, hash BLOB NOT NULL CHECK (length(hash) = 32)) STRICT;"
	"CREATE TABLE keys ("
	" seq INTEGER PRIMARY KEY,"
	" id TEXT NOT NULL UNIQUE,"
	" name TEXT NOT NULL,"
	" created_ms INTEGER NOT NULL,"
	" revoked_ms INTEGER NOT NULL,"
	" quota TEXT,"
	" hash BLOB NOT NULL UNIQUE CHECK (length(hash) = 32)"
	") STRICT;"
	"CREATE TABLE idempotency ("
	" owner TEXT NOT NULL,"
	" key TEXT NOT NULL,"
	" body_sha256 TEXT NOT NULL,"
	" object TEXT NOT NULL,"
	" created_ms INTEGER NOT NULL,"
	" PRIMARY KEY (owner, key)"
	") STRICT, WITHOUT ROWID;",
	/* 2: lists of one owner, what is alive at a start, retention: without reading whole tables */
	"CREATE INDEX sandboxes_by_owner ON sandboxes (owner);"
	"CREATE INDEX sandboxes_by_state ON sandboxes (state);"
	"CREATE INDEX sandboxes_kept ON sandboxes (owner) WHERE one_shot = 0;"
	"CREATE INDEX sandboxes_kept_all ON sandboxes (one_shot) WHERE one_shot = 0;"
	"CREATE INDEX sandboxes_by_end ON sandboxes (ended_ms) WHERE state = 'ended';"
	"CREATE INDEX runs_unended ON runs (ended) WHERE ended = 0;"
	"CREATE INDEX runs_by_end ON runs (ended_ms) WHERE ended = 1;"
	"CREATE INDEX idempotency_by_time ON idempotency (created_ms);",
	/* 3: the runs of one owner */
	"CREATE INDEX runs_by_owner ON runs (owner);",
	/* 4: what a run's limits are, for who takes it up after a restart; how much is kept of an owner's runs, summed by the database itself. What version 3 had kept is counted
	 * from its results, in the blocks that it takes (service/kept.h). */
	"ALTER TABLE runs ADD COLUMN limits TEXT;"
	"ALTER TABLE runs ADD COLUMN result_bytes INTEGER NOT NULL DEFAULT 0;"
	"ALTER TABLE runs ADD COLUMN artifact_bytes INTEGER NOT NULL DEFAULT 0;"
	"UPDATE runs SET result_bytes = length(CAST(result AS BLOB)) WHERE result IS NOT NULL;"
	"UPDATE runs SET artifact_bytes = coalesce((SELECT sum((max(json_extract(a.value, '$.bytes'), 1) + 4095) / 4096 * 4096)"
	" FROM json_each(iif(json_valid(result), result, '{}'), '$.artifacts') AS a"
	" WHERE json_extract(a.value, '$.skipped') IS NULL), 0) WHERE artifact_path IS NOT NULL;"
	"CREATE TABLE kept (owner TEXT NOT NULL PRIMARY KEY, bytes INTEGER NOT NULL) STRICT, WITHOUT ROWID;"
	"INSERT INTO kept SELECT owner, sum(result_bytes + artifact_bytes) FROM runs GROUP BY owner;"
	"CREATE TRIGGER runs_kept_insert AFTER INSERT ON runs BEGIN"
	" INSERT INTO kept VALUES (NEW.owner, NEW.result_bytes + NEW.artifact_bytes)"
	" ON CONFLICT (owner) DO UPDATE SET bytes = bytes + excluded.bytes; END;"
	"CREATE TRIGGER runs_kept_update AFTER UPDATE OF result_bytes, artifact_bytes ON runs"
	" WHEN OLD.result_bytes <> NEW.result_bytes OR OLD.artifact_bytes <> NEW.artifact_bytes BEGIN"
	" UPDATE kept SET bytes = bytes + NEW.result_bytes + NEW.artifact_bytes - OLD.result_bytes - OLD.artifact_bytes"
	" WHERE owner = NEW.owner; END;"
	"CREATE TRIGGER runs_kept_delete AFTER DELETE ON runs BEGIN"
	" UPDATE kept SET bytes = bytes - OLD.result_bytes - OLD.artifact_bytes WHERE owner = OLD.owner; END;"
	"CREATE INDEX runs_with_artifacts ON runs (owner) WHERE artifact_path IS NOT NULL;"
	"CREATE INDEX artifacts_by_end ON runs (ended_ms) WHERE artifact_path IS NOT NULL;",
	/* 5: shares of ports; none outlives its sandbox */
	"CREATE TABLE shares ("
	" seq INTEGER PRIMARY KEY,"
	" sandbox TEXT NOT NULL,"
	" port INTEGER NOT NULL,"
	" created_ms INTEGER NOT NULL,"
	" expires_ms INTEGER NOT NULL,"
	" hash BLOB NOT NULL UNIQUE CHECK (length(hash) = 32)"
	") STRICT;"
	"CREATE INDEX shares_by_port ON shares (sandbox, port);"
	"CREATE TRIGGER shares_end AFTER UPDATE OF state ON sandboxes WHEN NEW.state = 'ended' BEGIN"
	" DELETE FROM shares WHERE sandbox = NEW.id; END;",
};
const int schema_version = ARRAY_SIZE(schema_scripts);

static int read_number(sqlite3 *db, const char *path, const char *sql, int *ret, struct err *e)
{
	sqlite3_stmt *q = NULL;
	int r = sqlite3_prepare_v2(db, sql, -1, &q, NULL);

	if (r == SQLITE_OK)
		r = sqlite3_step(q);
	if (r == SQLITE_ROW)
		*ret = sqlite3_column_int(q, 0);
	else
		db_error(db, path, "read", e);
	sqlite3_finalize(q);
	return r == SQLITE_ROW ? 0 : -1;
}

int schema_read_version(sqlite3 *db, const char *path, int *ret, struct err *e)
{
	return read_number(db, path, "PRAGMA user_version", ret, e);
}

static int run_script(sqlite3 *db, const char *path, const char *script, int version, struct err *e)
{
	char set[64];

	snprintf(set, sizeof set, "PRAGMA user_version = %d; COMMIT", version);
	if (sqlite3_exec(db, "BEGIN IMMEDIATE", NULL, NULL, NULL) == SQLITE_OK &&
	    sqlite3_exec(db, script, NULL, NULL, NULL) == SQLITE_OK &&
	    sqlite3_exec(db, set, NULL, NULL, NULL) == SQLITE_OK)
		return 0;
	db_error(db, path, "migrate", e);
	if (!sqlite3_get_autocommit(db))
		sqlite3_exec(db, "ROLLBACK", NULL, NULL, NULL);
	return -1;
}

int schema_migrate(sqlite3 *db, const char *path, const char *const *scripts, int count,
		   struct err *e)
{
	int version, tables;

	if (schema_read_version(db, path, &version, e) < 0 ||
	    read_number(db, path, "SELECT count(*) FROM sqlite_schema", &tables, e) < 0)
		return -1;
	if (version > count)
		return err_set(
			e, 0,
			"%s was written by a newer cloche (format %d, this one knows up to %d): "
			"start that one, or move state.db* away to begin without its sandboxes",
			path, version, count);
	if (version < 0 || (version == 0 && tables > 0))
		return err_set(e, 0,
			       "%s is no state of cloche: another program's database; move it away",
			       path);
	for (; version < count; version++)
		if (run_script(db, path, scripts[version], version + 1, e) < 0)
			return err_prefix(e, "format %d to %d", version, version + 1);
	return 0;
}
