/* SPDX-License-Identifier: Apache-2.0 */
/* processes.c - `cloche ps` and `logs`. */
#include <string.h>

#include "base/json.h"
#include "cli/attach.h"

struct ps {
	bool json, started;
};

const struct cli_option ps_options[] = {
	{"json", 0, NULL, "print the API's JSON instead of a table", offsetof(struct ps, json)},
	{"started", 's', NULL, "those that were started in the background, also ended ones",
	 offsetof(struct ps, started)},
	{NULL},
};

/* Arguments side by side: a string, or an array of them. */
static const char *command_text(json_t *command, char *buf, size_t size)
{
	json_t *word;
	size_t i, n = 0;

	if (json_is_string(command))
		return json_string_value(command);
	buf[0] = '\0';
	json_array_foreach(command, i, word) {
		const char *text = json_string_value(word);
		int m = snprintf(buf + n, size - n, "%s%s", i ? " " : "", text ? text : "?");

		if (m < 0 || (size_t)m >= size - n)
			break;
		n += (size_t)m;
	}
	return n ? buf : "-";
}

static const char *number_text(const json_t *number, char buf[static 32])
{
	if (!json_is_number(number))
		return "-";
	snprintf(buf, 32, "%.0f", json_number_value(number));
	return buf;
}

static void inside_row(struct table *t, json_t *p)
{
	char a[32], b[32], c[32], d[32], command[128];

	table_cell(t, "%s", number_text(json_object_get(p, "pid"), a));
	table_cell(t, "%s", number_text(json_object_get(p, "ppid"), b));
	table_cell(t, "%s", text_of(p, "state"));
	table_cell(t, "%.2fs", json_number_value(json_object_get(p, "cpu_ms")) / 1000);
	table_cell(t, "%s", size_text(json_object_get(p, "rss_bytes"), c));
	table_cell(t, "%s", number_text(json_object_get(p, "threads"), d));
	table_cell(t, "%s", text_of(p, "process"));
	table_cell(t, "%s", command_text(json_object_get(p, "command"), command, sizeof command));
}

static void started_row(struct table *t, json_t *p)
{
	char a[32], b[32], command[128], state[32] = "running";
	int status = process_status(p);

	if (!json_is_true(json_object_get(p, "running")))
		snprintf(state, sizeof state, status < 0 ? "ended" : "exit %d", status);
	table_cell(t, "%s", text_of(p, "id"));
	table_cell(t, "%s", number_text(json_object_get(p, "pid"), a));
	table_cell(t, "%s", state);
	table_cell(t, "%s", ago_text(json_object_get(p, "started_at"), b));
	table_cell(t, "%s", command_text(json_object_get(p, "command"), command, sizeof command));
}

static void print_processes(json_t *list, bool started)
{
	static const char *const inside[] = {"PID", "PPID",    "STATE",   "CPU",
					     "RSS", "THREADS", "PROCESS", "COMMAND"};
	static const char *const background[] = {"PROCESS", "PID", "STATE", "STARTED", "COMMAND"};
	struct table *t = table_new(started ? background : inside,
				    started ? ARRAY_SIZE(background) : ARRAY_SIZE(inside));
	json_t *p;
	size_t i;

	json_array_foreach(list, i, p) {
		if (started)
			started_row(t, p);
		else
			inside_row(t, p);
	}
	table_print(t);
	table_free(t);
}

/* The array is bare in one of the two shapes. */
static json_t *process_list(json_t *answer)
{
	return json_is_array(answer) ? answer : json_object_get(answer, "processes");
}

int verb_ps(const struct verb *verb, int argc, char **argv)
{
	_cleanup_answer_ struct answer answer = {0};
	struct remote r = {.service.idle_fd = -1};
	char target[TARGET_SIZE];
	struct ps q = {0};
	struct args a = {.verb = verb, .values = &q};
	struct err e = {0};
	int status = args_ready(&a, argc, argv, 1, 1);

	if (status >= 0)
		return status;
	if (sandbox_target(target, a.operands[0], &e, "/processes%s", q.started ? "" : "?all") <
		    0 ||
	    remote_open(&r, &e) < 0 || remote_ask(&r, "GET", target, NULL, &answer, &e) < 0)
		status = fail(EXIT_CLOCHE, &e);
	else if (q.json)
		status = print_answer(&answer);
	else
		print_processes(process_list(answer.json), q.started);
	remote_close(&r);
	return status < 0 ? 0 : status;
}

struct logs {
	bool json, follow, raw;
};

