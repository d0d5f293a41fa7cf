/* SPDX-License-Identifier: Apache-2.0 */
/*
 * landlock.h - a process of ours gives up the file system but for a few paths (Landlock, Linux 5.13).
 *
 * For the programs that parse what others say. What isolates a sandbox is native/isolate/landlock.c, which
 * also has to build without this library.
 */
#ifndef BASE_LANDLOCK_H
#define BASE_LANDLOCK_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* include/uapi/linux/landlock.h; Debian 12's header stops at ABI 2 */
enum {
	LANDLOCK_WRITE_FILE = 1 << 1,
	LANDLOCK_READ_FILE = 1 << 2,
	LANDLOCK_READ_DIR = 1 << 3,
	LANDLOCK_REMOVE_DIR = 1 << 4,
	LANDLOCK_REMOVE_FILE = 1 << 5,
	LANDLOCK_MAKE_DIR = 1 << 7,
	LANDLOCK_MAKE_REG = 1 << 8,
	LANDLOCK_TRUNCATE = 1 << 14,
	LANDLOCK_TCP_BIND = 1 << 0,
	LANDLOCK_TCP_CONNECT = 1 << 1, /* both: ABI 4 */
	LANDLOCK_ABSTRACT_UNIX = 1 << 0,
	LANDLOCK_SIGNAL = 1 << 1, /* both: ABI 6 */
};

struct landlock_path {
	const char *path;
	uint64_t access; /* of LANDLOCK_*; what this kernel does not know is left out */
};

/* The newest Landlock ABI of this kernel that we know the rules of, 0 if it has none. */
int landlock_abi(void);

/* Nothing of any file from now on but what paths say (one that is not there is no fault), no TCP action of tcp, no
 * reach beyond this process of scopes; as far as the kernel's ABI has it, without Landlock nothing. For the calling
 * thread and those it makes; no_new_privs has to be set. */
int landlock_restrict(const struct landlock_path *paths, size_t count, uint64_t tcp,
		      uint64_t scopes, struct err *e) must_check;

#endif
