/* SPDX-License-Identifier: Apache-2.0 */
/* sandboxes.c - `cloche create`, `ls`, `kill`, `pause`, `resume` and `renew`. */
#include <string.h>

#include "cli/remote.h"

struct create {
	struct body body; /* first: body_set() */
	const char *disk, *timeout, *idle_timeout, *on_timeout;
	bool no_resume, json;
	struct strings labels, metadata;
};

#define FIELD(name) offsetof(struct create, name)
const struct cli_option create_options[] = {
	{"disk", 0, "SIZE", "size of /workspace on disk; without it /workspace is memory",
	 FIELD(disk)},
	{"timeout", 0, "LIFE", "how long it lives, or never [1h]", FIELD(timeout)},
	{"idle-timeout", 0, "TIME", "how long it lives without work", FIELD(idle_timeout)},
	{"on-timeout", 0, "kill|pause", "what happens then [kill]", FIELD(on_timeout)},
	{"no-resume-on-touch", 0, NULL, "once paused, only `cloche resume` makes it go on",
	 FIELD(no_resume)},
	{"label", 'l', "K=V", "a label to find it by", FIELD(labels), .list = true},
	{"metadata", 0, "K=V", "text to keep with it", FIELD(metadata), .list = true},
	{"json", 0, NULL, "print the sandbox object instead of the id", FIELD(json)},
	{NULL},
};
#undef FIELD

static int set_text(json_t *body, const char *key, const char *value, struct err *e)
{
	if (value && json_object_set_new(body, key, json_string(value)) < 0)
		return err_set(e, 0, "%s: value is no UTF-8", key);
	return 0;
}

static int set_pairs(json_t *body, const char *key, const char *option, const struct strings *pairs,
		     struct err *e)
{
	json_t *object = pairs->count ? pairs_object(pairs, option, false, e) : NULL;

	if (pairs->count && !object)
		return -1;
	if (object && json_object_set_new(body, key, object) < 0)
		return err_set(e, ENOMEM, "keep %s", key);
	return 0;
}

static int complete(struct create *c, struct err *e)
{
	json_t *body = c->body.json;

	if (set_text(body, "disk", c->disk, e) < 0 ||
	    set_text(body, "timeout", c->timeout, e) < 0 ||
	    set_text(body, "idle_timeout", c->idle_timeout, e) < 0 ||
	    set_text(body, "on_timeout", c->on_timeout, e) < 0 ||
	    set_pairs(body, "labels", "label", &c->labels, e) < 0 ||
	    set_pairs(body, "metadata", "metadata", &c->metadata, e) < 0)
		return -1;
	if (c->no_resume)
		json_object_set_new(body, "resume_on_touch", json_false());
	return 0;
}

static int create(struct create *c, const struct verb *verb, struct err *e)
{
	_cleanup_answer_ struct answer a = {0};
	struct remote r;
	int status = -1;

	if (remote_open(&r, e) < 0)
		return fail(EXIT_CLOCHE, e);
	if (body_finish(&c->body, verb, true, r.service.local, e) == 0 && complete(c, e) == 0 &&
	    remote_ask_fds(&r, "POST", "/v1/sandboxes", c->body.json, c->body.fds, c->body.fd_count,
			   &a, e) == 0) {
		const char *id = text_of(a.json, "id");

		if (c->json)
			status = print_answer(&a);
		else if (is_id(id))
			status = printf("%s\n", id) < 0 || fflush(stdout) ? EXIT_CLOCHE : 0;
		else
			err_set(e, 0, "the service's answer has no id");
	}
	remote_close(&r);
	return status < 0 ? fail(EXIT_CLOCHE, e) : status;
}

int verb_create(const struct verb *verb, int argc, char **argv)
{
	struct create c = {0};
	struct args a = {.verb = verb, .values = &c, .set = body_set};
	struct err e = {0};
	int status = args_ready(&a, argc, argv, 0, 0);

	if (status < 0)
		status = create(&c, verb, &e);
	body_done(&c.body);
	strings_done(&c.labels);
	strings_done(&c.metadata);
	return status;
}

