/* SPDX-License-Identifier: Apache-2.0 */
/*
 * policy.c - `cloche policy explain`: which rule decides about a URL and why, stage by stage; and what a dry run says of
 * the network. Nothing is resolved and nothing connected to.
 */
#include "cli/policy.h"

#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/units.h"
#include "native/stream.h"
#include "settings/egress.h"
#include "settings/secret.h"

const char *const network_rows[] = {NETWORK_ROWS, NULL};

/* ---- what is asked about ---- */

struct target {
	char text[600];
	char host[HOST_SIZE], method[32], path[512];
	uint16_t port;
	bool tls, has_request;
};

static int read_port(const char *text, struct target *t, struct err *e)
{
	uint64_t port;

	if (parse_count(text, 1, 65535, &port) < 0)
		return err_set(e, 0, "%.100s: port \"%.20s\": give a number from 1 to 65535",
			       t->text, text);
	t->port = (uint16_t)port;
	return 0;
}

/* HOST[:PORT], up to size. */
static int read_authority(const char *text, size_t size, struct target *t, struct err *e)
{
	char copy[HOST_SIZE + 16];
	char *colon;

	if (size >= sizeof copy)
		return err_set(e, 0, "%.100s: the host is too long", t->text);
	memcpy(copy, text, size);
	copy[size] = '\0';
	colon = strrchr(copy, ':');
	if (colon && !strchr(colon, ']')) {
		*colon = '\0';
		if (read_port(colon + 1, t, e) < 0)
			return -1;
	}
	return network_host(copy, strlen(copy), t->host) == 0
		       ? 0
		       : err_set(e, 0,
				 "%.100s: \"%.100s\" is no host: every program would be refused it",
				 t->text, copy);
}

static int read_target(const char *text, const char *method, struct target *t, struct err *e)
{
	bool https = strncasecmp(text, "https://", 8) == 0,
	     http = strncasecmp(text, "http://", 7) == 0;
	const char *rest = text + (https ? 8 : http ? 7 : 0);
	size_t n = strcspn(rest, "/?#");
	const char *path = rest + n;

	*t = (struct target){
		.port = http ? 80 : 443, .tls = !http, .has_request = *path || *method};
	snprintf(t->text, sizeof t->text, "%s%s%s", method, *method ? " " : "", text);
	if (strstr(text, "://") && !https && !http)
		return err_set(e, 0, "%.100s: give https://, http:// or HOST:PORT", text);
	if (read_authority(rest, n, t, e) < 0)
		return -1;
	n = strcspn(path, "?#");
	if (n >= sizeof t->path)
		return err_set(e, 0, "%.100s: the path is longer than %zu bytes", text,
			       sizeof t->path - 1);
	snprintf(t->path, sizeof t->path, "%.*s", n ? (int)n : 1, n ? path : "/");
	snprintf(t->method, sizeof t->method, "%s", *method ? method : "GET");
	return 0;
}

/* ---- the stages ---- */

enum { STAGES_MAX = 18 };

struct stage {
	char name[80];
	struct network_answer answer;
};

struct explained {
	struct stage stage[STAGES_MAX];
	size_t count;
	bool denied, looks;
	const char *credential;
};

static struct network_answer *add(struct explained *x, const char *name)
{
	struct stage *s = &x->stage[x->count++];

	snprintf(s->name, sizeof s->name, "%s", name);
	return &s->answer;
}

static void add_address(struct explained *x, const struct network_policy *request,
			const struct network_policy *ceiling, const struct network_ask *ask,
			const char *text)
{
	struct sockaddr_storage address;
	char name[80];

	if (x->count == STAGES_MAX || !network_host_address(text, &address))
		return;
	snprintf(name, sizeof name, "address %s", text);
	x->denied |= !network_address_allowed(request, ceiling, ask,
					      (const struct sockaddr *)&address, add(x, name));
}

static void explain_addresses(struct explained *x, const struct network_policy *request,
			      const struct network_policy *ceiling, const struct network_ask *ask,
			      json_t *resolve)
{
	const json_t *list = json_object_get(resolve, ask->host), *item;
	size_t i;

	if (!list) {
		add_address(x, request, ceiling, ask, ask->host);
		return;
	}
	json_array_foreach(list, i, item)
		add_address(x, request, ceiling, ask, json_string_value(item));
}

