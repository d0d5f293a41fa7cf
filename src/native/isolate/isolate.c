/* SPDX-License-Identifier: Apache-2.0 */
/*
 * isolate.c - the order of isolation, one readable list.
 *
 * As root: everything that needs real root comes first (mounts, device nodes, the network namespace),
 * and the user namespace is entered after it, so that no namespace belongs to a user the code could
 * become. Rootless: the process was born in its user namespace, which owns all that follows. Each
 * row's comment says what depends on its place.
 */
#include "native/isolate/isolate.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const struct step {
	const char *stage; /* what an error is called */
	int (*apply)(struct isolation *s);
	const char *layer; /* test builds can leave it out by this name */
} steps[] = {
	{"limits", isolate_victim, NULL},
	{"net", isolate_network_begin, NULL}, /* slow, so first; goes on beside what follows */
	{"namespaces", isolate_namespaces, NULL},
	{"volume", isolate_volumes_open,
	 NULL}, /* rootless: while we may read what the caller may */
	{"userns", isolate_userns_receive, NULL}, /* rootless: from here on we are root inside */
	{"hostname", isolate_hostname, "uts"},
	{"rootfs", isolate_rootfs, NULL},
	{"dev", isolate_dev, NULL},       /* real root: device nodes of our own */
	{"proc", isolate_proc, NULL},     /* rootless: needs the host's still in place */
	{"cgroup", isolate_cgroup, NULL}, /* before anything the code can fill */
	{"tmpfs", isolate_tmpfs, NULL},
	{"volume", isolate_volumes, NULL},
	{"pivot", isolate_pivot, NULL},
	{"time", isolate_time, "time"}, /* only a process alone in its memory may enter */
	{"net", isolate_network_join,
	 NULL}, /* as real root: the sandbox owns none of its namespaces; as late as can be */
	{"userns", isolate_userns_enter, NULL}, /* after the last mount */
	{"limits", isolate_rlimits, "rlimits"},
	{"privileges", isolate_no_new_privs, "nnp"}, /* Landlock asks for it */
	{"landlock", isolate_landlock, "landlock"},  /* on the merged tree, not on its layers */
	{"capabilities", isolate_capabilities, "caps"},
	{"descriptors", isolate_descriptors, NULL}, /* last: nothing opened above may stay */
};

int step_failed(struct isolation *s, int errno_value, const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	vsnprintf(s->object, sizeof s->object, format, ap);
	va_end(ap);
	return -errno_value;
}

#ifdef CLOCHE_MUTATION
bool layer_is_off(const struct isolation *s, const char *layer)
{
	size_t n = strlen(layer);

	for (const char *p = s->plan->off; *p; p += strcspn(p, ","), p += *p == ',')
		if (strncmp(p, layer, n) == 0 && (p[n] == ',' || !p[n]))
			return true;
	return false;
}
#else
bool layer_is_off(const struct isolation *s, const char *layer)
{
	(void)s;
	(void)layer;
	return false;
}
#endif

int isolate(struct isolation *s, const char **ret_stage)
{
	for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
		int r = 0;

		if (!steps[i].layer || !layer_is_off(s, steps[i].layer))
			r = steps[i].apply(s);
		if (r < 0) {
			*ret_stage = steps[i].stage;
			return r;
		}
	}
	return 0;
}
