/* SPDX-License-Identifier: Apache-2.0 */
/*
 * settings.h - what is asked, whom, and how: from `cloche ask`, which has read the command line, from the environment
 * and from a .env file, in this order.
 *
 * A key goes to an address from the same place or to the provider's own: a BASE_URL in a .env file, which may
 * have come with a folder of somebody else's, never gets a key of the environment.
 */
#ifndef ASK_SETTINGS_H
#define ASK_SETTINGS_H

#include "ask/provider.h"
#include "registry/url.h"

/* The first descriptor behind the standard ones: a JSON object of `cloche ask`. */
enum { SETTINGS_FD = 3, KEY_BYTES = 4096, CALLS_AT_ONCE = 16 };

struct ask_settings {
	json_t *said; /* what cloche ask said; strings below belong to it */
	const char *cloche, *prompt, *instructions;
	json_t *mcp, *tools, *approve, *volumes; /* lists of texts */
	double temperature;
	bool has_temperature, temperature_said;
	long long max_steps, max_tokens;
	double timeout_s, stall_s, run_timeout_s;
	size_t memory_mib;
	bool json, quiet, session, has_network;

	const struct provider *provider;
	char *model;
	struct url url; /* target() goes behind it */
	bool elsewhere; /* it is not the provider's own */
	char *key;      /* or NULL */
	const char *key_name;
};

int ask_settings_read(struct ask_settings *s, struct err *e) must_check;
void ask_settings_done(struct ask_settings *s);

/* Our environment without any key of any provider, for the process that makes sandboxes. NULL without memory; the
 * array is to be freed, its strings are the environment's. */
char **ask_settings_environment(const struct ask_settings *s) must_check;

/* Whether this text holds the key; overwrite it there. */
void ask_settings_redact(const struct ask_settings *s, char *text);

#endif
