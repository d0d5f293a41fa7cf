/* SPDX-License-Identifier: Apache-2.0 */
/*
 * isolate.h - one kernel feature per file; the list that applies them is isolate.c.
 *
 * Runs in the process that becomes PID 1 of the sandbox, before any code of the caller's exists. Each
 * function does one thing and returns 0 or -errno, having said in what->object which object it was
 * about. Nothing is undone on failure: the process ends, and its namespaces with it.
 */
#ifndef NATIVE_ISOLATE_H
#define NATIVE_ISOLATE_H

#include <stdbool.h>
#include <stddef.h>

#include "native/plan.h"

/* capget(2) numbers that musl has no header for */
#define CAP_COUNT 64

struct isolation {
	const struct plan *plan;
	int control;   /* the protocol stream */
	int image_dir; /* where the prepared root is */
	int volumes
		[PLAN_MAX_VOLUMES]; /* detached mounts; rootless: from isolate_volumes_open() on */
	int userns;                 /* root mode: the sandbox's user namespace */
	int proc;  /* the host's /proc, for writes after the pivot; closed at the end */
	int tree;  /* ISOLATE_TREE gives it, ISOLATE_CELL takes it: a sandbox's mounts, detached */
	int netns; /* the network namespace until it is entered; cells and zygotes are given it */
	bool keep_ruleset;              /* Landlock's, for who joins later */
	int ruleset;                    /* -1: none */
	int own_ruleset;                /* from its rules to its enforcement */
	int tmpfs_dirs[PLAN_MAX_TMPFS]; /* handed to the supervisor with READY */
	char object[200];               /* what the running step is about, for the error */
};

/* Name the object; returns -errno_value so that steps can `return step_failed(s, errno, "...")`. */
int step_failed(struct isolation *s, int errno_value, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* True in test builds when this layer is turned off (mutation runs); false otherwise, always. */
bool layer_is_off(const struct isolation *s, const char *layer);

int isolate_victim(struct isolation *s); /* oom.c: a better victim than anything of the host's */
int isolate_namespaces(struct isolation *s);     /* namespaces.c: mount, ipc, uts, time */
int isolate_cgroup(struct isolation *s);         /* cgroup_join.c */
int isolate_userns_receive(struct isolation *s); /* userns.c: the ids, before anything is mounted */
int isolate_time(struct isolation *s);           /* time.c: clocks that start at zero */
int isolate_hostname(struct isolation *s);       /* hostname.c */
int isolate_network_begin(struct isolation *s);  /* network.c: rootless, made meanwhile ... */
int isolate_network_made(struct isolation *s);   /* ... and no longer than until here */
int isolate_network_receive(struct isolation *s); /* network.c: as real root, the supervisor's */
int isolate_network_enter(struct isolation *s);   /* network.c */
int isolate_rootfs(struct isolation *s);          /* rootfs.c: private overlays of the image */
int isolate_dev(struct isolation *s);             /* dev.c */
int isolate_proc(struct isolation *s);            /* proc.c */
int isolate_trust(struct isolation *s);           /* trust.c: an authority beside the image's */
int isolate_tmpfs(struct isolation *s);           /* tmpfs.c */
int isolate_volumes_open(struct isolation *s);    /* volumes.c */
int isolate_volumes(struct isolation *s);         /* volumes.c */
int isolate_pivot(struct isolation *s);           /* pivot.c: the host's tree is gone after this */
int isolate_userns_enter(struct isolation *s);    /* userns.c: ids and cgroup namespace */
int isolate_rlimits(struct isolation *s);         /* rlimits.c */
int isolate_no_new_privs(struct isolation *s);    /* capabilities.c */
int isolate_landlock_rules(struct isolation *s);  /* landlock.c: made ... */
int isolate_landlock(struct isolation *s);        /* ... and in force */
int isolate_capabilities(struct isolation *s);    /* capabilities.c */
int isolate_descriptors(struct isolation *s);     /* descriptors.c */
int isolate_tree_take(struct isolation *s);       /* tree.c: the mounts as one descriptor */
int isolate_tree_attach(struct isolation *s);     /* tree.c */
int isolate_cell_begin(struct isolation *s);      /* cell.c: born in its namespaces */
int isolate_cell_time(struct isolation *s); /* cell.c: a time namespace of the sandbox's own user */
int isolate_zygote_user(struct isolation *s); /* cell.c: a user without capabilities */

/* Which list of steps (isolate.c; docs/fastpath.md for the last three). */
enum isolation_kind { ISOLATE_SANDBOX, ISOLATE_TREE, ISOLATE_CELL, ISOLATE_ZYGOTE };

/* The whole list. On failure *ret_stage names the step and s->object its object. */
int isolate(struct isolation *s, enum isolation_kind kind, const char **ret_stage);

#endif
