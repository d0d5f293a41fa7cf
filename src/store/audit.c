/* SPDX-License-Identifier: Apache-2.0 */
/*
 * audit.c - the audit chain: each row's hash covers the one before, so none can be changed, taken out,
 * put in or moved without every later hash showing it. The bytes are in docs/api.md "Audit"; a third party
 * can compute them from the API's rows alone.
 *
 * Rows are numbered without gaps. Retention removes a prefix only: the last removed row's number and hash
 * become the anchor from which the rest is verified, and a row "audit.retain" in the chain says the same,
 * so an anchor that somebody else wrote is not taken. Lengths are the database's, not strlen()'s:
 * a NUL must not hide what follows it from the hash.
 */
#include "store/database.h"

#include <inttypes.h>
#include <string.h>

#include "base/hex.h"

#define CHAIN_VERSION "cloche-audit-1"
#define RETAIN_ACTION "audit.retain"

struct bytes {
	const char *data; /* NULL: absent */
	size_t size;
};

/* The texts of a row, in the order in which they are hashed. */
enum text { ACTOR, SESSION, ACTION, OBJECT, DETAILS, TEXT_COUNT };

struct link {
	int64_t seq;
	unsigned char hash[HASH_BYTES];
};

static struct bytes as_bytes(const char *text)
{
	return (struct bytes){text, text ? strlen(text) : 0};
}

static void add_field(struct bytes field)
{
	uint64_t length = field.data ? field.size : UINT64_MAX;
	unsigned char head[8];

	for (int i = 0; i < 8; i++)
		head[i] = (unsigned char)(length >> (56 - 8 * i));
	sha256_add(head, sizeof head);
	if (field.data)
		sha256_add(field.data, field.size);
}

static void add_number(int64_t value)
{
	char text[24];

	snprintf(text, sizeof text, "%" PRId64, value);
	add_field(as_bytes(text));
}

static void hash_row(const unsigned char previous[static HASH_BYTES], int64_t seq, int64_t time_ms,
		     const struct bytes texts[static TEXT_COUNT],
		     unsigned char ret[static HASH_BYTES])
{
	sha256_begin();
	sha256_add(previous, HASH_BYTES);
	add_field(as_bytes(CHAIN_VERSION));
	add_number(seq);
	add_number(time_ms);
	for (int i = 0; i < TEXT_COUNT; i++)
		add_field(texts[i]);
	sha256_end(ret);
}

/* The newest link of this query; 1 and 0 with zeros when there is none. */
static int read_link(struct store *s, enum query which, struct link *ret, struct err *e)
{
	_cleanup_query_ sqlite3_stmt *q = db_query(s, which, e);
	struct reader row = {q};
	int r;

	if (!q)
		return -1;
	r = db_step(s, q, "read the audit in", e);
	if (r < 0)
		return -1;
	*ret = (struct link){0};
	if (r == 0)
		return 1;
	ret->seq = read_int(&row);
	read_hash(&row, ret->hash);
	return read_end(s, &row, e);
}

static int know_head(struct store *s, struct err *e)
{
	struct link head;
	int r;

	if (s->audit.known)
		return 0;
	r = read_link(s, QUERY_AUDIT_LAST, &head, e);
	if (r == 1)
		r = read_link(s, QUERY_AUDIT_ANCHOR, &head, e);
	if (r < 0)
		return -1;
	s->audit.seq = head.seq;
	memcpy(s->audit.hash, head.hash, HASH_BYTES);
	s->audit.known = true;
	return 0;
}

int store_audit_add(struct store *s, struct audit_row *row, struct err *e)
{
	const char *object = row->object ? row->object : "";
	const char *details = row->details ? row->details : "{}";
	const struct bytes texts[TEXT_COUNT] = {as_bytes(row->actor), as_bytes(row->session),
						as_bytes(row->action), as_bytes(object),
						as_bytes(details)};
	_cleanup_query_ sqlite3_stmt *q = db_write_query(s, QUERY_AUDIT_ADD, e);
	unsigned char hash[HASH_BYTES];
	struct binder b = {q};
	int64_t seq;

	if (!q || know_head(s, e) < 0)
		return -1;
	seq = s->audit.seq + 1;
	hash_row(s->audit.hash, seq, row->time_ms, texts, hash);
	bind_int(&b, seq);
	bind_int(&b, row->time_ms);
	bind_text(&b, row->actor);
	bind_text(&b, row->session);
	bind_text(&b, row->action);
	bind_text(&b, object);
	bind_text(&b, details);
	bind_hash(&b, hash);
	if (bind_write(s, &b, "write the audit to", e) < 0)
		return -1;
	row->seq = seq;
	hex_encode(s->audit.hash, HASH_BYTES, row->previous);
	hex_encode(hash, HASH_BYTES, row->hash);
	s->audit.seq = seq;
	memcpy(s->audit.hash, hash, HASH_BYTES);
	return 0;
}

