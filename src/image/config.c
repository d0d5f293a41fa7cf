/* SPDX-License-Identifier: Apache-2.0 */
#include "image/config.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/units.h"

static int take_text(char *field, size_t size, json_t *object, const char *key, struct err *e)
{
	json_t *value = json_object_get(object, key);
	const char *text = json_string_value(value);

	if (!value || json_is_null(value))
		return 0;
	if (!text)
		return err_set(e, 0, "%s is no string", key);
	if (strlen(text) >= size)
		return err_set(e, 0, "%s is longer than %zu bytes", key, size - 1);
	for (const char *p = text; *p; p++)
		if (iscntrl((unsigned char)*p))
			return err_set(e, 0, "%s has a control character", key);
	memcpy(field, text, strlen(text) + 1);
	return 0;
}

static int take_strings(struct strings *list, json_t *object, const char *key, size_t max,
			struct err *e)
{
	json_t *value = json_object_get(object, key), *item;
	size_t i;

	if (!value || json_is_null(value))
		return 0;
	if (!json_is_array(value))
		return err_set(e, 0, "%s is no list", key);
	json_array_foreach(value, i, item) {
		const char *text = json_string_value(item);

		if (!text)
			return err_set(e, 0, "%s[%zu] is no string", key, i);
		if (strlen(text) >= SPEC_ARG_BYTES)
			return err_set(e, 0, "%s[%zu] is longer than %d bytes", key, i,
				       SPEC_ARG_BYTES - 1);
		if (strings_add(list, text, max, e) < 0)
			return err_prefix(e, "%s", key);
	}
	return 0;
}

static int check_env(const struct strings *env, struct err *e)
{
	for (size_t i = 0; i < env->count; i++) {
		size_t name = strcspn(env->item[i], "=");

		if (name == 0 || env->item[i][name] != '=')
			return err_set(e, 0, "Env[%zu] is not NAME=VALUE", i);
	}
	return 0;
}

static int take_labels(struct strings *list, json_t *object, struct err *e)
{
	json_t *labels = json_object_get(object, "Labels"), *value;
	const char *key;

	if (!labels || json_is_null(labels))
		return 0;
	if (!json_is_object(labels))
		return err_set(e, 0, "Labels is no mapping");
	json_object_foreach(labels, key, value) {
		_cleanup_free_ char *line = NULL;

		if (!json_is_string(value))
			return err_set(e, 0, "label %.60s is no string", key);
		if (asprintf(&line, "%s=%s", key, json_string_value(value)) < 0) {
			line = NULL;
			return err_set(e, ENOMEM, "keep a label");
		}
		if (strings_add(list, line, CONFIG_MAX_LABELS, e) < 0)
			return err_prefix(e, "Labels");
	}
	return 0;
}

/* "/app/" and "//app" are /app; "app" is /app as with Docker. What then is no clean path is refused. */
static int clean_workdir(char workdir[SPEC_PATH_SIZE], struct err *e)
{
	char out[SPEC_PATH_SIZE + 1];
	size_t n = 0;

	if (!*workdir)
		return 0;
	for (const char *p = workdir; *p;) {
		size_t part;

		p += strspn(p, "/");
		part = strcspn(p, "/");
		if (part == 0)
			break;
		if (n + 1 + part >= SPEC_PATH_SIZE)
			return err_set(e, 0, "WorkingDir is longer than %d bytes",
				       SPEC_PATH_SIZE - 1);
		out[n++] = '/';
		memcpy(out + n, p, part);
		n += part;
		p += part;
	}
	if (n == 0)
		out[n++] = '/';
	out[n] = '\0';
	memcpy(workdir, out, n + 1);
	return box_path_check("WorkingDir", workdir, e);
}

int image_config_read_process(json_t *o, struct image_config *c, struct err *e)
{
	if (!json_is_object(o))
		return err_set(e, 0, "the config is no mapping");
	if (take_strings(&c->env, o, "Env", SPEC_MAX_ENV, e) < 0 || check_env(&c->env, e) < 0 ||
	    take_strings(&c->entrypoint, o, "Entrypoint", SPEC_MAX_ARGS, e) < 0 ||
	    take_strings(&c->cmd, o, "Cmd", SPEC_MAX_ARGS, e) < 0 ||
	    take_labels(&c->labels, o, e) < 0 ||
	    take_text(c->user, sizeof c->user, o, "User", e) < 0 ||
	    take_text(c->workdir, sizeof c->workdir, o, "WorkingDir", e) < 0)
		return -1;
	return clean_workdir(c->workdir, e);
}

static int read_layers(json_t *root, struct image_config *c, struct err *e)
{
	json_t *rootfs = json_object_get(root, "rootfs");

	if (!json_is_object(rootfs))
		return err_set(e, 0, "rootfs is missing");
	if (take_strings(&c->diff_ids, rootfs, "diff_ids", CONFIG_MAX_LAYERS, e) < 0)
		return -1;
	for (size_t i = 0; i < c->diff_ids.count; i++)
		if (!digest_is_valid(c->diff_ids.item[i]))
			return err_set(e, 0, "diff_ids[%zu] is not a sha256 digest", i);
	return 0;
}

static int read_root(json_t *root, struct image_config *c, struct err *e)
{
	json_t *process = json_object_get(root, "config");

	if (!json_is_object(root))
		return err_set(e, 0, "is no mapping");
	if (take_text(c->os, sizeof c->os, root, "os", e) < 0 ||
	    take_text(c->architecture, sizeof c->architecture, root, "architecture", e) < 0 ||
	    take_text(c->created, sizeof c->created, root, "created", e) < 0 ||
	    read_layers(root, c, e) < 0)
		return -1;
	return !process || json_is_null(process) ? 0 : image_config_read_process(process, c, e);
}

int image_config_read(const char *text, size_t size, struct image_config *ret, struct err *e)
{
	_cleanup_json_ json_t *root = json_read(text, size, e);
	_cleanup_image_config_ struct image_config c = {0};

	if (!root || read_root(root, &c, e) < 0)
		return err_prefix(e, "image configuration");
	*ret = c;
	c = (struct image_config){0};
	return 0;
}

void image_config_done(struct image_config *c)
{
	strings_done(&c->env);
	strings_done(&c->entrypoint);
	strings_done(&c->cmd);
	strings_done(&c->labels);
	strings_done(&c->diff_ids);
	*c = (struct image_config){0};
}

bool image_config_user(const char *user, uint32_t *ret_uid, uint32_t *ret_gid)
{
	char text[CONFIG_USER_SIZE];
	uint64_t uid, gid;
	char *colon;

	if (strlen(user) >= sizeof text)
		return false;
	memcpy(text, user, strlen(user) + 1);
	colon = strchr(text, ':');
	if (colon)
		*colon++ = '\0';
	if (parse_count(text, 1, UINT32_MAX - 1, &uid) < 0 ||
	    parse_count(colon ? colon : text, 1, UINT32_MAX - 1, &gid) < 0)
		return false;
	*ret_uid = (uint32_t)uid;
	*ret_gid = (uint32_t)gid;
	return true;
}
