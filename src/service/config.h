/* SPDX-License-Identifier: Apache-2.0 */
/*
 * config.h - the service's part of the configuration file: the mapping `service`, one row of a table
 * (config.c) per key, which docs/config.md documents and `cloche serve --check` checks.
 */
#ifndef SERVICE_CONFIG_H
#define SERVICE_CONFIG_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "sandbox/places.h"
#include "store/quota.h"

struct service_config {
	char socket[108];      /* of the API; "" when there is none */
	char socket_group[64]; /* may open it; "" only root (and, rootless, the user) */
	char user[64];         /* cloched's; "" the built-in one */
	char listen[64];       /* "ADDRESS:PORT"; "" no TCP */
	char tls_certificate[256], tls_key[256];
	char runtime_dir[256], state_dir[256];
	char ports_domain[128];     /* of the names PORT-ID.ports_domain */
	json_t *hosts;              /* Host values accepted on TCP, beside the listening address */
	json_t *quota;              /* of every owner, or NULL: built-in */
	json_t *session_quota;      /* of every session within it, or NULL */
	json_t *mcp;                /* read by mcp_asks.h, or NULL */
	uint64_t body_bytes;        /* largest JSON body, and line of a batch */
	uint64_t batch_concurrency; /* runs of a batch at a time that does not say */
	uint64_t batch_wait_us;     /* a run waits for its owner's quota */
	uint64_t max_timeout_us;    /* longest life of a kept sandbox */
	uint64_t artifact_bytes;    /* kept per run */
	uint64_t artifact_retention_us;
	uint64_t paused_retention_us; /* paused sandboxes end after this */
	uint64_t ended_retention_us;
	uint64_t run_retention_us;
	uint64_t audit_retention_us;
	uint64_t connections;
	uint64_t pool,
		pool_floor; /* prepared sandboxes of one kind: at most, and at least while it is used */
	uint64_t pool_memory_bytes;
};

/* The defaults, then what root (the whole file's JSON, or NULL) says. Free with service_config_done(). */
int service_config_read(struct service_config *c, const struct places *places, const json_t *root,
			struct err *e) must_check;
/* Of an owner without its own, and of a session, from the configuration and what is built in. */
int service_config_quotas(const struct service_config *c, struct quota *ret_owner,
			  struct quota *ret_session, struct err *e) must_check;
void service_config_done(struct service_config *c);

/* Every key with its default and meaning, for docs and --help: one line each to out. */
#include <stdio.h>
void service_config_print_keys(FILE *out);

#endif
