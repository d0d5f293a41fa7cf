/* SPDX-License-Identifier: Apache-2.0 */
/* idmap.h - user namespaces made for their id maps, and the maps of rootless sandboxes. */
#ifndef NATIVE_IDMAP_H
#define NATIVE_IDMAP_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

struct id_pair {
	uint32_t inside, outside; /* one id each */
};

struct userns_owner {
	uint32_t uid, gid;
};

/* A namespace needs a process to be born in. It shares our memory, sleeps on this stack, and has been
 * killed when userns_make() returns; userns_holder_reap() waits for it. Until then this must stay. */
struct userns_holder {
	pid_t pid; /* 0: none */
	char stack[4096] __attribute__((aligned(16)));
};

/* A user namespace with these maps, as a descriptor: for a sandbox to enter, or for an id-mapped mount
 * (inside: the file system's id, outside: the id it shall appear as). Needs root. The holder is to be
 * reaped whatever this returns.
 *
 * owner: ids that nobody else has, or NULL for root's. The kernel counts what is used in a namespace (inotify, queued
 * signals) for its owner as well, with one limit for each user: root would be left with nothing. */
int userns_make(const struct id_pair *uids, size_t uid_count, const struct id_pair *gids,
		size_t gid_count, const struct userns_owner *owner, struct userns_holder *holder,
		int *ret_fd, struct err *e) must_check;
void userns_holder_reap(struct userns_holder *holder);

/* Rootless: have newuidmap and newgidmap (setuid programs of the distribution, which check
 * /etc/subuid) write the maps of process pid. */
int userns_map_by_helper(pid_t pid, const struct id_pair *uids, const struct id_pair *gids,
			 size_t count, struct err *e) must_check;

#endif
