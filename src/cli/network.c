/* SPDX-License-Identifier: Apache-2.0 */
/* network.c - `cloche network`: what a sandbox may connect to and what that came to, and other rules for it. */
#include <string.h>

#include "base/json.h"
#include "cli/remote.h"

/* First member: body_set(), which takes --network, --allow, ... */
struct network {
	struct body body;
	bool json;
};

const struct cli_option network_options[] = {
	{"json", 0, NULL, "print the API's JSON", offsetof(struct network, json)},
	{NULL},
};

static void print_list(const char *word, json_t *list)
{
	json_t *item;
	size_t i;

	json_array_foreach(list, i, item) {
		struct printer p;
		const char *text = json_string_value(item);

		printf("%s ", word);
		fflush(stdout);
		printer_init(&p, 1, false);
		printer_put(&p, text ? text : "?", text ? strlen(text) : 1);
		printer_end(&p);
		putchar('\n');
	}
}

static void print_network(json_t *n)
{
	static const char *const words[] = {"allow", "deny", "preset", "credential"};
	static const char *const heads[] = {"REFUSED", "PORT", "WHEN", "WHY"};
	json_t *usage = json_object_get(n, "usage"), *row;
	struct table *t;
	char bytes[32], when[32];
	size_t i;

	printf("mode %s (%s)\n", text_of(n, "mode"), text_of(n, "state"));
	for (i = 0; i < ARRAY_SIZE(words); i++)
		print_list(words[i], json_object_get(n, words[i]));
	printf("%lld allowed, %lld refused, %lld failed, %lld open, %s\n",
	       (long long)json_integer_value(json_object_get(usage, "allowed")),
	       (long long)json_integer_value(json_object_get(usage, "denied")),
	       (long long)json_integer_value(json_object_get(usage, "failed")),
	       (long long)json_integer_value(json_object_get(usage, "open")),
	       size_text(json_object_get(usage, "bytes"), bytes));
	if (json_array_size(json_object_get(n, "refused")) == 0)
		return;
	t = table_new(heads, ARRAY_SIZE(heads));
	json_array_foreach(json_object_get(n, "refused"), i, row) {
		table_cell(t, "%s", text_of(row, "host"));
		table_cell(t, "%lld", (long long)json_integer_value(json_object_get(row, "port")));
		table_cell(t, "%s", ago_text(json_object_get(row, "at"), when));
		table_cell(t, "%s", text_of(row, "why"));
	}
	table_print(t);
	table_free(t);
}

/* The options' names in the body are those of a sandbox; here the mode is "mode". */
static int rules_of(struct network *n, const struct verb *verb, struct err *e)
{
	json_t *mode;

	if (body_finish(&n->body, verb, false, false, e) < 0)
		return -1;
	mode = json_object_get(n->body.json, "network");
	if (!mode)
		return err_set(e, 0,
			       "--network: say none, allow or open; what is set are all the rules");
	json_object_set(n->body.json, "mode", mode);
	json_object_del(n->body.json, "network");
	return 0;
}

static int ask(struct network *n, const struct verb *verb, bool set, const char *sandbox,
	       struct remote *r, struct err *e)
{
	_cleanup_answer_ struct answer answer = {0};
	char target[TARGET_SIZE];

	if (sandbox_target(target, sandbox, e, "/network") < 0 ||
	    (set && rules_of(n, verb, e) < 0) || remote_open(r, e) < 0 ||
	    remote_ask(r, set ? "PUT" : "GET", target, set ? n->body.json : NULL, &answer, e) < 0)
		return -1;
	if (n->json)
		return print_answer(&answer);
	print_network(answer.json);
	return 0;
}

int verb_network(const struct verb *verb, int argc, char **argv)
{
	struct network n = {0};
	struct args a = {.verb = verb, .values = &n, .set = body_set};
	struct remote r = {.service.idle_fd = -1};
	struct err e = {0};
	int status = args_ready(&a, argc, argv, 2, 2);
	bool set;

	if (status >= 0)
		goto out;
	set = strcmp(a.operands[0], "set") == 0;
	if (!set && strcmp(a.operands[0], "show") != 0) {
		err_set(&e, 0, "usage: cloche %s %s", verb->name, verb->synopsis);
		status = fail(EXIT_USAGE, &e);
		goto out;
	}
	if (!set && json_object_size(n.body.json) > 0) {
		err_set(&e, 0, "rules are for `cloche network set`");
		status = fail(EXIT_USAGE, &e);
		goto out;
	}
	status = ask(&n, verb, set, a.operands[1], &r, &e);
	if (status < 0)
		status = fail(EXIT_CLOCHE, &e);
out:
	remote_close(&r);
	body_done(&n.body);
	return status;
}