struct ls {
	bool json, all;
	const char *state, *session;
	struct strings labels;
};

#define FIELD(name) offsetof(struct ls, name)
const struct cli_option ls_options[] = {
	{"json", 0, NULL, "print the API's JSON instead of a table", FIELD(json)},
	{"all", 'a', NULL, "also those that have ended (for 24 h)", FIELD(all)},
	{"state", 0, "STATE", "only creating, running, paused or ended ones", FIELD(state)},
	{"session", 0, "TEXT", "only those of this session", FIELD(session)},
	{"label", 'l', "K=V", "only those with this label", FIELD(labels), .list = true},
	{NULL},
};
#undef FIELD

static int add_query(char target[static TARGET_SIZE], const char *name, const char *value,
		     struct err *e)
{
	size_t n = strlen(target);

	n += (size_t)snprintf(target + n, 64, "&%s=", name);
	if (url_encode(value, target + n, TARGET_SIZE - 64 - n) < 0)
		return err_set(e, 0, "--%s: is too long", name);
	return 0;
}

static int make_query(const struct ls *q, char target[static TARGET_SIZE], struct err *e)
{
	snprintf(target, TARGET_SIZE, "/v1/sandboxes?limit=500");
	if (q->state && add_query(target, "state", q->state, e) < 0)
		return -1;
	if (q->session && add_query(target, "session", q->session, e) < 0)
		return -1;
	for (size_t i = 0; i < q->labels.count; i++)
		if (add_query(target, "label", q->labels.item[i], e) < 0)
			return -1;
	return 0;
}

static void add_row(struct table *t, json_t *box)
{
	json_t *limits = json_object_get(box, "limits"), *usage = json_object_get(box, "usage");
	char a[32], b[32], c[32], d[32], labels[128];
	const char *reason = text_of(box, "reason");

	table_cell(t, "%s", text_of(box, "id"));
	table_cell(t, "%s%s%s", text_of(box, "state"), *reason == '-' ? "" : ": ",
		   *reason == '-' ? "" : reason);
	table_cell(t, "%s", ago_text(json_object_get(box, "created_at"), a));
	table_cell(t, "%s", ago_text(json_object_get(box, "expires_at"), b));
	table_cell(t, "%s/%s", size_text(json_object_get(usage, "memory_bytes"), c),
		   size_text(json_object_get(limits, "memory"), d));
	table_cell(t, "%s", text_of(box, "image"));
	table_cell(t, "%s", labels_text(json_object_get(box, "labels"), labels, sizeof labels));
}

static bool is_shown(const struct ls *q, json_t *box)
{
	return q->all || q->state || strcmp(text_of(box, "state"), "ended") != 0;
}

/* All pages. JSON is printed page by page, as it comes. */
static int list(const struct ls *q, struct remote *r, struct table *t, struct err *e)
{
	char target[TARGET_SIZE], page[TARGET_SIZE + 100];
	_cleanup_free_ char *after = NULL;

	if (make_query(q, target, e) < 0)
		return -1;
	for (;;) {
		_cleanup_answer_ struct answer a = {0};
		json_t *rows, *box;
		const char *next;
		size_t i;

		snprintf(page, sizeof page, "%s%s%s", target, after ? "&after=" : "",
			 after ? after : "");
		if (remote_ask(r, "GET", page, NULL, &a, e) < 0)
			return -1;
		if (q->json && print_answer(&a) != 0)
			return err_set(e, EPIPE, "write to stdout");
		rows = json_object_get(a.json, "sandboxes");
		json_array_foreach(rows, i, box)
			if (!q->json && is_shown(q, box))
				add_row(t, box);
		next = json_string_value(json_object_get(a.json, "next"));
		if (!next)
			return 0;
		if (!is_id(next) || (after && strcmp(after, next) == 0) || !json_array_size(rows))
			return err_set(e, 0, "the service's next page is none");
		free(after);
		after = strdup(next);
		if (!after)
			return err_set(e, ENOMEM, "list");
	}
}

