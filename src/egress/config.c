/* SPDX-License-Identifier: Apache-2.0 */
/*
 * config.c - the configuration, read strictly: every key known, every value of its kind, nothing twice.
 *
 * It holds secrets, so jansson's memory is wiped when it is given back, and the values go into pages that are locked
 * and in no core dump.
 */
#include "egress/config.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "base/json.h"
#include "egress/wipe.h"

enum { SEALS = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE, SECRET_MAX = 16 << 10, ADDRESSES = 32 };

/* ---- values ---- */

struct key {
	const char *name;
	json_type type; /* JSON_NULL: a string or null */
	bool optional;
};

static bool has_type(const json_t *j, json_type type)
{
	return type == JSON_NULL ? json_is_null(j) || json_is_string(j) : json_typeof(j) == type;
}

/* An object with these keys and no others. */
static int check_keys(json_t *object, const char *where, const struct key *keys, size_t count,
		      struct err *e)
{
	size_t found = 0;

	if (!json_is_object(object))
		return err_set(e, 0, "%s: no object", where);
	for (size_t i = 0; i < count; i++) {
		json_t *j = json_object_get(object, keys[i].name);

		if (!j && keys[i].optional)
			continue;
		if (!j)
			return err_set(e, 0, "%s: \"%s\" is missing", where, keys[i].name);
		if (!has_type(j, keys[i].type))
			return err_set(e, 0, "%s: \"%s\" is of another kind", where, keys[i].name);
		found++;
	}
	if (json_object_size(object) != found)
		return err_set(e, 0, "%s: a key that is not known", where);
	return 0;
}

static const char *text(json_t *object, const char *key)
{
	const char *t = json_string_value(json_object_get(object, key));

	return t ? t : "";
}

static int read_mode(json_t *j, const char *key, enum network_mode *ret, struct err *e)
{
	*ret = network_mode_find(text(j, key));
	return *ret == NETWORK_MODE_COUNT ? err_set(e, 0, "%s: no mode", key) : 0;
}

static int read_policy(json_t *j, const char *mode_key, const char *rules_key, const char *where,
		       struct network_policy **ret, struct err *e)
{
	json_t *rules = json_object_get(j, rules_key);
	enum network_mode mode;

	if (read_mode(j, mode_key, &mode, e) < 0)
		return -1;
	return network_policy_parse(json_string_value(rules), json_string_length(rules), where,
				    mode, ret, e);
}

static int read_host(const char *written, const char *where, char ret[static HOST_SIZE],
		     struct err *e)
{
	char canonical[HOST_SIZE];

	if (network_host(written, strlen(written), canonical) < 0 ||
	    strcmp(canonical, written) != 0)
		return err_set(e, 0, "%s: %.64s: no host in its canonical form", where, written);
	memcpy(ret, canonical, HOST_SIZE);
	return 0;
}

/* ---- credentials ---- */

static bool is_token(const char *t)
{
	return *t && !t[strspn(t, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
				  "-_.!#$%&'*+^`|~")];
}

static bool is_field_value(const char *t)
{
	for (; *t; t++)
		if (((unsigned char)*t < 0x20 && *t != '\t') || *t == 0x7f)
			return false;
	return true;
}

