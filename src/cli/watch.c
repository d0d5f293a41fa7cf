/* SPDX-License-Identifier: Apache-2.0 */
/* watch.c - `cloche events`, `audit` and `top`. */
#include <poll.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/end_signals.h"
#include "base/fd.h"
#include "base/json.h"
#include "base/units.h"
#include "cli/remote.h"

struct events {
	bool json, follow;
	const char *since, *sandbox;
	bool greeted; /* the first line has come */
	bool ended;   /* what was there has been printed */
};

#define FIELD(name) offsetof(struct events, name)
const struct cli_option events_options[] = {
	{"follow", 'f', NULL, "wait for more; without --since from now on", FIELD(follow)},
	{"since", 0, "SEQ", "those after this number", FIELD(since)},
	{"sandbox", 0, "SANDBOX", "only those of this one", FIELD(sandbox)},
	{"json", 0, NULL, "print the events as they come, one a line", FIELD(json)},
	{NULL},
};
#undef FIELD

/* A row is one table of its own: events come one at a time. */
static void print_event_row(json_t *event)
{
	char line[512];
	struct printer p;
	const char *reason = text_of(event, "reason"), *run = text_of(event, "run");
	int n = snprintf(line, sizeof line, "%-8lld %s  %-16s %s%s%s%s%s\n",
			 (long long)json_integer_value(json_object_get(event, "seq")),
			 text_of(event, "time"), text_of(event, "type"), text_of(event, "sandbox"),
			 *run == '-' ? "" : " ", *run == '-' ? "" : run, *reason == '-' ? "" : ": ",
			 *reason == '-' ? "" : reason);

	printer_init(&p, 1, false);
	printer_put(&p, line, n < (int)sizeof line ? (size_t)n : sizeof line - 1);
	printer_end(&p);
}

/* An empty object is a greeting when it comes first, and a heartbeat later: then what was there is
 * behind us. */
static int take_event(void *context, json_t *event, struct err *e)
{
	struct events *q = context;

	bool first = !q->greeted;

	q->greeted = true;
	if (json_object_size(event) == 0) {
		q->ended = !q->follow && !first;
		return q->ended ? err_set(e, 0, "that is all") : 0;
	}
	if (!q->json)
		print_event_row(event);
	else if (print_object(event) != 0)
		return err_set(e, EPIPE, "write to stdout");
	return 0;
}

static int make_events_target(const struct events *q, char target[static TARGET_SIZE],
			      struct err *e)
{
	const char *since = q->since ? q->since : q->follow ? NULL : "0";
	uint64_t seq = 0;

	if (since && parse_count(since, 0, INT64_MAX, &seq) < 0)
		return err_set(e, 0, "--since %.60s: give the number of an event", since);
	if (q->sandbox && !is_id(q->sandbox))
		return err_set(e, 0, "not the id of a sandbox: %.60s", q->sandbox);
	snprintf(target, TARGET_SIZE, "/v1/events%s%s%s", since || q->sandbox ? "?" : "",
		 q->sandbox ? "sandbox=" : "", q->sandbox ? q->sandbox : "");
	if (since)
		snprintf(target + strlen(target), 64, "%ssince=%llu", q->sandbox ? "&" : "",
			 (unsigned long long)seq);
	return 0;
}

int verb_events(const struct verb *verb, int argc, char **argv)
{
	struct remote r = {.service.idle_fd = -1};
	struct events q = {0};
	struct args a = {.verb = verb, .values = &q};
	char target[TARGET_SIZE];
	struct err e = {0};
	int status = args_ready(&a, argc, argv, 0, 0);

	if (status >= 0)
		return status;
	if (make_events_target(&q, target, &e) < 0)
		return fail(EXIT_USAGE, &e);
	status = 0;
	if (remote_open(&r, &e) < 0 ||
	    (remote_follow(&r, target, -1, take_event, &q, &e) < 0 && !q.ended))
		status = fail(EXIT_CLOCHE, &e);
	remote_close(&r);
	return status;
}

struct audit {
	bool json;
	const char *after, *limit;
};

#define FIELD(name) offsetof(struct audit, name)
const struct cli_option audit_options[] = {
	{"after", 0, "SEQ", "those after this number", FIELD(after)},
	{"limit", 0, "N", "at most so many [100]", FIELD(limit)},
	{"json", 0, NULL, "print the API's JSON instead of a table", FIELD(json)},
	{NULL},
};
#undef FIELD

static int verify(const struct audit *q, const struct answer *answer)
{
	json_t *bad = json_object_get(answer->json, "first_bad");
	bool good = json_is_true(json_object_get(answer->json, "ok"));

	if (q->json)
		print_answer(answer);
	else if (good)
		printf("%lld records, unbroken; head %s\n",
		       (long long)json_integer_value(json_object_get(answer->json, "rows")),
		       is_id(text_of(answer->json, "head")) ? text_of(answer->json, "head") : "-");
	else
		printf("the chain is broken at record %lld\n", (long long)json_integer_value(bad));
	return good ? 0 : 1;
}