int verb_ls(const struct verb *verb, int argc, char **argv)
{
	static const char *const heads[] = {"SANDBOX", "STATE", "CREATED", "EXPIRES",
					    "MEMORY",  "IMAGE", "LABELS"};
	struct ls q = {0};
	struct args a = {.verb = verb, .values = &q};
	struct table *t = NULL;
	struct err e = {0};
	struct remote r;
	int status = args_ready(&a, argc, argv, 0, 0);

	if (status < 0) {
		t = table_new(heads, ARRAY_SIZE(heads));
		status = remote_open(&r, &e) < 0 || list(&q, &r, t, &e) < 0 ? fail(EXIT_CLOCHE, &e)
									    : 0;
		remote_close(&r);
		if (status == 0 && !q.json)
			table_print(t);
		table_free(t);
	}
	strings_done(&q.labels);
	return status;
}

struct change {
	bool json;
	const char *timeout, *idle_timeout;
};

const struct cli_option renew_options[] = {
	{"json", 0, NULL, "print the sandbox objects instead of the ids",
	 offsetof(struct change, json)},
	{"timeout", 0, "LIFE", "how long they live from now on, or never",
	 offsetof(struct change, timeout)},
	{"idle-timeout", 0, "TIME", "how long they live without work, or off",
	 offsetof(struct change, idle_timeout)},
	{NULL},
};

/* The same request for each; one that fails does not keep the others from it. */
static int change_each(const struct change *c, const struct args *a, const char *method,
		       const char *action, json_t *body)
{
	struct err e = {0};
	struct remote r;
	int status = 0;

	if (remote_open(&r, &e) < 0)
		return fail(EXIT_CLOCHE, &e);
	for (size_t i = 0; i < a->count; i++) {
		_cleanup_answer_ struct answer answer = {0};
		char target[TARGET_SIZE];

		if (sandbox_target(target, a->operands[i], &e, "%s", action) < 0 ||
		    remote_ask(&r, method, target, body, &answer, &e) < 0) {
			if (a->count > 1 && is_id(a->operands[i]))
				err_prefix(&e, "%s", a->operands[i]);
			status = fail(EXIT_CLOCHE, &e);
		} else if (c->json) {
			print_answer(&answer);
		} else {
			puts(a->operands[i]);
		}
	}
	remote_close(&r);
	return status;
}

static int change(const struct verb *verb, int argc, char **argv, const char *method,
		  const char *action)
{
	struct change c = {0};
	struct args a = {.verb = verb, .values = &c};
	int status = args_ready(&a, argc, argv, 1, SIZE_MAX);

	return status < 0 ? change_each(&c, &a, method, action, NULL) : status;
}

int verb_kill(const struct verb *verb, int argc, char **argv)
{
	return change(verb, argc, argv, "DELETE", "");
}

int verb_pause(const struct verb *verb, int argc, char **argv)
{
	return change(verb, argc, argv, "POST", "/pause");
}

int verb_resume(const struct verb *verb, int argc, char **argv)
{
	return change(verb, argc, argv, "POST", "/resume");
}

int verb_renew(const struct verb *verb, int argc, char **argv)
{
	struct change c = {0};
	struct args a = {.verb = verb, .values = &c};
	json_t *body;
	struct err e = {0};
	int status = args_ready(&a, argc, argv, 1, SIZE_MAX);

	if (status >= 0)
		return status;
	if (!c.timeout && !c.idle_timeout) {
		err_set(&e, 0, "nothing to change: give --timeout or --idle-timeout");
		return fail(EXIT_USAGE, &e);
	}
	body = json_object();
	if (set_text(body, "timeout", c.timeout, &e) < 0 ||
	    set_text(body, "idle_timeout", c.idle_timeout, &e) < 0)
		status = fail(EXIT_USAGE, &e);
	else
		status = change_each(&c, &a, "POST", "/renew", body);
	json_decref(body);
	return status;
}
