/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nest.h - prepared sandboxes: three processes of ours, all this program (docs/fastpath.md).
 *
 * The keeper is real root and makes what asks for it: user and network namespaces, mounts, device nodes.
 * The nest is PID 1 of a pid namespace, root in one user namespace only; the inits of the prepared
 * sandboxes are its forks, and it reaps everything.
 */
#ifndef INIT_NEST_H
#define INIT_NEST_H

#include "init/guest.h"
#include "native/nest_wire.h"

enum { CELL_FDS_MAX = 16 };

/* keeper.c: the first frame was a NEST. Never returns. */
__attribute__((noreturn)) void keeper_run(int control, const struct nest_plan *plan, int image_dir,
					  int report);

/* userns.c: a user namespace below `parent` (-1: ours), owned by a host id that exists in it. The maps are
 * lines "inside outside count" in ids of the parent. The caller is real root. A descriptor, or -errno. */
int userns_below(int parent, uint32_t owner_uid, uint32_t owner_gid, const char *uid_map,
		 const char *gid_map);

/* nest.c: in a new pid namespace, still real root. Requests come on this socket. Never returns. */
struct nest_start {
	int requests; /* SEQPACKET, from the keeper */
	int report;
	int userns; /* that the prepared sandboxes' namespaces belong to */
};
__attribute__((noreturn)) void nest_run(const struct nest_start *n);

/* The keeper to the nest: struct cell_request and these, then the v2 folder if has_cgroup. */
enum { CELL_USERNS, CELL_TREE, CELL_NETNS, CELL_CONTROL, CELL_SEAT, CELL_LOCK, CELL_CGROUP };

/* The nest to the keeper, on the same socket: the number of a sandbox whose init is dead and reaped, and so
 * everything of it, or was never born. Told of the last LENT_MAX. */
enum { LENT_MAX = 1024 };

/* cell.c: in a fork of the nest's, PID 1 of its pid namespace. Never returns. */
__attribute__((noreturn)) void cell_run(const struct cell_request *r, const int *fds);

/* zygote.c: in a child of the keeper's, in the nest's pid namespace: isolate and execute. Never returns. */
__attribute__((noreturn)) void zygote_run(const struct zygote_request *r, const char *strings,
					  struct isolation *s, const int *fds);

/* keeper.c: one report; a descriptor may go along (-1: none). */
int nest_report_send(int socket, const struct nest_report *r, int fd);

#endif