/* The columns are the object's own: what a record holds differs by action. */
static void print_records(json_t *rows)
{
	static const char *const heads[] = {"SEQ",    "TIME",   "ACTOR",  "SESSION",
					    "ACTION", "OBJECT", "DETAILS"};
	struct table *t = table_new(heads, ARRAY_SIZE(heads));
	json_t *row;
	size_t i;

	json_array_foreach(rows, i, row) {
		_cleanup_free_ char *detail = NULL;
		json_t *more = json_object_get(row, "details");

		table_cell(t, "%lld", (long long)json_integer_value(json_object_get(row, "seq")));
		for (size_t c = 1; c + 1 < ARRAY_SIZE(heads); c++) {
			static const char *const keys[] = {"",        "time",   "actor",
							   "session", "action", "object"};
			json_t *value = json_object_get(row, keys[c]);

			if (json_is_integer(value))
				table_cell(t, "%lld", (long long)json_integer_value(value));
			else
				table_cell(t, "%s", text_of(row, keys[c]));
		}
		detail = more && !json_is_null(more)
				 ? json_dumps(more, JSON_COMPACT | JSON_ENCODE_ANY)
				 : NULL;
		table_cell(t, "%s", detail ? detail : "-");
	}
	table_print(t);
	table_free(t);
}

static int make_audit_target(const struct audit *q, char target[static 160], struct err *e)
{
	uint64_t after = 0, limit = 100;

	if ((q->after && parse_count(q->after, 0, INT64_MAX, &after) < 0) ||
	    (q->limit && parse_count(q->limit, 1, 10000, &limit) < 0))
		return err_set(e, 0, "--after and --limit are numbers, the latter up to 10000");
	snprintf(target, 160, "/v1/audit?after=%llu&limit=%llu", (unsigned long long)after,
		 (unsigned long long)limit);
	return 0;
}

int verb_audit(const struct verb *verb, int argc, char **argv)
{
	_cleanup_answer_ struct answer answer = {0};
	struct remote r = {.service.idle_fd = -1};
	char target[160] = "/v1/audit/verify";
	struct audit q = {0};
	struct args a = {.verb = verb, .values = &q};
	struct err e = {0};
	int status = args_ready(&a, argc, argv, 0, 1);
	bool checks = false;

	if (status >= 0)
		return status;
	checks = a.count == 1 && strcmp(a.operands[0], "verify") == 0;
	if (a.count == 1 && !checks)
		err_set(&e, 0, "usage: cloche %s %s", verb->name, verb->synopsis);
	if ((a.count == 1 && !checks) || (!checks && make_audit_target(&q, target, &e) < 0))
		return fail(EXIT_USAGE, &e);
	if (remote_open(&r, &e) < 0 || remote_ask(&r, "GET", target, NULL, &answer, &e) < 0) {
		status = fail(EXIT_CLOCHE, &e);
	} else if (checks) {
		status = verify(&q, &answer);
	} else {
		status = q.json ? print_answer(&answer) : 0;
		if (!q.json)
			print_records(json_object_get(answer.json, "rows"));
	}
	remote_close(&r);
	return status;
}

struct top {
	bool json, once;
};

const struct cli_option top_options[] = {
	{"once", 0, NULL, "print it once and end", offsetof(struct top, once)},
	{"json", 0, NULL, "print the API's JSON, once", offsetof(struct top, json)},
	{NULL},
};

/* CPU time at the last look, by sandbox, and when that was. */
struct looks {
	json_t *cpu_ms;
	uint64_t at_us;
};

/* Per cent of one CPU since the last look. */
static void cpu_cell(struct table *t, const struct looks *before, uint64_t now, json_t *box,
		     json_t *seen)
{
	json_t *ms = json_object_get(json_object_get(box, "usage"), "cpu_ms");
	json_t *old = json_object_get(before->cpu_ms, text_of(box, "id"));

	if (json_is_number(ms))
		json_object_set(seen, text_of(box, "id"), ms);
	if (json_is_number(ms) && json_is_number(old) && now > before->at_us)
		table_cell(t, "%.0f%%",
			   (json_number_value(ms) - json_number_value(old)) * 1e5 /
				   (double)(now - before->at_us));
	else
		table_cell(t, "-");
	if (json_is_number(ms))
		table_cell(t, "%.1fs", json_number_value(ms) / 1000);
	else
		table_cell(t, "-");
}

