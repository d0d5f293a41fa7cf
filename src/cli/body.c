/* SPDX-License-Identifier: Apache-2.0 */
/* body.c - the JSON body of a request from the command line's options: each value is checked by its row of
 * the option table and goes along as it was written; the service checks it again. */
#include <ctype.h>
#include <fcntl.h>
#include <string.h>

#include "base/units.h"
#include "cli/remote.h"

static void key_of(const struct option *o, char key[static 64])
{
	snprintf(key, 64, "%s", o->name);
	for (char *p = key; *p; p++)
		if (*p == '-')
			*p = '_';
}

static bool is_named(const struct option *o, const char *name)
{
	return strcmp(o->name, name) == 0;
}

int body_set(void *context, const struct option *o, const char *value, struct err *e)
{
	struct body *b = context;
	json_t *text;
	char key[64];
	int r;

	if (spec_set(&b->spec, o, value, e) < 0)
		return -1;
	/* Read into the spec; body_finish() takes them from there. */
	if (is_named(o, "env") || is_named(o, "env-file") || is_named(o, "volume"))
		return 0;
	text = json_string(value);
	key_of(o, key);
	if (!b->json)
		b->json = json_object();
	if (!text)
		return err_set(e, 0, "--%s: value is no UTF-8", o->name);
	if (o->kind != OPTION_LIST) {
		r = json_object_set_new(b->json, key, text);
	} else {
		if (!json_object_get(b->json, key))
			json_object_set_new(b->json, key, json_array());
		r = json_array_append_new(json_object_get(b->json, key), text);
	}
	return r < 0 ? err_set(e, ENOMEM, "keep --%s", o->name) : 0;
}

/* CLOCHE_NAME for what was not said. */
static int add_environment(struct body *b, const struct verb *verb, struct err *e)
{
	for (size_t i = 0; i < option_count; i++) {
		char key[64], name[80] = "CLOCHE_";
		const char *value;
		size_t n = strlen(name);

		if (!options[i].configurable || !verb_takes(verb, &options[i]))
			continue;
		key_of(&options[i], key);
		for (size_t k = 0; key[k]; k++) {
			name[n++] = (char)toupper((unsigned char)key[k]);
			name[n] = '\0';
		}
		value = getenv(name);
		if (!value || json_object_get(b->json, key))
			continue;
		if (body_set(b, &options[i], value, e) < 0)
			return err_prefix(e, "%s", name);
	}
	return 0;
}

int body_env(json_t *json, const struct spec *s, struct err *e)
{
	json_t *env = json_object();

	if (json_object_set_new(json, "env", env) < 0)
		return err_set(e, ENOMEM, "keep the environment");
	for (size_t i = 0; i < s->env.count; i++) {
		const char *entry = s->env.item[i], *eq = strchr(entry, '=');
		_cleanup_free_ char *name = eq ? strndup(entry, (size_t)(eq - entry)) : NULL;

		if (!name || json_object_set_new(env, name, json_string(eq + 1)) < 0)
			return err_set(e, 0, "--env %.60s: is no UTF-8", entry);
	}
	return 0;
}

/* To a service on this machine the folder itself is passed, and its place in "volume_fds" in the same
 * order: what a path means is decided here, by the caller's rights. Elsewhere the path is passed, which an
 * operator must have allowed. */
int body_volumes(json_t *json, const struct spec *s, bool local, int *fds, size_t *fd_count,
		 struct err *e)
{
	json_t *list = json_array();

	if (json_object_set_new(json, local ? "volume_fds" : "volume", list) < 0)
		return err_set(e, ENOMEM, "keep the volumes");
	for (size_t i = 0; i < s->volume_count; i++) {
		const struct spec_volume *v = &s->volumes[i];
		json_t *text = json_sprintf("%s%s%s:%s", local ? "" : v->host, local ? "" : ":",
					    v->box, v->writable ? "rw" : "ro");
		int fd = -1;

		if (json_array_append_new(list, text) < 0)
			return err_set(e, 0, "--volume %.200s: is no UTF-8", v->host);
		if (!local)
			continue;
		/* for reading, which is what proves a right to it; never waits for the end of a FIFO */
		fd = open(v->host, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
		if (fd < 0)
			return err_set(e, errno, "--volume %.200s", v->host);
		fds[(*fd_count)++] = fd;
	}
	return 0;
}

int body_finish(struct body *b, const struct verb *verb, bool environment, bool local,
		struct err *e)
{
	if (!b->json)
		b->json = json_object();
	if (environment && add_environment(b, verb, e) < 0)
		return -1;
	if (b->spec.env.count > 0 && body_env(b->json, &b->spec, e) < 0)
		return -1;
	if (b->spec.volume_count == 0)
		return 0;
	return body_volumes(b->json, &b->spec, local, b->fds, &b->fd_count, e);
}

void body_done(struct body *b)
{
	spec_done(&b->spec);
	json_decref(b->json);
	while (b->fd_count > 0)
		fd_close(&b->fds[--b->fd_count]);
}

json_t *pairs_object(const struct strings *pairs, const char *what, bool numbers, struct err *e)
{
	json_t *object = json_object();

	for (size_t i = 0; object && i < pairs->count; i++) {
		const char *pair = pairs->item[i], *eq = strchr(pair, '=');
		_cleanup_free_ char *name = eq ? strndup(pair, (size_t)(eq - pair)) : NULL;
		uint64_t v;
		json_t *value;

		if (!name || !*name) {
			err_set(e, 0, "--%s %.60s: give NAME=VALUE", what, pair);
			json_decref(object);
			return NULL;
		}
		if (numbers && parse_count(eq + 1, 0, 1ull << 53, &v) == 0)
			value = json_integer((json_int_t)v);
		else
			value = json_string(eq + 1);
		if (json_object_set_new(object, name, value) < 0) {
			err_set(e, 0, "--%s %.60s: is no UTF-8", what, pair);
			json_decref(object);
			return NULL;
		}
	}
	return object;
}