static void explain(const struct network_policy *request, const struct network_policy *ceiling,
		    const struct target *t, json_t *resolve, struct explained *ret)
{
	struct network_ask ask = {.host = t->host, .port = t->port};
	struct network_answer *a;

	*ret = (struct explained){0};
	a = add(ret, "connection");
	network_decide(request, ceiling, &ask, a);
	ret->denied = a->verdict == VERDICT_DENY;
	ret->looks = a->verdict == VERDICT_LOOK;
	ret->credential = a->credential;
	if (ret->denied)
		return;
	explain_addresses(ret, request, ceiling, &ask, resolve);
	if (ret->denied || !t->has_request || (!ret->looks && t->tls))
		return;
	ask.method = t->method;
	ask.path = t->path;
	ask.tls = t->tls;
	a = add(ret, "request");
	network_decide(request, ceiling, &ask, a);
	ret->denied = a->verdict == VERDICT_DENY;
	ret->credential = a->credential;
}

/* ---- said ---- */

static const char *verdict_name(enum network_verdict v)
{
	static const char *const names[] = {[VERDICT_DENY] = "denied",
					    [VERDICT_ALLOW] = "allowed",
					    [VERDICT_LOOK] = "looked at"};

	return names[v];
}

/* Rules come from files and arguments: escaped. */
static void print_text(const char *text)
{
	char shown[4 * RULE_TEXT_MAX];
	size_t size;

	terminal_escape(text, strnlen(text, RULE_TEXT_MAX), true, shown, &size);
	fwrite(shown, 1, size, stdout);
}

static void print_explained(const struct target *t, const struct explained *x)
{
	printf("%s ", x->denied ? "denied " : "allowed");
	print_text(t->text);
	putchar('\n');
	for (size_t i = 0; i < x->count; i++) {
		const struct network_answer *a = &x->stage[i].answer;

		printf("  %-24s %-10s ", x->stage[i].name, verdict_name(a->verdict));
		if (a->rule) {
			print_text(a->rule);
			printf(" (%s)", a->source);
		} else {
			print_text(a->why);
			if (a->verdict != VERDICT_DENY)
				printf(" (%s)", a->source);
		}
		putchar('\n');
		if (a->rule && a->verdict == VERDICT_DENY)
			printf("  %-24s %-10s %s\n", "", "", a->why);
	}
	if (x->credential)
		printf("  %-24s %s is added\n", "credential", x->credential);
	if (x->stage[0].answer.passthrough)
		printf("  %-24s TLS is never opened\n", "passthrough");
}

static json_t *stage_json(const struct stage *s)
{
	return json_pack("{ss ss ss? ss ss}", "stage", s->name, "verdict",
			 verdict_name(s->answer.verdict), "rule", s->answer.rule, "source",
			 s->answer.source, "why", s->answer.why);
}

static json_t *explained_json(const struct target *t, const struct explained *x)
{
	json_t *stages = json_array();

	for (size_t i = 0; i < x->count; i++)
		json_array_append_new(stages, stage_json(&x->stage[i]));
	return json_pack("{ss ss si sb sb sb ss? so}", "target", t->text, "host", t->host, "port",
			 t->port, "allowed", !x->denied, "opens_tls", x->looks && t->tls,
			 "passthrough", x->stage[0].answer.passthrough, "credential", x->credential,
			 "stages", stages);
}

static bool is_method(const char *text)
{
	return *text && strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZ-") == strlen(text) &&
	       strlen(text) < 24;
}

/* ---- a spec's policies ---- */

void policy_print_warnings(const struct network_policy *p, FILE *out)
{
	char text[400];

	for (size_t i = 0; network_warning(p, i, text, sizeof text); i++)
		fprintf(out, "cloche: warning: %s\n", text);
}

void policy_warn(const struct spec *s)
{
	for (size_t i = 0; s->network.mode != NETWORK_NONE && i < s->network.allow.count; i++) {
		_cleanup_free_ char *line = NULL;
		struct network_policy *p;
		struct err e;

		if (asprintf(&line, "allow %s", s->network.allow.item[i]) < 0) {
			line = NULL;
			return;
		}
		if (network_policy_parse(line, strlen(line), "--allow", s->network.mode, &p, &e) <
		    0)
			continue;
		policy_print_warnings(p, stderr);
		network_policy_free(p);
	}
}

static json_t *warnings_json(const struct network_policy *p)
{
	json_t *list = json_array();
	char text[400];

	for (size_t i = 0; network_warning(p, i, text, sizeof text); i++)
		json_array_append_new(list, json_string(text));
	return list;
}

static json_t *lines_json(const char *text)
{
	json_t *list = json_array();

	while (*text) {
		size_t n = strcspn(text, "\n");

		if (n && *text != '#')
			json_array_append_new(list, json_stringn(text, n));
		text += n + (text[n] ? 1 : 0);
	}
	return list;
}

static json_t *credentials_json(const struct settings *t, const struct spec *s)
{
	json_t *list = json_array();

	for (size_t i = 0; i < s->network.credentials.count; i++) {
		const char *name = s->network.credentials.item[i];
		const json_t *entry = json_object_get(t->network.credentials, name);

		json_array_append_new(list,
				      json_pack("{ss ss si}", "name", name, "host",
						secret_host(entry), "port", secret_port(entry)));
	}
	return list;
}

