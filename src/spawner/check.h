/* SPDX-License-Identifier: Apache-2.0 */
/*
 * check.h - is this message well-formed, and does the operator allow it?
 *
 * Nothing here makes anything. What can hang - a path, a descriptor on somebody's file system - is left
 * to create_volumes(), which runs in the worker. Every failure has a sentence; e->code is a row of
 * codes.def, CODE_NONE when the request itself is at fault.
 */
#ifndef SPAWNER_CHECK_H
#define SPAWNER_CHECK_H

#include <sys/stat.h>

#include "native/plan.h"
#include "settings/settings.h"
#include "spawner/request.h"

enum {
	SPAWNER_DISK_MIN = 16 << 20, /* the smallest an ext4 is worth making for */
	SPAWNER_MAX_FDS = SPEC_MAX_VOLUMES,
};
#define SPAWNER_SIZE_MAX (1ull << 46) /* above any machine's; keeps sums from wrapping */

/* The operator's file, read when it has changed. */
struct policy {
	const struct places *places;
	struct settings settings;
	struct stat seen;
	bool read;         /* settings and seen are of that file */
	uint64_t readings; /* so far */
	bool broken;       /* why says so; refuses everything */
	struct err why;
};

int policy_refresh(struct policy *p, struct err *e) must_check;
void policy_done(struct policy *p);

/* Type, size, sequence, zero fields and ids of any request. greeted: HELLO has been said. */
int request_check(const void *message, size_t size, size_t fd_count, bool greeted,
		  struct err *e) must_check;

/* "sbx_" and 32 hexadecimal digits, NUL and nothing behind. */
bool sandbox_id_ok(const char id[SANDBOX_ID_SIZE]);

/* The spec that a well-formed CREATE asks for, within the policy. s is to be freed with spec_done()
 * whatever this returns. Volumes have their place inside only. */
int create_check(const struct policy *p, const struct spawner_create *m, size_t fd_count,
		 struct spec *s, struct err *e) must_check;

/* The same of a NETWORK: a spec with these rules and nothing else. */
int change_check(const struct policy *p, const struct spawner_change *m, struct spec *s,
		 struct err *e) must_check;

/* Open or take what is to be mounted, by the spec's volumes, [SPEC_MAX_VOLUMES] the virtual
 * environment; the descriptors in ret are new, -1 where there is none. fds: as they came with the message. */
int create_volumes(const struct policy *p, const struct spawner_create *m, const struct spec *s,
		   const int *fds, int ret[PLAN_MAX_VOLUMES], struct err *e) must_check;

#endif
