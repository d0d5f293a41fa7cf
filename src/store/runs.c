/* SPDX-License-Identifier: Apache-2.0 */
/* runs.c - rows of runs: commands of sandboxes, ended or not. */
#include "store/database.h"

#include <string.h>

void stored_run_done(struct stored_run *r)
{
	free(r->owner);
	free(r->session);
	free(r->kind);
	free(r->input_sha256);
	free(r->error_code);
	free(r->result);
	free(r->artifact_path);
	free(r->limits);
	*r = (struct stored_run){0};
}

static int put(struct store *s, enum query which, const struct stored_run *r, struct err *e)
{
	_cleanup_query_ sqlite3_stmt *q = db_write_query(s, which, e);
	struct binder in = {q};

	if (!q)
		return -1;
	bind_text(&in, r->id);
	bind_text(&in, r->sandbox);
	bind_text(&in, r->owner);
	bind_text(&in, r->session);
	bind_text(&in, r->kind);
	bind_text(&in, r->input_sha256);
	bind_int(&in, (int64_t)r->input_bytes);
	bind_int(&in, r->ended);
	bind_text(&in, r->ended ? reasons[r->reason].name : NULL);
	bind_text(&in, r->error_code);
	bind_int(&in, r->exit_code);
	bind_text(&in, r->result);
	bind_text(&in, r->artifact_path);
	bind_int(&in, r->created_ms);
	bind_int(&in, r->ended_ms);
	bind_int(&in, (int64_t)r->artifact_bytes);
	bind_text(&in, r->limits);
	bind_int(&in, r->result ? (int64_t)strlen(r->result) : 0);
	return bind_write(s, &in, "write a run to", e);
}

/* What has a result is most often there already, and to change it is cheaper than to find that out by adding it. */
int store_run_put(struct store *s, const struct stored_run *r, struct err *e)
{
	if (r->result && put(s, QUERY_RUN_CHANGE, r, e) < 0)
		return -1;
	return r->result && sqlite3_changes(s->db) > 0 ? 0 : put(s, QUERY_RUN_PUT, r, e);
}

static int read_row(struct store *s, sqlite3_stmt *q, struct stored_run *ret, struct err *e)
{
	struct stored_run run = {0};
	struct reader r = {q};

	read_into(&r, run.id, sizeof run.id);
	read_into(&r, run.sandbox, sizeof run.sandbox);
	run.owner = read_text(&r);
	run.session = read_text(&r);
	run.kind = read_text(&r);
	run.input_sha256 = read_text(&r);
	run.input_bytes = (uint64_t)read_int(&r);
	run.ended = read_int(&r) != 0;
	run.reason = (enum reason)read_reason(&r, REASON_EXITED);
	run.error_code = read_text(&r);
	run.exit_code = (int)read_int(&r);
	run.result = read_text(&r);
	run.artifact_path = read_text(&r);
	run.created_ms = read_int(&r);
	run.ended_ms = read_int(&r);
	run.artifact_bytes = (uint64_t)read_int(&r);
	run.limits = read_text(&r);
	if (read_end(s, &r, e) < 0) {
		stored_run_done(&run);
		return -1;
	}
	*ret = run;
	return 0;
}

int store_run_get(struct store *s, const char *id, struct stored_run *ret, struct err *e)
{
	_cleanup_query_ sqlite3_stmt *q = db_query(s, QUERY_RUN_GET, e);
	struct binder in = {q};
	int r;

	if (!q)
		return -1;
	bind_text(&in, id);
	r = db_step(s, q, "read a run from", e);
	if (r <= 0)
		return r < 0 ? -1 : 1;
	return read_row(s, q, ret, e);
}

static int list(struct store *s, enum query form, const char *owner, const char *sandbox,
		unsigned limit, int (*each)(const struct stored_run *r, void *data), void *data,
		struct err *e)
{
	_cleanup_query_ sqlite3_stmt *q = db_query(s, form, e);
	struct binder in = {q};
	int r;

