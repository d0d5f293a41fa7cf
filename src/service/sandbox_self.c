/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sandbox_self.c - cloched parses what clients and sandboxes say, so it is held like one of them.
 *
 * It has no capability and its own user already. Here it loses the rest: other system calls than those of
 * self_calls.def answer EPERM (clone3 and io_uring ENOSYS, which their callers take as "not there"), other
 * architectures are killed, it can never execute anything nor make memory executable, and Landlock leaves
 * it its state and the counters of cgroups. Sockets of the spawner and of inits are not files to Landlock:
 * their modes and peer credentials guard them.
 *
 * A connection that came by TCP could be taken apart and connected elsewhere (connect() to AF_UNSPEC, then
 * again): Landlock refuses that from ABI 4 on (Linux 6.7). Before, cloched can reach what its user can.
 */
#include "service/sandbox_self.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>

#include "base/filter.h"
#include "base/landlock.h"

static const struct filter_call allowed[] = {
#include "service/self_calls.def"
};

enum {
	STATE = LANDLOCK_READ_FILE | LANDLOCK_READ_DIR | LANDLOCK_WRITE_FILE | LANDLOCK_REMOVE_DIR |
		LANDLOCK_REMOVE_FILE | LANDLOCK_MAKE_DIR | LANDLOCK_MAKE_REG | LANDLOCK_TRUNCATE,
};

static int own_folder_only(const char *state_dir, const char *runtime_dir, struct err *e)
{
	const char *notify = getenv("NOTIFY_SOCKET");
	const struct landlock_path paths[] = {
		{state_dir, STATE},
		{"/sys/fs/cgroup", LANDLOCK_READ_FILE},
		/* what the image of a sandbox wants (box_image.c) */
		{runtime_dir, LANDLOCK_READ_FILE},
		/* http.c holds a descriptor of it for the day when there are no others */
		{"/dev/null", LANDLOCK_READ_FILE},
	};

	return landlock_restrict(
		paths, ARRAY_SIZE(paths), LANDLOCK_TCP_BIND | LANDLOCK_TCP_CONNECT,
		LANDLOCK_SIGNAL | (notify && *notify == '@' ? 0 : LANDLOCK_ABSTRACT_UNIX), e);
}

int sandbox_self(const char *state_dir, const char *runtime_dir, struct err *e)
{
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)
		return err_set(e, errno, "give up privileges");
	if (own_folder_only(state_dir, runtime_dir, e) < 0)
		return -1;
	return filter_load(allowed, ARRAY_SIZE(allowed), e);
}