static void print_top(json_t *boxes, struct looks *before, unsigned rows)
{
	static const char *const heads[] = {"SANDBOX", "STATE", "CPU",  "TIME",
					    "MEMORY",  "LIMIT", "PIDS", "EXPIRES"};
	struct table *t = table_new(heads, ARRAY_SIZE(heads));
	json_t *seen = json_object(), *box;
	uint64_t now = now_us();
	size_t i;

	json_array_foreach(boxes, i, box) {
		json_t *usage = json_object_get(box, "usage");
		char a[32], b[32], c[32];
		json_t *pids = json_object_get(usage, "pids");

		if (i >= rows)
			break;
		table_cell(t, "%s", text_of(box, "id"));
		table_cell(t, "%s", text_of(box, "state"));
		cpu_cell(t, before, now, box, seen);
		table_cell(t, "%s", size_text(json_object_get(usage, "memory_bytes"), a));
		table_cell(t, "%s",
			   size_text(json_object_get(json_object_get(box, "limits"), "memory"), b));
		if (json_is_integer(pids))
			table_cell(t, "%lld", (long long)json_integer_value(pids));
		else
			table_cell(t, "-");
		table_cell(t, "%s", ago_text(json_object_get(box, "expires_at"), c));
	}
	table_print(t);
	table_free(t);
	json_decref(before->cpu_ms);
	before->cpu_ms = seen;
	before->at_us = now;
}

static const char *at_most(json_t *pool, const char *what, char text[32])
{
	json_t *ms =
		json_object_get(json_object_get(json_object_get(pool, "times"), what), "p50_ms");

	snprintf(text, 32, json_is_number(ms) ? "%g ms" : "-", json_number_value(ms));
	return text;
}

static long long number_of(json_t *j, const char *key)
{
	return (long long)json_integer_value(json_object_get(j, key));
}

/* One line: what is prepared, how often it was there, and half of the runs took at most so long. */
static int print_pool(struct remote *r, struct err *e)
{
	_cleanup_answer_ struct answer a = {0};
	char begin[32], run[32], memory[32];
	json_t *misses, *n;
	long long missed = 0;
	const char *cause;

	if (remote_ask(r, "GET", "/v1/pool", NULL, &a, e) < 0)
		return -1;
	misses = json_object_get(a.json, "misses");
	json_object_foreach(misses, cause, n)
		missed += json_integer_value(n);
	printf("pool: %lld ready (%s), %lld being made, %lld dying; %lld hits, %lld misses (%lld "
	       "of them empty); begun within %s, ended within %s (p50)\n",
	       number_of(a.json, "ready"),
	       size_text(json_object_get(a.json, "memory_bytes"), memory),
	       number_of(a.json, "making"), number_of(a.json, "dying"), number_of(a.json, "hits"),
	       missed, number_of(misses, "empty"), at_most(a.json, "begin", begin),
	       at_most(a.json, "run", run));
	return 0;
}

static unsigned screen_rows(void)
{
	struct winsize w;

	/* one for the pool, one for the heads, one for the cursor */
	return ioctl(1, TIOCGWINSZ, &w) < 0 || w.ws_row < 5 ? 20 : w.ws_row - 3u;
}

/* Each second, until a key's signal comes. The screen is cleared, not scrolled. */
static int watch(struct remote *r, const struct top *q, struct err *e)
{
	bool live = !q->once && !q->json && isatty(1);
	_cleanup_close_ int signals = live ? end_signals_watch(0, NULL, e) : -1;
	struct looks before = {0};
	int status = live && signals < 0 ? -1 : 0;

	while (status == 0) {
		_cleanup_answer_ struct answer a = {0};
		struct pollfd p = {signals, POLLIN, 0};

		status = remote_ask(r, "GET", "/v1/sandboxes?state=running&limit=500", NULL, &a, e);
		if (status < 0)
			break;
		if (q->json)
			status = print_answer(&a) ? err_set(e, EPIPE, "write to stdout") : 0;
		if (live)
			fputs("\033[H\033[J", stdout);
		if (!q->json && print_pool(r, e) < 0) {
			status = -1;
			break;
		}
		if (!q->json)
			print_top(json_object_get(a.json, "sandboxes"), &before,
				  live ? screen_rows() : UINT32_MAX);
		fflush(stdout);
		if (!live || poll(&p, 1, 1000) != 0)
			break;
	}
	json_decref(before.cpu_ms);
	return status;
}

int verb_top(const struct verb *verb, int argc, char **argv)
{
	struct remote r = {.service.idle_fd = -1};
	struct top q = {0};
	struct args a = {.verb = verb, .values = &q};
	struct err e = {0};
	int status = args_ready(&a, argc, argv, 0, 0);

	if (status >= 0)
		return status;
	status = remote_open(&r, &e) < 0 || watch(&r, &q, &e) < 0 ? fail(EXIT_CLOCHE, &e) : 0;
	remote_close(&r);
	return status;
}
