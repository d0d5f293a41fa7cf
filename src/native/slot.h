/* SPDX-License-Identifier: Apache-2.0 */
/*
 * slot.h - one number per live sandbox, and with it two ids of the host that nobody else has.
 *
 * A slot is a lock on a file, held by one open file description that both the supervisor and the
 * sandbox's init keep: it is free again only when both are dead. The sandbox's cgroup is named after
 * the slot, so whoever gets the slot later finds, and clears, what a killed run left.
 */
#ifndef NATIVE_SLOT_H
#define NATIVE_SLOT_H

#include <stdint.h>

#include "sandbox/places.h"

/* Ids per sandbox: root inside and the sandbox user. */
enum { IDS_PER_SLOT = 2 };

struct id_range {
	uint32_t uid_base, gid_base;
	uint32_t slots;
};

struct slot {
	int lock; /* -1: none */
	uint32_t number;
	uint32_t realm; /* which lock folder: two that do not see each other's locks differ */
	uint32_t root_uid, root_gid; /* host ids of root inside */
	uint32_t user_uid, user_gid; /* host ids of the sandbox user */
};

/* The ids this user may give to sandboxes: the operator's block as root, else /etc/subuid and
 * /etc/subgid. block: "BASE:COUNT" from the configuration, or NULL for the default. */
int id_range_find(const struct places *places, const char *block, struct id_range *ret,
		  struct err *e) must_check;

/* A free slot from this number on: a low one as long as few are in use. */
int slot_acquire(const struct places *places, const struct id_range *range, uint32_t from,
		 struct slot *ret, struct err *e) must_check;

/* Identifies the folder of the locks, which is made if missing and checked. */
int slot_realm(const struct places *places, uint32_t *ret_realm, struct err *e) must_check;

/* Try to take this very slot, without waiting: 0, or -EWOULDBLOCK when it is in use, or -errno. */
int slot_try(const struct places *places, uint32_t number, int *ret_lock) must_check;

/* A slot whose lock is held already. */
struct slot slot_at(const struct id_range *range, uint32_t number, uint32_t realm, int lock);

void slot_release(struct slot *s);

#endif
