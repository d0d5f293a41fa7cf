/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store.h - what the service knows, in SQLite: sandboxes, runs, the audit chain, keys, idempotency.
 *
 * One writer, cloched's thread. Calls are synchronous and small; between store_begin() and
 * store_commit(), which the loop makes around one turn, all writes are one transaction (WAL,
 * synchronous=NORMAL; the audit chain cannot be cut by a crash but at its end). All times are
 * milliseconds of the epoch, UTC. Texts in structs are owned by the struct; *_done() frees them.
 * Every function returns 0/-1 with e; "not found" is 1.
 *
 * A write that the disk refuses inside a transaction rolls all of it back: every write then fails with
 * the first error until store_commit(), which reports it once more, or store_rollback(); after that the
 * store works again. So answer a client after the commit, not before. A bad value (labels that are no
 * JSON) fails alone. each() of a list returns 0 to go on, 1 to stop, -1 with its caller's own error; it
 * may call the store but not the list it is called from.
 *
 * The folder holds state.db (with -wal and -shm) and state.lock, all 0600. Whoever may write holds a
 * lock on state.lock; readers need none and see what was committed when their call began.
 */
#ifndef STORE_STORE_H
#define STORE_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "sandbox/model.h"

struct store;

/* Open or make state.db in this folder (0700), migrate it, check it (quick_check). A database of a newer
 * version, or a damaged one, is an error that names the file and what to do. */
struct store *store_open(const char *folder, struct err *e) must_check;
/* The same to look at, beside a service or without one: writes are errors, nothing is made or migrated. */
struct store *store_open_reader(const char *folder, struct err *e) must_check;
/* What was not committed is lost. NULL is fine. */
void store_close(struct store *s);
int store_begin(struct store *s, struct err *e) must_check;  /* does nothing when one is open */
int store_commit(struct store *s, struct err *e) must_check; /* does nothing when none is open */
void store_rollback(struct store *s); /* forget the open transaction, or the failed one */

/* What is committed lies in a log, safe from a crash of ours, until it is brought home into state.db: that waits for the disk,
 * several milliseconds. A commit does it when the log has become long; the store is untidy when it would be worth
 * it, and store_tidy() does it when nobody waits. */
bool store_is_untidy(const struct store *s);
void store_tidy(struct store *s);

struct stored_sandbox {
	char id[40];
	char *owner;   /* "uid:1000" or "key:key_…" */
	char *session; /* caller's, or NULL */
	enum state state;
	enum reason reason; /* when ended */
	bool one_shot;      /* made for one run */
	char *spec;         /* JSON: what was asked for, after defaults, without secrets and code */
	char *labels;       /* JSON object */
	char *enforced;     /* JSON object */
	char *usage;        /* JSON object, when ended */
	char *message;
	int64_t created_ms, expires_ms; /* expires 0: never */
	int64_t idle_timeout_ms;        /* 0: off */
	int64_t idle_at_ms;             /* last work seen */
	int64_t ended_ms, paused_ms;    /* 0: not */
	bool pause_on_timeout;
	bool resume_on_touch;
	int verdict; /* enum reason written down before a kill, -1: none */
};
void stored_sandbox_done(struct stored_sandbox *b);
/* Insert, or replace all but owner, one_shot and created_ms. spec and labels NULL: "{}". */
int store_sandbox_put(struct store *s, const struct stored_sandbox *b, struct err *e) must_check;
int store_sandbox_get(struct store *s, const char *id, struct stored_sandbox *ret,
		      struct err *e) must_check;

/* Pages are in order of creation, newest first, after the id `after` ("" or NULL: from the start; 1 when
 * there is no such sandbox). Owner NULL: all. */
struct sandbox_filter {
	const char *owner;
	const char *session;
	int state;         /* enum state, -1: any */
	const char *label; /* "key=value" or "key", NULL: any */
	bool with_one_shot;
	const char *after;
	unsigned limit; /* 1-1001: a page of 1000 and one to know of the next */
};
int store_sandbox_list(struct store *s, const struct sandbox_filter *f,
		       int (*each)(const struct stored_sandbox *b, void *data), void *data,
		       struct err *e) must_check;

struct stored_run {
	char id[40];
	char sandbox[40];
	char *owner, *session;
	char *kind;         /* "run", "exec", "process" */
	char *input_sha256; /* of the code or command, hexadecimal */
	uint64_t input_bytes;
	bool ended;
	enum reason reason;
	char *error_code;        /* or NULL */
	int exit_code;           /* -1: none */
	char *result;            /* JSON, when ended and kept */
	char *limits;            /* JSON, or NULL: nothing that anybody else should watch */
	char *artifact_path;     /* NULL: none are kept, or not any more */
	uint64_t artifact_bytes; /* what they take on the disk */
	int64_t created_ms, ended_ms;
};
void stored_run_done(struct stored_run *r);
/* Insert, or replace all but sandbox, owner, session, kind, limits and created_ms. */
int store_run_put(struct store *s, const struct stored_run *r, struct err *e) must_check;
int store_run_get(struct store *s, const char *id, struct stored_run *ret,
		  struct err *e) must_check;
/* Newest first; sandbox NULL: all; limit UINT_MAX: all. */
int store_run_list(struct store *s, const char *sandbox, bool unended_only, unsigned limit,
		   int (*each)(const struct stored_run *r, void *data), void *data,
		   struct err *e) must_check;
/* The same of one owner: the limit counts its own only. */
int store_run_list_of(struct store *s, const char *owner, const char *sandbox, unsigned limit,
		      int (*each)(const struct stored_run *r, void *data), void *data,
		      struct err *e) must_check;