int store_audit_list(struct store *s, const char *actor, int64_t after_seq, unsigned limit,
		     int (*each)(const struct audit_row *row, void *data), void *data,
		     struct err *e)
{
	_cleanup_query_ sqlite3_stmt *q =
		db_query(s, actor ? QUERY_AUDIT_LIST_ACTOR : QUERY_AUDIT_LIST_ALL, e);
	struct binder b = {q};
	int r;

	if (!q)
		return -1;
	bind_text(&b, actor);
	bind_int(&b, after_seq);
	bind_int(&b, limit);
	while ((r = db_step(s, q, "read the audit in", e)) > 0) {
		struct reader in = {q};
		unsigned char hash[HASH_BYTES] = {0}, previous[HASH_BYTES] = {0};
		struct audit_row row = {0};

		row.seq = read_int(&in);
		row.time_ms = read_int(&in);
		row.actor = read_borrowed(&in);
		row.session = read_borrowed(&in);
		row.action = read_borrowed(&in);
		row.object = read_borrowed(&in);
		row.details = read_borrowed(&in);
		read_hash(&in, hash);
		read_hash(&in, previous);
		if (read_end(s, &in, e) < 0)
			return -1;
		hex_encode(hash, HASH_BYTES, row.hash);
		hex_encode(previous, HASH_BYTES, row.previous);
		r = each(&row, data);
		if (r != 0)
			return r < 0 ? -1 : 0;
	}
	return r;
}

/* ------------------------------------------------------------------------------------ verification */

static void describe_anchor(const struct link *anchor, char ret[static 128])
{
	char hex[65];

	hex_encode(anchor->hash, HASH_BYTES, hex);
	snprintf(ret, 128, "{\"through\":%" PRId64 ",\"hash\":\"%s\"}", anchor->seq, hex);
}

static bool is_text(struct bytes b, const char *text)
{
	return b.data && b.size == strlen(text) && memcmp(b.data, text, b.size) == 0;
}

struct walk {
	struct link last;   /* the row before */
	char endorsed[128]; /* what the row of the last retention must say */
	bool was_endorsed;
};

/* The row that q stands on. 0, or 1 and *ret_bad; -1 with e. */
static int verify_row(struct store *s, sqlite3_stmt *q, struct walk *w, int64_t *ret_bad,
		      struct err *e)
{
	struct reader in = {q};
	int64_t seq = read_int(&in), time_ms = read_int(&in);
	unsigned char stored[HASH_BYTES] = {0}, hash[HASH_BYTES];
	struct bytes texts[TEXT_COUNT];

	for (int i = 0; i < TEXT_COUNT; i++) {
		texts[i].data = read_borrowed(&in);
		texts[i].size = (size_t)sqlite3_column_bytes(q, in.at - 1);
	}
	read_hash(&in, stored);
	if (in.failed && sqlite3_errcode(s->db) == SQLITE_NOMEM)
		return read_end(s, &in, e);
	*ret_bad = seq;
	if (seq != w->last.seq + 1) {
		if (seq > w->last.seq)
			*ret_bad = w->last.seq + 1;
		return 1;
	}
	hash_row(w->last.hash, seq, time_ms, texts, hash);
	if (in.failed || memcmp(hash, stored, HASH_BYTES) != 0)
		return 1;
	w->was_endorsed |= is_text(texts[ACTOR], "system") &&
			   is_text(texts[ACTION], RETAIN_ACTION) &&
			   is_text(texts[DETAILS], w->endorsed);
	w->last.seq = seq;
	memcpy(w->last.hash, hash, HASH_BYTES);
	return 0;
}

