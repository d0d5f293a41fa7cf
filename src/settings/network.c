/* SPDX-License-Identifier: Apache-2.0 */
#include "settings/network.h"

#include <string.h>

#include "base/cleanup.h"
#include "base/units.h"
#include "settings/secret.h"

enum { LIST_MAX = 512, RESOLVE_MAX = 256, RESOLVE_ADDRESSES_MAX = 16, CREDENTIALS_KEPT_MAX = 256 };

/* ---- the ceiling ---- */

static int check_list(const char *key, const json_t *list, int (*check)(const char *, struct err *),
		      struct err *e)
{
	const json_t *item;
	size_t i;

	if (!json_is_array(list) || json_array_size(list) > LIST_MAX)
		return err_set(e, 0, "policy: %s must be a list of at most %d texts", key,
			       LIST_MAX);
	json_array_foreach(list, i, item) {
		if (!json_is_string(item))
			return err_set(e, 0, "policy: %s must be a list of texts", key);
		if (check(json_string_value(item), e) < 0)
			return err_prefix(e, "policy: %s", key);
	}
	return 0;
}

static int check_allow(const char *text, struct err *e)
{
	return network_rule_check("allow", text, e);
}

static int check_deny(const char *text, struct err *e)
{
	return network_rule_check("deny", text, e);
}

static int check_mode_key(const char *key, const json_t *value, struct err *e)
{
	if (!json_is_string(value) ||
	    network_mode_find(json_string_value(value)) == NETWORK_MODE_COUNT)
		return err_set(
			e, 0, "policy: %s is none, allow or open: the highest mode that is allowed",
			key);
	return 0;
}

/* An empty list would be read as "nothing" by one and as "no ceiling" by another. */
static int check_allow_key(const char *key, const json_t *value, struct err *e)
{
	if (json_is_array(value) && json_array_size(value) == 0)
		return err_set(
			e, 0,
			"policy: %s: is empty; leave it out for no such ceiling, or say network: none",
			key);
	return check_list(key, value, check_allow, e);
}

static int check_deny_key(const char *key, const json_t *value, struct err *e)
{
	return check_list(key, value, check_deny, e);
}

static int check_private_key(const char *key, const json_t *value, struct err *e)
{
	return check_list(key, value, network_private_check, e);
}

static const struct {
	const char *key;
	int (*check)(const char *key, const json_t *value, struct err *e);
} policy_keys[] = {
	{"network", check_mode_key},
	{"network_allow", check_allow_key},
	{"network_deny", check_deny_key},
	{"network_private", check_private_key},
};

bool is_network_policy_key(const char *key)
{
	for (size_t i = 0; i < ARRAY_SIZE(policy_keys); i++)
		if (strcmp(policy_keys[i].key, key) == 0)
			return true;
	return false;
}

int network_policy_key_check(const char *key, const json_t *value, struct err *e)
{
	for (size_t i = 0; i < ARRAY_SIZE(policy_keys); i++)
		if (strcmp(policy_keys[i].key, key) == 0)
			return policy_keys[i].check(key, value, e);
	return err_set(e, 0, "policy: %.60s is not known", key);
}

void network_policy_take(struct network_settings *n, const json_t *policy)
{
	const char *mode = json_string_value(json_object_get(policy, "network"));
	json_t **const fields[] = {NULL, &n->allow, &n->deny, &n->inside};

	n->has_mode = mode != NULL;
	n->mode = mode ? network_mode_find(mode) : NETWORK_OPEN;
	for (size_t i = 1; i < ARRAY_SIZE(fields); i++) {
		json_decref(*fields[i]);
		*fields[i] = json_incref(json_object_get(policy, policy_keys[i].key));
	}
}

static bool has_ceiling(const struct network_settings *n)
{
	return n->has_mode || n->allow || n->deny || n->inside;
}

/* ---- resolve ---- */

static int check_addresses(const char *name, const json_t *list, struct err *e)
{
	const json_t *item;
	size_t i;

	if (!json_is_array(list) || json_array_size(list) == 0 ||
	    json_array_size(list) > RESOLVE_ADDRESSES_MAX)
		return err_set(e, 0, "resolve: %s: must be a list of 1 to %d addresses", name,
			       RESOLVE_ADDRESSES_MAX);
	json_array_foreach(list, i, item) {
		const char *text = json_is_string(item) ? json_string_value(item) : "";
		struct sockaddr_storage address;
		char host[HOST_SIZE];

		if (network_host(text, strlen(text), host) < 0 ||
		    !network_host_address(host, &address) || strcmp(host, text) != 0)
			return err_set(e, 0,
				       "resolve: %s: \"%.60s\" is no address in its canonical form",
				       name, text);
	}
	return 0;
}

