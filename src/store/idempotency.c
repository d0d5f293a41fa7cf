/* SPDX-License-Identifier: Apache-2.0 */
/* idempotency.c - which object a request with this key made, for a day. */
#include "store/database.h"

#include <string.h>

enum { KEPT_MS = 24 * 3600 * 1000 };

static int conflict(const char *key, const char *why, struct err *e)
{
	err_set(e, 0, "idempotency key %.80s: %s", key, why);
	e->errnum = EEXIST;
	return -1;
}

int store_idempotency_get(struct store *s, const char *owner, const char *key,
			  const char *body_sha256, char ret_object[40], struct err *e)
{
	_cleanup_query_ sqlite3_stmt *q = db_query(s, QUERY_IDEMPOTENCY_GET, e);
	struct binder b = {q};
	struct reader row = {q};
	const char *body;
	char object[40];
	int r;

	if (!q)
		return -1;
	bind_text(&b, owner);
	bind_text(&b, key);
	bind_int(&b, now_ms() - KEPT_MS);
	r = db_step(s, q, "read an idempotency key from", e);
	if (r <= 0)
		return r < 0 ? -1 : 1;
	body = read_borrowed(&row);
	read_into(&row, object, sizeof object);
	if (read_end(s, &row, e) < 0)
		return -1;
	if (strcmp(body, body_sha256) != 0)
		return conflict(key, "it was used with another request", e);
	memcpy(ret_object, object, sizeof object);
	return 0;
}

int store_idempotency_put(struct store *s, const char *owner, const char *key,
			  const char *body_sha256, const char *object, struct err *e)
{
	_cleanup_query_ sqlite3_stmt *q = db_write_query(s, QUERY_IDEMPOTENCY_PUT, e);
	struct binder b = {q};
	int64_t now = now_ms();

	if (!q)
		return -1;
	bind_text(&b, owner);
	bind_text(&b, key);
	bind_text(&b, body_sha256);
	bind_text(&b, object);
	bind_int(&b, now);
	bind_int(&b, now - KEPT_MS);
	if (bind_write(s, &b, "write an idempotency key to", e) < 0)
		return -1;
	if (sqlite3_changes(s->db) == 0)
		return conflict(key, "it is in use", e);
	return 0;
}