	if (!q)
		return -1;
	bind_text(&in, sandbox);
	bind_int(&in, limit);
	if (owner)
		bind_text(&in, owner);
	while ((r = db_step(s, q, "read runs from", e)) > 0) {
		struct stored_run run;

		if (read_row(s, q, &run, e) < 0)
			return -1;
		r = each(&run, data);
		stored_run_done(&run);
		if (r != 0)
			return r < 0 ? -1 : 0;
	}
	return r;
}

int store_run_list(struct store *s, const char *sandbox, bool unended_only, unsigned limit,
		   int (*each)(const struct stored_run *r, void *data), void *data, struct err *e)
{
	static const enum query forms[] = {QUERY_RUN_LIST_ALL, QUERY_RUN_LIST_SANDBOX,
					   QUERY_RUN_LIST_UNENDED, QUERY_RUN_LIST_UNENDED_SANDBOX};

	return list(s, forms[(sandbox != NULL) + 2 * unended_only], NULL, sandbox, limit, each,
		    data, e);
}

int store_run_list_of(struct store *s, const char *owner, const char *sandbox, unsigned limit,
		      int (*each)(const struct stored_run *r, void *data), void *data,
		      struct err *e)
{
	return list(s, sandbox ? QUERY_RUN_LIST_OWNER_SANDBOX : QUERY_RUN_LIST_OWNER, owner,
		    sandbox, limit, each, data, e);
}

int store_kept(struct store *s, const char *owner, uint64_t *ret, struct err *e)
{
	_cleanup_query_ sqlite3_stmt *q = db_query(s, QUERY_KEPT, e);
	struct binder in = {q};
	struct reader out = {q};
	int r;

	if (!q)
		return -1;
	bind_text(&in, owner);
	r = db_step(s, q, "read what is kept from", e);
	if (r < 0)
		return -1;
	*ret = r == 0 ? 0 : (uint64_t)read_int(&out);
	return r == 0 ? 0 : read_end(s, &out, e);
}

/* 1: there is none. */
static int read_id(struct store *s, sqlite3_stmt *q, char ret[40], struct err *e)
{
	struct reader out = {q};
	int r = db_step(s, q, "read runs from", e);

	if (r <= 0)
		return r < 0 ? -1 : 1;
	read_into(&out, ret, 40);
	return read_end(s, &out, e);
}

int store_run_oldest(struct store *s, const char *owner, bool with_artifacts, const char *except,
		     char ret[40], struct err *e)
{
	_cleanup_query_ sqlite3_stmt *q =
		db_query(s, with_artifacts ? QUERY_ARTIFACTS_OLDEST : QUERY_RUN_OLDEST, e);
	struct binder in = {q};

	if (!q)
		return -1;
	bind_text(&in, owner);
	bind_text(&in, except ? except : "");
	return read_id(s, q, ret, e);
}

int store_artifacts_old(struct store *s, int64_t before_ms, char ret[40], struct err *e)
{
	_cleanup_query_ sqlite3_stmt *q = db_query(s, QUERY_ARTIFACTS_OLD, e);
	struct binder in = {q};

	if (!q)
		return -1;
	bind_int(&in, before_ms);
	return read_id(s, q, ret, e);
}

static int forget(struct store *s, enum query which, const char *id, struct err *e)
{
	_cleanup_query_ sqlite3_stmt *q = db_write_query(s, which, e);
	struct binder in = {q};

	if (!q)
		return -1;
	bind_text(&in, id);
	return bind_write(s, &in, "forget a run in", e);
}

int store_artifacts_forget(struct store *s, const char *id, struct err *e)
{
	return forget(s, QUERY_ARTIFACTS_FORGET, id, e);
}

int store_run_forget(struct store *s, const char *id, struct err *e)
{
	return forget(s, QUERY_RUN_FORGET, id, e);
}
