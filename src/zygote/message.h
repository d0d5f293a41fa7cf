/* SPDX-License-Identifier: Apache-2.0 */
/* message.h - messages of request.h: to build and send them, to receive and check them. Used on both
 * sides; knows nothing of Python. */
#ifndef ZYGOTE_MESSAGE_H
#define ZYGOTE_MESSAGE_H

#include <stddef.h>
#include <sys/types.h>

#include "base/err.h"
#include "zygote/request.h"

/* A RUN, split. The strings lie in the message; the list is the caller's to empty (run_done). */
struct run_view {
	const struct zygote_run *run;
	char *cwd;
	char **argv, **envp; /* each ends with NULL; one allocation, argv's */
};

/* Split a START: module names into list[ZYGOTE_MODULES_MAX], and the warm-up. Returns the number of names,
 * or -1. */
int message_start_split(const void *message, size_t size, const char **list, const char **ret_warm,
			struct err *e);

/* Check a FORK against the number of descriptors that came with it. */
int message_fork_check(const void *message, size_t size, size_t fd_count, struct err *e);

/* Split a RUN in place. On failure nothing is left to free. */
int message_run_split(void *message, size_t size, struct run_view *ret, struct err *e);
void run_done(struct run_view *v);

/* Build a RUN in buffer[ZYGOTE_MESSAGE_MAX] from lists that end with NULL; `run` gives the numbers, its
 * type and counts are filled in. Returns the size, or -1 when it does not fit. */
ssize_t message_run_build(char *buffer, const struct zygote_run *run, const char *cwd,
			  char *const *argv, char *const *envp, struct err *e);

/* Send one message with descriptors. Blocks if the socket does. 0 or -errno. */
int message_send(int socket, const void *message, size_t size, const int *fds, size_t fd_count);

/* Receive one message and its descriptors (close-on-exec, the caller's) into
 * ret_fds[ZYGOTE_FDS + ZYGOTE_JOIN_FDS_MAX]. A message or list that was cut is -EBADMSG, and what came
 * of the descriptors is closed. Returns the size, 0 at the end, or -errno (also -EINTR). */
ssize_t message_receive(int socket, void *buffer, size_t size, int *ret_fds, size_t *ret_fd_count);

/* Send REFUSED or FAILED with what e says. */
int message_refuse(int socket, enum zygote_type type, uint32_t sequence, const struct err *e);

#endif
