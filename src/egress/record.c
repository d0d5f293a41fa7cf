/* SPDX-License-Identifier: Apache-2.0 */
/*
 * record.c - what happened, kept until somebody has acknowledged it.
 *
 * A refusal is put here before the program inside can see it, so that whoever asks (FLUSH) after the program's end
 * has it. When nobody takes the records, the oldest go, and are counted.
 */
#include <arpa/inet.h>
#include <string.h>
#include <time.h>

#include "base/fd.h"
#include "egress/egress.h"

uint64_t record_wall_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

void record_rule(struct egress_record *r, const struct network_answer *a)
{
	snprintf(r->rule, sizeof r->rule, "%s", a->rule ? a->rule : "");
	snprintf(r->why, sizeof r->why, "%s", a->why);
}

void record_address(struct egress_record *r, const union address *a)
{
	const void *bytes = a->any.sa_family == AF_INET6 ? (const void *)&a->v6.sin6_addr
							 : (const void *)&a->v4.sin_addr;

	if (!inet_ntop(a->any.sa_family, bytes, r->address, sizeof r->address))
		r->address[0] = '\0';
}

void record_begin(struct connection *c)
{
	c->record = (struct egress_record){.port = c->port, .started_ms = record_wall_ms()};
	snprintf(c->record.host, sizeof c->record.host, "%s", c->host);
	c->started_us = now_us();
	c->recording = true;
}

static void drop_oldest(struct egress *g)
{
	free(TAKE_PTR(g->records[g->first % LIMIT_RECORDS_MAX]));
	g->first++;
	g->totals.lost++;
}

static void make_printable(char *text, size_t size)
{
	text[size - 1] = '\0';
	for (; *text; text++)
		if ((unsigned char)*text < 0x20 || *text == 0x7f)
			*text = '?';
}

#define MAKE_PRINTABLE(field) make_printable(field, sizeof field)

/* What comes from the sandbox is in these texts. An address that carries another one is no host (host.c), but is one that
 * may be connected to. */
static void make_believable(struct egress_record *r)
{
	struct sockaddr_storage literal;

	if (egress_record_is_valid(r))
		return;
	MAKE_PRINTABLE(r->host);
	MAKE_PRINTABLE(r->address);
	MAKE_PRINTABLE(r->rule);
	MAKE_PRINTABLE(r->why);
	MAKE_PRINTABLE(r->credential);
	MAKE_PRINTABLE(r->method);
	MAKE_PRINTABLE(r->path);
	if (egress_record_is_valid(r))
		return;
	if (!*r->address && network_host_address(r->host, &literal))
		snprintf(r->address, sizeof r->address, "%.*s", (int)sizeof r->address - 1,
			 r->host);
	memset(r->host, 0, sizeof r->host);
}

void record_put(struct egress *g, const struct egress_record *r)
{
	struct egress_record *kept = malloc(sizeof *kept);

	if (g->next - g->first == LIMIT_RECORDS_MAX)
		drop_oldest(g);
	if (kept) {
		*kept = *r;
		kept->header = (struct egress_header){EGRESS_RECORD, g->next};
		make_believable(kept);
	} else {
		g->totals.lost++;
	}
	g->records[g->next++ % LIMIT_RECORDS_MAX] = kept;
	if (r->verdict == EGRESS_DENIED)
		g->totals.denied++;
	else if (r->verdict == EGRESS_FAILED)
		g->totals.failed++;
	control_tell(g);
}

void record_end(struct connection *c, enum egress_verdict verdict, const char *why)
{
	struct egress_record *r = &c->record;

	if (!c->recording)
		return;
	c->recording = false;
	r->verdict = verdict;
	r->duration_us = now_us() - c->started_us;
	if (why)
		snprintf(r->why, sizeof r->why, "%s", why);
	record_put(c->egress, r);
}

void record_free(struct egress *g)
{
	for (size_t i = 0; i < LIMIT_RECORDS_MAX; i++)
		free(TAKE_PTR(g->records[i]));
}
