/* SPDX-License-Identifier: Apache-2.0 */
/*
 * config.c - the mapping `registries` of cloche.yaml:
 *
 *	registries:
 *	  docker.io: {mirrors: ["https://harbor.lan/hub"], only_mirrors: true}
 *	  registry.lan:5000: {insecure: true}
 *	  registry.corp: {ca_file: /etc/cloche/corp.pem}
 *
 * Checked here so that a mistake is found when the file is read, not when the first image is pulled.
 */
#include <stdio.h>
#include <string.h>

#include "registry/registry.h"
#include "registry/url.h"

enum { SITES_MAX = 256, MIRRORS_MAX = 16 };

static void site_done(struct registry_site *s)
{
	for (size_t i = 0; i < s->mirror_count; i++)
		free(s->mirrors[i]);
	free(s->mirrors);
	free(s->name);
	free(s->ca_file);
	*s = (struct registry_site){0};
}

void registry_config_done(struct registry_config *config)
{
	for (size_t i = 0; i < config->site_count; i++)
		site_done(&config->sites[i]);
	free(config->sites);
	*config = (struct registry_config){0};
}

/* By the rules of image names, which then find it. */
static int take_name(const char *key, struct registry_site *s, struct err *e)
{
	char text[REFERENCE_TEXT];
	struct reference r;

	if (strlen(key) > REFERENCE_REGISTRY_MAX)
		return err_set(e, 0, "is longer than a host's name can be");
	snprintf(text, sizeof text, "%s/x", key);
	if (reference_parse(text, &r, e) < 0)
		return -1;
	if (strcmp(r.registry, key) != 0 && strcmp(key, "index.docker.io") != 0)
		return err_set(
			e, 0,
			"is no host name as it stands in image names (lower case, with a dot, a "
			"port, or localhost)");
	s->name = strdup(r.registry);
	return s->name ? 0 : err_set(e, ENOMEM, "keep it");
}

static int take_mirrors(const json_t *list, struct registry_site *s, struct err *e)
{
	size_t count = json_array_size(list), i;
	const json_t *item;

	if (!json_is_array(list) || count == 0 || count > MIRRORS_MAX)
		return err_set(e, 0, "mirrors: must be a list of 1 to %d URLs", MIRRORS_MAX);
	s->mirrors = calloc(count, sizeof *s->mirrors);
	if (!s->mirrors)
		return err_set(e, ENOMEM, "keep it");
	json_array_foreach(list, i, item) {
		_cleanup_url_ struct url u = {0};
		const char *text = json_string_value(item);

		if (!text || strpbrk(text, "?#"))
			return err_set(e, 0, "mirrors: each must be a URL like https://mirror.lan");
		if (url_read(text, NULL, &u, e) < 0)
			return err_prefix(e, "mirrors");
		s->mirrors[i] = strdup(text);
		if (!s->mirrors[i])
			return err_set(e, ENOMEM, "keep it");
		s->mirror_count++;
	}
	return 0;
}

static int take_switch(const char *key, const json_t *value, bool *ret, struct err *e)
{
	const char *text = json_string_value(value);

	if (!text || (strcmp(text, "true") != 0 && strcmp(text, "false") != 0))
		return err_set(e, 0, "%s: must be true or false", key);
	*ret = strcmp(text, "true") == 0;
	return 0;
}

static int take_ca_file(const json_t *value, struct registry_site *s, struct err *e)
{
	const char *text = json_string_value(value);

	if (!text || *text != '/')
		return err_set(e, 0, "ca_file: must be an absolute path");
	s->ca_file = strdup(text);
	return s->ca_file ? 0 : err_set(e, ENOMEM, "keep it");
}

static int take_site(const char *name, json_t *map, struct registry_site *s, struct err *e)
{
	const char *key;
	json_t *value;

	if (take_name(name, s, e) < 0)
		return -1;
	if (!json_is_object(map))
		return err_set(e, 0, "must be a mapping");
	json_object_foreach(map, key, value) {
		int r;

		if (strcmp(key, "mirrors") == 0)
			r = take_mirrors(value, s, e);
		else if (strcmp(key, "only_mirrors") == 0)
			r = take_switch(key, value, &s->only_mirrors, e);
		else if (strcmp(key, "insecure") == 0)
			r = take_switch(key, value, &s->insecure, e);
		else if (strcmp(key, "ca_file") == 0)
			r = take_ca_file(value, s, e);
		else
			r = err_set(e, 0, "unknown key %.60s", key);
		if (r < 0)
			return -1;
	}
	if (s->only_mirrors && s->mirror_count == 0)
		return err_set(e, 0, "only_mirrors: needs mirrors");
	return 0;
}

static int keep(struct registry_config *config, struct registry_site *s, struct err *e)
{
	struct registry_site *more;

	for (size_t i = 0; i < config->site_count; i++)
		if (strcmp(config->sites[i].name, s->name) == 0) {
			site_done(&config->sites[i]);
			config->sites[i] = *s;
			return 0;
		}
	if (config->site_count >= SITES_MAX)
		return err_set(e, 0, "more than %d registries", SITES_MAX);
	more = reallocarray(config->sites, config->site_count + 1, sizeof *more);
	if (!more)
		return err_set(e, ENOMEM, "keep it");
	config->sites = more;
	config->sites[config->site_count++] = *s;
	return 0;
}

int registry_config_read(struct registry_config *ret, const json_t *registries, struct err *e)
{
	const char *name;
	json_t *map;

	if (!registries)
		return 0;
	if (!json_is_object(registries))
		return err_set(e, 0, "registries: must be a mapping");
	json_object_foreach((json_t *)(uintptr_t)registries, name, map) {
		struct registry_site s = {0};

		if (take_site(name, map, &s, e) < 0 || keep(ret, &s, e) < 0) {
			site_done(&s);
			return err_prefix(e, "registries: %.255s", name);
		}
	}
	return 0;
}