/* Bytes that are kept of an owner's runs: their results and artifacts. */
int store_kept(struct store *s, const char *owner, uint64_t *ret, struct err *e) must_check;
/* Its oldest that has ended, or of these one that has artifacts; not `except` (NULL: any). 1: there is none. */
int store_run_oldest(struct store *s, const char *owner, bool with_artifacts, const char *except,
		     char ret[40], struct err *e) must_check;
/* One of anybody's that ended before this and has artifacts. 1: there is none. */
int store_artifacts_old(struct store *s, int64_t before_ms, char ret[40], struct err *e) must_check;
/* Its artifacts are no more; it is no more. */
int store_artifacts_forget(struct store *s, const char *id, struct err *e) must_check;
int store_run_forget(struct store *s, const char *id, struct err *e) must_check;

/* One line of the audit: hash = SHA-256 over the row before's hash and this row's fields, each with its
 * length (docs/api.md "Audit"). details: a JSON object without secrets or code. */
struct audit_row {
	int64_t seq; /* from 1, given by the store */
	int64_t time_ms;
	const char *actor;   /* owner, or "system" */
	const char *session; /* or NULL */
	const char *action;  /* "sandbox.create", "run.end", ... */
	const char *object;  /* id, or "" */
	const char *details;
	char previous[65], hash[65]; /* hexadecimal */
};
/* Gives row its seq, previous and hash. */
int store_audit_add(struct store *s, struct audit_row *row, struct err *e) must_check;
/* Oldest first, after this seq; actor NULL: all. The row's texts live until each() returns. */
int store_audit_list(struct store *s, const char *actor, int64_t after_seq, unsigned limit,
		     int (*each)(const struct audit_row *row, void *data), void *data,
		     struct err *e) must_check;
/* Recompute the chain. 0 and *ret_rows; 1 and *ret_bad, the first seq that does not fit. Rows removed by
 * retention leave their last hash behind as the anchor. A tail cut off shows only against a head (hash of
 * the last row, 64 zeros without rows) or a row that somebody remembered. */
int store_audit_verify(struct store *s, int64_t *ret_rows, int64_t *ret_bad, char ret_head[65],
		       struct err *e) must_check;

/* A secret: four characters of prefix and 43 of base64url (32 random bytes). Only SHA-256 of it is kept. */
enum { SECRET_SIZE = 48 };

/* API keys: "clk_...". */
struct stored_key {
	char id[24]; /* "key_" and 16 hexadecimal digits; names its owner as "key:ID" */
	char *name;
	int64_t created_ms, revoked_ms; /* 0: valid */
	char *quota; /* JSON object of struct quota's fields that differ, or NULL */
};
void stored_key_done(struct stored_key *k);
int store_key_create(struct store *s, const char *name, const char *quota,
		     char ret_secret[static SECRET_SIZE], struct stored_key *ret,
		     struct err *e) must_check;
/* By secret: constant time in the comparison; revoked ones are 1, and so is what cannot be a secret,
 * without a look into the database. */
int store_key_find(struct store *s, const char *secret, struct stored_key *ret,
		   struct err *e) must_check;
int store_key_get(struct store *s, const char *id, struct stored_key *ret,
		  struct err *e) must_check;
/* Again: 0, and the time of the first stays. */
int store_key_revoke(struct store *s, const char *id, struct err *e) must_check;
int store_key_list(struct store *s, int (*each)(const struct stored_key *k, void *data), void *data,
		   struct err *e) must_check;

/* Shares of a port: "cpt_..." lets whoever has it reach one port of one sandbox until it expires, is revoked, or the
 * sandbox ends. At most SHARES_MAX of one sandbox: one more is -1 with e->errnum EDQUOT. */
enum { SHARES_MAX = 64 };
struct stored_share {
	unsigned port;
	int64_t created_ms, expires_ms;
};
int store_share_create(struct store *s, const char *sandbox, unsigned port, int64_t expires_ms,
		       char ret_secret[static SECRET_SIZE], struct err *e) must_check;
/* 0 when this secret is for that port now, and *ret; else 1. Constant time in the comparison. */
int store_share_find(struct store *s, const char *sandbox, unsigned port, const char *secret,
		     struct stored_share *ret, struct err *e) must_check;
/* All of this port. 1: there were none. */
int store_share_revoke(struct store *s, const char *sandbox, unsigned port,
		       struct err *e) must_check;
/* Those that have not expired, by port. */
int store_share_list(struct store *s, const char *sandbox,
		     int (*each)(const struct stored_share *share, void *data), void *data,
		     struct err *e) must_check;

/* Idempotency: the same owner and key within 24 h give the object made first; another request body
 * (hash) under the same key is -1 with e->errnum EEXIST, and so is a put where there is one. */
int store_idempotency_get(struct store *s, const char *owner, const char *key,
			  const char *body_sha256, char ret_object[40], struct err *e) must_check;
int store_idempotency_put(struct store *s, const char *owner, const char *key,
			  const char *body_sha256, const char *object, struct err *e) must_check;

/* Remove what is older: ended sandboxes, ended runs (which outlive their sandbox), audit rows,
 * idempotency keys. Runs that have artifacts stay: those go first (store_artifacts_old). At most RETAIN_BATCH rows of each in one call, so that the loop is not held up: 1 when
 * there is more to do. */
enum { RETAIN_BATCH = 2000 };
struct retention {
	int64_t ended_sandbox_ms; /* 24 h */
	int64_t run_ms;           /* 30 days */
	int64_t audit_ms;         /* 365 days */
};
int store_retain(struct store *s, const struct retention *r, struct err *e) must_check;

/* SHA-256 as 64 hexadecimal digits. From the thread of the store only. */
void sha256_hex(const void *data, size_t size, char ret[65]);

#endif
