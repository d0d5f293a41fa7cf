/* SPDX-License-Identifier: Apache-2.0 */
/*
 * worker.h - one conversation in a process of its own: simple blocking code, as the sandbox user for good.
 *
 * A worker has no capability, no descriptor but the connection (0), and cannot be traced by the commands,
 * whose user it shares. They can stop or kill it: then their own conversation hangs. Its work functions
 * return 0 (DONE is sent), or -errno (FAILED is sent, about w->what).
 */
#ifndef INIT_WORKER_H
#define INIT_WORKER_H

#include <sys/stat.h>

#include "init/kept.h"

struct worker {
	const struct kept *kept; /* as it was when the worker was forked */
	int fd;
	unsigned char *payload; /* of the opening frame */
	uint32_t size;
	const char *stage;
	const char *what; /* the object of a failure */
};

/* In the forked child. */
__attribute__((noreturn)) void worker_run(struct worker *w, int (*work)(struct worker *w));

/* Send a frame; the process ends when the peer is gone. */
void worker_send(struct worker *w, enum frame_type type, unsigned stream, const void *payload,
		 uint32_t size);
/* Receive one; payload has room for FRAME_DATA_MAX. False: the peer is gone, or broke the rules. */
bool worker_receive(struct worker *w, struct frame *ret, void *payload);
void worker_send_entry(struct worker *w, const struct stat *st, const char *name,
		       const char *target);

/* Give up: FAILED about this object. Returns errnum as -errno. */
int worker_failed(struct worker *w, int errnum, const char *what);

/* WRITE's new file until it is renamed: this and 16 hexadecimal digits. WATCH does not tell of it. */
#define TEMPORARY      ".cloche-"
#define TEMPORARY_SIZE (sizeof TEMPORARY + 16)

int work_ps(struct worker *w); /* processes.c */
int work_space(struct worker *w);
int work_ports(struct worker *w);
int work_read(struct worker *w); /* files.c */
int work_write(struct worker *w);
int work_stat(struct worker *w);
int work_readdir(struct worker *w);
int work_mkdir(struct worker *w);
int work_remove(struct worker *w);
int work_move(struct worker *w);
int work_walk(struct worker *w); /* trees.c */
int work_unpack(struct worker *w);
int work_watch(struct worker *w); /* links.c */
int work_dial(struct worker *w);

/* path.c ------------------------------------------------------------------------------------------- */

/* linux/openat2.h, which musl builds have not */
enum { RESOLVE_XDEV_NO = 1, RESOLVE_MAGIC_NO = 2, RESOLVE_LINKS_NO = 4, RESOLVE_BELOW = 8 };

/* openat2 with O_CLOEXEC and no magic links. A descriptor or -errno. */
int path_openat(int dir, const char *path, int flags, unsigned mode, unsigned resolve);

/* The same by an absolute path, links followed; what turns out to lie in /proc, /sys or /dev is refused with
 * -EACCES. */
int path_open(const char *path, int flags, unsigned mode);

/* The folder that holds path's last component, which must be a name; make: missing folders are made.
 * Trailing slashes are cut off. path is changed. A descriptor or -errno. */
int path_parent(char *path, bool make, const char **ret_name);

/* The next string of the payload at *at; NULL if there is none or it is no absolute path. last: nothing
 * may follow it. */
char *path_take(struct worker *w, size_t *at, bool last);

#endif