/* One page or more for each: locked, and left out of a core whatever else is said of it. */
static int keep_secret(struct credential *k, const char *value, struct err *e)
{
	size_t size = strlen(value);
	char *p;

	if (size == 0 || size > SECRET_MAX || !is_field_value(value))
		return err_set(e, 0,
			       "credential %s: a value that is empty, too long, or no field value",
			       k->name);
	p = mmap(NULL, size + 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (p == MAP_FAILED)
		return err_set(e, errno, "memory for a credential");
	k->value = p;
	k->size = size;
	if (mlock(p, size + 1) < 0 || madvise(p, size + 1, MADV_DONTDUMP) < 0)
		return err_set(e, errno, "lock the memory of a credential");
	memcpy(p, value, size + 1);
	return 0;
}

static int read_credential(struct credential *k, json_t *j, struct err *e)
{
	static const struct key keys[] = {
		{"name", JSON_STRING},        {"host", JSON_STRING},
		{"value", JSON_STRING},       {"header", JSON_STRING, true},
		{"query", JSON_STRING, true}, {"port", JSON_INTEGER, true},
	};
	json_t *port = json_object_get(j, "port");
	const char *header, *query;

	if (check_keys(j, "credentials", keys, ARRAY_SIZE(keys), e) < 0)
		return -1;
	header = text(j, "header");
	query = text(j, "query");
	if (strlen(text(j, "name")) >= sizeof k->name || !*text(j, "name"))
		return err_set(e, 0, "credentials: a name that is empty or too long");
	if (!*header == !*query || strlen(header) >= sizeof k->header ||
	    strlen(query) >= sizeof k->query || (*header && !is_token(header)) ||
	    (*query && !is_token(query)))
		return err_set(
			e, 0, "credential %s: needs a header or a query parameter, and one of them",
			text(j, "name"));
	if (port && (json_integer_value(port) < 1 || json_integer_value(port) > UINT16_MAX))
		return err_set(e, 0, "credential %s: no port", text(j, "name"));
	snprintf(k->name, sizeof k->name, "%s", text(j, "name"));
	snprintf(k->header, sizeof k->header, "%s", header);
	snprintf(k->query, sizeof k->query, "%s", query);
	k->port = port ? (uint16_t)json_integer_value(port) : 443;
	if (read_host(text(j, "host"), "credentials", k->host, e) < 0)
		return -1;
	return keep_secret(k, text(j, "value"), e);
}

static int read_credentials(struct egress_settings *s, json_t *list, struct err *e)
{
	if (json_array_size(list) > CREDENTIALS_MAX)
		return err_set(e, 0, "more than %d credentials", CREDENTIALS_MAX);
	for (size_t i = 0; i < json_array_size(list); i++) {
		struct credential *k = &s->credentials[s->credential_count++];

		if (read_credential(k, json_array_get(list, i), e) < 0)
			return -1;
	}
	return 0;
}

static bool has_credential(const struct egress_settings *s, const char *name)
{
	for (size_t i = 0; i < s->credential_count; i++)
		if (strcmp(s->credentials[i].name, name) == 0)
			return true;
	return false;
}

static int check_named(const struct egress_settings *s, const struct network_policy *p,
		       struct err *e)
{
	const char *name;

	for (size_t i = 0; (name = network_policy_credential(p, i)); i++)
		if (!has_credential(s, name))
			return err_set(e, 0, "credential %s: there is none of this name", name);
	return 0;
}

/* ---- names ---- */

/* Any form that there is: what may be connected to is not judged here. */
static bool read_address(const char *written, struct sockaddr_storage *ret)
{
	struct sockaddr_in *v4 = (struct sockaddr_in *)ret;
	struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)ret;

	*ret = (struct sockaddr_storage){.ss_family = AF_INET};
	if (inet_pton(AF_INET, written, &v4->sin_addr) == 1)
		return true;
	ret->ss_family = AF_INET6;
	return inet_pton(AF_INET6, written, &v6->sin6_addr) == 1;
}

static int read_addresses(struct resolve_entry *r, json_t *list, struct err *e)
{
	size_t count = json_array_size(list);

	if (!json_is_array(list) || count > ADDRESSES)
		return err_set(e, 0, "resolve: %s: no list of addresses", r->host);
	r->addresses = calloc(count ? count : 1, sizeof *r->addresses);
	if (!r->addresses)
		return err_set(e, ENOMEM, "resolve");
	for (size_t i = 0; i < count; i++) {
		const char *address = json_string_value(json_array_get(list, i));

		if (!address || !read_address(address, &r->addresses[i]))
			return err_set(e, 0, "resolve: %s: %.64s is no address", r->host,
				       address ? address : "a value");
		r->count++;
	}
	return 0;
}

static int read_resolve(struct egress_settings *s, json_t *map, struct err *e)
{
	const char *name;
	json_t *list;

	s->resolve = calloc(json_object_size(map) + 1, sizeof *s->resolve);
	if (!s->resolve)
		return err_set(e, ENOMEM, "resolve");
	json_object_foreach(map, name, list) {
		struct resolve_entry *r = &s->resolve[s->resolve_count++];

		if (read_host(name, "resolve", r->host, e) < 0 || read_addresses(r, list, e) < 0)
			return -1;
	}
	return 0;
}

/* ---- the whole ---- */

