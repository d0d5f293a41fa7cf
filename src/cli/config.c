/* SPDX-License-Identifier: Apache-2.0 */
/* config.c - `cloche config show`: every setting, its value, and where that comes from. */
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "cli/cli.h"
#include "client/service.h"
#include "settings/egress.h"
#include "settings/secret.h"

static const char *const origin_names[ORIGIN_COUNT] = {"default", "file", "environment", "flag",
						       "policy"};

static const char *plain_text(const struct spec *s, const char *name)
{
	const struct {
		const char *name, *value;
	} texts[] = {
		{"image", s->image},
		{"runtime", s->runtime},
		{"network", network_mode_name(s->network.mode)},
		{"workdir", s->workdir},
		{"profile", s->profile},
		{"hostname", s->hostname},
		{"on-output-limit", s->kill_on_output_limit ? "kill" : "drop"},
		{"best-effort", s->best_effort ? "true" : "false"},
	};

	for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
		if (strcmp(texts[i].name, name) == 0)
			return texts[i].value;
	return NULL;
}

static const struct strings *network_list(const struct spec *s, const char *name)
{
	const struct {
		const char *name;
		const struct strings *list;
	} lists[] = {
		{"allow", &s->network.allow},
		{"deny", &s->network.deny},
		{"preset", &s->network.presets},
		{"credential", &s->network.credentials},
	};

	for (size_t i = 0; i < ARRAY_SIZE(lists); i++)
		if (strcmp(lists[i].name, name) == 0)
			return lists[i].list;
	return NULL;
}

static void list_text(const struct strings *list, char *text, size_t size)
{
	size_t n = 0;

	*text = '\0';
	for (size_t i = 0; i < list->count && n < size; i++)
		n += (size_t)snprintf(text + n, size - n, "%s%s", i ? ", " : "", list->item[i]);
}

/* The value in force as text; lists and texts come from the spec, amounts from their functions. */
static void value_text(const struct spec *s, const struct option *o, char *text, size_t size)
{
	if (o->amount) {
		uint64_t v = o->amount(s);

		if (v == SPEC_UNLIMITED)
			snprintf(text, size, "%s", strstr(o->name, "time") ? "off" : "unlimited");
		else if (strstr(o->name, "time"))
			snprintf(text, size, "%.6gs", (double)v / 1e6);
		else if (strcmp(o->name, "cpus") == 0)
			snprintf(text, size, "%.3g", (double)v / 1000);
		else if (v == 0)
			snprintf(text, size, "= memory");
		else
			snprintf(text, size, "%llu", (unsigned long long)v);
	} else if (network_list(s, o->name)) {
		list_text(network_list(s, o->name), text, size);
	} else if (strcmp(o->name, "user") == 0) {
		snprintf(text, size, "%u:%u", s->uid, s->gid);
	} else if (plain_text(s, o->name)) {
		snprintf(text, size, "%s", plain_text(s, o->name));
	} else if (strcmp(o->name, "tmpfs") == 0) {
		size_t n = 0;

		for (size_t i = 0; i < s->tmpfs_count && n < size; i++)
			n += (size_t)snprintf(text + n, size - n, "%s%s:size=%llu,inodes=%llu",
					      i ? " " : "", s->tmpfs[i].path,
					      (unsigned long long)s->tmpfs[i].size_bytes,
					      (unsigned long long)s->tmpfs[i].inodes);
	} else {
		snprintf(text, size, "%s", o->default_text);
	}
}

void config_print(const struct spec *s, const struct settings *t, json_t *object)
{
	for (size_t i = 0; i < option_count; i++) {
		char text[2048];

		if (!options[i].configurable)
			continue;
		value_text(s, &options[i], text, sizeof text);
		if (object)
			json_object_set_new(object, options[i].name,
					    json_pack("{ssss}", "value", text, "origin",
						      origin_names[t->origins[i]]));
		else
			printf("%-16s %-12s %s\n", options[i].name, origin_names[t->origins[i]],
			       text);
	}
}