static int check_resolve(const json_t *map, struct err *e)
{
	const char *name;
	json_t *list;

	if (!json_is_object(map) || json_object_size(map) > RESOLVE_MAX)
		return err_set(e, 0, "resolve: must be a mapping of at most %d names", RESOLVE_MAX);
	json_object_foreach((json_t *)(uintptr_t)map, name, list) {
		struct sockaddr_storage address;
		char host[HOST_SIZE];

		if (network_host(name, strlen(name), host) < 0 || strcmp(host, name) != 0 ||
		    network_host_address(host, &address))
			return err_set(e, 0,
				       "resolve: \"%.100s\" is no name of a host, in lower case",
				       name);
		if (check_addresses(name, list, e) < 0)
			return -1;
	}
	return 0;
}

/* ---- keys at the top ---- */

/* A later file's entries stand in place of an earlier's of the same name. */
static int merge(json_t **field, const json_t *map, struct err *e)
{
	if (!*field)
		*field = json_object();
	return *field && json_object_update(*field, (json_t *)(uintptr_t)map) == 0
		       ? 0
		       : err_set(e, ENOMEM, "keep the configuration");
}

static int take_resolve(struct network_settings *n, json_t *value, struct err *e)
{
	return check_resolve(value, e) < 0 ? -1 : merge(&n->resolve, value, e);
}

static int take_credentials(struct network_settings *n, json_t *value, struct err *e)
{
	const char *name;
	json_t *entry;

	if (!json_is_object(value) || json_object_size(value) > CREDENTIALS_KEPT_MAX)
		return err_set(e, 0, "credentials: must be a mapping of at most %d names",
			       CREDENTIALS_KEPT_MAX);
	json_object_foreach(value, name, entry)
		if (secret_check(name, entry, e) < 0)
			return -1;
	return merge(&n->credentials, value, e);
}

static int take_upstream_ca(struct network_settings *n, json_t *value, struct err *e)
{
	if (!json_is_string(value) || json_string_value(value)[0] != '/')
		return err_set(e, 0, "upstream_ca: must be the absolute path of a PEM file");
	free(n->upstream_ca);
	n->upstream_ca = strdup(json_string_value(value));
	return n->upstream_ca ? 0 : err_set(e, ENOMEM, "keep upstream_ca");
}

static const struct {
	const char *key;
	int (*take)(struct network_settings *n, json_t *value, struct err *e);
	bool trusted; /* decides what a name is: with a ceiling it is the operator's only */
} top_keys[] = {
	{"resolve", take_resolve, true},
	{"upstream_ca", take_upstream_ca, true},
	{"credentials", take_credentials, false},
};

int network_key_take(struct network_settings *n, const char *key, json_t *value, bool binding,
		     struct err *e)
{
	size_t i = 0;

	while (i < ARRAY_SIZE(top_keys) && strcmp(top_keys[i].key, key) != 0)
		i++;
	if (i == ARRAY_SIZE(top_keys))
		return 0;
	if (top_keys[i].trusted && !binding && has_ceiling(n))
		return err_set(
			e, EPERM,
			"%s: the operator's policy says what may be reached, so this is the operator's, too",
			key);
	return top_keys[i].take(n, value, e) < 0 ? -1 : 1;
}

/* ---- a spec ---- */

int network_settings_check_rule(const struct network_settings *n, const char *rule, struct err *e)
{
	const char *nets[LIST_MAX];
	size_t count = 0, i;
	const json_t *item;

	if (!n->inside && !n->serves_others)
		return 0;
	json_array_foreach(n->inside, i, item)
		nets[count++] = json_string_value(item);
	return network_rule_check_private(rule, nets, count, e);
}

int network_settings_check(const struct network_settings *n, const struct spec *s, struct err *e)
{
	if (s->network.mode == NETWORK_NONE)
		return 0;
	if (n->has_mode && s->network.mode > n->mode)
		return err_set(
			e, EPERM,
			"--network %s: the operator's policy allows at most %s (policy: network)",
			network_mode_name(s->network.mode), network_mode_name(n->mode));
	for (size_t i = 0; i < s->network.allow.count; i++)
		if (network_settings_check_rule(n, s->network.allow.item[i], e) < 0)
			return err_prefix(e, "--allow");
	return 0;
}

void network_settings_done(struct network_settings *n)
{
	json_decref(n->allow);
	json_decref(n->deny);
	json_decref(n->inside);
	json_decref(n->resolve);
	json_decref(n->credentials);
	free(n->upstream_ca);
	*n = (struct network_settings){0};
}
