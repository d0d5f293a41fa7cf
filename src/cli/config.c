/* SPDX-License-Identifier: Apache-2.0 */
/* config.c - `cloche config show`: every setting, its value, and where that comes from. */
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "cli/cli.h"
#include "client/service.h"

static const char *const origin_names[ORIGIN_COUNT] = {"default", "file", "environment", "flag",
						       "policy"};

/* The value in force as text; lists and texts come from the spec, amounts from their functions. */
static void value_text(const struct spec *s, const struct option *o, char *text, size_t size)
{
	if (o->amount) {
		uint64_t v = o->amount(s);

		if (v == SPEC_UNLIMITED)
			snprintf(text, size, "%s",
				 strcmp(o->name, "max-output") ? "off" : "unlimited");
		else if (strstr(o->name, "time"))
			snprintf(text, size, "%.6gs", (double)v / 1e6);
		else if (strcmp(o->name, "cpus") == 0)
			snprintf(text, size, "%.3g", (double)v / 1000);
		else if (v == 0)
			snprintf(text, size, "= memory");
		else
			snprintf(text, size, "%llu", (unsigned long long)v);
	} else if (strcmp(o->name, "user") == 0) {
		snprintf(text, size, "%u:%u", s->uid, s->gid);
	} else if (strcmp(o->name, "workdir") == 0) {
		snprintf(text, size, "%s", s->workdir);
	} else if (strcmp(o->name, "profile") == 0) {
		snprintf(text, size, "%s", s->profile);
	} else if (strcmp(o->name, "hostname") == 0) {
		snprintf(text, size, "%s", s->hostname);
	} else if (strcmp(o->name, "on-output-limit") == 0) {
		snprintf(text, size, "%s", s->kill_on_output_limit ? "kill" : "drop");
	} else if (strcmp(o->name, "best-effort") == 0) {
		snprintf(text, size, "%s", s->best_effort ? "true" : "false");
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

static void show(const struct spec *s, const struct settings *t, json_t *object)
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

		show(&s, &t, object);
		show_service(&places, object);
		json_dumpf(object, stdout, JSON_INDENT(1));
		putchar('\n');
	} else {
		printf("# files: %s%s%s\n", places.system_config, places.rootless ? ", " : "",
		       places.rootless ? places.config : "");
		show(&s, &t, NULL);
		show_service(&places, NULL);
	}
	spec_done(&s);
	settings_done(&t);
	return status;
}
