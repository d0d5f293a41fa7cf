/* SPDX-License-Identifier: Apache-2.0 */
/* shares.c - secrets that reach one port of one sandbox (secret.c). */
#include "store/database.h"

#include <openssl/crypto.h>
#include <string.h>

#define SECRET_PREFIX "cpt_"

static int forget_expired(struct store *s, const char *sandbox, struct err *e)
{
	_cleanup_query_ sqlite3_stmt *q = db_write_query(s, QUERY_SHARE_RETAIN, e);
	struct binder b = {q};

	if (!q)
		return -1;
	bind_text(&b, sandbox);
	bind_int(&b, now_ms());
	return bind_write(s, &b, "remove shares from", e);
}

int store_share_create(struct store *s, const char *sandbox, unsigned port, int64_t expires_ms,
		       char ret_secret[static SECRET_SIZE], struct err *e)
{
	_cleanup_query_ sqlite3_stmt *q = NULL;
	unsigned char hash[HASH_BYTES];
	char secret[SECRET_SIZE];
	struct binder b = {0};

	if (forget_expired(s, sandbox, e) < 0)
		return -1;
	b.q = q = db_write_query(s, QUERY_SHARE_ADD, e);
	if (!q || secret_make(SECRET_PREFIX, secret, e) < 0)
		return -1;
	secret_hash(secret, hash);
	bind_text(&b, sandbox);
	bind_int(&b, port);
	bind_int(&b, now_ms());
	bind_int(&b, expires_ms);
	bind_hash(&b, hash);
	bind_int(&b, SHARES_MAX);
	if (bind_write(s, &b, "write a share to", e) < 0)
		return -1;
	if (sqlite3_changes(s->db) == 0)
		return err_set(e, EDQUOT, "%s has %d shares of ports already", sandbox, SHARES_MAX);
	memcpy(ret_secret, secret, sizeof secret);
	OPENSSL_cleanse(secret, sizeof secret);
	return 0;
}

static void read_share(struct reader *row, struct stored_share *ret)
{
	ret->port = (unsigned)read_int(row);
	ret->created_ms = read_int(row);
	ret->expires_ms = read_int(row);
}

/* All of the port are compared, whichever it is. */
int store_share_find(struct store *s, const char *sandbox, unsigned port, const char *secret,
		     struct stored_share *ret, struct err *e)
{
	unsigned char hash[HASH_BYTES];
	_cleanup_query_ sqlite3_stmt *q = NULL;
	struct binder b = {0};
	bool found = false;
	int r;

	if (!secret_may_be(SECRET_PREFIX, secret))
		return 1;
	b.q = q = db_query(s, QUERY_SHARE_OF_PORT, e);
	if (!q)
		return -1;
	secret_hash(secret, hash);
	bind_text(&b, sandbox);
	bind_int(&b, port);
	bind_int(&b, now_ms());
	while ((r = db_step(s, q, "read shares from", e)) > 0) {
		unsigned char stored[HASH_BYTES] = {0};
		struct reader row = {q};
		struct stored_share share;

		read_share(&row, &share);
		read_hash(&row, stored);
		if (read_end(s, &row, e) < 0)
			return -1;
		if (CRYPTO_memcmp(hash, stored, HASH_BYTES) == 0) {
			*ret = share;
			found = true;
		}
	}
	return r < 0 ? -1 : !found;
}

int store_share_revoke(struct store *s, const char *sandbox, unsigned port, struct err *e)
{
	_cleanup_query_ sqlite3_stmt *q = db_write_query(s, QUERY_SHARE_REVOKE, e);
	struct binder b = {q};

	if (!q)
		return -1;
	bind_text(&b, sandbox);
	bind_int(&b, port);
	if (bind_write(s, &b, "remove shares from", e) < 0)
		return -1;
	return sqlite3_changes(s->db) == 0;
}

int store_share_list(struct store *s, const char *sandbox,
		     int (*each)(const struct stored_share *share, void *data), void *data,
		     struct err *e)
{
	_cleanup_query_ sqlite3_stmt *q = db_query(s, QUERY_SHARE_LIST, e);
	struct binder b = {q};
	int r;

	if (!q)
		return -1;
	bind_text(&b, sandbox);
	bind_int(&b, now_ms());
	while ((r = db_step(s, q, "read shares from", e)) > 0) {
		struct reader row = {q};
		struct stored_share share;

		read_share(&row, &share);
		if (read_end(s, &row, e) < 0)
			return -1;
		r = each(&share, data);
		if (r != 0)
			return r < 0 ? -1 : 0;
	}
	return r;
}