json_t *policy_json(const struct settings *t, const struct places *places, const struct spec *s,
		    struct err *e)
{
	_cleanup_free_ char *rules = NULL, *ceiling = NULL;
	struct network_policy *request, *operators;
	json_t *j;

	if (s->network.mode == NETWORK_NONE)
		return json_pack("{ss}", "mode", "none");
	rules = settings_network_rules(t, places, s, e);
	if (!rules || settings_network_policies(t, places, s, &request, &operators, e) < 0)
		return NULL;
	ceiling = settings_network_ceiling(t);
	j = json_pack("{ss so so so so}", "mode", network_mode_name(s->network.mode), "rules",
		      lines_json(rules), "operator", lines_json(ceiling ? ceiling : ""),
		      "credentials", credentials_json(t, s), "warnings", warnings_json(request));
	network_policy_free(request);
	network_policy_free(operators);
	if (!j)
		err_set(e, ENOMEM, "tell the network's rules");
	return j;
}

/* ---- the verb ---- */

struct asked {
	bool json;
	struct places places;
	struct settings settings;
	struct spec spec;
};

const struct cli_option policy_options[] = {
	{"json", 0, NULL, "print JSON, an array with an object for each target",
	 offsetof(struct asked, json)},
	{NULL},
};

static int set_option(void *values, const struct option *o, const char *value, struct err *e)
{
	struct asked *q = values;

	if (spec_set(&q->spec, o, value, e) < 0)
		return -1;
	q->settings.origins[o - options] = ORIGIN_FLAG;
	return 0;
}

static int explain_all(const struct asked *q, const struct args *a,
		       const struct network_policy *request, const struct network_policy *ceiling,
		       struct err *e)
{
	_cleanup_json_ json_t *list = q->json ? json_array() : NULL;
	const char *method = "";
	size_t targets = 0;
	int denied = 0;

	for (size_t i = 1; i < a->count; i++) {
		struct target t;
		struct explained x;

		if (is_method(a->operands[i])) {
			method = a->operands[i];
			continue;
		}
		if (read_target(a->operands[i], method, &t, e) < 0)
			return -1;
		method = "";
		explain(request, ceiling, &t, q->settings.network.resolve, &x);
		targets++;
		denied |= x.denied;
		if (q->json)
			json_array_append_new(list, explained_json(&t, &x));
		else
			print_explained(&t, &x);
	}
	if (targets == 0)
		return err_set(e, 0, "give a URL, or HOST:PORT, to be explained");
	if (q->json) {
		json_dumpf(list, stdout, JSON_INDENT(1));
		putchar('\n');
	}
	return denied;
}

/* The exit status. */
static int explain_request(struct asked *q, const struct args *a)
{
	struct network_policy *request = NULL, *ceiling = NULL;
	struct err e = {0};
	int status;

	if (spec_finish_sandbox(&q->spec, &e) < 0)
		return fail(EXIT_USAGE, &e);
	if (settings_network_policies(&q->settings, &q->places, &q->spec, &request, &ceiling, &e) <
	    0)
		return fail(EXIT_CLOCHE, &e);
	if (!q->json)
		policy_print_warnings(request, stderr);
	status = explain_all(q, a, request, ceiling, &e);
	network_policy_free(request);
	network_policy_free(ceiling);
	return status < 0 ? fail(EXIT_USAGE, &e) : status;
}

static int run(struct asked *q, const struct verb *verb, int argc, char **argv)
{
	struct args a = {.verb = verb, .values = q, .set = set_option};
	struct err e = {0};
	int status;

	if (places_find(&q->places, &e) < 0 || spec_init(&q->spec, &e) < 0 ||
	    settings_load(&q->settings, &q->places, true, &q->spec, &e) < 0)
		return fail(EXIT_CLOCHE, &e);
	status = args_ready(&a, argc, argv, 1, 1000);
	if (status >= 0)
		return status;
	if (strcmp(a.operands[0], "explain") != 0) {
		err_set(&e, 0, "usage: cloche %s %s", verb->name, verb->synopsis);
		return fail(EXIT_USAGE, &e);
	}
	if (settings_apply_policy(&q->settings, &q->spec, &e) < 0)
		return fail(EXIT_CLOCHE, &e);
	return explain_request(q, &a);
}

int verb_policy(const struct verb *verb, int argc, char **argv)
{
	struct asked q = {0};
	int status = run(&q, verb, argc, argv);

	spec_done(&q.spec);
	settings_done(&q.settings);
	return status;
}