int store_audit_verify(struct store *s, int64_t *ret_rows, int64_t *ret_bad, char ret_head[65],
		       struct err *e)
{
	_cleanup_query_ sqlite3_stmt *q = db_query(s, QUERY_AUDIT_WALK, e);
	struct walk w = {0};
	int64_t rows = 0, bad;
	int more, anchored;

	if (!q)
		return -1;
	/* The walk's first step opens the snapshot in which the anchor is read as well. */
	more = db_step(s, q, "read the audit in", e);
	if (more < 0)
		return -1;
	anchored = read_link(s, QUERY_AUDIT_ANCHOR, &w.last, e);
	if (anchored < 0)
		return -1;
	bad = w.last.seq;
	describe_anchor(&w.last, w.endorsed);
	w.was_endorsed = anchored == 1;
	for (; more > 0; more = db_step(s, q, "read the audit in", e), rows++) {
		int r = verify_row(s, q, &w, ret_bad, e);

		if (r != 0)
			return r;
	}
	if (more < 0)
		return -1;
	if (!w.was_endorsed) {
		*ret_bad = bad;
		return 1;
	}
	*ret_rows = rows;
	hex_encode(w.last.hash, HASH_BYTES, ret_head);
	return 0;
}

/* -------------------------------------------------------------------------------------- retention */

/* One number; 1 when there is none. */
static int read_number(struct store *s, enum query which, int64_t first, int64_t second,
		       int64_t *ret, struct err *e)
{
	_cleanup_query_ sqlite3_stmt *q = db_query(s, which, e);
	int r;

	if (!q)
		return -1;
	sqlite3_bind_int64(q, 1, first);
	sqlite3_bind_int64(q, 2, second);
	r = db_step(s, q, "read the audit in", e);
	if (r > 0)
		*ret = sqlite3_column_int64(q, 0);
	return r < 0 ? -1 : !r;
}

static int read_hash_of(struct store *s, int64_t seq, struct link *ret, struct err *e)
{
	_cleanup_query_ sqlite3_stmt *q = db_query(s, QUERY_AUDIT_HASH, e);
	struct reader row = {q};

	if (!q)
		return -1;
	sqlite3_bind_int64(q, 1, seq);
	switch (db_step(s, q, "read the audit in", e)) {
	case 0:
		return err_set(e, 0, "%s: audit row %" PRId64 " is missing", s->path, seq);
	case 1:
		ret->seq = seq;
		read_hash(&row, ret->hash);
		return read_end(s, &row, e);
	default:
		return -1;
	}
}

static int cut(struct store *s, const struct link *anchor, struct err *e)
{
	static const enum query steps[] = {QUERY_AUDIT_CUT, QUERY_ANCHOR_FORGET, QUERY_ANCHOR_PUT};
	char details[128];
	struct audit_row row = {.time_ms = now_ms(),
				.actor = "system",
				.action = RETAIN_ACTION,
				.object = "",
				.details = details};

	for (size_t i = 0; i < ARRAY_SIZE(steps); i++) {
		_cleanup_query_ sqlite3_stmt *q = db_write_query(s, steps[i], e);
		struct binder b = {q};

		if (!q)
			return -1;
		if (steps[i] != QUERY_ANCHOR_FORGET)
			bind_int(&b, anchor->seq);
		if (steps[i] == QUERY_ANCHOR_PUT)
			bind_hash(&b, anchor->hash);
		if (bind_write(s, &b, "remove old audit rows from", e) < 0)
			return -1;
	}
	describe_anchor(anchor, details);
	return store_audit_add(s, &row, e);
}

int audit_retain(struct store *s, int64_t before_ms, struct err *e)
{
	struct link anchor = {0};
	int64_t first, kept, last;
	int r;

	if (know_head(s, e) < 0)
		return -1;
	r = read_number(s, QUERY_AUDIT_FIRST, INT64_MIN, INT64_MAX, &first, e);
	if (r != 0)
		return r < 0 ? -1 : 0;
	last = first + RETAIN_BATCH - 1;
	r = read_number(s, QUERY_AUDIT_KEPT_FROM, before_ms, last, &kept, e);
	if (r < 0)
		return -1;
	if (r == 0)
		last = kept - 1;
	else if (last > s->audit.seq)
		last = s->audit.seq;
	if (last < first)
		return 0;
	if (read_hash_of(s, last, &anchor, e) < 0 || cut(s, &anchor, e) < 0)
		return -1;
	return last == first + RETAIN_BATCH - 1;
}
