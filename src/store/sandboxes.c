/* SPDX-License-Identifier: Apache-2.0 */
/* sandboxes.c - rows of sandboxes, by id and in pages. */
#include "store/database.h"

#include <string.h>

static const char *const state_names[STATE_COUNT] = {
	[STATE_CREATING] = "creating",
	[STATE_RUNNING] = "running",
	[STATE_PAUSED] = "paused",
	[STATE_ENDED] = "ended",
};

void stored_sandbox_done(struct stored_sandbox *b)
{
	free(b->owner);
	free(b->session);
	free(b->spec);
	free(b->labels);
	free(b->enforced);
	free(b->usage);
	free(b->message);
	*b = (struct stored_sandbox){0};
}

int store_sandbox_put(struct store *s, const struct stored_sandbox *b, struct err *e)
{
	_cleanup_query_ sqlite3_stmt *q = db_write_query(s, QUERY_SANDBOX_PUT, e);
	struct binder in = {q};

	if (!q)
		return -1;
	bind_text(&in, b->id);
	bind_text(&in, b->owner);
	bind_text(&in, b->session);
	bind_text(&in, state_names[b->state]);
	bind_text(&in, b->state == STATE_ENDED ? reasons[b->reason].name : NULL);
	bind_int(&in, b->one_shot);
	bind_text(&in, b->spec ? b->spec : "{}");
	bind_text(&in, b->labels ? b->labels : "{}");
	bind_text(&in, b->enforced);
	bind_text(&in, b->usage);
	bind_text(&in, b->message);
	bind_int(&in, b->created_ms);
	bind_int(&in, b->expires_ms);
	bind_int(&in, b->idle_timeout_ms);
	bind_int(&in, b->idle_at_ms);
	bind_int(&in, b->ended_ms);
	bind_int(&in, b->paused_ms);
	bind_int(&in, b->pause_on_timeout);
	bind_int(&in, b->resume_on_touch);
	bind_text(&in, b->verdict >= 0 ? reasons[b->verdict].name : NULL);
	return bind_write(s, &in, "write a sandbox to", e);
}

static enum state read_state(struct reader *r)
{
	const char *name = read_borrowed(r);

	for (int i = 0; name && i < STATE_COUNT; i++)
		if (strcmp(name, state_names[i]) == 0)
			return (enum state)i;
	r->failed = true;
	return STATE_ENDED;
}

static int read_row(struct store *s, sqlite3_stmt *q, struct stored_sandbox *ret, struct err *e)
{
	struct stored_sandbox b = {0};
	struct reader r = {q};

	read_into(&r, b.id, sizeof b.id);
	b.owner = read_text(&r);
	b.session = read_text(&r);
	b.state = read_state(&r);
	b.reason = (enum reason)read_reason(&r, REASON_EXITED);
	b.one_shot = read_int(&r) != 0;
	b.spec = read_text(&r);
	b.labels = read_text(&r);
	b.enforced = read_text(&r);
	b.usage = read_text(&r);
	b.message = read_text(&r);
	b.created_ms = read_int(&r);
	b.expires_ms = read_int(&r);
	b.idle_timeout_ms = read_int(&r);
	b.idle_at_ms = read_int(&r);
	b.ended_ms = read_int(&r);
	b.paused_ms = read_int(&r);
	b.pause_on_timeout = read_int(&r) != 0;
	b.resume_on_touch = read_int(&r) != 0;
	b.verdict = read_reason(&r, -1);
	if (read_end(s, &r, e) < 0) {
		stored_sandbox_done(&b);
		return -1;
	}
	*ret = b;
	return 0;
}

int store_sandbox_get(struct store *s, const char *id, struct stored_sandbox *ret, struct err *e)
{
	_cleanup_query_ sqlite3_stmt *q = db_query(s, QUERY_SANDBOX_GET, e);
	struct binder in = {q};
	int r;

	if (!q)
		return -1;
	bind_text(&in, id);
	r = db_step(s, q, "read a sandbox from", e);
	if (r <= 0)
		return r < 0 ? -1 : 1;
	return read_row(s, q, ret, e);
}

/* Where the page begins: below this seq. 1: no such sandbox. */
static int find_start(struct store *s, const char *after, int64_t *ret, struct err *e)
{
	_cleanup_query_ sqlite3_stmt *q = NULL;
	struct binder in = {0};
	int r;

	*ret = INT64_MAX;
	if (!after || !*after)
		return 0;
	q = db_query(s, QUERY_SANDBOX_SEQ, e);
	if (!q)
		return -1;
	in.q = q;
	bind_text(&in, after);
	r = db_step(s, q, "read sandboxes from", e);
	if (r <= 0)
		return r < 0 ? -1 : 1;
	*ret = sqlite3_column_int64(q, 0);
	return 0;
}

static enum query choose_list(const struct sandbox_filter *f)
{
	static const enum query forms[] = {
		QUERY_SANDBOX_LIST_ALL,        QUERY_SANDBOX_LIST_OWNER,
		QUERY_SANDBOX_LIST_STATE,      QUERY_SANDBOX_LIST_OWNER_STATE,
		QUERY_SANDBOX_LIST_KEPT,       QUERY_SANDBOX_LIST_KEPT_OWNER,
		QUERY_SANDBOX_LIST_KEPT_STATE, QUERY_SANDBOX_LIST_KEPT_OWNER_STATE,
	};

	return forms[(f->owner != NULL) + 2 * (f->state >= 0) + 4 * !f->with_one_shot];
}

int store_sandbox_list(struct store *s, const struct sandbox_filter *f,
		       int (*each)(const struct stored_sandbox *b, void *data), void *data,
		       struct err *e)
{
	const char *equals = f->label ? strchr(f->label, '=') : NULL;
	_cleanup_free_ char *key = NULL;
	_cleanup_query_ sqlite3_stmt *q = NULL;
	struct binder in = {0};
	int64_t start;
	int r;

	if (f->state >= STATE_COUNT || f->limit < 1 || f->limit > 1001)
		return err_set(e, EINVAL, "list sandboxes: state %d, limit %u", f->state, f->limit);
	if (f->label) {
		key = equals ? strndup(f->label, (size_t)(equals - f->label)) : strdup(f->label);
		if (!key)
			return err_set(e, ENOMEM, "list sandboxes");
	}
	r = find_start(s, f->after, &start, e);
	if (r != 0)
		return r;
	q = db_query(s, choose_list(f), e);
	if (!q)
		return -1;
	in.q = q;
	bind_text(&in, f->owner);
	bind_text(&in, f->state >= 0 ? state_names[f->state] : NULL);
	bind_int(&in, start);
	bind_text(&in, f->session);
	bind_text(&in, key);
	bind_text(&in, equals ? equals + 1 : NULL);
	bind_int(&in, f->limit);
	while ((r = db_step(s, q, "read sandboxes from", e)) > 0) {
		struct stored_sandbox b;

		if (read_row(s, q, &b, e) < 0)
			return -1;
		r = each(&b, data);
		stored_sandbox_done(&b);
		if (r != 0)
			return r < 0 ? -1 : 0;
	}
	return r;
}
