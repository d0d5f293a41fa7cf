/* SPDX-License-Identifier: Apache-2.0 */
/* ports.c - `cloche ports`: what listens in a sandbox, and who else may reach it. */
#include <string.h>

#include "base/json.h"
#include "base/units.h"
#include "cli/remote.h"

struct ports {
	bool json;
	const char *share, *unshare, *expires;
};

#define FIELD(name) offsetof(struct ports, name)
const struct cli_option ports_options[] = {
	{"share", 0, "PORT",
	 "print a URL that lets whoever has it reach this port, and nothing else", FIELD(share)},
	{"expires", 0, "TIME", "of --share: how long it holds (1h)", FIELD(expires)},
	{"unshare", 0, "PORT", "end all shares of this port, and the connections that came by them",
	 FIELD(unshare)},
	{"json", 0, NULL, "print the API's JSON", FIELD(json)},
	{NULL},
};
#undef FIELD

static void port_row(struct table *t, json_t *p)
{
	json_t *pid = json_object_get(p, "pid");

	table_cell(t, "%lld", (long long)json_integer_value(json_object_get(p, "port")));
	table_cell(t, "%s%s", text_of(p, "address"),
		   json_is_true(json_object_get(p, "reachable")) ? "" : " (not reachable)");
	if (json_is_integer(pid))
		table_cell(t, "%lld", (long long)json_integer_value(pid));
	else
		table_cell(t, "-");
	table_cell(t, "%s", text_of(p, "process"));
	table_cell(t, "%s", text_of(p, "command"));
}

static void print_ports(json_t *answer)
{
	static const char *const heads[] = {"PORT", "ADDRESS", "PID", "PROCESS", "COMMAND"};
	static const char *const share_heads[] = {"SHARED PORT", "SINCE", "EXPIRES"};
	json_t *shares = json_object_get(answer, "shares"), *row;
	struct table *t = table_new(heads, ARRAY_SIZE(heads));
	size_t i;

	json_array_foreach(json_object_get(answer, "ports"), i, row)
		port_row(t, row);
	table_print(t);
	table_free(t);
	if (json_array_size(shares) == 0)
		return;
	t = table_new(share_heads, ARRAY_SIZE(share_heads));
	json_array_foreach(shares, i, row) {
		char since[32], expires[32];

		table_cell(t, "%lld", (long long)json_integer_value(json_object_get(row, "port")));
		table_cell(t, "%s", ago_text(json_object_get(row, "created_at"), since));
		table_cell(t, "%s", ago_text(json_object_get(row, "expires_at"), expires));
	}
	table_print(t);
	table_free(t);
}

static int list_ports(const struct ports *q, struct remote *r, const char *sandbox, struct err *e)
{
	_cleanup_answer_ struct answer answer = {0};
	char target[TARGET_SIZE];

	if (sandbox_target(target, sandbox, e, "/ports") < 0 ||
	    remote_ask(r, "GET", target, NULL, &answer, e) < 0)
		return -1;
	if (q->json)
		return print_answer(&answer);
	print_ports(answer.json);
	return 0;
}

static int check_port(const char *text, struct err *e)
{
	uint64_t port;

	return parse_count(text, 1, 65535, &port) < 0
		       ? err_set(e, 0, "port %.20s: must be a number from 1 to 65535", text)
		       : 0;
}

static int share_port(const struct ports *q, struct remote *r, const char *sandbox, struct err *e)
{
	_cleanup_answer_ struct answer answer = {0};
	_cleanup_json_ json_t *body = json_object();
	char target[TARGET_SIZE];

	if (check_port(q->share, e) < 0 ||
	    sandbox_target(target, sandbox, e, "/ports/%s/share", q->share) < 0)
		return -1;
	if (q->expires && json_object_set_new(body, "expires_in", json_string(q->expires)) < 0)
		return err_set(e, 0, "--expires: is no UTF-8");
	if (remote_ask(r, "POST", target, body, &answer, e) < 0)
		return -1;
	if (q->json)
		return print_answer(&answer);
	puts(text_of(answer.json, "url"));
	return 0;
}

static int unshare_port(const struct ports *q, struct remote *r, const char *sandbox, struct err *e)
{
	_cleanup_answer_ struct answer answer = {0};
	char target[TARGET_SIZE];

	if (check_port(q->unshare, e) < 0 ||
	    sandbox_target(target, sandbox, e, "/ports/%s/share", q->unshare) < 0)
		return -1;
	return remote_ask(r, "DELETE", target, NULL, &answer, e);
}

int verb_ports(const struct verb *verb, int argc, char **argv)
{
	struct remote r = {.service.idle_fd = -1};
	struct ports q = {0};
	struct args a = {.verb = verb, .values = &q};
	struct err e = {0};
	int status = args_ready(&a, argc, argv, 1, 1);

	if (status >= 0)
		return status;
	if ((q.share && q.unshare) || (q.expires && !q.share)) {
		err_set(&e, 0,
			q.expires && !q.share ? "--expires is for --share"
					      : "--share and --unshare: one of them");
		return fail(EXIT_USAGE, &e);
	}
	status = remote_open(&r, &e);
	if (status == 0)
		status = q.share     ? share_port(&q, &r, a.operands[0], &e)
			 : q.unshare ? unshare_port(&q, &r, a.operands[0], &e)
				     : list_ports(&q, &r, a.operands[0], &e);
	if (status < 0)
		status = fail(EXIT_CLOCHE, &e);
	remote_close(&r);
	return status;
}
