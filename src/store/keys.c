/* SPDX-License-Identifier: Apache-2.0 */
/* keys.c - API keys (secret.c). */
#include "store/database.h"

#include <openssl/crypto.h>
#include <string.h>

#include "base/hex.h"
#include "store/quota.h"

enum { ID_BYTES = 8 };
#define SECRET_PREFIX "clk_"

void stored_key_done(struct stored_key *k)
{
	free(k->name);
	free(k->quota);
	*k = (struct stored_key){0};
}

static int make_key(const char *name, const char *quota, char secret[static SECRET_SIZE],
		    struct stored_key *ret, struct err *e)
{
	unsigned char random[ID_BYTES];
	struct quota ignored;
	struct stored_key k = {.created_ms = now_ms()};

	quota_none(&ignored);
	if (quota && quota_from_text(&ignored, quota, strlen(quota), e) < 0)
		return err_prefix(e, "quota of the key");
	if (secret_make(SECRET_PREFIX, secret, e) < 0 || random_bytes(random, sizeof random, e) < 0)
		return -1;
	memcpy(k.id, "key_", 4);
	hex_encode(random, ID_BYTES, k.id + 4);
	k.name = strdup(name);
	k.quota = quota ? strdup(quota) : NULL;
	if (!k.name || (quota && !k.quota)) {
		stored_key_done(&k);
		return err_set(e, ENOMEM, "make a key");
	}
	*ret = k;
	return 0;
}

int store_key_create(struct store *s, const char *name, const char *quota, char ret_secret[48],
		     struct stored_key *ret, struct err *e)
{
	_cleanup_query_ sqlite3_stmt *q = db_write_query(s, QUERY_KEY_ADD, e);
	unsigned char hash[HASH_BYTES];
	struct binder b = {q};
	struct stored_key k;
	char secret[SECRET_SIZE];

	if (!q || make_key(name, quota, secret, &k, e) < 0)
		return -1;
	secret_hash(secret, hash);
	bind_text(&b, k.id);
	bind_text(&b, k.name);
	bind_int(&b, k.created_ms);
	bind_int(&b, 0);
	bind_text(&b, k.quota);
	bind_hash(&b, hash);
	if (bind_write(s, &b, "write a key to", e) < 0) {
		OPENSSL_cleanse(secret, sizeof secret);
		stored_key_done(&k);
		return -1;
	}
	memcpy(ret_secret, secret, sizeof secret);
	OPENSSL_cleanse(secret, sizeof secret);
	*ret = k;
	return 0;
}

static int read_row(struct store *s, struct reader *r, struct stored_key *ret, struct err *e)
{
	struct stored_key k = {0};

	read_into(r, k.id, sizeof k.id);
	k.name = read_text(r);
	k.created_ms = read_int(r);
	k.revoked_ms = read_int(r);
	k.quota = read_text(r);
	if (read_end(s, r, e) < 0) {
		stored_key_done(&k);
		return -1;
	}
	*ret = k;
	return 0;
}

int store_key_find(struct store *s, const char *secret, struct stored_key *ret, struct err *e)
{
	unsigned char hash[HASH_BYTES], stored[HASH_BYTES] = {0};
	_cleanup_query_ sqlite3_stmt *q = NULL;
	struct binder b = {0};
	struct reader row = {0};
	struct stored_key k;
	int r;

	if (!secret_may_be(SECRET_PREFIX, secret))
		return 1;
	q = db_query(s, QUERY_KEY_FIND, e);
	if (!q)
		return -1;
	b.q = row.q = q;
	secret_hash(secret, hash);
	bind_hash(&b, hash);
	r = db_step(s, q, "read a key from", e);
	if (r <= 0)
		return r < 0 ? -1 : 1;
	if (read_row(s, &row, &k, e) < 0)
		return -1;
	read_hash(&row, stored);
	if (row.failed || CRYPTO_memcmp(hash, stored, HASH_BYTES) != 0 || k.revoked_ms) {
		stored_key_done(&k);
		return 1;
	}
	*ret = k;
	return 0;
}

int store_key_get(struct store *s, const char *id, struct stored_key *ret, struct err *e)
{
	_cleanup_query_ sqlite3_stmt *q = db_query(s, QUERY_KEY_GET, e);
	struct binder b = {q};
	struct reader row = {q};
	int r;

	if (!q)
		return -1;
	bind_text(&b, id);
	r = db_step(s, q, "read a key from", e);
	if (r <= 0)
		return r < 0 ? -1 : 1;
	return read_row(s, &row, ret, e);
}

int store_key_revoke(struct store *s, const char *id, struct err *e)
{
	_cleanup_query_ sqlite3_stmt *q = db_write_query(s, QUERY_KEY_REVOKE, e);
	struct binder b = {q};

	if (!q)
		return -1;
	bind_text(&b, id);
	bind_int(&b, now_ms());
	if (bind_write(s, &b, "revoke a key in", e) < 0)
		return -1;
	return sqlite3_changes(s->db) == 0;
}

int store_key_list(struct store *s, int (*each)(const struct stored_key *k, void *data), void *data,
		   struct err *e)
{
	_cleanup_query_ sqlite3_stmt *q = db_query(s, QUERY_KEY_LIST, e);
	int r;

	if (!q)
		return -1;
	while ((r = db_step(s, q, "read keys from", e)) > 0) {
		struct reader row = {q};
		struct stored_key k;

		if (read_row(s, &row, &k, e) < 0)
			return -1;
		r = each(&k, data);
		stored_key_done(&k);
		if (r != 0)
			return r < 0 ? -1 : 0;
	}
	return r;
}
