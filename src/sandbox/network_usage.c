/* SPDX-License-Identifier: Apache-2.0 */
/* network_usage.c - the part of a result that says what its connections came to. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sandbox/result.h"

static struct network_denied *find(struct network_usage *u, const char *host, uint16_t port)
{
	for (size_t i = 0; i < u->refused_count; i++)
		if (u->refused[i].port == port && strcmp(u->refused[i].host, host) == 0)
			return &u->refused[i];
	return NULL;
}

static struct network_denied *oldest(struct network_usage *u)
{
	struct network_denied *found = &u->refused[0];

	for (size_t i = 1; i < u->refused_count; i++)
		if (u->refused[i].last < found->last)
			found = &u->refused[i];
	return found;
}

void network_usage_refused(struct network_usage *u, const char *host, uint16_t port)
{
	struct network_denied *d;

	if (!u->refused)
		u->refused = calloc(NETWORK_DENIED_MAX, sizeof *u->refused);
	if (!u->refused)
		return;
	d = find(u, host, port);
	if (!d) {
		d = u->refused_count < NETWORK_DENIED_MAX ? &u->refused[u->refused_count++]
							  : oldest(u);
		*d = (struct network_denied){.port = port};
		snprintf(d->host, sizeof d->host, "%s", host);
	}
	d->count++;
	d->last = u->denied;
}

void network_usage_done(struct network_usage *u)
{
	free(u->refused);
	*u = (struct network_usage){0};
}

void network_usage_text(const struct network_usage *u, char *text, size_t size)
{
	size_t n = 0;

	text[0] = '\0';
	for (size_t i = 0; i < u->refused_count; i++) {
		const struct network_denied *d = &u->refused[i];
		char one[320];
		int m = snprintf(one, sizeof one, "%s%s:%u", i ? ", " : "",
				 d->host[0] ? d->host : "an unknown host", d->port);

		if (d->count > 1)
			m += snprintf(one + m, sizeof one - (size_t)m, " (%llu times)",
				      (unsigned long long)d->count);
		if (n + (size_t)m + sizeof ", and 64 more" > size) {
			snprintf(text + n, size - n, "%sand %zu more", i ? ", " : "",
				 u->refused_count - i);
			return;
		}
		memcpy(text + n, one, (size_t)m + 1);
		n += (size_t)m;
	}
	if (u->refused_count == 0)
		snprintf(text, size, "other hosts");
}

json_t *network_usage_to_json(const struct network_usage *u)
{
	json_t *list = json_array();

	for (size_t i = 0; list && i < u->refused_count; i++) {
		const struct network_denied *d = &u->refused[i];

		if (json_array_append_new(list, json_pack("{ss si sI}", "host", d->host, "port",
							  (int)d->port, "count",
							  (json_int_t)d->count)) < 0) {
			json_decref(list);
			list = NULL;
		}
	}
	return json_pack("{sI so sI sI ss?}", "allowed", (json_int_t)u->allowed, "denied", list,
			 "bytes_sent", (json_int_t)u->bytes_sent, "bytes_received",
			 (json_int_t)u->bytes_received,
			 "capture", u->capture);
}
