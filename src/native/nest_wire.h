/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nest_wire.h - what is said to a nest (docs/fastpath.md) and what it reports. Both sides come from one
 * build and neither is hostile: host and keeper are the host's root, and run nobody's code.
 */
#ifndef NATIVE_NEST_WIRE_H
#define NATIVE_NEST_WIRE_H

#include <stddef.h>

#include "native/plan.h"

/* FRAME_NEST, then FRAME_CGROUP. + image folder, report socket (SEQPACKET). */
struct nest_plan {
	uint32_t root_uid, root_gid; /* host ids of the nest's slot */
	uint32_t user_uid, user_gid;
	uint32_t uid_base, gid_base, id_count; /* all slots' */
	uint32_t uid, gid;                     /* the zygotes' user, inside */
};

enum { ZYGOTE_STDIO = 5, ZYGOTE_FDS_IN = ZYGOTE_STDIO + 1, NEST_STRINGS_MAX = 65536 };

/* FRAME_ZYGOTE: struct zygote_request, then the strings: path ("": the last descriptor is executed), argc
 * arguments, envc entries, each with its NUL. + what becomes 0 to 4, an executable or a copy of 0. */
struct zygote_request {
	uint32_t number;
	uint32_t argc, envc;
	uint32_t strings; /* bytes */
	unsigned char plan[offsetof(struct plan, volumes)];
};

/* FRAME_CELL. + control, seat, lock; then, where has_cgroup, the v2 folder it is born in. */
struct cell_request {
	uint32_t number; /* the host's, repeated in reports */
	uint32_t root_gid;
	uint32_t has_cgroup;
	uint32_t zero;
	unsigned char plan[offsetof(struct plan, volumes)];
};

enum nest_report_type {
	NEST_UP = 1, /* the nest is there */
	NEST_CELL,   /* + pidfd of the init, which isolates itself and says READY on its control */
	NEST_ZYGOTE, /* + pidfd */
	NEST_ENDED,  /* the nest's PID 1 has reaped this pid: an init, or a child of a zygote's */
	NEST_ZYGOTE_ENDED, /* number: the zygote's */
	NEST_FAILED,       /* number: of the request; nothing is left of it */
};

struct nest_report {
	uint32_t type;
	uint32_t number;
	int32_t pid;     /* as the nest counts: the same that zygote_fork() gives */
	uint32_t status; /* of waitpid(2) */
	uint64_t cpu_us; /* of it and what it had reaped */
	int32_t errnum;
	char stage[16];
	char what[204];
};

#endif
