/* SPDX-License-Identifier: Apache-2.0 */
/*
 * isolate.c - the order of isolation, one readable list; three more for prepared sandboxes.
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

struct step {
	const char *stage; /* what an error is called */
	int (*apply)(struct isolation *s);
	const char *layer; /* test builds can leave it out by this name */
};

static const struct step sandbox_steps[] = {
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
	{"trust", isolate_trust,
	 NULL}, /* charged to the sandbox; below what could be mounted over it */
	{"tmpfs", isolate_tmpfs, NULL},
	{"volume", isolate_volumes, NULL},
	{"pivot", isolate_pivot, NULL},
	{"net", isolate_network_made, NULL}, /* rootless: its maker shares our memory, and ... */
	{"time", isolate_time, "time"},      /* ... only a process alone in its memory may enter */
	{"limits", isolate_rlimits, "rlimits"}, /* two while the network is still being made */
	{"landlock", isolate_landlock_rules, "landlock"}, /* on the merged tree */
	{"net", isolate_network_receive, NULL},           /* as real root; as late as can be */
	{"net", isolate_network_enter, NULL},   /* as real root: the sandbox owns no namespace */
	{"userns", isolate_userns_enter, NULL}, /* after the last mount */
	{"privileges", isolate_no_new_privs, "nnp"}, /* Landlock asks for it */
	{"landlock", isolate_landlock, "landlock"},
	{"capabilities", isolate_capabilities, "caps"},
	{"descriptors", isolate_descriptors, NULL}, /* last: nothing opened above may stay */
};

/* A prepared sandbox is made by two processes. Real root makes what asks for it, detached ... */
static const struct step tree_steps[] = {
	{"rootfs", isolate_rootfs, NULL},
	{"dev", isolate_dev, NULL},
	{"tmpfs", isolate_tmpfs, NULL},
	{"rootfs", isolate_tree_take, NULL},
};

/* ... and its init, born in its pid, mount, ipc and uts namespaces with rights in their user namespace
 * only, puts it in place. What comes after "userns" belongs to the sandbox's own user namespace. */
static const struct step cell_steps[] = {
	{"namespaces", isolate_cell_begin, NULL},
	{"net", isolate_network_enter, NULL},
	{"hostname", isolate_hostname, "uts"},
	{"rootfs", isolate_tree_attach, NULL},
	{"proc", isolate_proc, NULL},     /* needs the nest's still in place */
	{"cgroup", isolate_cgroup, NULL}, /* before anything the code can fill */
	{"pivot", isolate_pivot, NULL},
	{"userns", isolate_userns_enter, NULL}, /* after the last mount */
	{"time", isolate_cell_time, "time"},    /* whoever joins has rights in that one only */
	{"limits", isolate_rlimits, "rlimits"},
	{"privileges", isolate_no_new_privs, "nnp"},
	{"landlock", isolate_landlock_rules, "landlock"},
	{"landlock", isolate_landlock, "landlock"},
	{"capabilities", isolate_capabilities, "caps"},
	{"descriptors", isolate_descriptors, NULL},
};

/* An interpreter that others are forked from. No Landlock: the kernel lets nobody inside a domain look at
 * (and so join) a process outside of it. More user namespaces must be possible: the sandboxes' are below. */
static const struct step zygote_steps[] = {
	{"limits", isolate_victim, NULL},
	{"namespaces", isolate_namespaces, NULL},
	{"hostname", isolate_hostname, NULL},
	{"rootfs", isolate_rootfs, NULL},
	{"dev", isolate_dev, NULL},
	{"proc", isolate_proc, NULL},
	{"tmpfs", isolate_tmpfs, NULL},
	{"pivot", isolate_pivot, NULL},
	{"time", isolate_time, NULL},
	{"net", isolate_network_enter, NULL},
	{"limits", isolate_rlimits, NULL},
	{"userns", isolate_zygote_user, NULL},
	{"privileges", isolate_no_new_privs, NULL},
};

#define LIST(steps) steps, sizeof steps / sizeof *steps
static const struct {
	const struct step *steps;
	size_t count;
} lists[] = {
	[ISOLATE_SANDBOX] = {LIST(sandbox_steps)},
	[ISOLATE_TREE] = {LIST(tree_steps)},
	[ISOLATE_CELL] = {LIST(cell_steps)},
	[ISOLATE_ZYGOTE] = {LIST(zygote_steps)},
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

int isolate(struct isolation *s, enum isolation_kind kind, const char **ret_stage)
{
	const struct step *step = lists[kind].steps;

	for (size_t i = 0; i < lists[kind].count; i++, step++) {
		int r = 0;

		if (!step->layer || !layer_is_off(s, step->layer))
			r = step->apply(s);
		if (r < 0) {
			*ret_stage = step->stage;
			return r;
		}
	}
	return 0;
}