#define FIELD(name) offsetof(struct logs, name)
const struct cli_option logs_options[] = {
	{"follow", 'f', NULL, "go on until it ends", FIELD(follow)},
	{"json", 0, NULL, "print the events as they come, one a line", FIELD(json)},
	{"raw", 0, NULL, "pass control characters to a terminal as they are", FIELD(raw)},
	{NULL},
};
#undef FIELD

static int print_event(void *context, json_t *event, struct err *e)
{
	(void)context;
	return print_object(event) ? err_set(e, EPIPE, "write to stdout") : 0;
}

/* What one process wrote, as far as it is kept. */
static int print_log(const struct logs *q, struct remote *r, const char *sandbox,
		     const char *process, struct err *e)
{
	char target[TARGET_SIZE];
	struct output o;
	int status;

	if (!is_id(process))
		return err_set(e, 0, "not the id of a process: %.60s", process);
	if (sandbox_target(target, sandbox, e, "/processes/%s/output?stdout=0&stderr=0%s", process,
			   q->follow ? "&follow" : "") < 0)
		return -1;
	if (q->json)
		return remote_follow(r, target, -1, print_event, NULL, e);
	output_init(&o, q->raw, true);
	status = remote_follow(r, target, -1, output_event, &o, e);
	for (int i = 0; i < 2; i++)
		if (o.lost[i])
			fprintf(stderr, "cloche: %llu bytes of %s of %s are no longer kept\n",
				(unsigned long long)o.lost[i], i ? "stderr" : "stdout", process);
	output_done(&o);
	return status;
}

/* All that were started in the sandbox, in order; following needs one. */
static int print_logs(const struct logs *q, struct remote *r, const char *sandbox, struct err *e)
{
	_cleanup_answer_ struct answer a = {0};
	char target[TARGET_SIZE];
	json_t *list, *p;
	size_t i;

	if (sandbox_target(target, sandbox, e, "/processes") < 0 ||
	    remote_ask(r, "GET", target, NULL, &a, e) < 0)
		return -1;
	list = process_list(a.json);
	if (q->follow && json_array_size(list) != 1)
		return err_set(e, 0,
			       "%zu processes were started there: say which one to follow "
			       "(cloche ps --started %s)",
			       json_array_size(list), sandbox);
	json_array_foreach(list, i, p)
		if (print_log(q, r, sandbox, text_of(p, "id"), e) < 0)
			return -1;
	return 0;
}

/* A process by its id alone: looked for in the live sandboxes of one page after the other. */
static int find_process(struct remote *r, const char *process, char sandbox[static 65],
			struct err *e)
{
	char target[TARGET_SIZE], after[65] = "";

	do {
		_cleanup_answer_ struct answer page = {0};
		json_t *box;
		const char *next;
		size_t i;

		snprintf(target, sizeof target, "/v1/sandboxes?state=running&limit=500%s%s",
			 *after ? "&after=" : "", after);
		if (remote_ask(r, "GET", target, NULL, &page, e) < 0)
			return -1;
		json_array_foreach(json_object_get(page.json, "sandboxes"), i, box) {
			_cleanup_answer_ struct answer a = {0};
			const char *id = text_of(box, "id");

			if (sandbox_target(target, id, e, "/processes/%s", process) < 0)
				return -1;
			if (remote_ask(r, "GET", target, NULL, &a, e) == 0) {
				snprintf(sandbox, 65, "%s", id);
				return 0;
			}
			if (a.status != 404 && a.status != 410)
				return -1;
		}
		next = json_string_value(json_object_get(page.json, "next"));
		if (!next || !is_id(next) || strcmp(next, after) == 0)
			break;
		snprintf(after, sizeof after, "%s", next);
	} while (*after);
	return err_set(e, 0, "no such process in any running sandbox: %s", process);
}

static int log_of(const struct logs *q, struct remote *r, const struct args *a, struct err *e)
{
	const char *first = a->operands[0];
	char sandbox[65];

	if (a->count == 2)
		return print_log(q, r, first, a->operands[1], e);
	if (strncmp(first, "prc_", 4) != 0)
		return print_logs(q, r, first, e);
	if (!is_id(first))
		return err_set(e, 0, "not the id of a process: %.60s", first);
	return find_process(r, first, sandbox, e) < 0 ? -1 : print_log(q, r, sandbox, first, e);
}

int verb_logs(const struct verb *verb, int argc, char **argv)
{
	struct remote r = {.service.idle_fd = -1};
	struct logs q = {0};
	struct args a = {.verb = verb, .values = &q};
	struct err e = {0};
	int status = args_ready(&a, argc, argv, 1, 2);

	if (status >= 0)
		return status;
	status = remote_open(&r, &e) < 0 || log_of(&q, &r, &a, &e) < 0 ? fail(EXIT_CLOCHE, &e) : 0;
	remote_close(&r);
	return status;
}
