/* SPDX-License-Identifier: Apache-2.0 */
/*
 * secret.h - one entry of `credentials:` in a configuration file: checked when the file is read, and its value fetched
 * when a sandbox is made that names it.
 *
 * Values are in memory that is wiped, and in no error: those name the credential and its source only.
 */
#ifndef SETTINGS_SECRET_H
#define SETTINGS_SECRET_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "network/policy.h"

enum {
	SECRET_BYTES_MAX = 64 << 10, /* of a source */
	SECRET_VALUE_MAX = 16 << 10, /* of a field, its template filled in */
	SECRET_COMMAND_MS = 10000,
	SECRET_OWNERS_MAX = 256,
};

int secret_check(const char *name, const json_t *entry, struct err *e) must_check;

/* owner NULL: a run without a service, which may use all there are. */
bool secret_is_for(const json_t *entry, const char *owner);
const char *secret_host(const json_t *entry);
uint16_t secret_port(const json_t *entry);

/* The value as it is sent, printable ASCII without control characters; to be freed with secret_free(). Blocks while a
 * command runs. NULL and e. */
char *secret_value(const char *name, const json_t *entry, struct err *e) must_check;

#endif
