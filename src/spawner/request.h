/* SPDX-License-Identifier: Apache-2.0 */
/*
 * request.h - what cloched may ask the spawner for: one SEQPACKET message each, fixed structs, no
 * pointers, answered by one message with the same sequence number; in between come events.
 *
 * The spawner treats each message as hostile: an unknown type, another size than the row's, a string
 * without its NUL, a value outside its range or beyond the operator's policy is refused (REFUSED with
 * a code and a sentence), never corrected. A client is accepted only with the service's uid or 0 as
 * peer credentials. Descriptors come only with CREATE: one, open for reading, per volume without a host
 * path, in order. Strings have nothing but zero bytes behind their NUL, and what is not used of a list
 * is zero. Both sides come from one build; `version` in HELLO says so.
 */
#ifndef SPAWNER_REQUEST_H
#define SPAWNER_REQUEST_H

#include <stdint.h>

#include "native/cgroup.h"
#include "network/policy.h"
#include "sandbox/result.h"
#include "sandbox/spec.h"

enum { SPAWNER_VERSION = 1, SANDBOX_ID_SIZE = 40, SPAWNER_MESSAGE_MAX = 128 << 10 };

enum spawner_type {
#define REQUEST(name, number, permission, struct_name) SPAWNER_##name = number,
#include "spawner/requests.def"
#undef REQUEST
};

struct spawner_header {
	uint32_t type;
	uint32_t sequence; /* chosen by the client; 0 in events */
};

struct spawner_hello {
	struct spawner_header header;
	uint32_t version;
	uint32_t zero;
};

/* What a sandbox may connect to. Rules as spec_network_rules() writes them: presets and credentials by name, which the spawner
 * resolves itself, under the operator's policy. With mode "none" all of it is zero. */
struct spawner_network {
	uint32_t mode;  /* enum network_mode */
	uint32_t size;  /* of rules */
	char owner[72]; /* for whom: which credentials it may name */
	char rules[POLICY_TEXT_MAX];
};

/* A sandbox without a command. Numbers as in struct spec (bytes, microseconds, thousandths of a CPU). */
struct spawner_create {
	struct spawner_header header;
	char id[SANDBOX_ID_SIZE]; /* "sbx_" and 32 hexadecimal digits; must be new */
	char image[SPEC_PATH_SIZE];
	char runtime[32];
	char profile[32];
	char hostname[65];
	char venv[SPEC_PATH_SIZE]; /* "" none; below an operator's volume root */
	/* A child of this interpreter's zygote joins it and waits. "" none; "python". */
	char zygote[16];
	char tenant[72];  /* whose zygote: each has its own. "" without one */
	uint8_t prepared; /* with a zygote: 1 when nobody waits for it, and it may be warmed */
	uint8_t pull; /* 1: an image that is not there may be got, if the operator's policy names it */
	uint8_t zero[5];
	uint64_t memory_bytes, memory_swap_bytes;
	uint64_t cpus_millis, pids_limit;
	uint64_t disk_bytes; /* /workspace on a disk of this size; 0: a tmpfs */
	uint32_t uid, gid;   /* inside */
	/* In addition to the defaults' places, or in their stead, as --tmpfs does. */
	uint32_t tmpfs_count, volume_count;
	struct spawner_tmpfs {
		char path[SPEC_PATH_SIZE];
		uint64_t size_bytes, inodes;
		uint32_t exec, zero;
	} tmpfs[SPEC_MAX_TMPFS];
	struct spawner_volume {
		char box[SPEC_PATH_SIZE];
		char host
			[1024]; /* "": a descriptor comes along; else below an operator's volume root */
		uint32_t writable;
		/* With a descriptor: the user who gave it, from its peer credentials. What it refers to must
		 * be that user's, and never root's: an open path alone is no right to read. */
		uint32_t owner;
	} volumes[SPEC_MAX_VOLUMES];
	struct spawner_network network;
};

/* NETWORK: other rules for one that was made with a network, from now on; REFUSED says whether the old ones hold. */
struct spawner_change {
	struct spawner_header header;
	char id[SANDBOX_ID_SIZE];
	struct spawner_network network;
};

/* Its answer. Init listens on runtime/sandboxes/ID/ctl, and, with a network, the process that connects for it on ID/egress
 * (egress/wire.h). */
struct spawner_created {
	struct spawner_header header;
	char id[SANDBOX_ID_SIZE];
	uint32_t pid;
	uint32_t capture; /* programs that know no proxy: 0 no network, 1 some ports, 2 all */
	char memory_events
		[256]; /* file with the OOM counter (memory.events or memory.oom_control), "" none */
	char pids_events[256];
	char cpu_usage[256]; /* cpu.stat or cpuacct.usage: work counts against the idle time-out */
	struct {
		char memory[24], swap[24], cpu[24], pids[24]; /* mechanism or "none" */
		char network[24], rootfs[48], disk[48], capabilities[24];
		char seccomp[80];
		uint32_t rootless, user_namespace, uid, no_new_privs, landlock;
		uint32_t zero;
	} enforced;
};

/* KILL, PAUSE, RESUME, STATS, RELEASE */
struct spawner_by_id {
	struct spawner_header header;
	char id[SANDBOX_ID_SIZE];
};

struct spawner_counters {
	uint64_t oom_kills;
	uint64_t cpu_us, memory_peak_bytes, pids_peak; /* UINT64_MAX: not to be had */
	uint64_t memory_bytes, pids;                   /* now */
	uint32_t memory_hit, pids_hit;
};

struct spawner_stats {
	struct spawner_header header;
	char id[SANDBOX_ID_SIZE];
	uint32_t paused;
	uint32_t zero;
	struct spawner_counters counters;
};

/* DONE: the answer to HELLO, PAUSE, RESUME, RELEASE, and to KILL when the kill was sent (its end is an
 * event; a sandbox still being made is killed as soon as it can be). */
struct spawner_done {
	struct spawner_header header;
};

struct spawner_refused {
	struct spawner_header header;
	/* enum code; CODE_NONE: the request itself was wrong (errnum EPERM: forbidden by policy, EEXIST and
	 * ESRCH: there is, or is not, such a sandbox, EAGAIN: ask again). */
	uint32_t code;
	uint32_t errnum;
	char stage[16];
	char text[768];
};

/* Event: init is dead, and everything of the sandbox with it. Repeated at every HELLO until RELEASE. */
struct spawner_ended {
	struct spawner_header header;
	char id[SANDBOX_ID_SIZE];
	uint32_t known;    /* 0: how it ended is not known (the spawner had been restarted) */
	uint32_t signaled; /* init */
	uint32_t status;
	uint32_t killed;                  /* 1: a KILL had been asked for before */
	struct spawner_counters counters; /* the last there were */
};

/* LIST: one LIVE per sandbox, then DONE. */
struct spawner_live {
	struct spawner_header header;
	struct spawner_created created;
	uint64_t started_ms; /* CLOCK_BOOTTIME */
	uint32_t paused;
	uint32_t zero;
};

#endif