bool egress_opens_tls(const struct egress_settings *s, const struct network_policy *request)
{
	return network_policy_looks(request) || network_policy_credential(request, 0) ||
	       (s->ceiling && (network_policy_looks(s->ceiling)));
}

static int read_all(struct egress_settings *s, json_t *j, struct err *e)
{
	static const struct key keys[] = {
		{"mode", JSON_STRING},         {"rules", JSON_STRING},   {"ceiling", JSON_STRING},
		{"ceiling_mode", JSON_STRING}, {"resolve", JSON_OBJECT}, {"upstream_ca", JSON_NULL},
		{"credentials", JSON_ARRAY},   {"capture", JSON_STRING},
	};
	const char *ca;

	if (check_keys(j, "configuration", keys, ARRAY_SIZE(keys), e) < 0)
		return -1;
	if (read_policy(j, "mode", "rules", "rules", &s->request, e) < 0)
		return -1;
	if (*text(j, "ceiling") &&
	    read_policy(j, "ceiling_mode", "ceiling", "the operator's rules", &s->ceiling, e) < 0)
		return -1;
	if (strcmp(text(j, "capture"), "redirect") != 0 && strcmp(text(j, "capture"), "ports") != 0)
		return err_set(e, 0, "capture: neither redirect nor ports");
	if (read_resolve(s, json_object_get(j, "resolve"), e) < 0 ||
	    read_credentials(s, json_object_get(j, "credentials"), e) < 0 ||
	    check_named(s, s->request, e) < 0)
		return -1;
	ca = json_string_value(json_object_get(j, "upstream_ca"));
	if (ca && !(s->upstream_ca = strdup(ca)))
		return err_set(e, ENOMEM, "upstream_ca");
	s->opens_tls = egress_opens_tls(s, s->request);
	return 0;
}

/* A copy of a sealed memfd: whoever sent it cannot change it while it is read. */
static json_t *read_memfd(int memfd, struct err *e)
{
	char *data;
	struct stat st;
	ssize_t n = 0;
	json_t *j;

	if ((fcntl(memfd, F_GET_SEALS) & SEALS) != SEALS || fstat(memfd, &st) < 0)
		return err_set(e, 0, "the configuration is no sealed memfd"), NULL;
	if (st.st_size <= 0 || st.st_size > EGRESS_CONFIG_MAX)
		return err_set(e, 0, "the configuration is empty or larger than %d bytes",
			       EGRESS_CONFIG_MAX),
		       NULL;
	data = malloc((size_t)st.st_size + 1);
	if (!data)
		return err_set(e, ENOMEM, "the configuration"), NULL;
	n = pread(memfd, data, (size_t)st.st_size, 0);
	json_set_alloc_funcs(malloc, wiping_free);
	j = n == st.st_size ? json_read(data, (size_t)n, e) : NULL;
	if (n != st.st_size)
		err_set(e, n < 0 ? errno : 0, "read the configuration");
	wiping_free(data);
	return j;
}

int egress_settings_read(int memfd, struct egress_settings *ret, struct err *e)
{
	_cleanup_json_ json_t *j = read_memfd(memfd, e);

	*ret = (struct egress_settings){0};
	return j ? read_all(ret, j, e) : -1;
}

int egress_policy_read(int memfd, struct network_policy **ret, struct err *e)
{
	static const struct key keys[] = {{"mode", JSON_STRING}, {"rules", JSON_STRING}};
	_cleanup_json_ json_t *j = read_memfd(memfd, e);

	if (!j || check_keys(j, "policy", keys, ARRAY_SIZE(keys), e) < 0)
		return -1;
	return read_policy(j, "mode", "rules", "rules", ret, e);
}

void egress_settings_done(struct egress_settings *s)
{
	network_policy_free(s->request);
	network_policy_free(s->ceiling);
	for (size_t i = 0; i < s->resolve_count; i++)
		free(s->resolve[i].addresses);
	free(s->resolve);
	for (size_t i = 0; i < s->credential_count; i++) {
		struct credential *k = &s->credentials[i];

		if (!k->value)
			continue;
		explicit_bzero(k->value, k->size);
		munmap(k->value, k->size + 1);
	}
	free(s->upstream_ca);
	*s = (struct egress_settings){0};
}
