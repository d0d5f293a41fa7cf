/* SPDX-License-Identifier: Apache-2.0 */
/* network_usage.c - the part of a result that says what its connections came to. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sandbox/result.h"

/* Where it is among them, or where a new one goes: the end, or the place of the oldest. */
static size_t find(const struct network_usage *u, const char *host, uint16_t port)
{
	for (size_t i = 0; i < u->refused_count; i++)
		if (u->refused[i].port == port && strcmp(u->refused[i].host, host) == 0)
			return i;
	return u->refused_count < NETWORK_DENIED_MAX ? u->refused_count : 0;
}

void network_usage_refused(struct network_usage *u, const char *host, uint16_t port)
{
	struct network_denied d = {.port = port};
	size_t i;

	if (!u->refused)
		u->refused = calloc(NETWORK_DENIED_MAX, sizeof *u->refused);
	if (!u->refused)
		return;
	snprintf(d.host, sizeof d.host, "%s", host);
	i = find(u, d.host, port);
	if (i == u->refused_count)
		u->refused_count++;
	else if (u->refused[i].port == port && strcmp(u->refused[i].host, d.host) == 0)
		d.count = u->refused[i].count;
	d.count++;
	/* The most recent is last. */
	memmove(&u->refused[i], &u->refused[i + 1], (u->refused_count - i - 1) * sizeof d);
	u->refused[u->refused_count - 1] = d;
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
		int m = snprintf(one, sizeof one, "%s%s", i ? ", " : "",
				 d->host[0] ? d->host : "an unknown host");

		if (d->port) /* 0: its name was asked for */
			m += snprintf(one + m, sizeof one - (size_t)m, ":%u", d->port);
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
			 (json_int_t)u->bytes_received, "capture", u->capture);
}
