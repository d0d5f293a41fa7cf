/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan.h - everything the set-up code needs, decided before it starts: plain data, no pointers.
 *
 * The supervisor fills it, sends it as the first frame, and the code in native/isolate/ applies it in
 * a fresh process that holds nothing of the caller's memory. Both sides come from one build, so the
 * layout needs no version.
 */
#ifndef NATIVE_PLAN_H
#define NATIVE_PLAN_H

#include <stdint.h>

enum {
	PLAN_MAX_TMPFS = 16,
	PLAN_MAX_VOLUMES = 33, /* 32 of the caller's and the virtual environment */
	PLAN_PATH = 256,
	PLAN_HOST_PATH = 4096,
	PLAN_RLIMITS = 16,
	PLAN_OFF = 256,
	PLAN_LOWERS = 4096,
};

struct plan_tmpfs {
	char path[PLAN_PATH];
	uint64_t size_bytes;
	uint64_t inodes;
	uint32_t exec;
	uint32_t mode;
	uint32_t owned; /* by the sandbox user, else by root inside */
	uint32_t zero;
};

struct plan_volume {
	char box[PLAN_PATH];
	char host[PLAN_HOST_PATH]; /* rootless only: opened inside, and checked against dev, ino */
	uint64_t dev, ino;
	uint32_t writable;
	uint32_t is_file;
};

struct plan {
	uint32_t rootless;
	uint32_t uid, gid;      /* inside */
	uint32_t root_mount_id; /* root inside and the sandbox user, as the mounting process */
	uint32_t user_mount_id; /* has to name them: host ids as root, inside ids rootless */
	uint32_t user_mount_gid;
	uint32_t dev_profile;  /* own devpts */
	uint32_t landlock_abi; /* 0: run without */
	uint32_t tmpfs_count, volume_count;
	char hostname[72];
	char machine_id[40];
	char profile[32];
	uint32_t
		captured; /* a network policy: connections are caught (capture.h), names are resolved */
	uint32_t trust;     /* a TRUST frame comes */
	uint32_t has_lease; /* a descriptor that init keeps to its end */
	char template[64];  /* host image: name of the prepared root, below the image directory */
	char lowers
		[PLAN_LOWERS]; /* other images: names of the layers below l/, uppermost first, ":" between */
	uint64_t rlimit[PLAN_RLIMITS]; /* by RLIMIT_* number; UINT64_MAX: leave as it is */
	struct plan_tmpfs tmpfs[PLAN_MAX_TMPFS];
	char off[PLAN_OFF]; /* test builds: layers left out, comma-separated */
	struct plan_volume volumes[PLAN_MAX_VOLUMES]; /* last: only volume_count of them are sent */
};

/* Descriptors that travel with the PLAN frame: the image directory; the image's lease; then, as root, one detached mount
 * per volume. */

/* Descriptors that come back with READY: the tmpfs mounts in plan order. Rootless: then the sandbox's
 * user namespace. */

#endif
