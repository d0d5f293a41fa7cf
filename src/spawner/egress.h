/* SPDX-License-Identifier: Apache-2.0 */
/*
 * egress.h - the process that connects for a sandbox (egress/wire.h): started ahead, given to a worker, found again, ended.
 *
 * A spare has an id of its own already (a slot that no sandbox maps; rootless ours), and waits. A worker gives it the
 * configuration and the sandbox's listeners; from then on it lives as long as the sandbox, whoever of us dies. Until then it
 * dies when the last copy of its setup socket is closed: the spawner's, or its worker's.
 *
 * Where a sandbox's process is, is written into its folder (EGRESS_MARK) before it serves.
 */
#ifndef SPAWNER_EGRESS_H
#define SPAWNER_EGRESS_H

#include "egress/starter.h"
#include "native/sandbox.h"
#include "spawner/check.h"

enum { SPARES_MAX = 2 };
#define EGRESS_SOCKET "egress"
#define EGRESS_MARK   "egress.pid"

struct spare {
	struct egress_process process; /* pid 0: none */
	uint32_t uid, gid;             /* it will become; UINT32_MAX: it stays what it is */
	uint64_t start_ticks;          /* of the process: with its number, what names it */
	bool has_authority;            /* from egress_prepare() on: the sandbox is to trust it */
};

struct spares {
	struct spare spare[SPARES_MAX];
	size_t count;
	bool wanted; /* somebody has asked for one since we began */
};

#define SPARE_EMPTY ((struct spare){.process = {.pidfd = -1, .setup = -1, .control = -1}})

/* One that waits: the oldest that is alive, or a new one. Its descriptors are the caller's. */
int spare_take(struct spares *s, const struct places *places, const char *uid_range,
	       struct spare *ret, struct err *e) must_check;
bool spares_lack(const struct spares *s); /* there is room, and they are wanted */
/* Start one more of those that lack. What cannot be started now is tried at the next need. */
void spares_fill(struct spares *s, const struct places *places, const char *uid_range);
/* It shall end; it is reaped as any child. Idempotent. */
void spare_drop(struct spare *s);
/* All of them, and wait until they are gone. */
void spares_end(struct spares *s);

/* In a worker: give it the sandbox's configuration and a socket in its folder. Only one that opens TLS is waited for here, for
 * its authority's certificate, which is in ret->ca then; the others get ready while the sandbox is made. */
int egress_prepare(struct spare *s, const struct policy *p, const struct spec *spec,
		   const char *owner, int folder, uint32_t service_gid, struct egress_ready *ret,
		   struct err *e) must_check;
/* In a worker: wait until it is ready, leave the mark, and let it serve the sandbox. */
int egress_hand_over(struct spare *s, int folder, const struct kept_sandbox *made,
		     struct err *e) must_check;

/* End the process that the folder's mark names, if it is that one. */
void egress_end(int folder);

/* Give the process of this folder other rules. Blocks, a few seconds at most. */
int egress_change(int folder, const struct policy *p, const struct spec *spec, const char *owner,
		  struct err *e) must_check;

#endif
