/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/places.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SYSTEM_CONFIG "/etc/cloche/cloche.yaml"

static int join(char *field, size_t size, const char *what, const char *base, const char *below,
		struct err *e)
{
	int n = snprintf(field, size, "%s%s", base, below);

	if (base[0] != '/')
		return err_set(e, 0, "%s %.100s: must be an absolute path", what, base);
	if (n < 0 || (size_t)n >= size)
		return err_set(e, 0, "%s: path is too long", what);
	return 0;
}

/* XDG_name, or the fallback below HOME. */
static int xdg(char *field, size_t size, const char *name, const char *fallback, const char *below,
	       struct err *e)
{
	const char *value = getenv(name), *home = getenv("HOME");
	char base[900];

	if (value && *value)
		return join(field, size, name, value, below, e);
	if (!home || !*home)
		return err_set(e, 0, "neither %s nor HOME is set: set one", name);
	if (join(base, sizeof base, "HOME", home, fallback, e) < 0)
		return -1;
	return join(field, size, name, base, below, e);
}

int places_find(struct places *p, struct err *e)
{
	const char *runtime = getenv("XDG_RUNTIME_DIR");
	char fallback[64];

	*p = (struct places){.rootless = geteuid() != 0, .system_config = SYSTEM_CONFIG};
	if (!p->rootless) {
		memcpy(p->config, SYSTEM_CONFIG, sizeof SYSTEM_CONFIG);
		memcpy(p->state, "/var/lib/cloche", sizeof "/var/lib/cloche");
		memcpy(p->runtime, "/run/cloche", sizeof "/run/cloche");
		return 0;
	}
	snprintf(fallback, sizeof fallback, "/tmp/cloche-%u", geteuid());
	if (xdg(p->config, sizeof p->config, "XDG_CONFIG_HOME", "/.config", "/cloche/cloche.yaml",
		e) < 0 ||
	    xdg(p->state, sizeof p->state, "XDG_DATA_HOME", "/.local/share", "/cloche", e) < 0)
		return -1;
	if (runtime && *runtime)
		return join(p->runtime, sizeof p->runtime, "XDG_RUNTIME_DIR", runtime, "/cloche",
			    e);
	memcpy(p->runtime, fallback, strlen(fallback) + 1);
	return 0;
}

int make_private_dirs(const char *path)
{
	char copy[1100];
	struct stat st;

	if (strlen(path) >= sizeof copy)
		return -ENAMETOOLONG;
	memcpy(copy, path, strlen(path) + 1);
	for (char *p = copy + 1;; p++) {
		char c = *p;

		if (c != '/' && c != '\0')
			continue;
		*p = '\0';
		if (mkdir(copy, 0700) < 0 && errno != EEXIST)
			return -errno;
		*p = c;
		if (c == '\0')
			break;
	}
	/* A folder in /tmp may have been put there by someone else. */
	if (lstat(path, &st) < 0)
		return -errno;
	if (!S_ISDIR(st.st_mode) || st.st_uid != geteuid() || st.st_mode & 022)
		return -EPERM;
	return 0;
}
