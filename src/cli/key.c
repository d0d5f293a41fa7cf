/* SPDX-License-Identifier: Apache-2.0 */
/* key.c - `cloche key create`, `ls` and `revoke`. */
#include <string.h>

#include "base/json.h"
#include "cli/remote.h"

struct key {
	bool json;
	struct strings quota;
};

const struct cli_option key_options[] = {
	{"quota", 0, "K=V", "create: a limit of its own, such as sandboxes=10 or memory=4g",
	 offsetof(struct key, quota), .list = true},
	{"json", 0, NULL, "print the API's JSON", offsetof(struct key, json)},
	{NULL},
};

static int create_key(const struct key *k, struct remote *r, const char *name, struct err *e)
{
	_cleanup_answer_ struct answer a = {0};
	_cleanup_json_ json_t *body = json_object();
	json_t *quota = pairs_object(&k->quota, "quota", true, e);
	const char *secret;

	if (!quota)
		return -1;
	if (json_object_set_new(body, "quota", quota) < 0 ||
	    json_object_set_new(body, "name", json_string(name)) < 0)
		return err_set(e, 0, "name %.60s: is no UTF-8", name);
	if (k->quota.count == 0)
		json_object_del(body, "quota");
	if (remote_ask(r, "POST", "/v1/keys", body, &a, e) < 0)
		return -1;
	if (k->json)
		return print_answer(&a);
	secret = text_of(a.json, "secret");
	if (!is_id(text_of(a.json, "id")) || strspn(secret, "abcdefghijklmnopqrstuvwxyz"
							    "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
							    "0123456789_-") != strlen(secret))
		return err_set(e, 0, "the service's answer is no key");
	fprintf(stderr, "cloche: key %s; its secret is shown this once:\n", text_of(a.json, "id"));
	puts(secret);
	return 0;
}

static int list_keys(const struct key *k, struct remote *r, struct err *e)
{
	static const char *const heads[] = {"KEY", "NAME", "CREATED", "REVOKED", "QUOTA"};
	_cleanup_answer_ struct answer a = {0};
	struct table *t;
	json_t *list, *row;
	size_t i;

	if (remote_ask(r, "GET", "/v1/keys", NULL, &a, e) < 0)
		return -1;
	if (k->json)
		return print_answer(&a);
	list = json_is_array(a.json) ? a.json : json_object_get(a.json, "keys");
	t = table_new(heads, ARRAY_SIZE(heads));
	json_array_foreach(list, i, row) {
		char created[32], revoked[32];
		json_t *quota = json_object_get(row, "quota");
		_cleanup_free_ char *text =
			json_object_size(quota) ? json_dumps(quota, JSON_COMPACT) : NULL;

		table_cell(t, "%s", text_of(row, "id"));
		table_cell(t, "%s", text_of(row, "name"));
		table_cell(t, "%s", ago_text(json_object_get(row, "created_at"), created));
		table_cell(t, "%s", ago_text(json_object_get(row, "revoked_at"), revoked));
		table_cell(t, "%s", text ? text : "-");
	}
	table_print(t);
	table_free(t);
	return 0;
}

static int revoke_key(const struct key *k, struct remote *r, const char *id, struct err *e)
{
	_cleanup_answer_ struct answer a = {0};
	char target[128];

	if (!is_id(id))
		return err_set(e, 0, "not the id of a key: %.60s", id);
	snprintf(target, sizeof target, "/v1/keys/%s", id);
	if (remote_ask(r, "DELETE", target, NULL, &a, e) < 0)
		return -1;
	if (k->json && a.size)
		return print_answer(&a);
	puts(id);
	return 0;
}

int verb_key(const struct verb *verb, int argc, char **argv)
{
	struct remote r = {.service.idle_fd = -1};
	struct key k = {0};
	struct args a = {.verb = verb, .values = &k};
	const char *what, *operand;
	struct err e = {0};
	int status = args_ready(&a, argc, argv, 1, 2);

	if (status >= 0)
		goto out;
	what = a.operands[0];
	operand = a.count == 2 ? a.operands[1] : NULL;
	if (strcmp(what, "ls") == 0
		    ? operand != NULL
		    : !operand || (strcmp(what, "create") && strcmp(what, "revoke"))) {
		err_set(&e, 0, "usage: cloche %s %s", verb->name, verb->synopsis);
		status = fail(EXIT_USAGE, &e);
		goto out;
	}
	if (remote_open(&r, &e) == 0)
		status = *what == 'l'   ? list_keys(&k, &r, &e)
			 : *what == 'c' ? create_key(&k, &r, operand, &e)
					: revoke_key(&k, &r, operand, &e);
	if (status < 0)
		status = fail(EXIT_CLOCHE, &e);
out:
	remote_close(&r);
	strings_done(&k.quota);
	return status;
}
