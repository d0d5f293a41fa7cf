/* SPDX-License-Identifier: Apache-2.0 */
/*
 * credentials.c - Docker's config.json. Its keys are host names with or without a scheme and a path; Docker Hub's
 * is the address of an API that is long gone.
 */
#include "registry/credentials.h"

#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/base64.h"
#include "base/fd.h"
#include "base/json.h"
#include "image/reference.h"

#define HUB_KEY "https://index.docker.io/v1/"

static const char *const hub_names[] = {"docker.io", "index.docker.io", "registry-1.docker.io",
					"registry.hub.docker.com"};

void credentials_done(struct credentials *c)
{
	secret_free(&c->user);
	secret_free(&c->password);
	secret_free(&c->identity_token);
	secret_free(&c->registry_token);
}

static int find_file(const char *folder, char *path, size_t size)
{
	const char *home = getenv("HOME");
	int n;

	if (!folder)
		folder = getenv("DOCKER_CONFIG");
	if (folder && *folder)
		n = snprintf(path, size, "%s/config.json", folder);
	else if (!folder && home && *home)
		n = snprintf(path, size, "%s/.docker/config.json", home);
	else
		return -ENOENT;
	return n >= 0 && (size_t)n < size ? 0 : -ENAMETOOLONG;
}

/* Does a key of config.json stand for this registry? */
static bool is_key_of(const char *key, const char *registry)
{
	const char *host = key;
	size_t n;

	if (strncmp(host, "https://", 8) == 0)
		host += 8;
	else if (strncmp(host, "http://", 7) == 0)
		host += 7;
	n = strcspn(host, "/");
	if (strncasecmp(host, registry, n) == 0 && registry[n] == '\0')
		return true;
	if (strcmp(registry, REFERENCE_HUB) == 0)
		for (size_t i = 0; i < ARRAY_SIZE(hub_names); i++)
			if (strncasecmp(host, hub_names[i], n) == 0 && hub_names[i][n] == '\0')
				return true;
	return false;
}

static const json_t *find_entry(const json_t *map, const char *registry)
{
	const char *key;
	json_t *value;

	json_object_foreach((json_t *)(uintptr_t)map, key, value)
		if (is_key_of(key, registry))
			return value;
	return NULL;
}

/* A member that is a text worth having; *ret stays NULL otherwise. */
static int take_text(const json_t *entry, const char *key, char **ret, struct err *e)
{
	const char *text = json_string_value(json_object_get(entry, key));

	if (!text || !*text)
		return 0;
	*ret = strdup(text);
	return *ret ? 0 : err_set(e, ENOMEM, "keep a login");
}

/* "auth": base64 of user:password. */
static int take_auth(const char *auth, struct credentials *c, struct err *e)
{
	_cleanup_secret_ char *data = NULL;
	char *colon;
	size_t size;
	int r = base64_decode(auth, strlen(auth), &data, &size);

	if (r < 0)
		return err_set(e, 0, r == -ENOMEM ? "out of memory" : "auth is not base64");
	colon = memchr(data, ':', size);
	if (strlen(data) != size || !colon || colon == data)
		return err_set(e, 0, "auth is not USER:PASSWORD in base64");
	*colon = '\0';
	c->user = strdup(data);
	c->password = strdup(colon + 1);
	data[strlen(data)] = ':';
	return c->user && c->password ? 0 : err_set(e, ENOMEM, "keep a login");
}

static int take_entry(const json_t *entry, struct credentials *c, struct err *e)
{
	const char *auth = json_string_value(json_object_get(entry, "auth"));

	if (take_text(entry, "identitytoken", &c->identity_token, e) < 0 ||
	    take_text(entry, "registrytoken", &c->registry_token, e) < 0)
		return -1;
	if (auth && *auth)
		return take_auth(auth, c, e);
	if (take_text(entry, "username", &c->user, e) < 0 ||
	    take_text(entry, "password", &c->password, e) < 0)
		return -1;
	if (!c->user || !c->password) { /* half a login is none */
		secret_free(&c->user);
		secret_free(&c->password);
	}
	return 0;
}

static bool is_empty(const struct credentials *c)
{
	return !c->user && !c->identity_token && !c->registry_token;
}

static int search(const json_t *root, const char *registry, int cancel_fd, uint64_t timeout_us,
		  struct credentials *c, struct err *e)
{
	const char *server = strcmp(registry, REFERENCE_HUB) == 0 ? HUB_KEY : registry;
	const json_t *entry = find_entry(json_object_get(root, "credHelpers"), registry);
	const char *helper = json_string_value(entry);

	if (!helper)
		helper = json_string_value(json_object_get(root, "credsStore"));
	if (helper && *helper &&
	    credential_helper_ask(helper, server, cancel_fd, timeout_us, c, e) < 0)
		return -1;
	entry = find_entry(json_object_get(root, "auths"), registry);
	if (!is_empty(c) || !entry)
		return 0;
	return take_entry(entry, c, e) < 0 ? err_prefix(e, "auths: %s", registry) : 0;
}

int credentials_find(const char *folder, const char *registry, int cancel_fd, uint64_t timeout_us,
		     struct credentials *ret, struct err *e)
{
	_cleanup_(credentials_done) struct credentials c = {0};
	_cleanup_json_ json_t *root = NULL;
	_cleanup_close_ int fd = -1;
	char path[PATH_MAX];
	_cleanup_secret_ char *text = NULL;
	size_t size = 0;
	int r;

	*ret = (struct credentials){0};
	r = find_file(folder, path, sizeof path);
	if (r == -ENOENT)
		return 0;
	if (r < 0)
		return err_set(e, -r, "the folder with Docker's config.json");
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (fd < 0)
		return errno == ENOENT || errno == ENOTDIR ? 0 : err_set(e, errno, "open %s", path);
	r = fd_slurp(fd, CREDENTIALS_FILE_MAX, &text, &size);
	if (r < 0)
		return err_set(e, -r, "read %s", path);
	root = json_read(text, size, e);
	if (!root || search(root, registry, cancel_fd, timeout_us, &c, e) < 0)
		return err_prefix(e, "%s", path);
	*ret = c;
	c = (struct credentials){0};
	return 0;
}