/* Where a credential's secret comes from; the secret itself is not read. */
static void credential_text(const json_t *entry, char *text, size_t size)
{
	static const char *const sources[] = {"file", "env", "command"};
	const json_t *header = json_object_get(entry, "header");
	const json_t *field = header ? header : json_object_get(entry, "query");
	const char *source = "", *from = "";

	for (size_t i = 0; i < ARRAY_SIZE(sources); i++) {
		const json_t *value = json_object_get(entry, sources[i]);

		if (value) {
			source = sources[i];
			from = json_string_value(json_is_array(value) ? json_array_get(value, 0)
								      : value);
		}
	}
	snprintf(text, size, "%s:%u %s %s, %s %s", secret_host(entry), secret_port(entry),
		 header ? "header" : "query", json_string_value(field), source, from);
}

static void show_row(const char *name, const char *text, json_t *object)
{
	if (object)
		json_object_set_new(object, name,
				    json_pack("{ssss}", "value", text, "origin", "file"));
	else
		printf("%-16s %-12s %s\n", name, "file", text);
}

/* What files say of the network besides options. */
static void show_network(const struct settings *t, json_t *object)
{
	const struct network_settings *n = &t->network;
	_cleanup_free_ char *ceiling = settings_network_ceiling(t);
	char name[NETWORK_NAME_SIZE + 64], text[1200];
	const char *key;
	json_t *value;

	if (n->has_mode)
		show_row("policy network", network_mode_name(n->mode), object);
	if (ceiling && *ceiling) {
		for (char *p = ceiling; (p = strchr(p, '\n')); p++)
			*p = p[1] ? ';' : '\0';
		show_row("policy rules", ceiling, object);
	}
	if (n->upstream_ca)
		show_row("upstream_ca", n->upstream_ca, object);
	json_object_foreach(n->resolve, key, value) {
		_cleanup_free_ char *list = json_dumps(value, JSON_COMPACT);

		snprintf(text, sizeof text, "%.1000s", list ? list : "");
		snprintf(name, sizeof name, "resolve %.60s", key);
		show_row(name, text, object);
	}
	json_object_foreach(n->credentials, key, value) {
		credential_text(value, text, sizeof text);
		snprintf(name, sizeof name, "credential %s", key);
		show_row(name, text, object);
	}
}

/* Who would run `cloche run`, and who says so. */
static void show_service(const struct places *places, json_t *object)
{
	const char *named = getenv("CLOCHE_SOCKET"), *name = "none";
	bool asked = (named && *named) || service_is_unwanted();
	const char *origin = origin_names[asked ? ORIGIN_ENV : ORIGIN_DEFAULT];
	struct service s = {.idle_fd = -1};
	struct err e = {0};

	if (!service_is_unwanted()) {
		if (service_find(&s, places, &e) == 0)
			name = s.name;
		else if (asked)
			name = e.text;
	}
	if (object)
		json_object_set_new(object, "service",
				    json_pack("{ssss}", "value", name, "origin", origin));
	else
		printf("%-16s %-12s %s\n", "service", origin, name);
	service_done(&s);
}

int verb_config(const struct verb *verb, int argc, char **argv)
{
	bool json = false;
	struct args a = {.verb = verb, .values = &json};
	struct settings t = {0};
	struct places places;
	struct spec s = {0};
	struct err e = {0};
	int status = args_ready(&a, argc, argv, 1, 1);

	if (status >= 0)
		return status;
	status = 0;
	if (strcmp(a.operands[0], "show") != 0) {
		err_set(&e, 0, "usage: cloche %s %s", verb->name, verb->synopsis);
		return fail(EXIT_USAGE, &e);
	}
	if (places_find(&places, &e) < 0 || spec_init(&s, &e) < 0 ||
	    settings_load(&t, &places, true, &s, &e) < 0 || settings_apply_policy(&t, &s, &e) < 0) {
		status = fail(EXIT_CLOCHE, &e);
	} else if (json) {
		_cleanup_json_ json_t *object = json_object();

		config_print(&s, &t, object);
		show_network(&t, object);
		show_service(&places, object);
		json_dumpf(object, stdout, JSON_INDENT(1));
		putchar('\n');
	} else {
		printf("# files: %s%s%s\n", places.system_config, places.rootless ? ", " : "",
		       places.rootless ? places.config : "");
		config_print(&s, &t, NULL);
		show_network(&t, NULL);
		show_service(&places, NULL);
	}
	spec_done(&s);
	settings_done(&t);
	return status;
}
